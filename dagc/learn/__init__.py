"""What measurements say: design rules and explanations."""
