"""Set-up and reference of inner.dag."""

from __future__ import annotations

from typing import Any

import numpy as np


def start(rank: int, size: int, seed: int, n: int) -> dict[str, Any]:
    """Arrays of a rank; `n` is the number of elements."""
    u = np.random.default_rng(seed + rank).random(n)
    return {"u": u, "bound": 0.37, "wanted": np.array([rank], np.int32), "done": np.zeros(1, np.int32)}


def once(data: dict[str, Any], *, n: int, most: int, **_: Any) -> dict[str, Any]:
    """What a run leaves."""
    u, done, wanted, change = 3 * data["u"] + 1, int(data["done"][0]), (int(data["wanted"][0]) + 2) % 5, 1e30
    for k in range(most):
        if change >= data["bound"]:
            u = 0.5 * u
            change = u.max()
            done += 1 if wanted > k else 1000
    return {"u": u, "done": np.array([done], np.int32), "wanted": np.array([wanted], np.int32)}
