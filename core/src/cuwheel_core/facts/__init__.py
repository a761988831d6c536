"""What is true of CUDA: tables with sources, and questions about them."""
