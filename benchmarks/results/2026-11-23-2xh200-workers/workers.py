"""Set-up and reference of workers.dag."""

import numpy as np


def ring(size, seed, cells):
    """The whole ring."""
    return np.random.default_rng(seed).random(size * cells)


def pieces(rank, size, seed, cells, terms):
    """What one rank holds."""
    t = ring(size, seed, cells)[rank * cells : (rank + 1) * cells]
    return {"t": t, "left": (rank - 1) % size, "right": (rank + 1) % size, "last": np.array([0.5])}


def stepped(data, *, rank, size, seed, cells, terms):
    """The results of one rank, from the whole ring."""
    rate = float(data["last"][0])
    for _ in range(terms):
        rate = rate * 0.999 + 1e-3 / (rate + 1.0)
    t = ring(size, seed, cells)
    new = (t - 0.25 * (t - np.roll(t, 1))) * rate
    return {"next": new[rank * cells : (rank + 1) * cells], "rate": np.array([rate])}
