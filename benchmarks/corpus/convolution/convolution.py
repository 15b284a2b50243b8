"""Set-ups and references of convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def _image(seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, "x": np.random.default_rng(seed).random((NI, NJ), np.float32)}


def _weights(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed + 1).random(shape, np.float32)


def _filtered(x: Array, weights: Array, axis: int, mode: str) -> Array:
    """Correlation along an axis, in double precision. `mode`: of numpy.pad."""
    r = len(weights) // 2
    padded = np.pad(np.asarray(x, np.float64), [(r, r) if a == axis else (0, 0) for a in (0, 1)], mode)  # type: ignore[call-overload]
    n = x.shape[axis]
    return sum(w * np.take(padded, range(k, k + n), axis) for k, w in enumerate(weights))  # type: ignore[no-any-return]


def rows_radius8(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return {**_image(seed, NI, NJ), "weight": _weights(seed, 17)}


def rows_radius8_reference(data: Data, **_: Any) -> Data:
    return {"y": _filtered(data["x"], data["weight"], 1, "edge").astype(np.float32)}


def columns_radius8(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return {**_image(seed, NI, NJ), "weight": _weights(seed, 17)}


def columns_radius8_reference(data: Data, **_: Any) -> Data:
    return {"y": _filtered(data["x"], data["weight"], 0, "edge").astype(np.float32)}


def gauss5(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return _image(seed, NI, NJ)


def gauss5_reference(data: Data, **_: Any) -> Data:
    weights = np.array([1, 4, 6, 4, 1]) / 16
    y = _filtered(_filtered(data["x"], weights, 0, "edge"), weights, 1, "edge")
    return {"y": y.astype(np.float32)}


def channels3x3(rank: int, size: int, seed: int, NC: int, NO: int, NI: int, NJ: int) -> Data:
    x = np.random.default_rng(seed).random((NC, NI + 2, NJ + 2), np.float32)
    return {"nc": NC, "no": NO, "ni": NI, "nj": NJ, "x": x, "weight": _weights(seed, NO, NC, 3, 3)}


def channels3x3_reference(data: Data, **_: Any) -> Data:
    x, weight = (np.asarray(data[name], np.float64) for name in ("x", "weight"))
    ni, nj = data["ni"], data["nj"]
    y = sum(
        np.einsum("oc,cij->oij", weight[:, :, a, b], x[:, a : a + ni, b : b + nj]) for a in range(3) for b in range(3)
    )
    return {"y": np.asarray(y, np.float32)}


def depthwise_stride2(rank: int, size: int, seed: int, NC: int, NI: int, NJ: int) -> Data:
    x = np.random.default_rng(seed).random((NC, 2 * NI + 1, 2 * NJ + 1), np.float32)
    return {"nc": NC, "ni": NI, "nj": NJ, "x": x, "weight": _weights(seed, NC, 9) - np.float32(0.5)}


def depthwise_stride2_reference(data: Data, **_: Any) -> Data:
    x, weight = (np.asarray(data[name], np.float64) for name in ("x", "weight"))
    ni, nj = data["ni"], data["nj"]
    y = sum(
        weight[:, 3 * a + b, None, None] * x[:, a : a + 2 * ni : 2, b : b + 2 * nj : 2]
        for a in range(3)
        for b in range(3)
    )
    return {"y": np.maximum(y, 0).astype(np.float32)}


def rows_tile(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return {**_image(seed, NI, NJ), "weight": _weights(seed, 33)}


def rows_tile_reference(data: Data, **_: Any) -> Data:
    return {"y": _filtered(data["x"], data["weight"], 1, "constant").astype(np.float32)}
