"""The version alone: what reads it before anything is installed must not import the package."""

__version__ = "0.9.0rc1"
