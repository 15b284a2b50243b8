import numpy as np


def whole(seed, px, py, nx, ny):
    return np.random.default_rng(seed).random((py * ny + 2, px * nx))


def blocks(rank, size, seed, px, py, nx, ny, arrays):
    i, j = divmod(rank, px)
    u = np.zeros((ny + 2, nx + 2))
    u[:, 1:-1] = whole(seed, px, py, nx, ny)[i * ny : (i + 1) * ny + 2, j * nx : (j + 1) * nx]
    return {
        "n": nx, "m": ny, **{f"u[{p}]": u.copy() for p in range(arrays)},
        "up": rank - px if i > 0 else -1, "down": rank + px if i + 1 < py else -1,
        "left": i * px + (j - 1) % px, "right": i * px + (j + 1) % px,
    }  # fmt: skip


def expected(_, steps, arrays, *, rank, size, seed, px, py, nx, ny):
    i, j = divmod(rank, px)
    a = whole(seed, px, py, nx, ny)
    own = slice(1 + i * ny, 1 + (i + 1) * ny), slice(j * nx, (j + 1) * nx)
    for _ in range(steps):
        old = a.copy()
        if arrays > 1:
            a[1:-1] = 0.25 * (np.roll(old, 1, 1) + np.roll(old, -1, 1))[1:-1] + 0.25 * (old[:-2] + old[2:])
            continue
        for y in range(py):
            for x in range(px):
                block = np.ix_(range(1 + y * ny, 1 + (y + 1) * ny), range(x * nx, (x + 1) * nx))
                columns = old[block[0], (x * nx - 1) % (px * nx)] + old[block[0], (x + 1) * nx % (px * nx)]
                a[block] = 0.5 * old[block] + 0.125 * (columns + (old[y * ny] + old[(y + 1) * ny + 1])[block[1]])
    return {"result": a[own].copy()}
