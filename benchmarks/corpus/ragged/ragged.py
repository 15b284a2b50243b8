"""Set-ups and references of segments and rows of different lengths."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def _starts(rng: np.random.Generator, n: int, length: int, most: int | None = None) -> Array:
    """Of n segments of 0 to 3 times `length` elements, half of them shorter than half of the mean."""
    count = (rng.random(n) ** 2 * 3 * length + 0.5).astype(np.int64)
    return np.concatenate([[0], np.cumsum(np.minimum(count, most or count.max()))]).astype(np.int32)


def segment_mean(rank: int, size: int, seed: int, N: int, NJ: int, LENGTH: int) -> Data:
    rng = np.random.default_rng(seed)
    start = _starts(rng, N, LENGTH)
    return {"n": N, "nj": NJ, "start": start, "x": rng.random(int(start[-1]) * NJ, np.float32)}


def segment_mean_reference(data: Data, **_: Any) -> Data:
    n, start, x = data["n"], data["start"], data["x"].reshape(-1, data["nj"]).astype(np.float64)
    y = np.zeros((n, data["nj"]))
    for g in np.flatnonzero(np.diff(start)):
        y[g] = x[start[g] : start[g + 1]].mean(axis=0)
    return {"y": y.astype(np.float32)}


def pad_rows(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    rng = np.random.default_rng(seed)
    start = _starts(rng, NI, NJ // 2, NJ)
    return {"ni": NI, "nj": NJ, "start": start, "x": rng.integers(0, 1000, int(start[-1]), np.int32)}


def pad_rows_reference(data: Data, **_: Any) -> Data:
    y = np.full((data["ni"], data["nj"]), -1, np.int32)
    for row, first, end in zip(y, data["start"][:-1], data["start"][1:], strict=True):
        row[: end - first] = data["x"][first:end]
    return {"y": y}


def segment_max_lanes(rank: int, size: int, seed: int, N: int, LENGTH: int) -> Data:
    rng = np.random.default_rng(seed)
    start = _starts(rng, N, LENGTH)
    return {"n": N, "start": start, "x": rng.random(int(start[-1]), np.float32)}


def segment_max_lanes_reference(data: Data, **_: Any) -> Data:
    start, x = data["start"], data["x"]
    empty = np.float32(-3.4e38)
    return {"y": np.array([x[a:b].max(initial=empty) for a, b in itertools.pairwise(start)], np.float32)}
