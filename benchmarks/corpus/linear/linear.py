"""Set-ups and references of loops over one index in blocks of two dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def axpy_blocks(rank: int, size: int, seed: int, N: int) -> Data:
    rng = np.random.default_rng(seed)
    return {"n": N, "x": rng.random(N, np.float32), "y0": rng.random(N, np.float32)}


def axpy_blocks_reference(data: Data, **_: Any) -> Data:
    return {"y": np.float32(1.5) * data["x"] + data["y0"]}


def gather_blocks(rank: int, size: int, seed: int, N: int) -> Data:
    rng = np.random.default_rng(seed)
    return {"n": N, "at": rng.integers(0, N, N, np.int32), "x": rng.random(N, np.float32)}


def gather_blocks_reference(data: Data, **_: Any) -> Data:
    return {"y": data["x"][data["at"]]}
