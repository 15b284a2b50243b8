"""The set-up of slabs.dag."""

import numpy as np


def whole(size, seed, nx, rows):
    return np.random.default_rng(seed).random((size * rows + 2, nx))


def slab(rank, size, seed, nx, rows, steps):
    g = whole(size, seed, nx, rows)
    mine = g[rank * rows : rank * rows + rows + 2].copy()
    down = rank + 1 if rank + 1 < size else -1
    return {"u[0]": mine, "u[1]": mine.copy(), "up": rank - 1, "down": down}


def reference(data, *, rank, size, seed, nx, rows, steps):
    g = whole(size, seed, nx, rows)
    for _ in range(steps):
        n = g.copy()
        n[1:-1, 1:-1] = 0.25 * (g[:-2, 1:-1] + g[2:, 1:-1] + g[1:-1, :-2] + g[1:-1, 2:])
        g = n
    return {"result": g[rank * rows + 1 : rank * rows + rows + 1]}
