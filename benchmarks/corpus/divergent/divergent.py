"""Set-ups and references of loops whose number of iterations depends on the data."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def mandelbrot(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ}


def mandelbrot_reference(data: Data, **_: Any) -> Data:
    """In single precision, operation by operation as in the kernel."""
    ni, nj, one = data["ni"], data["nj"], np.float32
    ci = (np.arange(ni, dtype=one) * (one(2.5) / one(ni)) - one(1.25))[:, None]
    cr = (np.arange(nj, dtype=one) * (one(3) / one(nj)) - one(2.25))[None, :]
    re, im, count = np.zeros((ni, nj), one), np.zeros((ni, nj), one), np.zeros((ni, nj), np.int32)
    inside = np.ones((ni, nj), bool)
    for _step in range(256):
        re2, im2 = re * re, im * im
        inside &= re2 + im2 <= 4
        count += inside
        im, re = np.where(inside, one(2) * re * im + ci, im), np.where(inside, re2 - im2 + cr, re)
    return {"count": count}


def collatz(rank: int, size: int, seed: int, N: int) -> Data:
    return {"n": N}


def collatz_reference(data: Data, **_: Any) -> Data:
    k, steps = np.arange(1, data["n"] + 1, dtype=np.int64), np.zeros(data["n"], np.int32)
    while (left := k != 1).any():
        steps += left
        k = np.where(left, np.where(k % 2, 3 * k + 1, k // 2), 1)
    return {"steps": steps}


def gcd_table(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(1, 1 << 30, n, np.int32) for n in (NI, NJ))
    return {"ni": NI, "nj": NJ, "a": a, "b": b}


def gcd_table_reference(data: Data, **_: Any) -> Data:
    return {"y": np.gcd.outer(data["a"], data["b"]).astype(np.int32)}


def kepler(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    mean = np.random.default_rng(seed).uniform(0.1, 3, (NI, NJ)).astype(np.float32)
    return {"ni": NI, "nj": NJ, "mean": mean}


def kepler_reference(data: Data, **_: Any) -> Data:
    m = np.asarray(data["mean"], np.float64)
    e = 0.9 * np.arange(data["nj"])[None] / data["nj"]
    angle = m + e * np.sin(m)
    for _step in range(50):
        angle = angle - (angle - e * np.sin(angle) - m) / (1 - e * np.cos(angle))
    return {"y": angle.astype(np.float32)}


def march_heights(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    """Hills: a random walk along rows, in steps that single precision adds exactly."""
    steps = np.random.default_rng(seed).integers(-8, 9, (NI, NJ), np.int16)
    return {"ni": NI, "nj": NJ, "h": (np.cumsum(steps, axis=1, dtype=np.int32) / 256).astype(np.float32)}


def march_heights_reference(data: Data, **_: Any) -> Data:
    h, (ni, nj) = data["h"], data["h"].shape
    steps, going = np.ones((ni, nj), np.int32), np.ones((ni, nj), bool)
    for k in range(1, min(200, nj)):
        ahead = np.pad(h[:, k:], ((0, 0), (0, k)), constant_values=np.inf)
        going &= ahead <= h + 0.0078125 * k
        steps += going
    return {"steps": np.minimum(steps, 200)}
