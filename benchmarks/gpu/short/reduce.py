import numpy as np


def numbers(rank, size, seed, count):
    a = np.arange(count) + 1.0 / (rank + 1)
    return {"a[0]": a, "a[1]": a.copy()}


def highest(data, *, count, **_):
    return {"a[0]": np.arange(count) + 1.0}
