"""Set-ups and references of kernels whose accesses of shared memory have strides."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def transpose_block(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, "x": np.random.default_rng(seed).random((NI, NJ), np.float32)}


def transpose_block_reference(data: Data, **_: Any) -> Data:
    return {"y": np.ascontiguousarray(data["x"].T)}


def segment_sums(rank: int, size: int, seed: int, N: int) -> Data:
    return {"n": N, "x": np.random.default_rng(seed).random(16 * N, np.float32)}


def segment_sums_reference(data: Data, **_: Any) -> Data:
    return {"y": data["x"].reshape(-1, 16).sum(axis=1, dtype=np.float64).astype(np.float32)}
