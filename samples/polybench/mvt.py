"""Set-up and reference of MVT: x1 = x1 + A y1 and x2 = x2 + A^T y2."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def init(rank: int, size: int, seed: int, N: int) -> dict[str, int | NDArray[np.float32]]:
    """The matrix and the four vectors, uniformly random in [0, 1), and their size."""
    rng = np.random.default_rng(seed)
    vectors = {name: rng.random(N, np.float32) for name in ("x1", "x2", "y1", "y2")}
    return {"n": N, "a": rng.random((N, N), np.float32)} | vectors


def reference(data: dict[str, Any], **_: Any) -> dict[str, NDArray[np.float32]]:
    """`x1` and `x2` after the program, in double precision."""
    a, x1, x2, y1, y2 = (np.asarray(data[name], np.float64) for name in ("a", "x1", "x2", "y1", "y2"))
    return {"x1": (x1 + a @ y1).astype(np.float32), "x2": (x2 + a.T @ y2).astype(np.float32)}
