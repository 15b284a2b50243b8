"""Matrices in CSR with rows of different lengths, by the scalar `longest`."""

import numpy as np


def _matrix(rng, n, longest):
    lengths = rng.integers(0, longest + 1, n)
    lengths[0] = longest
    ptr = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return ptr, rng.integers(0, n, ptr[-1], dtype=np.int32), rng.random(ptr[-1], dtype=np.float32)


def matrices(rank, size, seed, rows):
    n = rows
    rng = np.random.default_rng(seed + rank)
    ptr, col, val = _matrix(rng, n, 5)
    wide_ptr, wide_col, wide_val = _matrix(rng, n, 40)
    return {
        "n": n,
        "nnz": len(col),
        "wide_nnz": len(wide_col),
        "x": rng.random(n, dtype=np.float32),
        "row_ptr": ptr,
        "col": col,
        "val": val,
        "wide_ptr": wide_ptr,
        "wide_col": wide_col,
        "wide_val": wide_val,
    }


def product(d, **_):
    def multiply(ptr, col, val, x):
        rows = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
        return np.bincount(rows, val * x[col], len(ptr) - 1).astype(np.float32)

    half = multiply(d["row_ptr"], d["col"], d["val"], d["x"])
    y = multiply(d["wide_ptr"], d["wide_col"], d["wide_val"], half)
    return {"y": y, "z": multiply(d["row_ptr"], d["col"], d["val"], half)}
