"""What cuwheel reads, against what NVIDIA's cuobjdump reads."""
