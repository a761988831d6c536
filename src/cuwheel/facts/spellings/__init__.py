"""Architecture lists in the spelling of every build system: written, and read. One module each, one row in `table`."""
