"""Set-ups and references of gathers: neighbouring threads write neighbours, and read elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def _matrix(seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, "x": np.random.default_rng(seed).random((NI, NJ), np.float32)}


def gather_stride(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return _matrix(seed, NI, NJ)


def gather_stride_reference(data: Data, **_: Any) -> Data:
    nj = data["nj"]
    return {"y": data["x"][:, 7 * np.arange(nj) % nj]}


def rotate_image(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return _matrix(seed, NI, NJ)


def rotate_image_reference(data: Data, **_: Any) -> Data:
    ni, nj = data["x"].shape
    v, u = np.arange(ni)[:, None] - ni // 2, np.arange(nj)[None, :] - nj // 2
    row = (56756 * v - 32768 * u >> 16) + ni // 2
    column = (32768 * v + 56756 * u >> 16) + nj // 2
    inside = (row >= 0) & (row < ni) & (column >= 0) & (column < nj)
    y = data["x"][np.clip(row, 0, ni - 1), np.clip(column, 0, nj - 1)]
    return {"y": np.where(inside, y, np.float32(0))}


def remap_bilinear(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    """Maps of a mild barrel distortion, inside the image."""
    v, u = np.linspace(-1, 1, NI)[:, None], np.linspace(-1, 1, NJ)[None, :]
    stretch = 1 - 0.1 * (u * u + v * v)
    rows, columns = (v * stretch + 1) / 2 * (NI - 1), (u * stretch + 1) / 2 * (NJ - 1)
    return {**_matrix(seed, NI, NJ), "map_y": rows.astype(np.float32), "map_x": columns.astype(np.float32)}


def remap_bilinear_reference(data: Data, **_: Any) -> Data:
    ni, nj = data["x"].shape
    row, column, x = (np.asarray(data[name], np.float64) for name in ("map_y", "map_x", "x"))
    top, left = np.minimum(row.astype(int), ni - 2), np.minimum(column.astype(int), nj - 2)
    down, right = row - top, column - left
    above = (1 - right) * x[top, left] + right * x[top, left + 1]
    below = (1 - right) * x[top + 1, left] + right * x[top + 1, left + 1]
    return {"y": ((1 - down) * above + down * below).astype(np.float32)}


def gather_indexed(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    rng = np.random.default_rng(seed + 1)
    row, column = rng.integers(0, NI, NI, np.int32), rng.integers(0, NJ, NJ, np.int32)
    return {**_matrix(seed, NI, NJ), "row": row, "column": column}


def gather_indexed_reference(data: Data, **_: Any) -> Data:
    return {"y": data["x"][data["row"]][:, data["column"]]}


def hash_features(rank: int, size: int, seed: int, NI: int, NJ: int, NT: int) -> Data:
    return {"ni": NI, "nj": NJ, "nt": NT, "table": np.random.default_rng(seed).random(NT, np.float32)}


def hash_features_reference(data: Data, **_: Any) -> Data:
    i, j = np.arange(data["ni"], dtype=np.uint32)[:, None], np.arange(data["nj"], dtype=np.uint32)[None, :]
    h = (i * np.uint32(2654435761)) ^ (j * np.uint32(805459861))
    h ^= h >> np.uint32(15)
    return {"y": data["table"][h % np.uint32(data["nt"])]}


def embedding(rank: int, size: int, seed: int, NI: int, NJ: int, NT: int) -> Data:
    """Tokens as words are: few are frequent (Zipf)."""
    rng = np.random.default_rng(seed)
    token = (rng.zipf(1.3, NI) % NT).astype(np.int32)
    return {"ni": NI, "nj": NJ, "nt": NT, "table": rng.random((NT, NJ), np.float32), "token": token}


def embedding_reference(data: Data, **_: Any) -> Data:
    return {"y": data["table"][data["token"]]}


def interpolate_search(rank: int, size: int, seed: int, N: int, NT: int) -> Data:
    rng = np.random.default_rng(seed)
    steps = rng.uniform(0.5, 1.5, NT)
    grid = (np.cumsum(steps) - steps[0]) / (np.sum(steps) - steps[0])
    return {
        "n": N,
        "nt": NT,
        "x": rng.random(N, np.float32),
        "grid_x": grid.astype(np.float32),
        "grid_y": np.cumsum(rng.standard_normal(NT)).astype(np.float32),
    }


def interpolate_search_reference(data: Data, **_: Any) -> Data:
    x, grid_x, grid_y = (np.asarray(data[name], np.float64) for name in ("x", "grid_x", "grid_y"))
    return {"y": np.interp(x, grid_x, grid_y).astype(np.float32)}
