"""Data of ring.dag."""

from __future__ import annotations

from typing import Any

import numpy as np


def _bytes(rank: int, seed: int, n: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng([seed, rank]).integers(-128, 128, n, dtype=np.int8)


def numbers(rank: int, size: int, seed: int, *, bytes: int) -> dict[str, Any]:
    return {
        "n": bytes, "next": (rank + 1) % size, "previous": (rank - 1) % size, "from_here": _bytes(rank, seed, bytes),
    }  # fmt: skip


def shifted(data: dict[str, Any], *, rank: int, size: int, seed: int, bytes: int) -> dict[str, Any]:
    return {"from_there": _bytes((rank - 1) % size, seed, bytes)}
