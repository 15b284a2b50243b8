"""One file per learner. `dagc.choice.methods` finds them here and defines what a file must contain."""
