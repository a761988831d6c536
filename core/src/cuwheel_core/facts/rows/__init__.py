"""The rows of the tables."""
