"""Set-ups and references of normalised rows and scores."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def rms_norm(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    rng = np.random.default_rng(seed)
    return {"ni": NI, "nj": NJ, "x": rng.random((NI, NJ), np.float32), "w": rng.random(NJ, np.float32)}


def rms_norm_reference(data: Data, **_: Any) -> Data:
    x = data["x"].astype(np.float64)
    return {"y": (x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-6) * data["w"]).astype(np.float32)}


def log_sum_columns(rank: int, size: int, seed: int, NI: int, NK: int, NJ: int) -> Data:
    return {"ni": NI, "nk": NK, "nj": NJ, "x": 4 * np.random.default_rng(seed).random((NI, NK, NJ), np.float32)}


def log_sum_columns_reference(data: Data, **_: Any) -> Data:
    return {"y": np.log(np.exp(data["x"].astype(np.float64)).sum(axis=1)).astype(np.float32)}


def causal_scores(rank: int, size: int, seed: int, NI: int) -> Data:
    rng = np.random.default_rng(seed)
    return {"ni": NI, **{name: rng.random((NI, 64), np.float32) for name in "qk"}}


def causal_scores_reference(data: Data, **_: Any) -> Data:
    scores = 0.125 * data["q"].astype(np.float64) @ data["k"].T
    return {"s": np.where(np.tri(data["ni"], dtype=bool), scores, -1e9).astype(np.float32)}
