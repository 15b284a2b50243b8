"""Set-ups and references of dense products."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def _factors(seed: int, NI: int, NJ: int, NK: int, a: tuple[int, int], b: tuple[int, int]) -> Data:
    rng = np.random.default_rng(seed)
    return {"ni": NI, "nj": NJ, "nk": NK, "a": rng.random(a, np.float32), "b": rng.random(b, np.float32)}


def _product(a: Array, b: Array) -> Data:
    return {"c": (np.asarray(a, np.float64) @ np.asarray(b, np.float64)).astype(np.float32)}


def gemm_nn(rank: int, size: int, seed: int, NI: int, NJ: int, NK: int) -> Data:
    return _factors(seed, NI, NJ, NK, (NI, NK), (NK, NJ))


def gemm_nn_reference(data: Data, **_: Any) -> Data:
    return _product(data["a"], data["b"])


def gemm_nt(rank: int, size: int, seed: int, NI: int, NJ: int, NK: int) -> Data:
    return _factors(seed, NI, NJ, NK, (NI, NK), (NJ, NK))


def gemm_nt_reference(data: Data, **_: Any) -> Data:
    return _product(data["a"], data["b"].T)


def gemm_tn(rank: int, size: int, seed: int, NI: int, NJ: int, NK: int) -> Data:
    return _factors(seed, NI, NJ, NK, (NK, NI), (NK, NJ))


def gemm_tn_reference(data: Data, **_: Any) -> Data:
    return _product(data["a"].T, data["b"])


def gemm_tt(rank: int, size: int, seed: int, NI: int, NJ: int, NK: int) -> Data:
    return _factors(seed, NI, NJ, NK, (NK, NI), (NJ, NK))


def gemm_tt_reference(data: Data, **_: Any) -> Data:
    return _product(data["a"].T, data["b"].T)


gemm_tile = gemm_registers = gemm_nn
gemm_tile_reference = gemm_registers_reference = gemm_nn_reference


def gemm_batched(rank: int, size: int, seed: int, N: int) -> Data:
    rng = np.random.default_rng(seed)
    return {"n": N, **{name: rng.random((N, 16, 16), np.float32) for name in "ab"}}


def gemm_batched_reference(data: Data, **_: Any) -> Data:
    return _product(data["a"], data["b"])
