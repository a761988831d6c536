"""What is in a file, and what a GPU with a driver makes of it."""

__version__ = "0.9.0rc1"
