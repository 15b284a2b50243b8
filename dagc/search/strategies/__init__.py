"""One file, one strategy. `dagc.search.strategy` finds them here."""
