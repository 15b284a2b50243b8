"""What every room stands on: errors, sources, files, signals, statistics."""
