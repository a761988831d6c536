"""What device code is in a file: bytes into values, with a bound on all that a file claims."""
