"""A wheel that travels: other libraries grafted, NVIDIA's kept out and found where the environment has them."""
