"""The version alone, for every room: importing the package itself would be a circle."""

__version__ = "1.0.0rc1"
