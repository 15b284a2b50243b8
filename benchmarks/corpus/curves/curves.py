"""Set-ups and references of values between the entries of tables."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def hermite_rows(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    rng = np.random.default_rng(seed)
    t, s = (rng.standard_normal((NI + 1, NJ), np.float32) for _ in range(2))
    return {"ni": NI, "nj": NJ, "t": t, "s": s, "x": rng.random(NJ, np.float32)}


def hermite_rows_reference(data: Data, **_: Any) -> Data:
    t, s, a = (np.asarray(data[name], np.float64) for name in "tsx")
    b = 1 - a
    first = b * b * ((1 + 2 * a) * t[:-1] + a * s[:-1])
    return {"y": (first + a * a * ((1 + 2 * b) * t[1:] - b * s[1:])).astype(np.float32)}


def enlarge_rows(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, "x": np.random.default_rng(seed).random((NI, NJ), np.float32)}


def enlarge_rows_reference(data: Data, **_: Any) -> Data:
    x = np.asarray(data["x"], np.float64)
    out = np.repeat(x, 2, axis=1)
    out[:, 1:-1:2] = 0.5 * (x[:, :-1] + x[:, 1:])
    return {"y": out.astype(np.float32)}
