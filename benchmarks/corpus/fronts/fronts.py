"""Set-ups and references of fronts that move through a grid."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def front_step(rank: int, size: int, seed: int, N: int, M: int) -> Data:
    return {"n": N, "m": M, "x": np.random.default_rng(seed).random((M + 1, N), np.float32)}


def front_step_reference(data: Data, **_: Any) -> Data:
    x = np.asarray(data["x"], np.float64)
    y = x.copy()
    left, below = x[0], 0.5 * x[0]
    for d in range(1, len(x)):
        y[d] = 0.25 * (x[d] + left + 2 * below)
        below, left = left, y[d]
    return {"y": y.astype(np.float32)}
