"""What is true of CUDA: tables as data, and the look-ups on them."""
