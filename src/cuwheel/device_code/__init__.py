"""What is in the file: bytes into values."""
