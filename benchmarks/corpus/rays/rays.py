"""Set-ups and references of rays and projections."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def ray_boxes(rank: int, size: int, seed: int, NI: int, NJ: int, NB: int) -> Data:
    rng = np.random.default_rng(seed)
    low = rng.uniform((0, 0, 1), (4, 4, 8), (NB, 3))
    box = np.hstack([low, low + rng.uniform(0.1, 1, (NB, 3))])
    return {"ni": NI, "nj": NJ, "nb": NB, "box": box.astype(np.float32)}


def ray_boxes_reference(data: Data, **_: Any) -> Data:
    one, half = np.float32(1), np.float32(0.5)

    def slope(n: int) -> Array:
        return one / (np.float32(0.125) + half * (np.arange(n, dtype=np.float32) + half) / np.float32(n))

    ix, iy = slope(data["nj"])[None, :], slope(data["ni"])[:, None]
    nearest, best = np.full((data["ni"], data["nj"]), 1e30, np.float32), np.full((data["ni"], data["nj"]), -1, np.int32)
    for b, p in enumerate(data["box"]):
        enter = np.maximum(np.maximum(p[0] * ix, p[1] * iy), p[2])
        leave = np.minimum(np.minimum(p[3] * ix, p[4] * iy), p[5])
        nearer = (enter <= leave) & (enter < nearest)
        nearest, best = np.where(nearer, enter, nearest), np.where(nearer, np.int32(b), best)
    return {"hit": best}


def shadow_spheres(rank: int, size: int, seed: int, NI: int, NJ: int, NS: int) -> Data:
    rng = np.random.default_rng(seed)
    sphere = np.column_stack([rng.random((NS, 2)), rng.uniform(0.2, 1.0, NS) ** 2 / NS])
    return {"ni": NI, "nj": NJ, "ns": NS, "sphere": sphere.astype(np.float32)}


def shadow_spheres_reference(data: Data, **_: Any) -> Data:
    px, py = ((np.arange(n, dtype=np.float32) + np.float32(0.5)) / np.float32(n) for n in (data["nj"], data["ni"]))
    dark = np.zeros((data["ni"], data["nj"]), bool)
    for x, y, square in data["sphere"]:
        dark |= (x - px)[None, :] ** 2 + (y - py)[:, None] ** 2 < square
    return {"dark": dark.astype(np.uint8)}


def radon(rank: int, size: int, seed: int, NI: int, NJ: int, NT: int) -> Data:
    angle = np.pi * np.arange(NI) / NI
    x = np.random.default_rng(seed).random((NT, NT), np.float32)
    return {
        "ni": NI, "nj": NJ, "nt": NT, "x": x,
        "cosine": np.cos(angle).astype(np.float32), "sine": np.sin(angle).astype(np.float32),
    }  # fmt: skip


def radon_reference(data: Data, **_: Any) -> Data:
    half, nt = np.float32(0.5), data["nt"]
    across, along = ((np.arange(n, dtype=np.float32) + half) / np.float32(n) - half for n in (data["nj"], nt))
    y = np.zeros((data["ni"], data["nj"]))
    for i, (c, s) in enumerate(zip(data["cosine"], data["sine"], strict=True)):
        column = np.trunc((half + across[:, None] * c - along * s) * np.float32(nt)).astype(int)
        row = np.trunc((half + across[:, None] * s + along * c) * np.float32(nt)).astype(int)
        inside = (column >= 0) & (column < nt) & (row >= 0) & (row < nt)
        y[i] = np.where(inside, data["x"][np.clip(row, 0, nt - 1), np.clip(column, 0, nt - 1)], 0).sum(axis=1)
    return {"y": y.astype(np.float32)}
