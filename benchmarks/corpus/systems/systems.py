"""Set-ups and references of many small systems of equations, side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def thomas(rank: int, size: int, seed: int, NL: int, N: int) -> Data:
    rng = np.random.default_rng(seed)
    a, c, d = (rng.random((NL, N), np.float32) for _ in range(3))
    return {"nl": NL, "n": N, "a": a, "b": 3 + rng.random((NL, N), np.float32), "c": c, "d": d}


def thomas_reference(data: Data, **_: Any) -> Data:
    a, b, c, d = (np.array(data[name], np.float64) for name in "abcd")
    c[0], d[0] = c[0] / b[0], d[0] / b[0]
    for at in range(1, len(d)):
        m = 1 / (b[at] - a[at] * c[at - 1])
        d[at] = (d[at] - a[at] * d[at - 1]) * m
        c[at] *= m
    for at in range(len(d) - 2, -1, -1):
        d[at] -= c[at] * d[at + 1]
    return {"c": c.astype(np.float32), "d": d.astype(np.float32)}


def factor3(rank: int, size: int, seed: int, N: int) -> Data:
    m = np.random.default_rng(seed).random((6, N), np.float32)
    m[[0, 3, 5]] += 3
    return {"n": N, "m": m}


def factor3_reference(data: Data, **_: Any) -> Data:
    m = np.asarray(data["m"], np.float64)
    full = np.empty((m.shape[1], 3, 3))
    for at, (i, j) in enumerate(((0, 0), (1, 0), (2, 0), (1, 1), (2, 1), (2, 2))):
        full[:, i, j] = full[:, j, i] = m[at]
    low = np.linalg.cholesky(full)
    rows = [low[:, i, j] for i, j in ((0, 0), (1, 0), (2, 0), (1, 1), (2, 1), (2, 2))]
    return {"l": np.array(rows, np.float32)}
