"""Set-ups and references of values of sensors with 8 and 16 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def dark_and_gain(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    rng = np.random.default_rng(seed)
    raw, dark = (rng.integers(0, most, (NI, NJ), np.uint16) for most in (4096, 512))
    return {"ni": NI, "nj": NJ, "raw": raw, "dark": dark, "gain": rng.random(NJ, np.float32)}


def dark_and_gain_reference(data: Data, **_: Any) -> Data:
    counts = np.maximum(data["raw"].astype(np.int32) - data["dark"], 0)
    return {"y": counts.astype(np.float32) * data["gain"]}


def quantize_rows(rank: int, size: int, seed: int, NI: int, NJ: int) -> Data:
    rng = np.random.default_rng(seed)
    f = 60 + 20 * rng.random(NI, np.float32)
    return {"ni": NI, "nj": NJ, "x": 4 * rng.random((NI, NJ), np.float32) - 2, "f": f}


def quantize_rows_reference(data: Data, **_: Any) -> Data:
    scaled = data["x"] * data["f"][:, None]
    return {"q": np.clip(np.rint(scaled), -128, 127).astype(np.int8)}
