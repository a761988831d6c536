"""What a kit does on the machine that it was carried to. Nothing but the standard library of Python 3.9."""
