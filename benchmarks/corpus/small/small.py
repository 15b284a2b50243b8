"""Set-ups and references of many products of small matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def products4(rank: int, size: int, seed: int, N: int) -> Data:
    rng = np.random.default_rng(seed)
    return {"n": N, **{name: rng.random((N, 16), np.float32) for name in "ab"}}


def products4_reference(data: Data, **_: Any) -> Data:
    a, b = (data[name].reshape(-1, 4, 4) for name in "ab")
    return {"c": (a @ b).reshape(-1, 16)}


def products3_planes(rank: int, size: int, seed: int, N: int) -> Data:
    rng = np.random.default_rng(seed)
    return {"n": N, "a": rng.random((9, N), np.float32), "x": rng.random((3, N), np.float32)}


def products3_planes_reference(data: Data, **_: Any) -> Data:
    a = data["a"].reshape(3, 3, -1)
    return {"y": np.einsum("ikt,kt->it", a, data["x"])}
