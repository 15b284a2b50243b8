"""Set-up and reference of 2MM: D = alpha A B C + beta D."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def init(rank: int, size: int, seed: int, NI: int, NJ: int, NK: int, NL: int) -> dict[str, int | NDArray[np.float32]]:
    """The four matrices, uniformly random in [0, 1), and their sizes."""
    rng = np.random.default_rng(seed)
    return {
        "ni": NI,
        "nj": NJ,
        "nk": NK,
        "nl": NL,
        "a": rng.random((NI, NK), np.float32),
        "b": rng.random((NK, NJ), np.float32),
        "c": rng.random((NJ, NL), np.float32),
        "d": rng.random((NI, NL), np.float32),
    }


def reference(data: dict[str, Any], *, alpha: float, beta: float, **_: Any) -> dict[str, NDArray[np.float32]]:
    """`d` after the program, in double precision."""
    a, b, c, d = (np.asarray(data[name], np.float64) for name in "abcd")
    return {"d": (alpha * (a @ b @ c) + beta * d).astype(np.float32)}
