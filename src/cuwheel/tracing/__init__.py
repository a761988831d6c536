"""What a program loads at run time: a library that is loaded into it, the files that it writes, and what they mean."""
