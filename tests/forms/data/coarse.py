import numpy as np


def numbers(rank, size, seed, side):
    rng = np.random.default_rng(seed)
    return {"n": side, "x": rng.uniform(-1, 1, (side + 2) ** 2).astype("f4")}


def none(data, many, **_):
    return {"apart": np.zeros(many, np.int64)}
