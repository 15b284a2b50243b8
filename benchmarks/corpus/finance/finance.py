"""Set-ups and references of random walks of prices."""

from __future__ import annotations

from typing import Any

import numpy as np

Data = dict[str, Any]


def asian_paths(rank: int, size: int, seed: int, N: int) -> Data:
    return {"n": N, "drift": 0.001, "spread": 0.2, "strike": 1.0}


def asian_paths_reference(data: Data, **_: Any) -> Data:
    state = np.arange(data["n"], dtype=np.uint32) * np.uint32(2654435761) + np.uint32(12345)
    price, total = np.ones(data["n"]), np.zeros(data["n"])
    for _step in range(32):
        state = state * np.uint32(1664525) + np.uint32(1013904223)
        price *= 1 + data["drift"] + data["spread"] * ((state >> np.uint32(8)) / 16777216 - 0.5)
        total += price
    return {"y": np.maximum(total / 32 - data["strike"], 0).astype(np.float32)}
