"""Data of several.dag and hops.dag."""

from __future__ import annotations

from typing import Any

import numpy as np

F32 = np.ndarray[Any, np.dtype[np.float32]]


def matrices(rank: int, size: int, seed: int, *, n: int) -> dict[str, Any]:
    draw = np.random.default_rng([seed, rank])
    return {name: (draw.random((n, n), np.float32) / np.float32(n**0.5)) for name in "ABCD"}


def expected(data: dict[str, F32], **_: Any) -> dict[str, F32]:
    return {"G": (data["A"] @ data["B"]) @ (data["C"] @ data["D"])}


def numbers(rank: int, size: int, seed: int, *, n: int) -> dict[str, Any]:
    return {"x": np.random.default_rng([seed, rank]).random(n, np.float32)}


def ten_more(data: dict[str, F32], **_: Any) -> dict[str, F32]:
    return {"y": data["x"] + np.float32(10)}
