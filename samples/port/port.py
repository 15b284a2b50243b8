"""Set-up and reference of the port: the plate of before/heat.cu."""

import numpy as np


def _initial(size, columns, height):
    i, j = np.arange(size * height + 2, dtype=np.int64)[:, None], np.arange(columns, dtype=np.int64)
    return (i * 7919 + j * 104729) % 1000 / 1000.0


def slab(rank, size, seed, columns, height):
    """The rows of one rank between two halo rows, as before the first step."""
    own = _initial(size, columns, height)[rank * height : rank * height + height + 2]
    return {
        "u[0]": own.copy(), "u[1]": own.copy(), "nx": columns, "rows": height,
        "up": rank - 1, "down": rank + 1 if rank + 1 < size else -1,
    }  # fmt: skip


def plate(data, *, rank, size, seed, columns, height, steps):
    """The plate after `steps` steps, an even number. Only the rank's own rows are compared: a halo row is that of the
    step before, where it is received at the start of a step."""
    u = _initial(size, columns, height)
    for _ in range(steps):
        n = u.copy()
        n[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
        u = n
    return {"u[0]": u[rank * height : rank * height + height + 2]}
