"""The version alone, for every room: importing the package itself would be a circle."""

__version__ = "0.9.0rc1"
