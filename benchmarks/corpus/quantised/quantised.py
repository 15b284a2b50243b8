"""Set-ups and references of products of 8-bit integers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def depthwise_bytes(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    rng = np.random.default_rng(seed)
    y, x = (rng.integers(-128, 128, (NI, NJ), np.int8) for _ in range(2))
    return {"ni": NI, "nj": NJ, "y": y, "x": x, "f": rng.integers(-90, 90, 9, np.int8)}


def depthwise_bytes_reference(data: Data, **_: Any) -> Data:
    x, f, y = np.asarray(data["x"], np.int64), np.asarray(data["f"], np.int64), np.array(data["y"])
    height, width = x.shape
    total = sum(f[3 * a + b] * x[a : height - 2 + a, b : width - 2 + b] for a in range(3) for b in range(3))
    y[1:-1, 1:-1] = np.clip((64 + total) >> 7, -128, 127)
    return {"y": y}


def product_bytes(rank: int, size: int, seed: int, NI: int, NJ: int, NK: int) -> Data:
    rng = np.random.default_rng(seed)
    a, b = rng.integers(-128, 128, (NI, NK), np.int8), rng.integers(-128, 128, (NK, NJ), np.int8)
    return {"ni": NI, "nj": NJ, "nk": NK, "a": a, "b": b}


def product_bytes_reference(data: Data, **_: Any) -> Data:
    return {"c": (np.asarray(data["a"], np.float64) @ np.asarray(data["b"], np.float64)).astype(np.int32)}
