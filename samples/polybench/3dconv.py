"""Set-up and reference of 3DCONV: a stencil of 11 points over a cube, with PolyBench's 15 terms."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# Offsets (i, j, k) and their weights. Three of PolyBench's terms are at each of the first two points: they are summed.
WEIGHTS = {
    (-1, -1, -1): 2.0 + 5.0 - 8.0,
    (1, -1, -1): 4.0 + 7.0 + 10.0,
    (0, -1, 0): -3.0,
    (0, 0, 0): 6.0,
    (0, 1, 0): -9.0,
    (-1, -1, 1): 2.0,
    (1, -1, 1): 4.0,
    (-1, 0, 1): 5.0,
    (1, 0, 1): 7.0,
    (-1, 1, 1): -8.0,
    (1, 1, 1): 10.0,
}


def init(rank: int, size: int, seed: int, NI: int, NJ: int, NK: int) -> dict[str, int | NDArray[np.float32]]:
    """The cube, uniformly random in [0, 1), and its size."""
    rng = np.random.default_rng(seed)
    return {"ni": NI, "nj": NJ, "nk": NK, "a": rng.random((NI, NJ, NK), np.float32)}


def reference(data: dict[str, Any], **_: Any) -> dict[str, NDArray[np.float32]]:
    """`b`, in double precision; 0 on its border."""
    a = np.asarray(data["a"], np.float64)
    inner = [max(n - 2, 0) for n in a.shape]
    b = np.zeros(a.shape)
    for offset, weight in WEIGHTS.items():
        place = tuple(slice(1 + d, 1 + d + n) for d, n in zip(offset, inner, strict=True))
        b[1:-1, 1:-1, 1:-1] += weight * a[place]
    return {"b": b.astype(np.float32)}
