"""The commands, each a recipe that reads from top to bottom."""
