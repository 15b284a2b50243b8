"""Set-up and reference of the Jacobi solver: periodic in y, fixed left and right columns."""

import numpy as np


def _rows(size, nx, rows, first, last):
    """Rows first to last of the whole grid, which is periodic, as it starts."""
    i = np.arange(first, last) % (rows * size)
    a = np.zeros((len(i), nx), np.float32)
    a[:, 0] = a[:, -1] = np.sin(2 * np.pi * i / (rows * size))
    return a


def slab(rank, size, seed, nx, rows):
    """The rows of one rank between their two ghost rows."""
    u = _rows(size, nx, rows, rank * rows - 1, (rank + 1) * rows + 1)
    return {"up": (rank - 1) % size, "down": (rank + 1) % size, "u[0]": u, "u[1]": u.copy()}


def solution(data, *, rank, size, nx, rows, steps, **_):
    """Both ghost rows and the rows between them after `steps` steps, from which each step takes a row on both sides."""
    a = _rows(size, nx, rows, rank * rows - 1 - steps, (rank + 1) * rows + 1 + steps)
    for _ in range(steps):
        b = a[1:-1].copy()
        b[:, 1:-1] = np.float32(0.25) * (a[1:-1, :-2] + a[1:-1, 2:] + a[:-2, 1:-1] + a[2:, 1:-1])
        a = b
    return {f"u[{steps % 2}]": a}
