"""What stands in for compilers while a build is recorded: in C, and the same in Python."""
