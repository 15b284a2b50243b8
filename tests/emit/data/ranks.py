import numpy as np


def data(rank, size, seed, rows):
    rng = np.random.default_rng(seed + rank)
    return {
        "m": np.int64(rows if rank ^ 1 < size else 0),
        "x": rng.random(rows, np.float32),
        "y": rng.random(rows, np.float32),
        "received": np.full(10, 7, np.float32),
        "got": np.full(6, 5, np.float32),
        "who": np.array([rank ^ 1 if rank ^ 1 < size else 0], np.int32),
        "many": np.array([6], np.int32),
        "first": np.full(5, 8, np.float32),
        "total": np.array([-1.0]),
    }


def after(rank, size, seed, rows):
    d = data(rank, size, seed, rows)
    factor = np.float32(rank + (100 if rank % 2 == 0 else 0))
    return np.full(rows, 3, np.float32) if rank == 0 else d["y"] + factor * d["x"]


def chosen(_, *, rank, size, seed, rows):
    partner = rank ^ 1
    result = after(rank, size, seed, rows).copy() if size > 1 else np.zeros(rows, np.float32)
    result[:10] += after(partner, size, seed, rows)[-10:] if partner < size else 7
    result[:5] += data(partner, size, seed, rows)["x"][:5] if partner < size and rank < 2 else 8
    total = size * (size + 1) / 2 if size > 1 else -1.0
    got = after(partner, size, seed, rows)[:6] if partner < size else np.full(6, 5, np.float32)
    return {"result": result, "got": got, "total": np.array([total]), "parity": np.array([rank % 2], np.int32)}
