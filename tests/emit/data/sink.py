"""Arrays of sink.dag and what they must become."""

from __future__ import annotations

from typing import Any

import numpy as np

Rank = dict[str, Any]


def make(rank: int, size: int, seed: int, count: int) -> Rank:
    random = np.random.default_rng([seed, rank])
    n = count + rank
    return {
        "n": np.int32(n),
        "weight": np.float32(0.25),
        "towards": np.int32(rank + 1 if rank + 1 < size else -1),
        "from_": np.int32(rank - 1),
        "a": random.standard_normal(n),
        "grid2": np.arange(3 * n, dtype=np.int32).reshape(3, n),
        "kept": random.standard_normal(n),
        "root_": np.arange(4, dtype=np.int64) + 2**40 * (rank == 0),
        "edge_r": np.full(8, -1.0),
        "e": random.standard_normal(n),
    }


def reference(data: Rank, rank: int, size: int, seed: int, count: int) -> Rank:
    c = 0.5 * data["a"] + 0.5 * 0.25 + 1
    total = np.zeros(2)
    for other in range(size):
        theirs = make(other, size, seed, count)
        total += [np.sum(0.5 * theirs["a"] + 0.5 * 0.25 + 1), np.sum(theirs["kept"])]
    return {
        "out_h": c,
        "grid2": data["grid2"] + 10 * np.arange(3, dtype=np.int32)[:, None],
        "total": total,
        "root_": np.arange(4, dtype=np.int64) + 2**40,
        "seen": make(rank - 1, size, seed, count)["a"][:8] if rank else data["edge_r"],
        "o": 4 * data["e"],
    }
