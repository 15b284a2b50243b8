"""Set-up and reference of BICG: s = A^T r and q = A p."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def init(rank: int, size: int, seed: int, NX: int, NY: int) -> dict[str, int | NDArray[np.float32]]:
    """The matrix and both vectors, uniformly random in [0, 1), and their sizes."""
    rng = np.random.default_rng(seed)
    return {
        "nx": NX,
        "ny": NY,
        "a": rng.random((NX, NY), np.float32),
        "r": rng.random(NX, np.float32),
        "p": rng.random(NY, np.float32),
    }


def reference(data: dict[str, Any], **_: Any) -> dict[str, NDArray[np.float32]]:
    """`s` and `q`, in double precision."""
    a, r, p = (np.asarray(data[name], np.float64) for name in "arp")
    return {"s": (a.T @ r).astype(np.float32), "q": (a @ p).astype(np.float32)}
