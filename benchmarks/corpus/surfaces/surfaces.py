"""Set-ups and references of surfaces and level sets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def normals(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, "h": np.random.default_rng(seed).random((NI, NJ), np.float32)}


def normals_reference(data: Data, **_: Any) -> Data:
    h = np.pad(np.asarray(data["h"], np.float64), 1, mode="edge")
    x, y = h[1:-1, :-2] - h[1:-1, 2:], h[:-2, 1:-1] - h[2:, 1:-1]
    scale = 1 / np.sqrt(x * x + y * y + 4)
    return {"g": np.array([x * scale, y * scale, 2 * scale], np.float32)}


def curvature_flow(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    rng = np.random.default_rng(seed)
    return {"ni": NI, "nj": NJ, "q": rng.random((NI, NJ), np.float32), "y": np.zeros((NI, NJ), np.float32)}


def curvature_flow_reference(data: Data, **_: Any) -> Data:
    q = np.asarray(data["q"], np.float64)
    c, w, e, s, n = q[1:-1, 1:-1], q[1:-1, :-2], q[1:-1, 2:], q[:-2, 1:-1], q[2:, 1:-1]
    x, y, xx, yy = 0.5 * (e - w), 0.5 * (n - s), e - 2 * c + w, n - 2 * c + s
    xy = 0.25 * (q[2:, 2:] - q[2:, :-2] - q[:-2, 2:] + q[:-2, :-2])
    out = np.array(data["y"])
    out[1:-1, 1:-1] = c + 0.1 * (xx * y * y - 2 * x * y * xy + yy * x * x) / (x * x + y * y + 0.01)
    return {"y": out}
