"""Set-ups and references of small matrices, tensors and transforms that lie side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Data = dict[str, Any]
Array = NDArray[Any]


def multiply5(rank: int, size: int, seed: int, N: int) -> Data:
    rng = np.random.default_rng(seed)
    return {"n": N, "a": rng.random((25, N), np.float32), "b": rng.random((25, N), np.float32)}


def multiply5_reference(data: Data, **_: Any) -> Data:
    a, b = (np.asarray(data[name], np.float64).reshape(5, 5, -1) for name in "ab")
    return {"c": np.einsum("ikt,kjt->ijt", a, b).reshape(25, -1).astype(np.float32)}


def cholesky4(rank: int, size: int, seed: int, N: int) -> Data:
    rng = np.random.default_rng(seed)
    lower = 0.1 * rng.random((10, N))
    lower[[0, 2, 5, 9]] += 1.0
    return {"n": N, "a": lower}


def cholesky4_reference(data: Data, **_: Any) -> Data:
    rows, columns = np.tril_indices(4)
    full = np.zeros((data["a"].shape[1], 4, 4))
    full[:, rows, columns] = full[:, columns, rows] = np.asarray(data["a"]).T
    return {"a": np.linalg.cholesky(full)[:, rows, columns].T}


def mttkrp_middle(rank: int, size: int, seed: int, NI: int, NJ: int, NK: int, NR: int) -> Data:
    rng = np.random.default_rng(seed)
    x = rng.random((NI, NJ, NK), np.float32)
    a, c = rng.random((NI, NR), np.float32), rng.random((NK, NR), np.float32)
    return {"ni": NI, "nj": NJ, "nk": NK, "nr": NR, "x": x, "a": a, "c": c}


def mttkrp_middle_reference(data: Data, **_: Any) -> Data:
    x, a, c = (np.asarray(data[name], np.float64) for name in "xac")
    return {"y": np.einsum("ijk,ir,kr->jr", x, a, c, optimize=True).astype(np.float32)}


def fft16_table(rank: int, size: int, seed: int, N: int) -> Data:
    rng = np.random.default_rng(seed)
    angles = -2 * np.pi * np.outer(np.arange(4), np.arange(4)).ravel() / 16
    xr, xi = (rng.standard_normal((16, N), np.float32) for _ in range(2))
    return {"n": N, "xr": xr, "xi": xi, "wr": np.cos(angles).astype("f4"), "wi": np.sin(angles).astype("f4")}


def fft16_table_reference(data: Data, **_: Any) -> Data:
    x = (np.asarray(data["xr"], np.float64) + 1j * np.asarray(data["xi"])).reshape(4, 4, -1)
    factors = (np.asarray(data["wr"], np.float64) + 1j * np.asarray(data["wi"])).reshape(4, 4, 1)
    z = (np.fft.fft(x, axis=0).transpose(1, 0, 2) * factors).reshape(16, -1)
    return {"zr": z.real.astype(np.float32), "zi": z.imag.astype(np.float32)}
