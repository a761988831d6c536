"""Libraries and fat binaries with some of their device code: decided first, then written."""
