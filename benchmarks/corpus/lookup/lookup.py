"""Set-ups and references of tables between their points."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def trilinear(rank: int, size: int, seed: int, N: int, NV: int) -> Data:
    rng = np.random.default_rng(seed)
    p = rng.random((3, N), np.float32) * np.float32(NV - 1)
    return {"n": N, "nv": NV, "v": rng.random((NV, NV, NV), np.float32), "p": p}


def trilinear_reference(data: Data, **_: Any) -> Data:
    v, p = np.asarray(data["v"], np.float64), np.asarray(data["p"], np.float64)
    low = np.minimum(p.astype(int), len(v) - 2)
    part = p - low
    total = np.zeros(p.shape[1])
    for corner in np.ndindex(2, 2, 2):
        weights = [part[axis] if far else 1 - part[axis] for axis, far in enumerate(corner)]
        total += np.prod(weights, axis=0) * v[tuple(low[axis] + far for axis, far in enumerate(corner))]
    return {"y": total.astype(np.float32)}


def cubic_rows(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    rng = np.random.default_rng(seed)
    return {"ni": NI, "nj": NJ, "x": 1 + rng.random((NI, NJ), np.float32), "d": rng.random(NI, np.float32)}


def cubic_rows_reference(data: Data, **_: Any) -> Data:
    x, t = np.asarray(data["x"], np.float64), np.asarray(data["d"], np.float64)[:, None]
    padded = np.pad(x, ((0, 0), (1, 2)), mode="edge")
    a, b, c, e = (padded[:, k : k + x.shape[1]] for k in range(4))
    s = 1 - t
    y = b * s + c * t - 0.5 * t * s * ((a - 2 * b + c) * s + (b - 2 * c + e) * t)
    return {"y": y.astype(np.float32)}
