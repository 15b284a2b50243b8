"""Set-ups and references of permutations of dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def _matrix(seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, "x": np.random.default_rng(seed).random((NI, NJ), np.float32)}


def _box(seed: int, NI: int, NJ: int, NK: int) -> Data:
    return {"ni": NI, "nj": NJ, "nk": NK, "x": np.random.default_rng(seed).random((NI, NJ, NK), np.float32)}


def _transposed(data: Data, **_: Any) -> Data:
    return {"y": np.ascontiguousarray(data["x"].T)}


def transpose_read(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return _matrix(seed, NI, NJ)


transpose_read_reference = _transposed


def transpose_write(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return _matrix(seed, NI, NJ)


transpose_write_reference = _transposed


def transpose_tile(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return _matrix(seed, NI, NJ)


transpose_tile_reference = _transposed


def permute_zyx(rank: int, size: int, seed: int, NI: int, NJ: int, NK: int) -> Data:
    return _box(seed, NI, NJ, NK)


permute_zyx_reference = _transposed


def permute_yxz(rank: int, size: int, seed: int, NI: int, NJ: int, NK: int) -> Data:
    return _box(seed, NI, NJ, NK)


def permute_yxz_reference(data: Data, **_: Any) -> Data:
    return {"y": np.ascontiguousarray(data["x"].transpose(1, 0, 2))}


def interleave(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    rng = np.random.default_rng(seed)
    return {"ni": NI, "nj": NJ, **{c: rng.random((NI, NJ), np.float32) for c in "rgb"}}


def interleave_reference(data: Data, **_: Any) -> Data:
    return {"y": np.stack([data[c] for c in "rgb"], axis=-1)}


def rotate90(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, "x": np.random.default_rng(seed).integers(0, 256, (NI, NJ), np.uint8)}


def rotate90_reference(data: Data, **_: Any) -> Data:
    return {"y": np.ascontiguousarray(data["x"][::-1].T)}


def flip(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return _matrix(seed, NI, NJ)


def flip_reference(data: Data, **_: Any) -> Data:
    return {"y": np.ascontiguousarray(data["x"][::-1, ::-1])}
