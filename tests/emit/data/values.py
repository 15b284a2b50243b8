import numpy as np


def made(rank, size, seed):
    return {"x": np.arange(64.0), "y": np.full(64, 9.0 + rank), "w": np.zeros(64)}


def after(data, *, rank, size, seed):
    x, y, w = (data[name].copy() for name in "xyw")
    for t in range(3):
        alpha, steps = (x @ y) / 1e6, 1 + int(y[0]) % 3
        y += steps * alpha * x
        w += (t + 1) * alpha * x
        y -= 0.5 * t
    return {"y": y, "w": w}
