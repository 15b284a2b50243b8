"""Set-ups and references of 8-bit integers with factors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def gemv_bytes(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    rng = np.random.default_rng(seed)
    a, x = (rng.integers(-128, 128, shape, np.int8) for shape in ((NJ, NI), NJ))
    return {"ni": NI, "nj": NJ, "a": a, "x": x, "f": rng.random(NI, np.float32)}


def gemv_bytes_reference(data: Data, **_: Any) -> Data:
    sums = np.asarray(data["x"], np.float64) @ np.asarray(data["a"], np.float64)
    return {"y": (data["f"] * sums).astype(np.float32)}


def scale_bytes(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    rng = np.random.default_rng(seed)
    q = rng.integers(-128, 128, (NI, NJ), np.int8)
    return {"ni": NI, "nj": NJ, "q": q, "f": rng.random(NI, np.float32), "o": 200 + rng.random(NJ, np.float32)}


def scale_bytes_reference(data: Data, **_: Any) -> Data:
    return {"y": data["f"][:, None] * data["q"].astype(np.float32) + data["o"][None, :]}
