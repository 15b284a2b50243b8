"""Set-up and reference of COVAR: the covariance matrix of the columns of a table, times the number of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def init(rank: int, size: int, seed: int, M: int, N: int) -> dict[str, int | NDArray[np.float32]]:
    """A table of N rows and M columns, uniformly random in [0, 1), and its sizes."""
    rng = np.random.default_rng(seed)
    return {"m": M, "n": N, "data": rng.random((N, M), np.float32)}


def reference(data: dict[str, Any], **_: Any) -> dict[str, NDArray[np.float32]]:
    """`symmat`, in double precision."""
    table = np.asarray(data["data"], np.float64)
    table = table - table.mean(axis=0)
    return {"symmat": (table.T @ table).astype(np.float32)}
