"""Set-ups and references of small matrices, products over other rings, and Kronecker products."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def min_plus(rank: int, size: int, seed: int, NI: int, NJ: int, NK: int) -> Data:
    rng = np.random.default_rng(seed)
    a, b = rng.random((NI, NK), np.float32), rng.random((NK, NJ), np.float32)
    return {"ni": NI, "nj": NJ, "nk": NK, "a": a, "b": b}


def min_plus_reference(data: Data, **_: Any) -> Data:
    return {"c": np.array([(row[:, None] + data["b"]).min(axis=0) for row in data["a"]])}


min_plus_items, min_plus_items_reference = min_plus, min_plus_reference


def kronecker(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    rng = np.random.default_rng(seed)
    return {"ni": NI, "nj": NJ, "a": rng.random((NI, NJ), np.float32), "b": rng.random((48, 20), np.float32)}


def kronecker_reference(data: Data, **_: Any) -> Data:
    return {"c": np.kron(data["a"], data["b"])}


def inverse3(rank: int, size: int, seed: int, N: int) -> Data:
    a = np.random.default_rng(seed).random((N, 9), np.float32)
    a[:, ::4] += 3
    return {"n": N, "a": a}


def inverse3_reference(data: Data, **_: Any) -> Data:
    return {"c": np.linalg.inv(data["a"].reshape(-1, 3, 3).astype(np.float64)).reshape(-1, 9).astype(np.float32)}
