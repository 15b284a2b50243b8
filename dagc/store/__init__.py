"""What was measured, on disk: schema, reading, writing, merging."""
