import numpy as np


def vectors(rank, size, seed, side):
    g = np.random.default_rng(seed)
    return {"n": side, **{k: g.uniform(-1, 1, side) for k in ("x", "r", "p", "q")}}


def after_x(data, **_):
    return {"x": data["x"] + 0.5 * data["p"]}


def after_sums(data, side, **_):
    z = 2 * (data["r"] - 0.5 * data["q"])
    z = np.append(z, np.zeros(-side % 128))
    return {"sums": z.reshape(-1, 128).sum(1)}
