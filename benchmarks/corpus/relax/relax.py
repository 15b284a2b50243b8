"""Set-ups and references of relaxations."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def harmonic(rank: int, size: int, seed: int, NI: int, NJ: int, NK: int) -> Data:
    rng = np.random.default_rng(seed)
    p1, p, k, s = (rng.random((NI, NJ, NK), np.float32) for _ in range(4))
    return {"ni": NI, "nj": NJ, "nk": NK, "p1": p1, "p": p, "k": 0.1 + k, "s": s}


def harmonic_reference(data: Data, **_: Any) -> Data:
    p, k, s = (np.asarray(data[name], np.float64) for name in "pks")
    out, total, weight = np.array(data["p1"], np.float64), s.copy(), np.zeros_like(s)
    for axis in range(3):
        for step in (1, -1):
            other = np.roll(k, step, axis)
            face = 2 * k * other / (k + other)
            total += face * np.roll(p, step, axis)
            weight += face
    inner = (slice(1, -1),) * 3
    out[inner] = (0.2 * p + 0.8 * total / weight)[inner]
    return {"p1": out.astype(np.float32)}


def skewed_front(rank: int, size: int, seed: int, M: int, N: int) -> Data:
    rng = np.random.default_rng(seed)
    u, b = (rng.random((M + 2, N + 1), np.float32) for _ in range(2))
    return {"m": M, "n": N, "u": u, "b": b}


def skewed_front_reference(data: Data, **_: Any) -> Data:
    u, b = (np.array(data[name], np.float64) for name in "ub")
    for d in range(2, len(u)):
        u[d, :-1] = 0.3 * u[d, :-1] + 0.35 * (u[d - 1, :-1] + u[d - 2, :-1]) + 0.1 * b[d, :-1]
    return {"u": u.astype(np.float32)}
