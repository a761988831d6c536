"""The same wheel, folder or environment without what its machines never load."""
