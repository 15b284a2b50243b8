"""Set-ups and references of differences against the wind."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def upwind3(rank: int, size: int, seed: int, NI: int, NJ: int, NK: int) -> Data:
    rng = np.random.default_rng(seed)
    q1, q, u, v, w = (rng.standard_normal((NI, NJ, NK), np.float32) for _ in range(5))
    return {"ni": NI, "nj": NJ, "nk": NK, "q1": q1, "q": 3 + q, "u": u, "v": v, "w": w}


def upwind3_reference(data: Data, **_: Any) -> Data:
    q, change = np.asarray(data["q"], np.float64), np.zeros(data["q"].shape)
    for axis, name in enumerate("wvu"):
        wind = np.asarray(data[name], np.float64)
        change += np.maximum(wind, 0) * (q - np.roll(q, 1, axis)) + np.minimum(wind, 0) * (np.roll(q, -1, axis) - q)
    out, inner = np.array(data["q1"], np.float64), (slice(1, -1),) * 3
    out[inner] = (q - 0.05 * change)[inner]
    return {"q1": out.astype(np.float32)}


def third_order(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    rng = np.random.default_rng(seed)
    d, q, u = (rng.standard_normal((NI, NJ), np.float32) for _ in range(3))
    return {"ni": NI, "nj": NJ, "d": d, "q": q, "u": u}


def third_order_reference(data: Data, **_: Any) -> Data:
    q, u, d = (np.array(data[name], np.float64) for name in "qud")
    at = {k: q[:, 2 + k : q.shape[1] - 2 + k] for k in range(-2, 3)}
    left = 2 * at[1] + 3 * at[0] - 6 * at[-1] + at[-2]
    right = -at[2] + 6 * at[1] - 3 * at[0] - 2 * at[-1]
    wind = u[:, 2:-2]
    d[:, 2:-2] = wind * np.where(wind >= 0, left, right) / 6
    return {"d": d.astype(np.float32)}
