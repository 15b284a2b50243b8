"""Set-up and reference of slabs_process.dag and slabs_ranks.dag: random temperatures, zero around the plate."""

from functools import lru_cache

import numpy as np


@lru_cache(maxsize=1)
def _plate(seed, nx, rows):
    return np.random.default_rng(seed).random((2, rows, nx))


def both(rank, size, seed, nx, rows, steps):
    return {f"start[{s}]": part for s, part in enumerate(_plate(seed, nx, rows))}


def own(rank, size, seed, nx, rows, steps):
    if size != 2:
        raise ValueError("two slabs need two ranks")
    return {"start": _plate(seed, nx, rows)[rank], "other": 1 - rank, "below": 1 - rank}


def after(data, *, rank, size, seed, nx, rows, steps):
    """The last row of the upper slab, and the first one of the lower, after the steps. They depend on `steps` rows
    above and below."""
    near = min(rows, steps + 1)
    g = np.pad(_plate(seed, nx, rows).reshape(2 * rows, nx)[rows - near : rows + near], 1)
    for _ in range(steps):
        g[1:-1, 1:-1] = 0.25 * (g[1:-1, :-2] + g[1:-1, 2:] + g[:-2, 1:-1] + g[2:, 1:-1])
    rows_of = g[near : near + 1, 1:-1], g[near + 1 : near + 2, 1:-1]
    return {"last": rows_of[rank]} if size == 2 else {f"last[{s}]": row for s, row in enumerate(rows_of)}
