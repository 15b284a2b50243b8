"""Causal rules: the measured cost of breaking a single rule of the fastest implementation."""
