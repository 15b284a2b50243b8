"""Set-ups and references of dynamic programming. Of a table, one step is computed; the ones before it are given."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def _letters(seed: int, *lengths: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 4, n, np.uint8) for n in lengths]


def _tables(seed: int, names: str, n: int) -> Data:
    rng = np.random.default_rng(seed + 1)
    return {name: rng.integers(0, 1000, n, np.int32) for name in names.split()}


def lcs_diagonal(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    a, b = _letters(seed, NI, NJ)
    return {"ni": NI, "nj": NJ, "d": (NI + NJ) // 2, "a": a, "b": b, **_tables(seed, "older last next", NI + 1)}


def lcs_diagonal_reference(data: Data, **_: Any) -> Data:
    ni, nj, d, after = data["ni"], data["nj"], data["d"], data["next"].copy()
    i = np.arange(max(1, d - nj), min(ni, d - 1) + 1)
    match = data["a"][i - 1] == data["b"][d - i - 1]
    after[i] = np.where(match, data["older"][i - 1] + 1, np.maximum(data["last"][i - 1], data["last"][i]))
    return {"next": after}


def smith_waterman(rank: int, size: int, seed: int, NI: int) -> Data:
    a, b = _letters(seed, NI, NI)
    return {"ni": NI, "a": a, "b": b, **_tables(seed, "h1 h2 e1 f1 h e f", NI + 1)}


def smith_waterman_reference(data: Data, **_: Any) -> Data:
    h, e, f = (data[name].copy() for name in "hef")
    e[1:] = np.maximum(data["e1"][1:] - 1, data["h1"][1:] - 3)
    f[1:] = np.maximum(data["f1"][:-1] - 1, data["h1"][:-1] - 3)
    match = data["h2"][:-1] + np.where(data["a"] == data["b"][::-1], 2, -1)
    h[1:] = np.maximum(np.maximum(match, 0), np.maximum(e[1:], f[1:]))
    return {"h": h, "e": e, "f": f}


def floyd_warshall(rank: int, size: int, seed: int, NI: int) -> Data:
    d = np.random.default_rng(seed).uniform(1, 10, (NI, NI)).astype(np.float32)
    np.fill_diagonal(d, 0)
    return {"ni": NI, "k": NI // 2, "d": d}


def floyd_warshall_reference(data: Data, **_: Any) -> Data:
    d, k = data["d"], data["k"]
    return {"d": np.minimum(d, d[:, k : k + 1] + d[k : k + 1])}


def pathfinder(rank: int, size: int, seed: int, NI: int) -> Data:
    rng = np.random.default_rng(seed)
    return {"ni": NI, "wall": rng.integers(0, 10, (8, NI), np.int32), "above": rng.integers(0, 10, NI, np.int32)}


def pathfinder_reference(data: Data, **_: Any) -> Data:
    cost = data["above"].astype(np.int64)
    for row in data["wall"]:
        p = np.pad(cost, 1, constant_values=1 << 30)
        cost = row + np.minimum(np.minimum(p[:-2], p[1:-1]), p[2:])
    return {"result": cost.astype(np.int32)}


def viterbi(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    rng = np.random.default_rng(seed)
    return {"ni": NI, "nj": NJ, "score": rng.random((NI, NJ), np.float32), "move": rng.random((NJ, NJ), np.float32)}


def viterbi_reference(data: Data, **_: Any) -> Data:
    every = data["score"][:, :, None] + data["move"][None]
    return {"best": every.max(axis=1), "from_state": every.argmax(axis=1).astype(np.int32)}


def knapsack(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    rng = np.random.default_rng(seed)
    return {
        "ni": NI,
        "nj": NJ,
        "last": np.sort(rng.integers(0, 1000, (NI, NJ), np.int32), axis=1),
        "weight": rng.integers(1, max(2, NJ // 2), NI, np.int32),
        "value": rng.integers(1, 100, NI, np.int32),
    }


def knapsack_reference(data: Data, **_: Any) -> Data:
    out = data["last"].copy()
    for row, weight, value in zip(out, data["weight"], data["value"], strict=True):
        row[weight:] = np.maximum(row[weight:], row[:-weight] + value)
    return {"next": out}
