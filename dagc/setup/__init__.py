"""Set-up of a program's data: runs the program's NumPy code, checks its results, writes the arrays of each rank."""

from __future__ import annotations

from dagc.setup.arrays import check_arrays, read_scalars, run_setup, scalars_of_ranks, setup_under_way, values_of_ranks
from dagc.setup.checks import require_memory

__all__ = [
    "check_arrays",
    "read_scalars",
    "require_memory",
    "run_setup",
    "scalars_of_ranks",
    "setup_under_way",
    "values_of_ranks",
]
