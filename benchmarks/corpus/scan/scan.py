"""Set-ups and references of prefix sums and of what is computed from them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def _matrix(seed: int, NI: int, NJ: int) -> Data:
    return {"ni": NI, "nj": NJ, "x": np.random.default_rng(seed).random((NI, NJ), np.float32)}


def scan_rows_block(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return _matrix(seed, NI, NJ)


def scan_rows_block_reference(data: Data, **_: Any) -> Data:
    return {"y": np.cumsum(data["x"], axis=1, dtype=np.float64).astype(np.float32)}


def scan_rows_items(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return _matrix(seed, NI, NJ)


scan_rows_items_reference = scan_rows_block_reference


def scan_columns(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return _matrix(seed, NI, NJ)


def scan_columns_reference(data: Data, **_: Any) -> Data:
    return {"y": np.cumsum(data["x"], axis=0, dtype=np.float64).astype(np.float32)}


def smooth_rows_thread(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    return _matrix(seed, NI, NJ)


def smooth_rows_thread_reference(data: Data, **_: Any) -> Data:
    x = np.asarray(data["x"], np.float64)
    y = np.empty_like(x)
    state = x[:, 0]
    for j in range(x.shape[1]):
        state = y[:, j] = state + 0.125 * (x[:, j] - state)
    return {"y": y.astype(np.float32)}


def window_sums(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    x = np.random.default_rng(seed).integers(0, 100, (NI, NJ + 64), np.int32)
    return {"ni": NI, "nj": NJ, "p": np.cumsum(x, axis=1, dtype=np.int32)}


def window_sums_reference(data: Data, **_: Any) -> Data:
    return {"y": data["p"][:, 64:] - data["p"][:, :-64]}


def box_from_table(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    x = np.random.default_rng(seed).integers(0, 100, (NI + 15, NJ + 15), np.int32)
    return {"ni": NI, "nj": NJ, "s": x.cumsum(axis=0, dtype=np.int32).cumsum(axis=1, dtype=np.int32)}


def box_from_table_reference(data: Data, **_: Any) -> Data:
    s = data["s"]
    y = (s[15:, 15:] - s[15:, :-15] - s[:-15, 15:] + s[:-15, :-15]) / 225
    return {"y": y.astype(np.float32)}
