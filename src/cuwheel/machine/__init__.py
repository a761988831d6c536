"""What is true of this machine: probes into a profile."""
