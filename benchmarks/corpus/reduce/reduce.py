"""Set-ups and references of reductions by rows, by columns, and of everything."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def _matrix(seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, "x": np.random.default_rng(seed).random((NI, NJ), np.float32)}


def row_sums_thread(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return _matrix(seed, NI, NJ)


def row_sums_thread_reference(data: Data, **_: Any) -> Data:
    return {"y": data["x"].sum(axis=1, dtype=np.float64).astype(np.float32)}


def row_sums_block(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return _matrix(seed, NI, NJ)


row_sums_block_reference = row_sums_thread_reference


def column_sums(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return _matrix(seed, NI, NJ)


def column_sums_reference(data: Data, **_: Any) -> Data:
    return {"y": data["x"].sum(axis=0, dtype=np.float64).astype(np.float32)}


def column_means_block(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return _matrix(seed, NI, NJ)


def column_means_block_reference(data: Data, **_: Any) -> Data:
    return {"y": data["x"].mean(axis=0, dtype=np.float64).astype(np.float32)}


def dot(rank: int, size: int, seed: int, N: int) -> Data:
    rng = np.random.default_rng(seed)
    return {"n": N, "a": rng.random(N, np.float32), "b": rng.random(N, np.float32)}


def dot_reference(data: Data, **_: Any) -> Data:
    a, b = (np.asarray(data[name], np.float64) for name in "ab")
    return {"sum": np.array([a @ b], np.float32)}


def softmax(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, "x": np.random.default_rng(seed).standard_normal((NI, NJ), np.float32)}


def softmax_reference(data: Data, **_: Any) -> Data:
    x = np.asarray(data["x"], np.float64)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return {"y": (e / e.sum(axis=1, keepdims=True)).astype(np.float32)}


def row_norms_warp(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return _matrix(seed, NI, NJ)


def row_norms_warp_reference(data: Data, **_: Any) -> Data:
    return {"y": np.sqrt((np.asarray(data["x"], np.float64) ** 2).sum(axis=1)).astype(np.float32)}


def layer_norm(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    assert NJ % 4 == 0
    return {"ni": NI, "nj": NJ, "x": np.random.default_rng(seed).standard_normal((NI, NJ), np.float32)}


def layer_norm_reference(data: Data, **_: Any) -> Data:
    x = np.asarray(data["x"], np.float64)
    mean, variance = x.mean(axis=1, keepdims=True), x.var(axis=1, keepdims=True)
    return {"y": ((x - mean) / np.sqrt(variance + 1e-5)).astype(np.float32)}
