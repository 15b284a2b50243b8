"""Set-up and reference of the tridiagonal partition method: a random diagonally dominant system, solved by LAPACK."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

PIECE = 1 << 20  # rows made at a time: nothing but the rows themselves takes memory
SURPLUS = 0.1  # of a row's diagonal element over the others': the solution is at most 1 / SURPLUS times as large as d


def dominant(rank: int, size: int, seed: int, unknowns: int, bytes: int) -> dict[str, int | NDArray[Any]]:
    """Rows a, b, c, d of a system of `unknowns`: a, c, d random in [-1, 1), and b = |a| + |c| + SURPLUS.

    Each rank gets the same system, of numbers of 4 or 8 `bytes`. Raises ValueError for sizes that make no sense.
    """
    if unknowns < 1 or bytes not in (4, 8):
        raise ValueError(f"{unknowns} unknowns of {bytes} bytes: at least 1, of 4 or 8 bytes")
    lines = np.empty((unknowns, 4), f"f{bytes}")
    random = np.random.default_rng(seed)
    for first in range(0, unknowns, PIECE):
        piece = lines[first : first + PIECE]
        piece[:] = 2 * random.random(piece.shape, lines.dtype) - 1
    lines[0, 0] = lines[-1, 2] = 0
    for first in range(0, unknowns, PIECE):
        piece = lines[first : first + PIECE]
        piece[:, 1] = np.abs(piece[:, 0]) + np.abs(piece[:, 2]) + SURPLUS
    return {"n": unknowns, "lines": lines}


def solution(data: dict[str, Any], **_: Any) -> dict[str, NDArray[Any]]:
    """`x`, by LAPACK's gtsv (elimination with pivoting) in double precision."""
    from scipy.linalg.lapack import dgtsv

    lines = data["lines"]
    lower, diagonal, upper, right = (lines[rows, column].astype(np.float64) for rows, column in _BANDS)
    if len(right) == 1:
        return {"x": (right / diagonal).astype(lines.dtype)[:, None]}
    *_, x, info = dgtsv(lower, diagonal, upper, right, True, True, True, True)
    if info:
        raise ArithmeticError(f"gtsv: row {info} of the system is singular")
    return {"x": x.astype(lines.dtype, copy=False)[:, None]}


# Of rows a, b, c, d: the diagonals as LAPACK has them, and the right-hand side.
_BANDS = ((slice(1, None), 0), (slice(None), 1), (slice(None, -1), 2), (slice(None), 3))
