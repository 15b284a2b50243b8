"""Set-up and reference of pipeline.dag: a network with one layer a rank."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def samples(seed: int, batches: int, batch: int, width: int) -> NDArray[np.float32]:
    """The input of the network, shape (batches * batch, width)."""
    return np.random.default_rng(seed).random((batches * batch, width), np.float32)


def layer(rank: int, seed: int, width: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Weights, shape (width, width), and bias of a rank; about half of the results are positive."""
    random = np.random.default_rng([seed, rank])
    weights = (random.random((width, width), np.float32) * 2 - np.float32(0.99)) / np.float32(width**0.5)
    return weights, random.random(width, np.float32) - np.float32(0.5)


def stage(rank: int, size: int, seed: int, batches: int, batch: int, width: int) -> dict[str, NDArray[Any]]:
    """What one rank has: its layer, and the input, which only the first reads."""
    weights, bias = layer(rank, seed, width)
    x = samples(seed, batches, batch, width) if rank == 0 else np.zeros((batches * batch, width), np.float32)
    return {"w": weights, "bias": bias, "x": x, "result": np.zeros_like(x)}


def forward(
    data: dict[str, Any], *, rank: int, size: int, seed: int, batches: int, batch: int, width: int
) -> dict[str, NDArray[Any]]:
    """The output of the whole network on the last rank, from the whole input; zeros on the others."""
    if rank + 1 < size:
        return {"result": np.zeros_like(data["result"])}
    x = samples(seed, batches, batch, width).astype(np.float64)
    for r in range(size):
        weights, bias = layer(r, seed, width)
        x = np.maximum(x @ weights + bias, 0)
    return {"result": x.astype(np.float32)}
