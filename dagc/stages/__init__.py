"""The stages of a program, from its text to its binary, and the options of the commands that use them."""
