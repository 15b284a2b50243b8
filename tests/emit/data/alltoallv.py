import numpy as np


def data(rank, size, seed):
    counts = np.array([rank + p + 1 for p in range(size)], np.int32)
    whom = np.roll(np.arange(size, dtype=np.int32), rank)[:: 1 if rank % 2 else -1].copy()
    n = int(counts.sum())
    rng = np.random.default_rng(seed + rank)
    return {
        "n": n, "to_all": counts, "from_all": counts, "whom": whom, "sizes": rank + whom + 1,
        "x": rng.random(n, np.float32), "numbers": np.arange(n, dtype=np.int32) + 1000 * rank,
    }  # fmt: skip


def expected(_, *, rank, size, seed):
    x, numbers, listed = [], [], []
    for p in range(size):
        d = data(p, size, seed)
        part = slice(int(d["to_all"][:rank].sum()), int(d["to_all"][: rank + 1].sum()))
        x.append(4 * d["x"][part])
        numbers.append(d["numbers"][part])
    for p in data(rank, size, seed)["whom"]:
        d = data(p, size, seed)
        start = int(d["sizes"][: list(d["whom"]).index(rank)].sum())
        listed.append(4 * d["x"][start : start + rank + p + 1])
    return {"result": np.concatenate(x), "others": np.concatenate(numbers), "listed": np.concatenate(listed)}
