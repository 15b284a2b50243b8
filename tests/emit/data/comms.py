import numpy as np


def groups(rank, size):
    row = [r for r in range(size) if r // 2 == rank // 2]
    col = [r for r in reversed(range(size)) if r % 2 == rank % 2]
    return row, col, list(range(0, size, 2))


def data(rank, size, seed, rows):
    rng = np.random.default_rng(seed + rank)
    row, col, _ = groups(rank, size)
    place = col.index(rank)
    return {
        "parity": np.int32(rank % 2), "x": rng.random(rows, np.float32), "y": np.full(rows, rank, np.float32),
        "parts": np.arange(30 * len(row), dtype=np.float32) + 1000 * rank, "shares": np.full(len(row), 30, np.int32),
        "who": np.array([(place + 1) % len(col)], np.int32), "whom": np.array([(place - 1) % len(col)], np.int32),
        "many": np.array([5], np.int32), "mine": np.array([rank + 1.0]), "told": np.array([10.0 * rank]),
    }  # fmt: skip


def expected(_, *, rank, size, seed, rows):
    def of(r):
        return data(r, size, seed, rows)

    def ring(r):
        row = groups(r, size)[0]
        return of(row[row.index(r) - 1])["x"]

    row, col, io = groups(rank, size)
    place = col.index(rank)
    below = ring(col[place - 1]) if place else of(rank)["y"]
    mine = slice(30 * row.index(rank), 30 * (row.index(rank) + 1))
    result = ring(rank) + below
    return {
        "result": result,
        "norm(result)": np.linalg.norm(result.astype(float)),
        "got": np.concatenate([of(r)["parts"][mine] for r in row]),
        "passed": of(col[place - 1])["x"][:5],
        "total": np.array([sum(r + 1.0 for r in col)]),
        "told": np.array([10.0 * (io[-1] if rank in io else rank)]),
    }
