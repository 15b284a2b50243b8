"""Set-ups and references of sparse matrices: half of the columns near the diagonal, half anywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def _csr(seed: int, N: int, NNZ: int) -> Data:
    """N rows of 0 to 3 times NNZ elements, half of them shorter than half of the mean."""
    rng = np.random.default_rng(seed)
    count = (rng.random(N) ** 2 * 3 * NNZ + 0.5).astype(np.int64)
    start = np.concatenate([[0], np.cumsum(count)])
    row, m = np.repeat(np.arange(N), count), int(start[-1])
    near, anywhere = row + rng.integers(-50, 51, m), rng.integers(0, N, m)
    column = np.where(rng.integers(0, 2, m) == 1, near % N, anywhere)
    return {
        "n": N,
        "start": start.astype(np.int32),
        "row": row.astype(np.int32),
        "column": column.astype(np.int32),
        "value": rng.random(m, np.float32),
        "x": rng.random(N, np.float32),
    }


def _row_sums(data: Data, terms: Array) -> Array:
    row = np.repeat(np.arange(data["n"]), np.diff(data["start"]))
    return np.bincount(row, terms, data["n"])


def csr_thread(rank: int, size: int, seed: int, N: int, NNZ: int) -> Data:
    data = _csr(seed, N, NNZ)
    del data["row"]
    return data


def csr_thread_reference(data: Data, **_: Any) -> Data:
    terms = np.asarray(data["value"], np.float64) * data["x"][data["column"]]
    return {"y": _row_sums(data, terms).astype(np.float32)}


csr_lanes, csr_lanes_reference = csr_thread, csr_thread_reference


def ell(rank: int, size: int, seed: int, N: int, NW: int) -> Data:
    rng = np.random.default_rng(seed)
    near = np.arange(N)[None] + rng.integers(-50, 51, (NW, N))
    column = np.where(rng.integers(0, 2, (NW, N)) == 1, near % N, rng.integers(0, N, (NW, N)))
    value, x = rng.random((NW, N), np.float32), rng.random(N, np.float32)
    return {"n": N, "nw": NW, "column": column.astype(np.int32), "value": value, "x": x}


def ell_reference(data: Data, **_: Any) -> Data:
    return {"y": (np.asarray(data["value"], np.float64) * data["x"][data["column"]]).sum(axis=0).astype(np.float32)}


def spmm(rank: int, size: int, seed: int, N: int, NNZ: int, NJ: int) -> Data:
    return {
        **csr_thread(rank, size, seed, N, NNZ),
        "nj": NJ,
        "x": np.random.default_rng(seed).random((N, NJ), np.float32),
    }


def spmm_reference(data: Data, **_: Any) -> Data:
    value, columns = np.asarray(data["value"], np.float64), np.asarray(data["x"], np.float64).T
    return {"y": np.stack([_row_sums(data, value * x[data["column"]]) for x in columns], axis=1).astype(np.float32)}


def coo_atomic(rank: int, size: int, seed: int, N: int, NNZ: int) -> Data:
    data = _csr(seed, N, NNZ)
    del data["start"]
    return {**data, "m": len(data["row"])}


def coo_atomic_reference(data: Data, **_: Any) -> Data:
    terms = np.asarray(data["value"], np.float64) * data["x"][data["column"]]
    return {"y": np.bincount(data["row"], terms, data["n"]).astype(np.float32)}


def sddmm(rank: int, size: int, seed: int, N: int, NNZ: int, NK: int) -> Data:
    rng, pattern = np.random.default_rng(seed), _csr(seed, N, NNZ)
    vectors = {name: rng.random((N, NK), np.float32) for name in "uv"}
    row, column = pattern["row"], pattern["column"]
    return {"n": N, "m": len(row), "nk": NK, "row": row, "column": column, **vectors}


def sddmm_reference(data: Data, **_: Any) -> Data:
    u, v = (np.asarray(data[name], np.float64) for name in "uv")
    return {"e": (u[data["row"]] * v[data["column"]]).sum(axis=1).astype(np.float32)}
