"""Data of element_types.dag, and what comes of them."""

from __future__ import annotations

from typing import Any

import numpy as np

TYPES = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64")
OPERATORS = (np.add, np.multiply, np.minimum, np.maximum)


def ones(rank: int, size: int, seed: int) -> dict[str, Any]:
    return {f"{t}_x": (np.arange(3) + 2 * rank + 1).astype(f"{t[0]}{int(t[1:]) // 8}") for t in TYPES}


def results(data: dict[str, Any], *, rank: int, size: int, seed: int) -> dict[str, Any]:
    out = ones(0, size, seed)
    for r in range(1, size):
        out = {n: OPERATORS[k % 4](out[n], x) for k, (n, x) in enumerate(ones(r, size, seed).items())}
    return out
