"""Set-ups and references of sums whose atomic additions meet at few addresses."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def _matrix(seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, "x": np.random.default_rng(seed).random((NI, NJ), np.float32)}


def column_sums_atomic(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return _matrix(seed, NI, NJ)


def column_sums_atomic_reference(data: Data, **_: Any) -> Data:
    return {"y": data["x"].sum(axis=0, dtype=np.float64).astype(np.float32)}


def row_sums_atomic(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return _matrix(seed, NI, NJ)


def row_sums_atomic_reference(data: Data, **_: Any) -> Data:
    return {"y": data["x"].sum(axis=1, dtype=np.float64).astype(np.float32)}


def image_bins_private(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    """Smooth, with noise of 32 levels."""
    rng = np.random.default_rng(seed)
    v, u = np.linspace(0, 9, NI, dtype=np.float32)[:, None], np.linspace(0, 7, NJ, dtype=np.float32)[None]
    x = (np.sin(v) * np.cos(u) * 110 + 112 + rng.integers(0, 32, (NI, NJ), np.uint8)).astype(np.uint8)
    return {"ni": NI, "nj": NJ, "x": x}


def image_bins_private_reference(data: Data, **_: Any) -> Data:
    return {"bins": np.bincount(data["x"].ravel() // 4, minlength=64).astype(np.int32)}
