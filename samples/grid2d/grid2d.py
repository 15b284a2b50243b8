"""Set-up and reference of a matrix product on a grid of ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def _whole(seed: int, px: int, py: int, n: int, w: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A of py * n rows and B of px * n columns; both have px * py panels of width w between them."""
    random = np.random.default_rng(seed)
    inner = px * py * w
    return random.standard_normal((py * n, inner)), random.standard_normal((inner, px * n))


def blocks(rank: int, size: int, seed: int, px: int, py: int, n: int, w: int) -> dict[str, Any]:
    """The blocks of A and B of the rank in row rank // px and column rank % px. Raises ValueError."""
    if size != px * py:
        raise ValueError(f"{size} ranks are not a grid of {py} x {px}: give -D px and -D py")
    i, j = divmod(rank, px)
    whole_a, whole_b = _whole(seed, px, py, n, w)
    return {
        "a": whole_a[i * n : (i + 1) * n, j * py * w : (j + 1) * py * w].copy(),
        "b": whole_b[i * px * w : (i + 1) * px * w, j * n : (j + 1) * n].copy(),
    }


def product(
    data: dict[str, Any], *, rank: int, size: int, seed: int, px: int, py: int, n: int, w: int
) -> dict[str, NDArray[np.float64]]:
    """The block of C, and the squares of the norms of its columns over the whole grid, by NumPy."""
    i, j = divmod(rank, px)
    whole_a, whole_b = _whole(seed, px, py, n, w)
    columns = whole_a @ whole_b[:, j * n : (j + 1) * n]
    return {"c": columns[i * n : (i + 1) * n], "norms": (columns**2).sum(axis=0)}
