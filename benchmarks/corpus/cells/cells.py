"""Set-ups and references of cellular automata and reacting fields."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def ising(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    assert NI % 2 == 0
    assert NJ % 2 == 0
    spin = 2 * np.random.default_rng(seed).integers(0, 2, (NI, NJ), np.int8) - 1
    bound = np.minimum(1.0, np.exp(-0.8 * np.arange(-4, 5, 2))) * (1 << 24)
    return {"ni": NI, "nj": NJ, "step": 7, "spin": spin.astype(np.int8), "bound": bound.astype(np.int32)}


def ising_reference(data: Data, **_: Any) -> Data:
    s = data["spin"].astype(np.int32)
    around = s * (np.roll(s, 1, 0) + np.roll(s, -1, 0) + np.roll(s, 1, 1) + np.roll(s, -1, 1))
    i, j = (np.arange(n, dtype=np.uint32) for n in s.shape)
    h = (i * np.uint32(2654435761))[:, None] ^ j * np.uint32(2246822519) ^ np.uint32(data["step"] * 3266489917 % 2**32)
    h ^= h >> np.uint32(15)
    h *= np.uint32(2246822519)
    h ^= h >> np.uint32(13)
    black = (i[:, None] + j) % 2 == 0
    flip = black & ((h >> np.uint32(8)).astype(np.int32) < data["bound"][(around + 4) // 2])
    return {"spin": np.where(flip, -s, s).astype(np.int8)}


def red_black(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    rng = np.random.default_rng(seed)
    return {"ni": NI, "nj": NJ, **{name: rng.random((NI, NJ), np.float32) for name in "xf"}}


def red_black_reference(data: Data, **_: Any) -> Data:
    x = data["x"].astype(np.float64)
    mean = 0.25 * (x[1:-1, :-2] + x[1:-1, 2:] + x[:-2, 1:-1] + x[2:, 1:-1] - data["f"][1:-1, 1:-1])
    i, j = np.arange(1, data["ni"] - 1)[:, None], np.arange(1, data["nj"] - 1)
    red = (i + j) % 2 == 1
    out = x.copy()
    out[1:-1, 1:-1] += np.where(red, 1.5 * (mean - x[1:-1, 1:-1]), 0)
    return {"x": out.astype(np.float32)}


def gray_scott(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    rng = np.random.default_rng(seed)
    return {"ni": NI, "nj": NJ, **{name: rng.random((NI, NJ), np.float32) for name in "uv"}}


def gray_scott_reference(data: Data, **_: Any) -> Data:
    u, v = (data[name].astype(np.float64) for name in "uv")
    near = [sum(np.roll(x, k, axis) for k in (1, -1) for axis in (0, 1)) - 4 * x for x in (u, v)]
    r = u * v * v
    un, vn = u + 0.16 * near[0] - r + 0.035 * (1 - u), v + 0.08 * near[1] + r - 0.1 * v
    return {"un": un.astype(np.float32), "vn": vn.astype(np.float32)}


def sandpile(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, "x": np.random.default_rng(seed).integers(0, 7, (NI, NJ), np.int32)}


def sandpile_reference(data: Data, **_: Any) -> Data:
    over = np.pad(data["x"] >= 4, 1).astype(np.int32)
    given = over[:-2, 1:-1] + over[2:, 1:-1] + over[1:-1, :-2] + over[1:-1, 2:]
    return {"y": data["x"] - 4 * over[1:-1, 1:-1] + given}
