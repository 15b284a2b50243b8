"""Set-up and reference of FDTD-2D: an electromagnetic field in two dimensions, stepped through time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def init(rank: int, size: int, seed: int, NX: int, NY: int, TMAX: int) -> dict[str, int | NDArray[Any]]:
    """The three fields and the values at the border, uniformly random in [0, 1), and their sizes."""
    rng = np.random.default_rng(seed)
    return {
        "nx": NX,
        "ny": NY,
        "tmax": TMAX,
        "fict": rng.random(TMAX, np.float32),
        "ex": rng.random((NX, NY + 1), np.float32),
        "ey": rng.random((NX + 1, NY), np.float32),
        "hz": rng.random((NX, NY), np.float32),
        "t": np.zeros(1, np.int32),
    }


def reference(data: dict[str, Any], *, STEPS: int, **_: Any) -> dict[str, NDArray[np.float32]]:
    """The three fields after one run of the dag, STEPS steps, in double precision."""
    ex, ey, hz = (np.array(data[name], np.float64) for name in ("ex", "ey", "hz"))
    for border in np.asarray(data["fict"][:STEPS], np.float64):
        ey[0] = border
        ey[1:-1] -= 0.5 * (hz[1:] - hz[:-1])
        ex[:, 1:-1] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
        hz -= 0.7 * (ex[:, 1:] - ex[:, :-1] + ey[1:] - ey[:-1])
    return {name: field.astype(np.float32) for name, field in (("ex", ex), ("ey", ey), ("hz", hz))}
