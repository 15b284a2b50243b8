"""Data of transports.dag, and what comes of them."""

from __future__ import annotations

from typing import Any

import numpy as np


def _u(rank: int, seed: int, n: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng([seed, rank]).standard_normal(n + 2)


def line(rank: int, size: int, seed: int, *, n: int) -> dict[str, Any]:
    return {"u": _u(rank, seed, n), "left": (rank - 1) % size, "right": (rank + 1) % size}


def after(data: dict[str, Any], *, rank: int, size: int, seed: int, n: int, runs: int = 1) -> dict[str, Any]:
    us = [_u(r, seed, n) for r in range(size)]
    ws = [np.zeros(2) for _ in us]
    for _ in range(runs):
        for r in range(size):
            to = (r + 1) % size
            ws[r][1] = us[r][n + 1] = us[to][1]
            ws[to][0] = us[to][0] = us[r][n]
        y = us[rank][:n] + us[rank][2:] + ws[rank][0] * ws[rank][1]
        parts = [np.array([u[1:-1][(np.arange(1, n + 1) % 3) == k].sum() for k in range(3)]) for u in us]
        for u in us:
            u[1:-1] += sum(parts)[np.arange(n) % 3]
    return {"y": y, "u": us[rank], "t": np.max(parts, axis=0)}
