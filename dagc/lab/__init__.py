"""Searching the space of implementations: the domain, strategies, and the loop that measures what they propose."""
