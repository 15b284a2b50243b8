"""Set-ups and references of scatters: neighbouring threads read neighbours, and write elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def _matrix(seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, "x": np.random.default_rng(seed).random((NI, NJ), np.float32)}


def deal_columns(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    """Eight banks; NJ is a multiple of 8."""
    assert NJ % 8 == 0
    return {**_matrix(seed, NI, NJ), "ways": 8}


def deal_columns_reference(data: Data, **_: Any) -> Data:
    x, ways = data["x"], data["ways"]
    return {"y": np.concatenate([x[:, bank::ways] for bank in range(ways)], axis=1)}


def shear(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return _matrix(seed, NI, NJ)


def shear_reference(data: Data, **_: Any) -> Data:
    return {"y": np.stack([np.roll(row, 3 * i) for i, row in enumerate(data["x"])])}


def rotate_diagonals(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return _matrix(seed, NI, NJ)


def rotate_diagonals_reference(data: Data, **_: Any) -> Data:
    return {"y": np.stack([np.roll(column, j) for j, column in enumerate(data["x"].T)], axis=1)}


def scatter_rows(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return {**_matrix(seed, NI, NJ), "row": np.random.default_rng(seed + 1).permutation(NI).astype(np.int32)}


def scatter_rows_reference(data: Data, **_: Any) -> Data:
    y = np.empty_like(data["x"])
    y[data["row"]] = data["x"]
    return {"y": y}


def scatter_indexed(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return {**_matrix(seed, NI, NJ), "column": np.random.default_rng(seed + 1).permutation(NJ).astype(np.int32)}


def scatter_indexed_reference(data: Data, **_: Any) -> Data:
    y = np.empty_like(data["x"])
    y[:, data["column"]] = data["x"]
    return {"y": y}


def scatter_hashed(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    step = int(NI * NJ * 0.6180339887) | 1
    while np.gcd(step, NI * NJ) != 1:
        step += 2
    return {**_matrix(seed, NI, NJ), "step": step}


def scatter_hashed_reference(data: Data, **_: Any) -> Data:
    x = data["x"].ravel()
    y = np.empty_like(x)
    y[(np.arange(x.size, dtype=np.int64) * data["step"] + 7) % x.size] = x
    return {"y": y.reshape(data["x"].shape)}


def block_cyclic(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    assert NI % 32 == 0
    assert NJ % 32 == 0
    return _matrix(seed, NI, NJ)


def block_cyclic_reference(data: Data, **_: Any) -> Data:
    ni, nj = data["x"].shape
    tiles = data["x"].reshape(ni // 32, 32, nj // 32, 32).transpose(0, 2, 1, 3)
    return {"y": np.ascontiguousarray(tiles).reshape(ni, nj)}
