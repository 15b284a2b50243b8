"""Set-ups and references of loops over all pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def nbody(rank: int, size: int, seed: int, N: int) -> Data:
    """Positions, and masses as their fourth component."""
    return {"n": N, "p": np.random.default_rng(seed).random((N, 4), np.float32)}


def nbody_reference(data: Data, **_: Any) -> Data:
    p = np.asarray(data["p"], np.float64)
    d = p[None, :, :3] - p[:, None, :3]
    w = p[None, :, 3] * ((d * d).sum(axis=2) + 1e-3) ** -1.5
    force = (w[:, :, None] * d).sum(axis=1)
    return {"f": np.concatenate([force, p[:, 3:]], axis=1).astype(np.float32)}


nbody_tile, nbody_tile_reference = nbody, nbody_reference


def distances(rank: int, size: int, seed: int, NI: int, NJ: int, NK: int) -> Data:
    rng = np.random.default_rng(seed)
    return {"ni": NI, "nj": NJ, "nk": NK, "a": rng.random((NI, NK), np.float32), "b": rng.random((NJ, NK), np.float32)}


def distances_reference(data: Data, **_: Any) -> Data:
    a, b = (np.asarray(data[name], np.float64) for name in "ab")
    return {"y": ((a[:, None] - b[None]) ** 2).sum(axis=2).astype(np.float32)}


def nearest(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    rng = np.random.default_rng(seed)
    lengths = {"qx": NI, "qy": NI, "px": NJ, "py": NJ}
    return {"ni": NI, "nj": NJ, **{name: rng.random(n, np.float32) for name, n in lengths.items()}}


def nearest_reference(data: Data, **_: Any) -> Data:
    """In single precision: where two distances are equal, the first one counts."""
    dx, dy = data["px"][None] - data["qx"][:, None], data["py"][None] - data["qy"][:, None]
    return {"best": (dx * dx + dy * dy).argmin(axis=1).astype(np.int32)}


def density_map(rank: int, size: int, seed: int, NI: int, NJ: int, NK: int) -> Data:
    rng = np.random.default_rng(seed)
    return {"ni": NI, "nj": NJ, "nk": NK, "sx": rng.random(NK, np.float32), "sy": rng.random(NK, np.float32)}


def density_map_reference(data: Data, **_: Any) -> Data:
    ni, nj = data["ni"], data["nj"]
    dx = data["sx"][None, None] - (np.arange(nj) / nj)[None, :, None]
    dy = data["sy"][None, None] - (np.arange(ni) / ni)[:, None, None]
    return {"y": np.exp(-50 * (dx * dx + dy * dy)).sum(axis=2).astype(np.float32)}
