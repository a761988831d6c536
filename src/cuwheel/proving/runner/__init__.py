"""Runs checks, and survives them. Nothing but the standard library of Python 3.9: it also travels in the kit, alone."""
