"""Set-up and reference of conjugate gradients on one rank: those of samples/cg."""

import runpy
from pathlib import Path

CG = runpy.run_path(str(Path(__file__).parents[2] / "samples/cg/cg.py"))
USED = ("n", "row_ptr_l", "col_l", "val_l", "x", "r", "p", "rr[0]")


def poisson(rank, size, seed, side):
    made = CG["poisson"](rank, size, seed, side, 8)
    return {name: made[name] for name in USED}


def iterates(data, *, rank, size, seed, side, **_):
    return CG["iterates"](data, rank=rank, size=size, seed=seed, side=side, unroll=2)
