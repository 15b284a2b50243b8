import numpy as np


def data(rank, size, seed, nx, ny):
    random = np.random.default_rng(seed + rank)
    pairs = random.random((ny, 2), np.float32)
    return {"a": random.normal(size=(ny, nx)), "pairs": pairs, "fours": np.zeros((ny, 2, 2), np.float32)}


def total(data, **_):
    s = np.abs(2 * data["a"] + 2).sum(keepdims=True)[0]
    return {"s": s, "t": 2 * s, "turned": data["pairs"][:, ::-1], "done": np.ones(5, np.uint8)}
