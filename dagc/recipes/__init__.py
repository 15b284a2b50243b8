"""The commands, each read top to bottom."""
