"""Set-ups and references of three-dimensional operators with coefficients in each cell."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def diffuse_faces(rank: int, size: int, seed: int, NI: int, NJ: int, NK: int) -> Data:
    rng = np.random.default_rng(seed)
    return {
        "ni": NI,
        "nj": NJ,
        "nk": NK,
        **{n: rng.random((NI, NJ, NK), np.float32) for n in ("x", "cx", "cy", "cz", "y")},
    }


def diffuse_faces_reference(data: Data, **_: Any) -> Data:
    x, y = np.asarray(data["x"], np.float64), np.array(data["y"], np.float64)
    inside = (slice(1, -1),) * 3
    total = np.zeros_like(x)
    for name, axis in (("cx", 2), ("cy", 1), ("cz", 0)):
        c = np.asarray(data[name], np.float64)
        total += np.roll(c, -1, axis) * (np.roll(x, -1, axis) - x) - c * (x - np.roll(x, 1, axis))
    y[inside] = (x + 0.1 * total)[inside]
    return {"y": y.astype(np.float32)}


def seven_bands_f64(rank: int, size: int, seed: int, NI: int, NJ: int, NK: int) -> Data:
    rng = np.random.default_rng(seed)
    return {"ni": NI, "nj": NJ, "nk": NK, "x": rng.random((NI, NJ, NK)), "a": rng.random((7, NI, NJ, NK))}


def seven_bands_f64_reference(data: Data, **_: Any) -> Data:
    x, a = data["x"], data["a"]
    padded = np.pad(x, 1)
    y = a[0] * x
    for band, (axis, shift) in enumerate([(2, -1), (2, 1), (1, -1), (1, 1), (0, -1), (0, 1)], 1):
        y += a[band] * np.roll(padded, -shift, axis)[1:-1, 1:-1, 1:-1]
    return {"y": y}
