"""Set-up and reference of accumulate.dag."""

import numpy as np


def _data(rank, n):
    rng = np.random.default_rng(rank)
    return {name: rng.integers(0, 1000, n, dtype=np.int32) for name in ("a", "b")}


def values(rank, size, seed, n):
    return {**_data(rank, n), "other": size - 1 - rank}


def expected(data, *, rank, size, n, bins, **_):
    both = [_data(r, n) for r in (rank, size - 1 - rank)]
    counts = (np.bincount(each[name] % bins, minlength=bins) for each in both for name in ("a", "b", "a"))
    return {"twice": sum(counts).astype(np.int32)}
