"""Data of groups.dag, and what comes of them."""

from __future__ import annotations

from typing import Any

import numpy as np


def _x(rank: int, seed: int, n: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng([seed, rank]).standard_normal(n)


def numbers(rank: int, size: int, seed: int, *, n: int) -> dict[str, Any]:
    return {"x": _x(rank, seed, n), "next": (rank + 1) % size, "previous": (rank - 1) % size}


def product(data: dict[str, Any], *, rank: int, size: int, seed: int, n: int) -> dict[str, Any]:
    xs = [_x(r, seed, n) for r in range(size)]
    before, after = (rank - 1) % size, (rank + 1) % size
    numbers_of = [10 * r + np.arange(3, dtype=np.int32) for r in range(size)]
    return {
        "y": 2 * (xs[rank] + np.concatenate([xs[after][300:], xs[before][:300]])),
        "t": sum(x[:4] for x in xs) + xs[size - 1][4:8],
        "h": (sum(numbers_of) + numbers_of[before]).astype(np.int32),
    }
