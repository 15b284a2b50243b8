"""Text to `Program`: parser, syntax tree, lowering, formatter."""
