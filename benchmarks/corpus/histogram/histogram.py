"""Set-ups and references of histograms and other sums by atomic additions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def bins_global(rank: int, size: int, seed: int, N: int, NB: int) -> Data:
    return {"n": N, "nb": NB, "x": np.random.default_rng(seed).integers(0, NB, N, np.int32)}


def bins_global_reference(data: Data, **_: Any) -> Data:
    return {"bins": np.bincount(data["x"], minlength=data["nb"]).astype(np.int32)}


def bytes_shared(rank: int, size: int, seed: int, N: int) -> Data:
    """Half of the bytes are in 16 of the 256 bins, as in text."""
    rng = np.random.default_rng(seed)
    common, any_byte = rng.integers(97, 113, N, np.uint8), rng.integers(0, 256, N, np.uint8)
    return {"n": N, "x": np.where(rng.integers(0, 2, N, np.uint8) == 1, common, any_byte)}


def bytes_shared_reference(data: Data, **_: Any) -> Data:
    return {"bins": np.bincount(data["x"], minlength=256).astype(np.int32)}


def _image(rng: np.random.Generator, NI: int, NJ: int) -> Array:
    """Smooth, with noise of 8 levels."""
    v, u = np.linspace(0, 9, NI, dtype=np.float32)[:, None], np.linspace(0, 7, NJ, dtype=np.float32)[None]
    return (np.sin(v) * np.cos(u) * 120 + 124 + rng.integers(0, 8, (NI, NJ), np.uint8)).astype(np.uint8)


def joint(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    rng = np.random.default_rng(seed)
    a = _image(rng, NI, NJ)
    return {"ni": NI, "nj": NJ, "a": a, "b": (255 - a) // 2 + rng.integers(0, 32, (NI, NJ), np.uint8)}


def joint_reference(data: Data, **_: Any) -> Data:
    at = data["a"].astype(np.int64) // 4 * 64 + data["b"] // 4
    return {"bins": np.bincount(at.ravel(), minlength=4096).astype(np.int32)}


def row_histograms(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, "x": _image(np.random.default_rng(seed), NI, NJ)}


def row_histograms_reference(data: Data, **_: Any) -> Data:
    at = 32 * np.arange(data["ni"])[:, None] + data["x"] // 8
    return {"bins": np.bincount(at.ravel(), minlength=32 * data["ni"]).astype(np.int32)}


def deposit(rank: int, size: int, seed: int, N: int, NJ: int) -> Data:
    rng = np.random.default_rng(seed)
    px = rng.random(N, np.float32)
    order = np.linspace(0, 1, N, dtype=np.float32) + rng.uniform(-0.01, 0.01, N).astype(np.float32)
    return {"n": N, "nj": NJ, "px": px, "py": np.clip(order, 0, 1), "q": rng.random(N, np.float32)}


def deposit_reference(data: Data, **_: Any) -> Data:
    nj, charge = data["nj"], np.asarray(data["q"], np.float64)
    x, y = ((data[name] * np.float32(nj - 1)).astype(np.float64) for name in ("px", "py"))
    c, r = (np.minimum(a.astype(np.int64), nj - 2) for a in (x, y))
    u, v, rho = x - c, y - r, np.zeros(nj * nj)
    for down, right, share in ((0, 0, (1 - u) * (1 - v)), (0, 1, u * (1 - v)), (1, 0, (1 - u) * v), (1, 1, u * v)):
        rho += np.bincount((r + down) * nj + c + right, charge * share, nj * nj)
    return {"rho": rho.astype(np.float32)}


def splat_image(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, "x": np.random.default_rng(seed).random((NI, NJ), np.float32)}


def splat_image_reference(data: Data, **_: Any) -> Data:
    ni, nj = data["x"].shape
    i, j = np.arange(ni)[:, None], np.arange(nj)[None]
    at = (i + j // 8) % ni // 2 * nj + (j + i // 4) % nj // 2
    return {"y": np.bincount(at.ravel(), data["x"].ravel().astype(np.float64), ni * nj).astype(np.float32)}
