"""Set-ups and references of updates at listed places under a mask."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def masked_rows(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    rng = np.random.default_rng(seed)
    x, y = (rng.random((NI, NJ), np.float32) for _ in range(2))
    mask = (rng.random((NI, NJ), np.float32) < 0.3).astype(np.uint8)
    return {"ni": NI, "nj": NJ, "x": x, "y": y, "row": rng.permutation(NI).astype(np.int32), "mask": mask}


def masked_rows_reference(data: Data, **_: Any) -> Data:
    mask = np.empty_like(data["mask"])
    mask[data["row"]] = data["mask"]
    return {"y": np.where(mask, data["y"] + np.float32(1.5) * data["x"], data["y"])}


def saxpy_masked(rank: int, size: int, seed: int, N: int) -> Data:
    """Places of neighbours are near each other: a permutation within stretches of 256."""
    rng = np.random.default_rng(seed)
    at = np.argsort(np.arange(N) // 256 + rng.random(N) * 0.999).astype(np.int32)
    x, y = (rng.random(N, np.float32) for _ in range(2))
    return {"n": N, "x": x, "y": y, "at": at, "mask": (rng.random(N, np.float32) < 0.3).astype(np.uint8)}


def saxpy_masked_reference(data: Data, **_: Any) -> Data:
    y = data["y"].copy()
    chosen = data["mask"] != 0
    y[data["at"][chosen]] += np.float32(1.5) * data["x"][chosen]
    return {"y": y}
