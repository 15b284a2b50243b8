import numpy as np


def numbers(rank, size, seed, side, width):
    return {"n": side, "m": width, "x": np.random.default_rng(seed).uniform(-1, 1, side * width + 8).astype("f4")}


def none(data, number, **_):
    return {"apart": np.zeros(number, np.int64)}


def square(rank, size, seed, side):
    return {"a": np.random.default_rng(seed).uniform(-1, 1, (side, side)).astype("f4")}


def of_columns(data, **_):
    return {"y": data["a"].sum(0)}
