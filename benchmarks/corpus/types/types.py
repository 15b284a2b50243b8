"""Set-ups and references of kernels on double precision, bytes and short vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def blend_float4(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    rng = np.random.default_rng(seed)
    return {"ni": NI, "nj": NJ, **{name: rng.random((NI, NJ, 4), np.float32) for name in "ab"}}


def blend_float4_reference(data: Data, **_: Any) -> Data:
    a, b = (np.asarray(data[name], np.float64) for name in "ab")
    return {"y": (a + (1 - a[:, :, 3:]) * b).astype(np.float32)}


def axpy_vector(rank: int, size: int, seed: int, N: int) -> Data:
    assert N % 4 == 0
    rng = np.random.default_rng(seed)
    return {"n": N, "x": rng.random(N, np.float32), "y": rng.random(N, np.float32)}


def axpy_vector_reference(data: Data, **_: Any) -> Data:
    return {"y": data["y"] + np.float32(0.5) * data["x"]}


def gemm_f64(rank: int, size: int, seed: int, NI: int, NJ: int, NK: int) -> Data:
    rng = np.random.default_rng(seed)
    return {"ni": NI, "nj": NJ, "nk": NK, "a": rng.random((NI, NK)), "b": rng.random((NK, NJ))}


def gemm_f64_reference(data: Data, **_: Any) -> Data:
    return {"c": data["a"] @ data["b"]}


def jacobi_f64(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, "x": np.random.default_rng(seed).random((NI, NJ))}


def jacobi_f64_reference(data: Data, **_: Any) -> Data:
    x = data["x"]
    y = x.copy()
    y[1:-1, 1:-1] = 0.25 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:])
    return {"y": y}


def _bytes(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def gray_bytes(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, "x": _bytes(seed, NI, NJ, 3)}


def gray_bytes_reference(data: Data, **_: Any) -> Data:
    return {"y": (data["x"].astype(np.int32) @ np.array([77, 150, 29]) >> 8).astype(np.uint8)}


def gemm_bytes(rank: int, size: int, seed: int, NI: int, NJ: int, NK: int) -> Data:
    assert NK % 4 == 0
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-128, 128, (n, NK), np.int8) for n in (NI, NJ))
    return {"ni": NI, "nj": NJ, "nk": NK, "a": a, "b": b}


def gemm_bytes_reference(data: Data, **_: Any) -> Data:
    return {"c": data["a"].astype(np.int32) @ data["b"].astype(np.int32).T}


def table_bytes(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    table = (255 * (np.arange(256) / 255) ** 2.2 + 0.5).astype(np.uint8)
    return {"ni": NI, "nj": NJ, "x": _bytes(seed, NI, NJ), "table": table}


def table_bytes_reference(data: Data, **_: Any) -> Data:
    return {"y": data["table"][data["x"]]}


def threshold_uchar4(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    assert NJ % 4 == 0
    return {"ni": NI, "nj": NJ, "x": _bytes(seed, NI, NJ)}


def threshold_uchar4_reference(data: Data, **_: Any) -> Data:
    return {"y": np.where(data["x"] > 100, np.uint8(255), np.uint8(0))}
