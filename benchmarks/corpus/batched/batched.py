"""Set-ups and references of many small systems of equations."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def lu_small(rank: int, size: int, seed: int, N: int) -> Data:
    a = np.random.default_rng(seed).random((64, N), np.float32)
    a[::9] += 8
    return {"n": N, "a": a}


def lu_small_reference(data: Data, **_: Any) -> Data:
    m = data["a"].astype(np.float64).reshape(8, 8, -1)
    for k in range(8):
        m[k + 1 :, k] /= m[k, k]
        m[k + 1 :, k + 1 :] -= m[k + 1 :, k, None] * m[None, k, k + 1 :]
    return {"lu": m.reshape(64, -1).astype(np.float32)}


def solve_bands(rank: int, size: int, seed: int, N: int, NU: int) -> Data:
    rng = np.random.default_rng(seed)
    low, diagonal, high, right = (rng.random((N, NU), np.float32) for _ in range(4))
    return {"n": N, "nu": NU, "low": low, "diagonal": diagonal + 3, "high": high, "right": right}


def solve_bands_reference(data: Data, **_: Any) -> Data:
    low, diagonal, high, right = (data[name].astype(np.float64) for name in ("low", "diagonal", "high", "right"))
    nu = data["nu"]
    c, x = np.zeros_like(high), np.zeros_like(right)
    before = known = np.zeros(len(low))
    for k in range(nu):
        scale = 1 / (diagonal[:, k] - low[:, k] * before)
        before, known = high[:, k] * scale, (right[:, k] - low[:, k] * known) * scale
        c[:, k], x[:, k] = before, known
    for k in range(nu - 2, -1, -1):
        x[:, k] -= c[:, k] * x[:, k + 1]
    return {"x": x.astype(np.float32)}
