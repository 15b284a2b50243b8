"""Set-up and reference of 3MM: G = (A B) (C D)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def init(
    rank: int, size: int, seed: int, NI: int, NJ: int, NK: int, NL: int, NM: int
) -> dict[str, int | NDArray[np.float32]]:
    """The four matrices, uniformly random in [0, 1), and their sizes."""
    rng = np.random.default_rng(seed)
    return {
        "ni": NI,
        "nj": NJ,
        "nk": NK,
        "nl": NL,
        "nm": NM,
        "a": rng.random((NI, NK), np.float32),
        "b": rng.random((NK, NJ), np.float32),
        "c": rng.random((NJ, NM), np.float32),
        "d": rng.random((NM, NL), np.float32),
    }


def reference(data: dict[str, Any], **_: Any) -> dict[str, NDArray[np.float32]]:
    """`g`, in double precision."""
    a, b, c, d = (np.asarray(data[name], np.float64) for name in "abcd")
    return {"g": ((a @ b) @ (c @ d)).astype(np.float32)}
