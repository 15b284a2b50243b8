"""Set-ups and references of particles."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def push_aos(rank: int, size: int, seed: int, N: int) -> Data:
    p = np.random.default_rng(seed).random((N, 8), np.float32)
    p[:, 3:6] = 4 * p[:, 3:6] - 2
    return {"n": N, "p": p}


def push_aos_reference(data: Data, **_: Any) -> Data:
    p = data["p"].astype(np.float64)
    x = p[:, :3] + 0.01 * p[:, 3:6]
    out = (x < 0) | (x > 1)
    p[:, 3:6] = np.where(out, -p[:, 3:6], p[:, 3:6])
    p[:, :3] = np.where(x < 0, -x, np.where(x > 1, 2 - x, x))
    return {"p": p.astype(np.float32)}


def push_field(rank: int, size: int, seed: int, N: int, NG: int) -> Data:
    rng = np.random.default_rng(seed)
    y = np.clip(np.sort(rng.random(N, np.float32)) + rng.uniform(-0.01, 0.01, N), 0, 1)
    rest = {name: rng.random(N, np.float32) for name in "xuv"}
    return {"n": N, "ng": NG, "y": y.astype(np.float32), **rest, "e": rng.random((NG, NG, 2), np.float32)}


def push_field_reference(data: Data, **_: Any) -> Data:
    x, u, v = (data[name].astype(np.float64) for name in "xuv")
    n = data["ng"]
    gx, gy = (data[name] * np.float32(n - 1) for name in "xy")
    c, r = (np.minimum(g.astype(int), n - 2) for g in (gx, gy))
    a, b = (gx - c)[:, None], (gy - r)[:, None]
    e = data["e"].astype(np.float64)
    f = (1 - b) * ((1 - a) * e[r, c] + a * e[r, c + 1]) + b * ((1 - a) * e[r + 1, c] + a * e[r + 1, c + 1])
    u, v = u + 0.01 * f[:, 0], v + 0.01 * f[:, 1]
    return {"x": (x + 0.001 * u).astype(np.float32), "v": v.astype(np.float32)}


def cell_forces(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    rng = np.random.default_rng(seed)
    corner = np.indices((NI, NJ), np.float32)[..., None]
    py, px = (corner[k] + rng.random((NI, NJ, 8), np.float32) for k in (0, 1))
    count = np.minimum(rng.poisson(4, (NI, NJ)), 8).astype(np.int32)
    return {"ni": NI, "nj": NJ, "count": count, "px": px, "py": py}


def cell_forces_reference(data: Data, **_: Any) -> Data:
    px, py = (data[name].astype(np.float64) for name in ("px", "py"))
    inside = (slice(1, -1), slice(1, -1))
    live = np.arange(8) < data["count"][..., None]
    fx, fy = np.zeros_like(px), np.zeros_like(py)
    for p in (-1, 0, 1):
        for q in (-1, 0, 1):
            x, y, there = (np.roll(a, (-p, -q), (0, 1)) for a in (px, py, live))
            dx, dy = px[..., :, None] - x[..., None, :], py[..., :, None] - y[..., None, :]
            weight = there[..., None, :] / (dx * dx + dy * dy + 0.01)
            fx[inside] += (dx * weight).sum(axis=-1)[inside]
            fy[inside] += (dy * weight).sum(axis=-1)[inside]
    return {"fx": (fx * live).astype(np.float32), "fy": (fy * live).astype(np.float32)}
