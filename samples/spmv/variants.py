"""Set-up and reference of variants.dag: the matrix that a text names (matrices.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matrices import matrix as named
from numpy.typing import NDArray
from scipy import sparse

HERE = Path(__file__).resolve().parent


def load(rank: int, size: int, seed: int, matrix: str) -> dict[str, int | NDArray[Any]]:
    """The matrix on each rank, and a vector uniformly random in [-1, 1). Raises ValueError."""
    try:
        A = named(matrix, HERE)
    except MemoryError:
        raise ValueError(f"{matrix}: not enough memory") from None
    x = np.random.default_rng(seed).random(A.shape[1], np.float32) * 2 - 1
    return {
        "n": A.shape[0],
        "cols": A.shape[1],
        "nnz": A.nnz,
        "row_ptr": A.indptr,
        "col": A.indices,
        "val": A.data,
        "x": x,
    }


def product(data: dict[str, Any], *, rank: int, size: int, seed: int, matrix: str) -> dict[str, NDArray[np.float32]]:
    """y, in double precision, by SciPy."""
    A = sparse.csr_array((data["val"], data["col"], data["row_ptr"]), shape=(data["n"], data["cols"]))
    return {"y": (A.astype(np.float64) @ data["x"].astype(np.float64)).astype(np.float32)}
