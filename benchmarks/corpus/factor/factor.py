"""Set-ups and references of factorisations of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def mttkrp(rank: int, size: int, seed: int, NI: int, NJ: int, NK: int, NR: int) -> Data:
    rng = np.random.default_rng(seed)
    shapes = {"x": (NI, NJ, NK), "b": (NJ, NR), "c": (NK, NR)}
    return {"ni": NI, "nj": NJ, "nk": NK, "nr": NR, **{n: rng.random(s, np.float32) for n, s in shapes.items()}}


def mttkrp_reference(data: Data, **_: Any) -> Data:
    return {"y": np.einsum("ijk,jr,kr->ir", data["x"], data["b"], data["c"], optimize=True)}
