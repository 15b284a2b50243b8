"""Set-up and reference of GESUMMV: y = alpha A x + beta B x."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def init(rank: int, size: int, seed: int, N: int) -> dict[str, int | NDArray[np.float32]]:
    """Both matrices and the vector, uniformly random in [0, 1), and their size."""
    rng = np.random.default_rng(seed)
    return {
        "n": N,
        "a": rng.random((N, N), np.float32),
        "b": rng.random((N, N), np.float32),
        "x": rng.random(N, np.float32),
    }


def reference(data: dict[str, Any], *, alpha: float, beta: float, **_: Any) -> dict[str, NDArray[np.float32]]:
    """`y`, in double precision."""
    a, b, x = (np.asarray(data[name], np.float64) for name in "abx")
    return {"y": (alpha * (a @ x) + beta * (b @ x)).astype(np.float32)}
