"""Set-up and reference of the heat equation: random temperatures, the border of the whole plate kept."""

import numpy as np


def _plate(size, seed, nx, rows):
    return np.random.default_rng(seed).random((size * rows + 2, nx))


def slab(rank, size, seed, nx, rows, steps):
    """The rows of one rank between their two ghost rows; `up` and `down` are -1 at the border of the plate."""

    def own():
        return _plate(size, seed, nx, rows)[rank * rows : rank * rows + rows + 2].copy()

    return {
        "u[0]": own, "u[1]": own, "n": nx, "m": rows,
        "up": rank - 1, "down": rank + 1 if rank + 1 < size else -1,
    }  # fmt: skip


def reference(data, *, rank, size, seed, nx, rows, steps):
    """The same rows after `steps` steps of the whole plate."""
    g = _plate(size, seed, nx, rows)
    for _ in range(steps):
        n = g.copy()
        n[1:-1, 1:-1] = 0.25 * (g[:-2, 1:-1] + g[2:, 1:-1] + g[1:-1, :-2] + g[1:-1, 2:])
        g = n
    return {"result": g[rank * rows + 1 : rank * rows + rows + 1]}
