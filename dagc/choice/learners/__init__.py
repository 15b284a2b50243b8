"""One file, one learner. `dagc.choice.methods` finds them here and says what a file must have."""
