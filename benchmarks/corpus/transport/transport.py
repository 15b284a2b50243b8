"""Set-ups and references of transport by a wind."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def upwind2(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    rng = np.random.default_rng(seed)
    q, u, v = (rng.standard_normal((NI, NJ), np.float32) for _ in range(3))
    return {"ni": NI, "nj": NJ, "q": 3 + q, "u": u, "v": v}


def upwind2_reference(data: Data, **_: Any) -> Data:
    q, u, v = (np.asarray(data[name], np.float64) for name in "quv")
    total = np.zeros_like(q)
    for wind, axis in ((u, 1), (v, 0)):
        total += wind * np.where(wind > 0, q - np.roll(q, 1, axis), np.roll(q, -1, axis) - q)
    return {"q1": (q - 0.1 * total).astype(np.float32)}


def limited_flux(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    rng = np.random.default_rng(seed)
    return {"ni": NI, "nj": NJ, "q": 1 + rng.random((NI, NJ), np.float32), "f": rng.random((NI, NJ), np.float32)}


def limited_flux_reference(data: Data, **_: Any) -> Data:
    q, f = np.asarray(data["q"], np.float64), np.array(data["f"], np.float64)
    steps = np.diff(q, axis=1)
    before, here = steps[:, :-1], steps[:, 1:]
    both = before * here
    slope = np.where(both > 0, 2 * both / np.where(both > 0, before + here, 1), 0)
    f[:, 2:-1] = (q[:, 1:-1] + 0.4 * slope)[:, :-1]
    return {"f": f.astype(np.float32)}
