"""Set-ups and references of short Fourier transforms of complex numbers in planes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def radix4_planes(rank: int, size: int, seed: int, N: int) -> Data:
    rng = np.random.default_rng(seed)
    angle = rng.random(N, np.float32)
    planes = {name: rng.random((4, N), np.float32) for name in ("xr", "xi")}
    return {"n": N, **planes, "wr": np.cos(angle), "wi": -np.sin(angle)}


def radix4_planes_reference(data: Data, **_: Any) -> Data:
    x = np.asarray(data["xr"], np.complex128) + 1j * np.asarray(data["xi"])
    turn = np.asarray(data["wr"], np.complex128) + 1j * np.asarray(data["wi"])
    y = np.fft.fft(x, axis=0) * turn ** np.arange(4)[:, None]
    return {"yr": y.real.astype(np.float32), "yi": y.imag.astype(np.float32)}
