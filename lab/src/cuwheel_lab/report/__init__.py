"""Answers as documents: a module for each schema."""
