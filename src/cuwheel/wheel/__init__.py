"""What a wheel is: its name, its files, its metadata, and how one is written."""
