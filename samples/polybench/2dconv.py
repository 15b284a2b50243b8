"""Set-up and reference of 2DCONV: a 3 x 3 stencil over a matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

WEIGHTS = ((0.2, -0.3, 0.4), (0.5, 0.6, 0.7), (-0.8, -0.9, 0.1))  # of the rows above, here and below


def init(rank: int, size: int, seed: int, NI: int, NJ: int) -> dict[str, int | NDArray[np.float32]]:
    """The matrix, uniformly random in [0, 1), and its size."""
    rng = np.random.default_rng(seed)
    return {"ni": NI, "nj": NJ, "a": rng.random((NI, NJ), np.float32)}


def reference(data: dict[str, Any], **_: Any) -> dict[str, NDArray[np.float32]]:
    """`b`, in double precision; 0 on its border."""
    a = np.asarray(data["a"], np.float64)
    ni, nj = a.shape
    b = np.zeros((ni, nj))
    for p, row in enumerate(WEIGHTS):
        for q, weight in enumerate(row):
            b[1:-1, 1:-1] += weight * a[p : p + max(ni - 2, 0), q : q + max(nj - 2, 0)]
    return {"b": b.astype(np.float32)}
