"""Set-up and reference of ATAX: y = A^T (A x)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def init(rank: int, size: int, seed: int, NX: int, NY: int) -> dict[str, int | NDArray[np.float32]]:
    """The matrix and the vector, uniformly random in [0, 1), and their sizes."""
    rng = np.random.default_rng(seed)
    return {"nx": NX, "ny": NY, "a": rng.random((NX, NY), np.float32), "x": rng.random(NY, np.float32)}


def reference(data: dict[str, Any], **_: Any) -> dict[str, NDArray[np.float32]]:
    """`y`, in double precision."""
    a, x = (np.asarray(data[name], np.float64) for name in "ax")
    return {"y": (a.T @ (a @ x)).astype(np.float32)}
