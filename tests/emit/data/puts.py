"""Data of puts.dag, and what comes of them."""

from __future__ import annotations

from typing import Any

import numpy as np


def rows(rank: int, size: int, seed: int, *, n: int) -> dict[str, Any]:
    random = np.random.default_rng([seed, rank])
    u, w = random.standard_normal((2, n + 2))
    v = random.standard_normal(n).astype(np.float32)
    line = {"up": rank - 1, "down": rank + 1 if rank + 1 < size else -1}
    whole = np.random.default_rng(seed).standard_normal((2, size * n + 4))[:, rank * n : rank * n + n + 4]
    return {
        "u[0]": u,
        "u[1]": w,
        "w[0]": whole[0],
        "w[1]": whole[1],
        "v": v,
        **line,
        "next": (rank + 1) % size,
        "prior": (rank - 1) % size,
    }


def after(
    data: dict[str, Any], *, rank: int, size: int, seed: int, n: int, steps: int, runs: int = 1
) -> dict[str, Any]:
    every = [rows(r, size, seed, n=n) for r in range(size)]
    us, vs = [[one["u[0]"], one["u[1]"]] for one in every], [one["v"] for one in every]
    ws = [[one["w[0]"].copy(), one["w[1]"].copy()] for one in every]
    for t in (t for _ in range(runs) for t in range(steps)):
        for u in us:
            a, b = u[t % 2], u[(t + 1) % 2]
            b[1:-1] = 0.25 * a[:-2] + 0.5 * a[1:-1] + 0.125 * a[2:]
        new = [u[(t + 1) % 2] for u in us]
        for r in range(size - 1):
            new[r][n + 1], new[r + 1][0] = new[r + 1][1], new[r][n]
        for w in ws:
            a, b = w[t % 2], w[(t + 1) % 2]
            b[3 : n + 2 : 2] = 0.5 * a[1:n:2] + 0.25 * a[2 : n + 1 : 2] + 0.25 * a[5::2]
        new = [w[(t + 1) % 2] for w in ws]
        for r in range(size - 1):
            new[r][n + 2 :], new[r + 1][:2] = new[r + 1][2:4].copy(), new[r][n : n + 2].copy()
        boxes = [2 * v[:40] for v in vs]
        for r in range(size):
            vs[r][n - 40 :] += boxes[r - 1]
    return {"u[0]": us[rank][0], "u[1]": us[rank][1], "w[0]": ws[rank][0], "w[1]": ws[rank][1], "v": vs[rank]}
