"""From source to the wheels that were asked for."""
