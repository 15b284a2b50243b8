"""Searches: domains, strategies, the engine, cost models, replay."""
