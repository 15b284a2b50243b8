import numpy as np


def numbers(rank, size, seed, tall, side):
    x = np.random.default_rng(seed).uniform(-1, 1, (tall + 2) * (side + 2)).astype("f4")
    return {"m": tall, "n": side, "x": x}


def none(data, number, **_):
    return {"apart": np.zeros(number, np.int64)}
