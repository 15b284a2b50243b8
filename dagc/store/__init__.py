"""Measurements on disk: schema, reading, writing, merging."""
