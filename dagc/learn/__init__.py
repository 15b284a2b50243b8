"""Learning from measurements: design rules and explanations."""
