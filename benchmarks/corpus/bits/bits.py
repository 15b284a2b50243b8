"""Set-ups and references of computations on packed bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def _words(rng: np.random.Generator, *shape: int) -> Array:
    return rng.integers(-(2**31), 2**31, shape, np.int32)


def hamming(rank: int, size: int, seed: int, NI: int, NJ: int, NW: int) -> Data:
    rng = np.random.default_rng(seed)
    return {"ni": NI, "nj": NJ, "nw": NW, "a": _words(rng, NI, NW), "b": _words(rng, NJ, NW)}


def hamming_reference(data: Data, **_: Any) -> Data:
    a, b = (np.unpackbits(data[name].view(np.uint8), axis=1).astype(np.float32) for name in "ab")
    return {"d": (a @ (1 - b).T + (1 - a) @ b.T).astype(np.int32)}


def life_packed(rank: int, size: int, seed: int, NI: int, NW: int) -> Data:
    return {"ni": NI, "nw": NW, "x": _words(np.random.default_rng(seed), NI, NW)}


def life_packed_reference(data: Data, **_: Any) -> Data:
    cells = np.unpackbits(data["x"].view(np.uint8), axis=1, bitorder="little")
    ni, nj = cells.shape
    wide = np.pad(cells, 1)
    around = sum(wide[1 + r : 1 + r + ni, 1 + s : 1 + s + nj] for r in (-1, 0, 1) for s in (-1, 0, 1) if r or s)
    alive = (around == 3) | ((around == 2) & (cells == 1))
    return {"y": np.packbits(alive, axis=1, bitorder="little").view(np.int32)}
