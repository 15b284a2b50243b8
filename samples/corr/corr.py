"""Set-up and reference of the correlation matrix of the columns of a table."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def init(rank: int, size: int, seed: int, columns: int, rows: int) -> dict[str, int | NDArray[np.float32]]:
    """A table of random numbers in [0, 1) and its sizes. Neighbouring columns share half of what they are made of.

    Raises ValueError where no correlation is defined.
    """
    if columns < 2 or rows < 2:
        raise ValueError(f"{columns} columns, {rows} rows: a correlation takes at least 2 of both")
    table = np.random.default_rng(seed).random((rows, columns + 1), np.float32)
    return {"m": columns, "n": rows, "data": (table[:, :-1] + table[:, 1:]) / 2}


def numpy_corrcoef(data: dict[str, Any], **_: Any) -> dict[str, NDArray[np.float32]]:
    """`symmat`, by NumPy in double precision."""
    return {"symmat": np.corrcoef(np.asarray(data["data"], np.float64), rowvar=False).astype(np.float32)}
