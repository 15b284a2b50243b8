import numpy as np


def numbers(rank, size, seed, count):
    a = np.arange(count) + 1000.0 * rank
    return {"next": (rank + 1) % size, "prior": (rank - 1) % size, "a[0]": a, "a[1]": np.zeros(count)}


def passed(data, *, rank, size, count, links, **_):
    return {"a[0]": np.arange(count) + 1000.0 * ((rank - links) % size)}
