import numpy as np


def data(rank, size, seed, rows, own=False):
    a = np.random.default_rng(seed + rank).uniform(1, 1000, rows)
    if own and rank == 1:  # whose residual is small at once
        a = np.ones(rows)
    return {"a": a, "x": np.ones(rows), "runs": np.zeros(1, np.int64), "tolerance": 1e-6, "most": 30}


def once(data, **_):
    return {"x": 0.5 * (1 + data["a"])}


def solved(size, seed, rows, most=30, tolerance=1e-6):
    """The roots of all ranks, one rank a row, and how many runs there are until the end."""
    a = np.stack([data(r, size, seed, rows)["a"] for r in range(size)])
    x, count = np.ones_like(a), 0
    while count < most and (count == 0 or not np.abs(x * x - a).max() < tolerance):
        x, count = 0.5 * (x + a / x), count + 1
    return x, count
