"""What to build for which machines: the smallest list, in every build system's spelling (pure)."""
