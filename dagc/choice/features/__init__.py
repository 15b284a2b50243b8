"""One file, one kind of feature. `dagc.choice.feature` finds them here."""
