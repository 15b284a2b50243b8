"""Set-ups and references of images and volumes that are sampled at other points."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]

HALF = np.float32(0.5)


def bicubic_zoom(rank: int, size: int, seed: int, NI: int, NJ: int, MI: int, MJ: int) -> Data:
    x = np.random.default_rng(seed).random((MI, MJ), np.float32)
    return {"ni": NI, "nj": NJ, "mi": MI, "mj": MJ, "x": x}


def _cubic(n: int, m: int) -> Array:
    """(n, m): the weights of m points for each of n, by the convolution kernel of Keys with a = -1/2."""
    at = (np.arange(n, dtype=np.float32) + HALF) * np.float32(m) / np.float32(n) - HALF
    first = np.floor(at)
    t = (at - first).astype(np.float64)
    four = (
        t * (-0.5 + t * (1 - 0.5 * t)),
        1 + t * t * (1.5 * t - 2.5),
        t * (0.5 + t * (2 - 1.5 * t)),
        t * t * (0.5 * t - 0.5),
    )
    weights = np.zeros((n, m))
    for k, w in enumerate(four):
        np.add.at(weights, (np.arange(n), np.clip(first.astype(int) + k - 1, 0, m - 1)), w)
    return weights


def bicubic_zoom_reference(data: Data, **_: Any) -> Data:
    y = _cubic(data["ni"], data["mi"]) @ data["x"].astype(np.float64) @ _cubic(data["nj"], data["mj"]).T
    return {"y": y.astype(np.float32)}


def oblique_slice(rank: int, size: int, seed: int, NI: int, NJ: int, NK: int) -> Data:
    rng = np.random.default_rng(seed)
    at = np.array([0.1, 0.2, 0.05, 0.6, 0.3, 0.2, -0.05, 0.3, 0.7], np.float32)
    return {"ni": NI, "nj": NJ, "nk": NK, "at": at, "x": rng.random((NK, NK, NK), np.float32)}


def oblique_slice_reference(data: Data, **_: Any) -> Data:
    nk, at = data["nk"], data["at"].reshape(3, 3)
    s, t = ((np.arange(n, dtype=np.float32) + HALF) / np.float32(n) for n in (data["nj"], data["ni"]))
    place = (at[0] + s[None, :, None] * at[1] + t[:, None, None] * at[2]) * np.float32(nk - 1)
    first = np.minimum(place.astype(int), nk - 2)
    part = (place - first).astype(np.float64)
    y = np.zeros(place.shape[:2])
    for corner in np.ndindex(2, 2, 2):
        c, r, d = np.moveaxis(first + corner, 2, 0)
        y += np.where(corner, part, 1 - part).prod(axis=2) * data["x"][d, r, c]
    return {"y": y.astype(np.float32)}


def polar(rank: int, size: int, seed: int, NI: int, NJ: int, NK: int) -> Data:
    angle = 2 * np.pi * np.arange(NI) / NI
    x = np.random.default_rng(seed).random((NK, NK), np.float32)
    return {
        "ni": NI, "nj": NJ, "nk": NK, "x": x,
        "cosine": np.cos(angle).astype(np.float32), "sine": np.sin(angle).astype(np.float32),
    }  # fmt: skip


def polar_reference(data: Data, **_: Any) -> Data:
    nk = data["nk"]
    radius = HALF * np.float32(nk) * (np.arange(data["nj"], dtype=np.float32) + HALF) / np.float32(data["nj"])
    middle = HALF * np.float32(nk)
    column, row = (
        np.clip(np.trunc(middle + radius * data[name][:, None]).astype(int), 0, nk - 1) for name in ("cosine", "sine")
    )
    return {"y": data["x"][row, column]}
