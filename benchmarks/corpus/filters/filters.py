"""Set-ups and references of filters other than convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def bilateral(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, "x": np.random.default_rng(seed).random((NI, NJ), np.float32)}


def bilateral_reference(data: Data, **_: Any) -> Data:
    ni, nj, x = data["ni"], data["nj"], data["x"].astype(np.float64)
    padded = np.pad(x, 3, mode="edge")
    total, weights = np.zeros_like(x), np.zeros_like(x)
    for p in range(7):
        for q in range(7):
            v = padded[p : p + ni, q : q + nj]
            w = np.exp(-0.1 * ((p - 3) ** 2 + (q - 3) ** 2) - 8 * (v - x) ** 2)
            total += w * v
            weights += w
    return {"y": (total / weights).astype(np.float32)}


def dilate_offsets(rank: int, size: int, seed: int, NI: int, NJ: int, M: int) -> Data:
    rng = np.random.default_rng(seed)
    dy, dx = rng.integers(-8, 9, (2, M), np.int32)
    x = rng.random((NI + 16, NJ + 16), np.float32)
    return {"ni": NI, "nj": NJ, "m": M, "dy": np.ascontiguousarray(dy), "dx": np.ascontiguousarray(dx), "x": x}


def dilate_offsets_reference(data: Data, **_: Any) -> Data:
    ni, nj, x = data["ni"], data["nj"], data["x"]
    y = x[8 : 8 + ni, 8 : 8 + nj].copy()
    for p, q in zip(data["dy"], data["dx"], strict=True):
        y = np.maximum(y, x[8 + p : 8 + p + ni, 8 + q : 8 + q + nj])
    return {"y": y}


def census(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, "x": np.random.default_rng(seed).integers(0, 256, (NI + 4, NJ + 4), np.uint8)}


def census_reference(data: Data, **_: Any) -> Data:
    ni, nj, x = data["ni"], data["nj"], data["x"]
    bits = np.zeros((ni, nj), np.int32)
    for p in range(5):
        for q in range(5):
            if (p, q) != (2, 2):
                bits = 2 * bits | (x[p : p + ni, q : q + nj] < x[2 : 2 + ni, 2 : 2 + nj])
    return {"y": bits}


def max_columns_tile(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, "x": np.random.default_rng(seed).random((NI + 16, NJ), np.float32)}


def max_columns_tile_reference(data: Data, **_: Any) -> Data:
    return {"y": np.max([data["x"][k : k + data["ni"]] for k in range(17)], axis=0)}
