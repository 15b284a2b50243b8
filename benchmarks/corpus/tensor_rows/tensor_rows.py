"""Set-ups and references of tensors and rows of factors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def khatri_rao(rank: int, size: int, seed: int, NI: int, NJ: int, NR: int) -> Data:
    rng = np.random.default_rng(seed)
    return {"ni": NI, "nj": NJ, "nr": NR, "a": rng.random((NI, NR), np.float32), "b": rng.random((NJ, NR), np.float32)}


def khatri_rao_reference(data: Data, **_: Any) -> Data:
    return {"y": data["a"][:, None, :] * data["b"][None, :, :]}


def mttkrp_rows(rank: int, size: int, seed: int, NI: int, NJ: int, NK: int, NR: int) -> Data:
    rng = np.random.default_rng(seed)
    shapes = {"x": (NI, NJ, NK), "b": (NJ, NR), "c": (NK, NR)}
    return {"ni": NI, "nj": NJ, "nk": NK, "nr": NR, **{n: rng.random(s, np.float32) for n, s in shapes.items()}}


def mttkrp_rows_reference(data: Data, **_: Any) -> Data:
    x, b, c = (np.asarray(data[name], np.float64) for name in "xbc")
    return {"y": np.einsum("ijr,jr->ir", x @ c, b).astype(np.float32)}
