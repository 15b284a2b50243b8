"""Set-ups and references of short Fourier transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def fft16(rank: int, size: int, seed: int, N: int) -> Data:
    rng = np.random.default_rng(seed)
    return {"n": N, "xr": rng.random((16, N), np.float32), "xi": rng.random((16, N), np.float32)}


def fft16_reference(data: Data, **_: Any) -> Data:
    z = np.fft.fft(data["xr"] + 1j * data["xi"].astype(np.float64), axis=0)
    return {"zr": z.real.astype(np.float32), "zi": z.imag.astype(np.float32)}
