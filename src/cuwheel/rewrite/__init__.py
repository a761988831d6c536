"""What a library is without what its machines never load: decided first, then written."""
