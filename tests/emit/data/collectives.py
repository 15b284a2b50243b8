"""Data of collectives.dag, and what comes of them."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

BIG = 20_000


def _x(rank: int, seed: int, n: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng([seed, rank]).standard_normal(n + BIG)


def numbers(rank: int, size: int, seed: int, *, n: int) -> dict[str, Any]:
    return {"x": _x(rank, seed, n)[:n], "big": _x(rank, seed, n)[n:]}


def results(data: dict[str, Any], *, rank: int, size: int, seed: int, n: int) -> dict[str, Any]:
    """Sums in the order of the ranks."""
    xs = [_x(r, seed, n) for r in range(size)]
    ones = [x[:n] / 2 for x in xs]
    root = size - 2  # rank 1 of `back`
    row = range(rank // 2 * 2, min(size, rank // 2 * 2 + 2))
    manys = [np.tile(x[:n], size) + np.arange(size * n) for x in xs]
    return {
        "sum": reduce(np.add, ones),
        "kept": reduce(np.maximum, ones) if rank == size - 1 else ones[rank],
        "all": np.concatenate([ones[root] for _ in row]),
        "turned_out": np.concatenate([many[rank * n : (rank + 1) * n] for many in manys]),
        "bigger": reduce(np.add, [x[n:] for x in xs]),
    }
