"""One file, one strategy. `dagc.lab.strategy` finds them here."""
