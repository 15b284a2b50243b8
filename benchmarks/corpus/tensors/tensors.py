"""Set-ups and references of contractions of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def mode_product(rank: int, size: int, seed: int, NI: int, NJ: int, NK: int, NR: int) -> Data:
    rng = np.random.default_rng(seed)
    x, u = rng.random((NI, NK, NJ), np.float32), rng.random((NK, NR), np.float32)
    return {"ni": NI, "nj": NJ, "nk": NK, "nr": NR, "x": x, "u": u}


def mode_product_reference(data: Data, **_: Any) -> Data:
    return {"y": np.einsum("ikj,kr->irj", data["x"], data["u"], optimize=True)}


def contract_two(rank: int, size: int, seed: int, NI: int, NJ: int, NK: int, NL: int) -> Data:
    rng = np.random.default_rng(seed)
    a, b = rng.random((NK, NI, NL), np.float32), rng.random((NL, NK, NJ), np.float32)
    return {"ni": NI, "nj": NJ, "nk": NK, "nl": NL, "a": a, "b": b}


def contract_two_reference(data: Data, **_: Any) -> Data:
    return {"c": np.einsum("kil,lkj->ij", data["a"], data["b"], optimize=True)}
