"""Set-ups and references of steps of wavelets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def lift_rows(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, "x": np.random.default_rng(seed).random((NI, 2 * NJ), np.float32)}


def lift_rows_reference(data: Data, **_: Any) -> Data:
    x = np.asarray(data["x"], np.float64)
    even, odd = x[:, ::2], x[:, 1::2]
    detail = odd - 0.5 * (even + np.hstack([even[:, 1:], even[:, -1:]]))
    smooth = even + 0.25 * (np.hstack([detail[:, :1], detail[:, :-1]]) + detail)
    return {"y": np.hstack([smooth, detail]).astype(np.float32)}


def haar_columns(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, "x": np.random.default_rng(seed).random((2 * NI, NJ), np.float32)}


def haar_columns_reference(data: Data, **_: Any) -> Data:
    a, b = data["x"][::2], data["x"][1::2]
    half = np.float32(0.5)
    return {"y": np.vstack([half * (a + b), half * (a - b)])}
