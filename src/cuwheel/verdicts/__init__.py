"""Will it run: pure rules over what is in the file and what is true of the machine."""
