"""What every package uses: errors, sources, files, signals, statistics."""
