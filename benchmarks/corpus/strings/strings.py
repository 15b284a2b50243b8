"""Set-ups and references of searches in texts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def match_patterns(rank: int, size: int, seed: int, N: int, M: int) -> Data:
    """Letters of four kinds, the first two more often."""
    rng = np.random.default_rng(seed)
    text = np.minimum(rng.integers(0, 8, N + 8, np.uint8) // 2, rng.integers(0, 4, N + 8, np.uint8))
    return {"n": N, "m": M, "text": text, "pattern": rng.integers(0, 4, (M, 8), np.uint8)}


def match_patterns_reference(data: Data, **_: Any) -> Data:
    text, n = data["text"], data["n"]
    wrong = sum((text[None, k : n + k] != data["pattern"][:, k : k + 1]).astype(np.uint8) for k in range(8))
    return {"found": (wrong < 2).astype(np.uint8)}
