"""Set-ups and references of steps of sorting."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def _keys(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).integers(-(1 << 30), 1 << 30, shape, np.int32)


def bitonic_step(rank: int, size: int, seed: int, N: int) -> Data:
    stride = 1 << max(1, N.bit_length() // 2)
    return {"n": N, "stride": stride, "span": 4 * stride, "x": _keys(seed, N)}


def bitonic_step_reference(data: Data, **_: Any) -> Data:
    x = data["x"].copy()
    i = np.arange(len(x))
    k = i ^ data["stride"]
    i = i[(k > i) & (k < len(x))]
    k = i ^ data["stride"]
    swap = (x[i] > x[k]) == (i & data["span"] == 0)
    x[i[swap]], x[k[swap]] = x[k[swap]], x[i[swap]]
    return {"x": x}


def bitonic_shared(rank: int, size: int, seed: int, N: int) -> Data:
    assert N % 1024 == 0
    return {"n": N, "x": _keys(seed, N)}


def bitonic_shared_reference(data: Data, **_: Any) -> Data:
    return {"y": np.sort(data["x"].reshape(-1, 1024), axis=1).ravel()}


def merge_runs(rank: int, size: int, seed: int, N: int, NR: int) -> Data:
    """Runs of NR sorted keys, the last one shorter; some keys are equal."""
    x = _keys(seed, N) % np.int32(N)
    return {"n": N, "nr": NR, "x": np.concatenate([np.sort(x[k : k + NR]) for k in range(0, N, NR)])}


def merge_runs_reference(data: Data, **_: Any) -> Data:
    x, two = data["x"], 2 * data["nr"]
    return {"y": np.concatenate([np.sort(x[k : k + two]) for k in range(0, len(x), two)])}


def odd_even_columns(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, "x": np.random.default_rng(seed).random((NI, NJ), np.float32)}


def odd_even_columns_reference(data: Data, **_: Any) -> Data:
    y = data["x"].copy()
    even = len(y) // 2 * 2
    y[:even] = np.sort(y[:even].reshape(even // 2, 2, -1), axis=1).reshape(even, -1)
    return {"y": y}


def rank_rows(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, "x": _keys(seed, NI, NJ) % np.int32(NJ)}


def rank_rows_reference(data: Data, **_: Any) -> Data:
    order = np.argsort(data["x"], axis=1, kind="stable")
    return {"y": np.argsort(order, axis=1, kind="stable").astype(np.int32)}


def median3x3(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, "x": np.random.default_rng(seed).random((NI, NJ), np.float32)}


def median3x3_reference(data: Data, **_: Any) -> Data:
    ni, nj = data["x"].shape
    p = np.pad(data["x"], 1, "edge")
    return {"y": np.median([p[a : a + ni, b : b + nj] for a in range(3) for b in range(3)], axis=0)}
