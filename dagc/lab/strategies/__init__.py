"""One file per strategy. `dagc.lab.strategy` finds them here."""
