"""Every compiler call of a build: recorded, read, run again."""
