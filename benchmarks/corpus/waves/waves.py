"""Set-ups and references of steps of waves."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def staggered_velocity(rank: int, size: int, seed: int, NI: int, NJ: int, NK: int) -> Data:
    rng = np.random.default_rng(seed)
    arrays = {name: 1 + rng.random((NI, NJ, NK), np.float32) for name in "uvwpb"}
    return {"ni": NI, "nj": NJ, "nk": NK, **arrays}


def staggered_velocity_reference(data: Data, **_: Any) -> Data:
    p, b = (np.asarray(data[name], np.float64) for name in "pb")
    inside = (slice(0, -1),) * 3
    out = {}
    for axis, name in ((2, "u"), (1, "v"), (0, "w")):
        there = tuple(slice(1, None) if a == axis else slice(0, -1) for a in range(3))
        speed = np.array(data[name], np.float64)
        speed[inside] -= 0.25 * (b[inside] + b[there]) * (p[there] - p[inside])
        out[name] = speed.astype(np.float32)
    return out


def sponge_order4(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    rng = np.random.default_rng(seed)
    q1, q2 = (1 + rng.random((NI, NJ), np.float32) for _ in range(2))
    return {"ni": NI, "nj": NJ, "q1": q1, "q2": q2, "s": rng.random(NJ, np.float32)}


def sponge_order4_reference(data: Data, **_: Any) -> Data:
    q, old, s = (np.asarray(data[name], np.float64) for name in ("q1", "q2", "s"))
    near = q[2:-2, 1:-3] + q[2:-2, 3:-1] + q[1:-3, 2:-2] + q[3:-1, 2:-2]
    far = q[2:-2, :-4] + q[2:-2, 4:] + q[:-4, 2:-2] + q[4:, 2:-2]
    c = q[2:-2, 2:-2]
    out = old.copy()
    out[2:-2, 2:-2] = s[2:-2] * (2 * c - old[2:-2, 2:-2] + 0.1 * (1.333 * near - 0.0833 * far - 5 * c))
    return {"q2": out.astype(np.float32)}
