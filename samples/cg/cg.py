"""Set-up and reference of conjugate gradients: Poisson's equation on a square, split by rows over the ranks."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse


def poisson(rank: int, size: int, seed: int, side: int, bytes: int) -> dict[str, Any]:
    """What rank `rank` of `size` holds of A x = b: A is the 5-point stencil on side x side points, b is random with
    |b| = 1, and x begins as 0.

    Rows are split evenly. A_l holds the columns that are rows of this rank, numbered from its first row; A_r the
    others, numbered as they lie in v_r: ascending, and so by owner. Floating-point numbers have `bytes` bytes. Raises
    ValueError.
    """
    if side < 1 or side * side < size:
        raise ValueError(f"side = {side}: each of {size} ranks has at least one row")
    if side * side * 5 >= 2**31:
        raise ValueError(f"side = {side}: more entries than 32-bit indices count")
    bounds = np.arange(size + 1) * (side * side) // size
    low, high = map(int, bounds[rank : rank + 2])
    ghosts = _ghosts(side, low, high)
    recv_counts = np.diff(np.searchsorted(ghosts, bounds))
    recv_ranks = np.flatnonzero(recv_counts)
    sends = {}
    first, last = np.searchsorted(bounds, [max(low - side, 0), min(high + side, side * side) - 1], "right") - 1
    for r in range(int(first), int(last) + 1):
        wanted = _ghosts(side, int(bounds[r]), int(bounds[r + 1]))
        wanted = wanted[(low <= wanted) & (wanted < high)] - low
        if r != rank and wanted.size:
            sends[r] = wanted.astype(np.int32)
    real = np.dtype(f"f{bytes}")

    def right_side() -> NDArray[Any]:
        return _right_side(side, seed)[low:high].astype(real)

    def square() -> NDArray[Any]:
        b = _right_side(side, seed)
        return np.array([b @ b], real)

    def entries(part: str, values: int) -> NDArray[Any]:
        """Row pointers, columns or values of a part."""
        row, column, value = _entries(side, np.arange(low, high))
        mine = ((low <= column) & (column < high)) == (part == "l")
        ends = np.cumsum(np.bincount(row[mine] - low, minlength=high - low))
        columns = column - low if part == "l" else np.searchsorted(ghosts, column)
        return (
            np.concatenate([[0], ends]).astype(np.int32), columns[mine].astype(np.int32), value[mine].astype(real)
        )[values]  # fmt: skip

    out: dict[str, Any] = {
        "n": high - low, "n_send": sum(map(len, sends.values())), "n_recv": ghosts.size, "n_to": len(sends),
        "n_from": recv_ranks.size, "send_index": np.concatenate([np.empty(0, np.int32), *sends.values()]),
        "send_ranks": np.array(list(sends), np.int32),
        "send_counts": np.array([len(index) for index in sends.values()], np.int32),
        "recv_ranks": recv_ranks.astype(np.int32), "recv_counts": recv_counts[recv_ranks].astype(np.int32),
        "x": np.zeros(high - low, real), "r": right_side, "p": right_side, "rr[0]": square,
    }  # fmt: skip
    for part in ("l", "r"):
        for number, name in enumerate(("row_ptr", "col", "val")):
            out[f"{name}_{part}"] = partial(entries, part, number)
    return out


def iterates(data: dict[str, Any], *, rank: int, size: int, seed: int, side: int, unroll: int, **_: Any) -> Any:
    """x after `unroll` iterations (Hestenes and Stiefel, 1952) of the whole system, in double precision by SciPy."""
    rows = side * side
    row, column, value = _entries(side, np.arange(rows))
    A = sparse.csr_array((value, (row, column)), shape=(rows, rows))
    x, r = np.zeros(rows), _right_side(side, seed)
    p, rr = r, r @ r
    for _step in range(unroll):
        q = A @ p
        alpha = rr / (p @ q)
        x, r = x + alpha * p, r - alpha * q
        old, rr = rr, r @ r
        p = r + rr / old * p
    return {"x": x[rows * rank // size : rows * (rank + 1) // size].astype(data["x"].dtype)}


def _entries(side: int, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Rows, columns (ascending in each row) and values of A in these rows."""
    i, j = rows // side, rows % side
    columns = rows[:, None] + np.array([-side, -1, 0, 1, side])
    there = np.stack([i > 0, j > 0, rows >= 0, j < side - 1, i < side - 1], axis=1)
    values = np.broadcast_to([-1.0, -1.0, 4.0, -1.0, -1.0], columns.shape)
    return np.repeat(rows, there.sum(axis=1)), columns[there], values[there]


def _ghosts(side: int, low: int, high: int) -> NDArray[np.int64]:
    """Columns of rows low .. high that are none of these rows, ascending. Only rows near the ends have some."""
    near = np.unique(np.concatenate([np.arange(low, min(low + side, high)), np.arange(max(high - side, low), high)]))
    columns = np.unique(_entries(side, near)[1])
    return columns[(columns < low) | (columns >= high)]


@lru_cache(maxsize=1)
def _right_side(side: int, seed: int) -> NDArray[np.float64]:
    b = np.random.default_rng(seed).standard_normal(side * side)
    return b / np.linalg.norm(b)
