"""Set-up and reference of the sparse matrix-vector product: a banded random matrix, split by rows over the ranks.

Every entry is a function of its row and its place in the row (a counter-based generator), so each rank makes its own
rows, and looks at those of the others only for what they need from it; nothing is communicated or held as a whole.

With bandwidth -1 the matrix is that of a Matrix Market file instead, named by the environment variable SPMV_MATRIX.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dagc.matrix_market import checked, rows_of

CHUNK = 1 << 21  # entries made at a time: a few arrays of this size stay in the cache
COLUMN, VALUE, VECTOR = 1, 2, 3  # streams of random numbers
FROM_FILE = -1  # as bandwidth: the matrix of the file in SPMV_MATRIX


def banded(
    rank: int, size: int, seed: int, rows: int, nnz_per_row: int, bandwidth: int
) -> dict[str, int | NDArray[Any]]:
    """What rank `rank` of `size` holds of a matrix of rows x rows.

    Row i has `nnz_per_row` entries, their columns uniformly random in |i - j| <= bandwidth (entries that meet in one
    column add up), their values and the vector uniformly random in [-1, 1). The rows, and with them the vector, are
    split evenly. A_l holds the columns that are rows of this rank, numbered from its first row; A_r the others,
    numbered as they lie in x_r: by owner, then by column. Raises ValueError for sizes that make no sense.
    """
    if bandwidth == FROM_FILE:
        try:
            return _from_file(rank, size, seed, rows)
        except MemoryError:
            raise ValueError(f"{os.environ['SPMV_MATRIX']}: not enough memory") from None
    if rows < 1 or nnz_per_row < 0 or bandwidth < 0:
        raise ValueError(f"rows {rows}, nnz_per_row {nnz_per_row}, bandwidth {bandwidth}: must not be negative")
    if max(rows, -(-rows // size) * nnz_per_row) >= 2**31:
        raise ValueError(f"{rows} rows with {nnz_per_row} entries each are too many for 32-bit indices on {size} ranks")
    matrix = Matrix(seed, rows, nnz_per_row, bandwidth)
    bounds = [split(rows, size, r) for r in range(size + 1)]
    low, high = bounds[rank], bounds[rank + 1]
    remote, arrays = _own_rows(matrix, low, high)
    recv_counts = np.diff(np.searchsorted(remote, bounds))
    sends = {r: _needed(matrix, bounds[r], bounds[r + 1], low, high) for r in range(size) if r != rank}
    sends = {r: index for r, index in sends.items() if index.size}
    recv_ranks = np.flatnonzero(recv_counts)
    return arrays | {
        "n": high - low,
        "n_send": sum(index.size for index in sends.values()),
        "n_recv": remote.size,
        "n_to": len(sends),
        "n_from": recv_ranks.size,
        "x_l": vector(seed, np.arange(low, high)).astype(np.float32),
        "send_index": np.concatenate([np.empty(0, np.int32), *sends.values()]).astype(np.int32),
        "send_ranks": np.array(list(sends), np.int32),
        "send_counts": np.array([index.size for index in sends.values()], np.int32),
        "recv_ranks": recv_ranks.astype(np.int32),
        "recv_counts": recv_counts[recv_ranks].astype(np.int32),
    }


def banded_by_rows(
    rank: int, size: int, seed: int, rows: int, nnz_per_row: int, bandwidth: int
) -> dict[str, int | NDArray[Any]]:
    """As `banded`, with only those rows of A_r that have entries, and where they are."""
    out = cast(dict[str, Any], banded(rank, size, seed, rows, nnz_per_row, bandwidth))
    lengths = np.diff(out["row_ptr_r"])
    rows_r = np.flatnonzero(lengths)
    ends = np.cumsum(lengths[rows_r])
    return out | {
        "nnz_l": out["col_l"].size,
        "nnz_r": out["col_r"].size,
        "n_r": rows_r.size,
        "rows_r": rows_r.astype(np.int32),
        "row_ptr_r": np.concatenate([[0], ends]).astype(np.int32),
    }


def product(
    data: dict[str, Any], *, rank: int, size: int, seed: int, rows: int, nnz_per_row: int, bandwidth: int
) -> dict[str, NDArray[np.float32]]:
    """y of rank `rank`: global columns times the global vector, in double precision. Uses none of the message lists."""
    if bandwidth == FROM_FILE:
        low, high = split(rows, size, rank), split(rows, size, rank + 1)
        mine = _file_matrix(rows, seed)[low:high].astype(np.float64)
        return {"y": (mine @ vector(seed, np.arange(rows)).astype(np.float64)).astype(np.float32)}
    matrix = Matrix(seed, rows, nnz_per_row, bandwidth)
    y = [
        (matrix.values(first, last).astype(np.float64) * vector(seed, columns).astype(np.float64)).sum(axis=1)
        for first, last, columns in matrix.chunks(split(rows, size, rank), split(rows, size, rank + 1))
    ]
    return {"y": np.concatenate([np.empty(0), *y]).astype(np.float32)}


class Matrix:
    """The whole matrix, made row by row when asked."""

    def __init__(self, seed: int, rows: int, nnz_per_row: int, bandwidth: int) -> None:
        self.seed, self.rows, self.nnz_per_row, self.bandwidth = seed, rows, nnz_per_row, bandwidth

    def columns(self, first: int, last: int) -> NDArray[np.int64]:
        """Global columns of rows first .. last, ascending in each row; shape (last - first, nnz_per_row)."""
        row = np.arange(first, last)[:, None]
        left = np.maximum(row - self.bandwidth, 0)
        width = np.minimum(row + self.bandwidth, self.rows - 1) + 1 - left
        columns = left + (uniform(self.seed, COLUMN, self._entries(first, last)) * width).astype(np.int64)
        columns.sort(axis=1)
        return columns

    def values(self, first: int, last: int) -> NDArray[np.float32]:
        """Values at the places of `columns`."""
        return (2 * uniform(self.seed, VALUE, self._entries(first, last)) - 1).astype(np.float32)

    def chunks(self, first: int, last: int) -> Iterator[tuple[int, int, NDArray[np.int64]]]:
        """(first, last, columns) of consecutive pieces of rows first .. last."""
        step = max(1, CHUNK // max(1, self.nnz_per_row))
        for start in range(first, last, step):
            stop = min(start + step, last)
            yield start, stop, self.columns(start, stop)

    def _entries(self, first: int, last: int) -> NDArray[np.uint64]:
        """Numbers of the entries of rows first .. last, counted over the whole matrix."""
        k = self.nnz_per_row
        return np.arange(first * k, last * k, dtype=np.uint64).reshape(last - first, k)


def split(rows: int, size: int, rank: int) -> int:
    """First row of a rank; that of rank `size` is the number of rows."""
    return rows * rank // size


def vector(seed: int, index: NDArray[np.int64]) -> NDArray[np.float32]:
    """x at global indices."""
    return (2 * uniform(seed, VECTOR, index.astype(np.uint64)) - 1).astype(np.float32)


def uniform(seed: int, stream: int, counter: NDArray[np.uint64]) -> NDArray[np.float64]:
    """A random number in [0, 1) for each counter: SplitMix64 (Steele, Lea, Flood 2014), read at any place."""
    start = int(np.random.SeedSequence([seed, stream]).generate_state(1, np.uint64)[0])
    z = counter * np.uint64(0x9E3779B97F4A7C15)
    z += np.uint64(start)
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return (z >> np.uint64(11)) * 2.0**-53


def _own_rows(matrix: Matrix, low: int, high: int) -> tuple[NDArray[np.int64], dict[str, NDArray[Any]]]:
    """Remote columns that rows low .. high touch, ascending, and these rows as A_l and A_r."""
    window = max(0, low - matrix.bandwidth)  # no column lies before it
    end = min(matrix.rows, high + matrix.bandwidth)
    touched = np.zeros(end - window, np.bool_)
    for _, _, columns in matrix.chunks(low, high):
        touched[columns - window] = True
    touched[low - window : high - window] = False
    remote = np.flatnonzero(touched) + window
    number = np.cumsum(touched, dtype=np.int32) - 1  # of a remote column, in x_r
    kept: dict[str, list[NDArray[Any]]] = {name: [] for name in ("len_l", "len_r", "col_l", "col_r", "val_l", "val_r")}
    for first, last, columns in matrix.chunks(low, high):
        values = matrix.values(first, last)
        local = (columns >= low) & (columns < high)
        kept["len_l"].append(local.sum(axis=1))
        kept["len_r"].append((~local).sum(axis=1))
        kept["col_l"].append((columns[local] - low).astype(np.int32))
        kept["col_r"].append(number[columns[~local] - window])
        kept["val_l"].append(values[local])
        kept["val_r"].append(values[~local])
    arrays: dict[str, NDArray[Any]] = {}
    for side in ("l", "r"):
        lengths = np.concatenate([[0], *kept[f"len_{side}"]])
        arrays[f"row_ptr_{side}"] = np.cumsum(lengths).astype(np.int32)
        arrays[f"col_{side}"] = np.concatenate([np.empty(0, np.int32), *kept[f"col_{side}"]])
        arrays[f"val_{side}"] = np.concatenate([np.empty(0, np.float32), *kept[f"val_{side}"]])
    return remote, arrays


def _needed(matrix: Matrix, first: int, last: int, low: int, high: int) -> NDArray[np.int32]:
    """Columns low .. high that rows first .. last touch, ascending, counted from `low`."""
    first, last = max(first, low - matrix.bandwidth), min(last, high + matrix.bandwidth)
    touched = np.zeros(high - low, np.bool_)
    for _, _, columns in matrix.chunks(first, last):
        touched[columns[(columns >= low) & (columns < high)] - low] = True
    return np.flatnonzero(touched).astype(np.int32)


# ---- a matrix from a file -------------------------------------------------------------------


@lru_cache(maxsize=2)
def _file_matrix(rows: int, seed: int) -> Any:
    """The pattern of the file as a CSR matrix; values uniformly random in [-1, 1), by place. Raises ValueError."""
    path = os.environ.get("SPMV_MATRIX")
    if not path:
        raise ValueError(
            f"{rows} rows, bandwidth -1: name a Matrix Market file (.mtx, .mtx.gz, .mtx.bz2, .mtx.xz) by SPMV_MATRIX"
        )
    header = checked(path)
    if (header.rows, header.columns) != (rows, rows):
        raise ValueError(f"{path} is {header.rows} x {header.columns}, not {rows} x {rows}: give -D rows=...")
    matrix = rows_of(path, header)
    matrix.data = (2 * uniform(seed, VALUE, np.arange(matrix.nnz, dtype=np.uint64)) - 1).astype(np.float32)
    return matrix


def _from_file(rank: int, size: int, seed: int, rows: int) -> dict[str, int | NDArray[Any]]:
    """As `banded`, of the file's matrix."""
    matrix = _file_matrix(rows, seed)
    bounds = [split(rows, size, r) for r in range(size + 1)]
    low, high = bounds[rank], bounds[rank + 1]
    mine = matrix[low:high]
    local = (mine.indices >= low) & (mine.indices < high)
    remote = np.unique(mine.indices[~local])
    recv_counts = np.diff(np.searchsorted(remote, bounds))
    recv_ranks = np.flatnonzero(recv_counts)
    sends: dict[int, NDArray[Any]] = {}
    for other in range(size):
        columns = np.unique(matrix[bounds[other] : bounds[other + 1]].indices)
        index = columns[(columns >= low) & (columns < high)] - low
        if other != rank and index.size:
            sends[other] = index
    out: dict[str, int | NDArray[Any]] = {
        "n": high - low,
        "n_send": sum(index.size for index in sends.values()),
        "n_recv": remote.size,
        "n_to": len(sends),
        "n_from": recv_ranks.size,
        "x_l": vector(seed, np.arange(low, high)),
        "send_index": np.concatenate([np.empty(0, np.int32), *sends.values()]).astype(np.int32),
        "send_ranks": np.array(list(sends), np.int32),
        "send_counts": np.array([index.size for index in sends.values()], np.int32),
        "recv_ranks": recv_ranks.astype(np.int32),
        "recv_counts": recv_counts[recv_ranks].astype(np.int32),
    }
    row = np.repeat(np.arange(high - low), np.diff(mine.indptr))
    numbered = {"l": mine.indices[local] - low, "r": np.searchsorted(remote, mine.indices[~local])}
    for side, kept in (("l", local), ("r", ~local)):
        counts = np.bincount(row[kept], minlength=high - low)
        out[f"row_ptr_{side}"] = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        out[f"col_{side}"] = numbered[side].astype(np.int32)
        out[f"val_{side}"] = mine.data[kept]
    return out
