"""Hostile and damaged input."""
