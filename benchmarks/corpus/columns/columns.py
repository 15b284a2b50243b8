"""Set-ups and references of columns of air."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def hydrostatic(rank: int, size: int, seed: int, NL: int, N: int) -> Data:
    rng = np.random.default_rng(seed)
    return {"nl": NL, "n": N, **{name: 0.5 + rng.random((NL, N), np.float32) for name in "rh"}}


def hydrostatic_reference(data: Data, **_: Any) -> Data:
    r, h = (np.asarray(data[name], np.float64) for name in "rh")
    return {"p": np.cumsum(9.81 * r * h, axis=0).astype(np.float32)}


def between_levels(rank: int, size: int, seed: int, NI: int, NJ: int, NL: int) -> Data:
    rng = np.random.default_rng(seed)
    z = rng.random((NI, 1), np.float32) * np.float32(NL - 2) + rng.random((NI, NJ), np.float32) * np.float32(0.9)
    return {"ni": NI, "nj": NJ, "nl": NL, "x": rng.random((NL, NI, NJ), np.float32), "z": z}


def between_levels_reference(data: Data, **_: Any) -> Data:
    x, z = np.asarray(data["x"], np.float64), np.asarray(data["z"])
    low = np.minimum(z.astype(int), len(x) - 2)
    part = np.asarray(z - low.astype(np.float32), np.float64)
    at = np.ix_(range(z.shape[0]), range(z.shape[1]))
    return {"y": ((1 - part) * x[(low, *at)] + part * x[(low + 1, *at)]).astype(np.float32)}
