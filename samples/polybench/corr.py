"""Set-up and reference of CORR: the correlation matrix of the columns of a table."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def init(rank: int, size: int, seed: int, M: int, N: int) -> dict[str, int | NDArray[np.float32]]:
    """A table of N rows and M columns, uniformly random in [0, 1), and its sizes."""
    rng = np.random.default_rng(seed)
    return {"m": M, "n": N, "data": rng.random((N, M), np.float32)}


def reference(data: dict[str, Any], **_: Any) -> dict[str, NDArray[np.float32]]:
    """`symmat`, in double precision; columns that hardly vary (stddev <= 0.005) are centred only, as in the program."""
    table = np.asarray(data["data"], np.float64)
    table = table - table.mean(axis=0)
    stddev = np.sqrt((table**2).mean(axis=0))
    stddev[stddev <= 0.005] = 1
    table /= np.sqrt(len(table)) * stddev
    symmat = table.T @ table
    np.fill_diagonal(symmat, 1)
    return {"symmat": symmat.astype(np.float32)}
