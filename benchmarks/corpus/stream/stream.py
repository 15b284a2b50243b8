"""Set-ups and references of element-wise kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def _uniform(seed: int, names: str, *shape: int) -> Data:
    rng = np.random.default_rng(seed)
    return {name: rng.random(shape, np.float32) for name in names.split()}


def fill(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, "value": 0.5 + seed}


def fill_reference(data: Data, **_: Any) -> Data:
    return {"y": np.full((data["ni"], data["nj"]), data["value"], np.float32)}


def scale(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, **_uniform(seed, "x", NI, NJ)}


def scale_reference(data: Data, **_: Any) -> Data:
    return {"y": 2 * data["x"]}


def add(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, **_uniform(seed, "a b", NI, NJ)}


def add_reference(data: Data, **_: Any) -> Data:
    return {"y": data["a"] + data["b"]}


def blend(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, **_uniform(seed, "a b t", NI, NJ)}


def blend_reference(data: Data, **_: Any) -> Data:
    return {"y": data["a"] * data["t"] + data["b"] * (1 - data["t"])}


def adam(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, **_uniform(seed, "g w m v", NI, NJ)}


def adam_reference(data: Data, **_: Any) -> Data:
    g, w, m, v = (np.asarray(data[name], np.float64) for name in "gwmv")
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    w = w - 0.001 * m / (np.sqrt(v) + 1e-8)
    return {name: value.astype(np.float32) for name, value in (("w", w), ("m", m), ("v", v))}


def saxpy_items(rank: int, size: int, seed: int, N: int) -> Data:
    return {"n": N, "a": 0.5, **_uniform(seed, "x y", N)}


def saxpy_items_reference(data: Data, **_: Any) -> Data:
    return {"y": data["y"] + np.float32(data["a"]) * data["x"]}


def triad_grid_stride(rank: int, size: int, seed: int, N: int) -> Data:
    return {"n": N, **_uniform(seed, "a b", N)}


def triad_grid_stride_reference(data: Data, **_: Any) -> Data:
    return {"y": data["a"] + np.float32(0.5) * data["b"]}


def complex_multiply(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, **_uniform(seed, "a_re a_im b_re b_im", NI, NJ)}


def complex_multiply_reference(data: Data, **_: Any) -> Data:
    c = (data["a_re"] + 1j * data["a_im"]) * (data["b_re"] + 1j * data["b_im"])
    return {"c_re": c.real.astype(np.float32), "c_im": c.imag.astype(np.float32)}
