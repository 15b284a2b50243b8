import numpy as np


def data(rank, size, seed, rows, cols):
    rng = np.random.default_rng(seed + rank)
    return {
        "u": rng.random((rows + 2, cols + 2)), "v": rng.random((3, rows, cols), np.float32),
        "m": rows, "n": cols, "left": rank - 1, "right": rank + 1 if rank + 1 < size else -1,
    }  # fmt: skip


def expected(_, *, rank, size, seed, rows, cols):
    def of(r):
        d = data(r, size, seed, rows, cols)
        return 2 * d["u"], d["v"]

    u, v = (a.copy() for a in of(rank))
    if rank > 0:
        other_u, other_v = of(rank - 1)
        u[1:-1, 0] = other_u[1:-1, -2]
        v[:, -1, :] = other_v[:, 0, :]
    if rank + 1 < size:  # after the other side: the text has it last
        other_u, other_v = of(rank + 1)
        u[1:-1, -1] = other_u[1:-1, 1]
        v[:, :, :2] = other_v[:, :, -2:]
    return {"u": u, "v": v, "edge": u[:, -1:].copy(), "face": v[:, :, 1:2].copy()}
