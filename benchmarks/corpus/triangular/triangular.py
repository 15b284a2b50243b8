"""Set-ups and references of products with triangular, symmetric and band matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def _single(seed: int, **shapes: tuple[int, ...]) -> Data:
    rng = np.random.default_rng(seed)
    return {name: rng.random(shape, np.float32) for name, shape in shapes.items()}


def _double(data: Data, names: str) -> list[Array]:
    return [np.asarray(data[name], np.float64) for name in names]


def trmm(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, **_single(seed, l=(NI, NI), a=(NI, NJ))}


def trmm_reference(data: Data, **_: Any) -> Data:
    lower, a = _double(data, "la")
    return {"c": (np.tril(lower) @ a).astype(np.float32)}


def trsm(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    """Small off-diagonal elements, so that the solution stays bounded."""
    data = {"ni": NI, "nj": NJ, **_single(seed, l=(NI, NI), b=(NI, NJ))}
    return {**data, "l": data["l"] / NI}


def trsm_reference(data: Data, **_: Any) -> Data:
    lower, b = _double(data, "lb")
    return {"x": np.linalg.solve(np.tril(lower, -1) + np.eye(len(lower)), b).astype(np.float32)}


def syrk_lower(rank: int, size: int, seed: int, NI: int, NK: int) -> Data:
    return {"ni": NI, "nk": NK, **_single(seed, a=(NI, NK), c=(NI, NI))}


def syrk_lower_reference(data: Data, **_: Any) -> Data:
    a, c = _double(data, "ac")
    return {"c": (np.tril(a @ a.T) + np.triu(c, 1)).astype(np.float32)}


def symm(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, **_single(seed, s=(NI, NI), a=(NI, NJ))}


def symm_reference(data: Data, **_: Any) -> Data:
    s, a = _double(data, "sa")
    return {"c": ((np.tril(s) + np.tril(s, -1).T) @ a).astype(np.float32)}


def band_times_dense(rank: int, size: int, seed: int, NI: int, NJ: int, NW: int) -> Data:
    return {"ni": NI, "nj": NJ, "nw": NW, **_single(seed, b=(NI, 2 * NW + 1), a=(NI, NJ))}


def band_times_dense_reference(data: Data, **_: Any) -> Data:
    b, a = _double(data, "ba")
    ni, nw = data["ni"], data["nw"]
    padded = np.pad(a, ((nw, nw), (0, 0)))
    c = sum(b[:, k : k + 1] * padded[k : k + ni] for k in range(2 * nw + 1))
    return {"c": np.asarray(c, np.float32)}


def rank_one_update(rank: int, size: int, seed: int, NI: int, NP: int) -> Data:
    return {"ni": NI, "np": NP, **_single(seed, a=(NI, NI), l=(NI,), u=(NI,))}


def rank_one_update_reference(data: Data, **_: Any) -> Data:
    a, lower, u = _double(data, "alu")
    p = data["np"] + 1
    a[p:, p:] -= np.outer(lower[p:], u[p:])
    return {"a": a.astype(np.float32)}
