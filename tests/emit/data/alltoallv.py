import numpy as np


def data(rank, size, seed):
    counts = np.array([rank + p + 1 for p in range(size)], np.int32)
    n = int(counts.sum())
    rng = np.random.default_rng(seed + rank)
    return {
        "n": n, "to_all": counts, "from_all": counts,
        "x": rng.random(n, np.float32), "numbers": np.arange(n, dtype=np.int32) + 1000 * rank,
    }  # fmt: skip


def expected(_, *, rank, size, seed):
    x, numbers = [], []
    for p in range(size):
        d = data(p, size, seed)
        part = slice(int(d["to_all"][:rank].sum()), int(d["to_all"][: rank + 1].sum()))
        x.append(4 * d["x"][part])
        numbers.append(d["numbers"][part])
    return {"result": np.concatenate(x), "others": np.concatenate(numbers)}
