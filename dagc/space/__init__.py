"""The decision space of one graph: states, exact counting, numbering, enumeration, uniform sampling.

Contract: docs/explanation/space.md. The rules are Table III of "Machine Learning for CUDA+MPI Design Rules".
"""

from dagc.space.space import Counter, Space, TooManyStates

__all__ = ["Counter", "Space", "TooManyStates"]
