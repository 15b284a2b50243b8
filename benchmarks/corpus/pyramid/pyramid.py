"""Set-ups and references of image pyramids; ni x nj is the coarser level."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def _fine(seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, "x": np.random.default_rng(seed).random((2 * NI, 2 * NJ), np.float32)}


def halve(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return _fine(seed, NI, NJ)


def halve_reference(data: Data, **_: Any) -> Data:
    x = np.asarray(data["x"], np.float64).reshape(data["ni"], 2, data["nj"], 2)
    return {"y": x.mean(axis=(1, 3)).astype(np.float32)}


def gauss_down(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return _fine(seed, NI, NJ)


def gauss_down_reference(data: Data, **_: Any) -> Data:
    p, weights = np.pad(np.asarray(data["x"], np.float64), 2, "edge"), np.array([1, 4, 6, 4, 1]) / 16
    ni, nj = data["ni"], data["nj"]
    rows = sum(w * p[k : k + 2 * ni : 2] for k, w in enumerate(weights))
    return {"y": np.asarray(sum(w * rows[:, k : k + 2 * nj : 2] for k, w in enumerate(weights)), np.float32)}  # type: ignore[index]


def enlarge(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, "x": np.random.default_rng(seed).random((NI, NJ), np.float32)}


def enlarge_reference(data: Data, **_: Any) -> Data:
    y = np.asarray(data["x"], np.float64)
    for axis in (0, 1):
        p = np.pad(y, [(1, 1) if a == axis else (0, 0) for a in (0, 1)], "edge")
        n = y.shape[axis]
        before, after = np.take(p, range(n), axis), np.take(p, range(2, n + 2), axis)
        pairs = np.stack([0.75 * y + 0.25 * before, 0.75 * y + 0.25 * after], axis + 1)
        y = pairs.reshape([2 * s if a == axis else s for a, s in enumerate(y.shape)])
    return {"y": y.astype(np.float32)}


def laplacian_level(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    rng = np.random.default_rng(seed)
    fine, coarse = rng.random((2 * NI, 2 * NJ), np.float32), rng.random((NI, NJ), np.float32)
    return {"ni": NI, "nj": NJ, "fine": fine, "coarse": coarse}


def laplacian_level_reference(data: Data, **_: Any) -> Data:
    return {"y": data["fine"] - data["coarse"].repeat(2, axis=0).repeat(2, axis=1)}


def mip_bytes(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, "x": np.random.default_rng(seed).integers(0, 256, (2 * NI, 2 * NJ, 4), np.uint8)}


def mip_bytes_reference(data: Data, **_: Any) -> Data:
    x = data["x"].astype(np.int32).reshape(data["ni"], 2, data["nj"], 2, 4)
    return {"y": ((x.sum(axis=(1, 3)) + 2) // 4).astype(np.uint8)}
