import numpy as np


def _whole(side):
    z, y, x = np.mgrid[0:side, 0:side, 0:side]
    return np.sin(0.1 * z) + np.cos(0.3 * y + 0.2 * x)


def cube(rank, size, seed, side):
    """Planes of a rank between two others, periodic in z."""
    low, high = side * rank // size, side * (rank + 1) // size
    u = _whole(side)[np.arange(low - 1, high + 1) % side]
    return {"m": high - low, "up": (rank - 1) % size, "down": (rank + 1) % size, "u[0]": u, "u[1]": u.copy()}


def steps_of(data, *, rank, size, side, steps, **_):
    a = _whole(side)
    for _ in range(steps):
        b = a.copy()
        c = a[:, 1:-1, 1:-1]
        near = a[:, 1:-1, :-2] + a[:, 1:-1, 2:] + a[:, :-2, 1:-1] + a[:, 2:, 1:-1]
        b[:, 1:-1, 1:-1] = 0.4 * c + 0.1 * (near + np.roll(a, 1, 0)[:, 1:-1, 1:-1] + np.roll(a, -1, 0)[:, 1:-1, 1:-1])
        a = b
    low, high = side * rank // size, side * (rank + 1) // size
    return {"u[0]": a[np.arange(low - 1, high + 1) % side]}
