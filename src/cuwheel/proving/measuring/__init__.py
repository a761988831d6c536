"""How often a program fails, under which condition, and how fast it is."""
