"""Set-up and reference of PROGRAM.dag."""

import numpy as np


def ring(size, seed, cells):
    """The cells of all ranks."""
    return np.random.default_rng(seed).random(size * cells)


def data(rank, size, seed, cells):
    """The arrays and scalars of one rank among `size`, by their names in the program."""
    u = ring(size, seed, cells)[rank * cells : (rank + 1) * cells]
    return {"u": u, "left": (rank - 1) % size, "right": (rank + 1) % size}


def expected(data, *, rank, size, seed, cells):
    """The results of one rank, from the whole ring: it uses no messages, so that it finds errors in them."""
    f = ring(size, seed, cells) ** 2
    v = 0.25 * np.roll(f, 1) + 0.5 * f + 0.25 * np.roll(f, -1)
    return {"v": v[rank * cells : (rank + 1) * cells]}
