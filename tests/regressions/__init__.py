"""Mistakes that were found in use, one test each."""
