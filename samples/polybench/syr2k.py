"""Set-up and reference of SYR2K: C = alpha A B^T + alpha B A^T + beta C."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def init(rank: int, size: int, seed: int, NI: int, NJ: int) -> dict[str, int | NDArray[np.float32]]:
    """The three matrices, uniformly random in [0, 1), and their sizes. C is not symmetric: nothing relies on it."""
    rng = np.random.default_rng(seed)
    return {
        "ni": NI,
        "nj": NJ,
        "a": rng.random((NI, NJ), np.float32),
        "b": rng.random((NI, NJ), np.float32),
        "c": rng.random((NI, NI), np.float32),
    }


def reference(data: dict[str, Any], *, alpha: float, beta: float, **_: Any) -> dict[str, NDArray[np.float32]]:
    """`c` after the program, in double precision."""
    a, b, c = (np.asarray(data[name], np.float64) for name in "abc")
    product = a @ b.T
    return {"c": (alpha * (product + product.T) + beta * c).astype(np.float32)}
