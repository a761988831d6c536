"""Names and tags of wheels, and their members without unpacking."""
