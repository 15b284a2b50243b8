"""Set-up and reference of an FFT in three dimensions on a grid of ranks."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray


def _grid(size: int, px: int) -> tuple[int, int]:
    """Columns and rows of ranks."""
    if px == 0:
        px = min((p for p in range(1, size + 1) if size % p == 0), key=lambda p: abs(p - size // p))
    if size % px:
        raise ValueError(f"{size} ranks are not a grid of {px} columns: -D px of a divisor")
    return px, size // px


def _parts(n: int, parts: int) -> NDArray[np.int64]:
    """Where the parts of n begin, and n."""
    return np.arange(parts + 1) * n // parts


@lru_cache(maxsize=1)
def _whole(n: int, seed: int) -> NDArray[np.complex128]:
    """Of [x, y, z]."""
    random = np.random.default_rng(seed)
    return random.standard_normal((n, n, n)) + 1j * random.standard_normal((n, n, n))


def _pairs(numbers: NDArray[np.complex128]) -> NDArray[np.float64]:
    """Real and imaginary parts in turn along the last dimension."""
    return np.ascontiguousarray(numbers).view(np.float64)


def pencils(rank: int, size: int, seed: int, n: int, px: int) -> dict[str, Any]:
    """The pencils along x of a rank, and how many numbers it exchanges with each of its row and its column.

    Raises ValueError.
    """
    px, py = _grid(size, px)
    if n < 2 or n & (n - 1) or n < max(px, py):
        raise ValueError(f"n = {n} is not a power of two of at least 2 and the {px} columns and {py} rows of ranks")
    i, j = divmod(rank, px)
    columns, rows = _parts(n, px), _parts(n, py)
    across, down = np.diff(columns), np.diff(rows)
    y, z, x, w = across[j], down[i], across[j], down[i]

    def start() -> NDArray[np.float64]:
        return _pairs(_whole(n, seed)[:, columns[j] : columns[j + 1], rows[i] : rows[i + 1]].transpose(1, 2, 0))

    return {
        "i": i, "j": j, "y": int(y), "z": int(z), "x": int(x), "w": int(w), "start": start,
        "to_row": (2 * y * z * across).astype(np.int32), "from_row": (2 * across * z * x).astype(np.int32),
        "to_col": (2 * z * x * down).astype(np.int32), "from_col": (2 * down * x * w).astype(np.int32),
    }  # fmt: skip


def transform(
    data: dict[str, Any], *, rank: int, size: int, seed: int, n: int, px: int
) -> dict[str, NDArray[np.float64]]:
    """The pencils along z of the transform, by NumPy."""
    px, py = _grid(size, px)
    i, j = divmod(rank, px)
    columns, rows = _parts(n, px), _parts(n, py)
    return {"result": _pairs(np.fft.fftn(_whole(n, seed))[columns[j] : columns[j + 1], rows[i] : rows[i + 1]])}
