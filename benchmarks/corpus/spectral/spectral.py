"""Set-ups and references of transforms: Fourier, Walsh, cosine."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def _pairs(values: Array) -> Array:
    return np.stack([values.real, values.imag], axis=-1).astype(np.float32)


def _complex(pairs: Array) -> Array:
    return np.asarray(pairs[..., 0], np.float64) + 1j * pairs[..., 1]


def fft_stage(rank: int, size: int, seed: int, NI: int, NJ: int, SPAN: int) -> Data:
    assert NJ % (2 * SPAN) == 0
    assert SPAN & (SPAN - 1) == 0
    x = np.random.default_rng(seed).random((NI, NJ, 2), np.float32)
    return {"ni": NI, "nj": NJ, "span": SPAN, "x": x}


def fft_stage_reference(data: Data, **_: Any) -> Data:
    ni, nj, span, x = data["ni"], data["nj"], data["span"], _complex(data["x"])
    first, second = (half.reshape(ni, -1, span) for half in (x[:, : nj // 2], x[:, nj // 2 :]))
    second = second * np.exp(-1j * np.pi * np.arange(span) / span)
    return {"y": _pairs(np.stack([first + second, first - second], axis=2).reshape(ni, nj))}


def walsh_columns(rank: int, size: int, seed: int, NI: int, NJ: int, SPAN: int) -> Data:
    assert NI % (2 * SPAN) == 0
    return {"ni": NI, "nj": NJ, "span": SPAN, "x": np.random.default_rng(seed).random((NI, NJ), np.float32)}


def walsh_columns_reference(data: Data, **_: Any) -> Data:
    x = data["x"].reshape(-1, 2, data["span"], data["nj"])
    return {"x": np.stack([x[:, 0] + x[:, 1], x[:, 0] - x[:, 1]], axis=1).reshape(data["x"].shape)}


def dct8(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    assert NI % 8 == 0
    assert NJ % 8 == 0
    c = np.cos(np.pi / 8 * np.arange(8)[:, None] * (np.arange(8) + 0.5)) / 2
    c[0] /= np.sqrt(2)
    x = np.random.default_rng(seed).random((NI, NJ), np.float32)
    return {"ni": NI, "nj": NJ, "c": c.astype(np.float32).ravel(), "x": x}


def dct8_reference(data: Data, **_: Any) -> Data:
    c = data["c"].reshape(8, 8).astype(np.float64)
    tiles = data["x"].reshape(data["ni"] // 8, 8, data["nj"] // 8, 8)
    y = np.einsum("up,vq,apbq->aubv", c, c, tiles, optimize=True)
    return {"y": y.reshape(data["x"].shape).astype(np.float32)}


def phase_shift(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    rng = np.random.default_rng(seed)
    row, column = (rng.random(n, np.float32) for n in (NI, NJ))
    return {"ni": NI, "nj": NJ, "x": rng.random((NI, NJ, 2), np.float32), "row": row, "column": column}


def phase_shift_reference(data: Data, **_: Any) -> Data:
    phase = data["row"][:, None].astype(np.float64) + data["column"]
    return {"y": _pairs(_complex(data["x"]) * np.exp(1j * phase))}
