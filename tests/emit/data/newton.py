import numpy as np


def data(rank, size, seed, rows):
    a = np.random.default_rng(seed + rank).uniform(1, 1000, rows)
    return {"a": a, "x": np.ones(rows), "tolerance": 1e-6, "odd": -1}


def once(data, **_):
    return {"x": 0.5 * (1 + data["a"])}


def runs(size, seed, rows):
    """How many runs there are until the end."""
    a = np.concatenate([data(r, size, seed, rows)["a"] for r in range(size)])
    x, count = np.ones_like(a), 0
    while count == 0 or np.abs(x * x - a).max() >= 1e-6:
        x, count = 0.5 * (x + a / x), count + 1
    return count
