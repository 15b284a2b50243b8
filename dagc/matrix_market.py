"""Matrix Market files for set-ups. Bad files are refused with their names and reasons, before memory is taken for what
a header says.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import stat
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

DIRECTORY = "DAGC_MATRICES"
MOST = 2**31 - 2**13  # non-zeros and rows together: kernels count both in 32 bits
LINE = 1024  # bytes of a line of an entry (the format's limit)
COMMENTS = 16 << 20  # bytes before the first entry
BLANK = 1000 * LINE  # bytes after the size that belong to no entry
# A header may promise rows without entries, whose arrays take memory: 2e9 of them 8 GB, in a file of 80 bytes. With
# this limit the pointers to rows take at most 4 MB, and 256 bytes for each entry, whose line has at least 4. Matrices
# of applications have entries in most of their rows and columns, not in one of 64.
ROWS_OF_ENTRY, ROWS_FREE = 64, 1_000_000
PACKED: dict[str, Callable[[BinaryIO], Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


class Header(NamedTuple):
    """What the first lines of a file say. `field`: real, double, integer, unsigned-integer, pattern, complex.
    `symmetry`: general, symmetric, skew-symmetric, hermitian."""

    rows: int
    columns: int
    entries: int
    field: str
    symmetry: str


def read(path: str, dtype: Any = np.float32) -> Any:
    """The matrix of a Matrix Market file: CSR, expanded, without duplicates, 32-bit indices. Patterns get values as
    generators give them. Raises ValueError, naming the file and the reason, for one that is corrupt, complex, empty, or
    has values that are no finite number of this type."""
    header = checked(path)
    if header.field == "complex":
        raise ValueError(f"{path} is complex; the kernels are for real matrices")
    out = rows_of(path, header)
    if out.nnz == 0:
        raise ValueError(f"{path} has no entries")
    with naming(path), np.errstate(over="ignore"):
        out.data = (values(out.nnz, 1) if header.field == "pattern" else out.data).astype(dtype)
        if not np.isfinite(out.data).all():
            raise ValueError(f"{path} has values that are no finite numbers in {np.dtype(dtype).name}")
    return out


def file(path: str, dtype: Any = np.float32) -> Any:
    """A file below the directory that the environment variable DAGC_MATRICES names."""
    directory = os.environ.get(DIRECTORY)
    if not directory:
        raise ValueError(f"{path}: name the directory that it is in by the environment variable {DIRECTORY}")
    top = Path(directory).resolve()
    found = (top / path).resolve()
    if not found.is_relative_to(top):
        raise ValueError(f"{path} is not below {DIRECTORY}={directory}")
    return read(str(found), dtype)


def values(count: int, seed: int) -> NDArray[np.float32]:
    """Uniformly random in [-1, 1)."""
    out = np.random.default_rng([seed, 7]).random(count, np.float32)
    out *= 2
    out -= 1
    return out


def rows_of(path: str, header: Header) -> Any:
    """The matrix as CSR, expanded, without duplicates, 32-bit indices. Raises ValueError."""
    if not header.rows or not header.columns:
        raise ValueError(f"{path} is empty: {header.rows} x {header.columns}")
    with naming(path):
        found = entries(path, header)
        if found.data.dtype.kind in "iu":
            found.data = found.data.astype(np.float64)  # sums of duplicates do not wrap
        out = sparse.csr_array(found.tocsr())
        out.sum_duplicates()
        if out.shape[0] + out.nnz > MOST:
            raise ValueError(f"{path} has {out.shape[0]} rows and {out.nnz} non-zeros: too many for 32-bit indices")
        out.indptr, out.indices = out.indptr.astype(np.int32), out.indices.astype(np.int32)
    return out


def entries(path: str, header: Header) -> Any:
    """The matrix as COO: the entries in the order of the file, then the other halves of symmetric ones. Raises
    ValueError, also where the entries contradict the symmetry."""
    from scipy.io import mmread

    with naming(path), opened(path) as text, warnings.catch_warnings():
        # Newer SciPy announces that it will return a sparse array: what is used here, both kinds have.
        warnings.simplefilter("ignore", DeprecationWarning)
        out = sparse.coo_array(mmread(text))
        if header.symmetry != "general":
            _one_triangle(path, header, out.row[: header.entries], out.col[: header.entries])
    return out


def checked(path: str) -> Header:
    """The header of a file. Raises ValueError unless the file is as long as its header says: a small compressed file
    may hold a very large one."""
    with naming(path), opened(path) as text:
        header = _header(path, text)
        length, most = 0, header.entries * LINE + BLANK
        while length <= most and (part := text.read(1 << 20)):
            length += len(part)
    if not header.entries * len("1 1") <= length <= most:
        found = length if length <= most else f"over {most}"
        raise ValueError(f"{path} has {found} bytes for {header.entries} entries")
    return header


@contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """The text of a file, decompressed as it is read. Raises ValueError for a pipe or a device, which may not end."""
    with open(path, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError(f"{path} is not a regular file")
        packed = PACKED.get(Path(path).suffix)
        if packed is None:
            yield file
        else:
            with packed(file) as text:
                yield text


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Turns errors of reading into ValueErrors that name the file."""
    try:
        yield
    except MemoryError:
        raise ValueError(f"{path} cannot be read: not enough memory") from None
    except (OSError, EOFError, OverflowError, lzma.LZMAError, zlib.error) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    except ValueError as error:
        raise ValueError(str(error) if str(error).startswith(path) else f"{path}: {error}") from None


def _header(path: str, file: BinaryIO) -> Header:
    """What the lines before the entries say."""
    first = file.readline(LINE).decode("ascii", "replace").lower().split()
    if first[:3] != ["%%matrixmarket", "matrix", "coordinate"] or len(first) != 5:
        raise ValueError(f"{path} is no Matrix Market file of a sparse matrix (%%MatrixMarket matrix coordinate ...)")
    left, size = COMMENTS, b""
    while left > 0 and (size := file.readline(left)) and (not size.strip() or size.startswith(b"%")):
        left -= len(size)
    numbers = size.split()
    if left <= 0 or len(numbers) != 3 or not all(number.isdigit() and len(number) < 12 for number in numbers):
        raise ValueError(f"{path} has no line of rows, columns and entries in its first {COMMENTS >> 20} MiB")
    rows, columns, count = map(int, numbers)
    header = Header(rows, columns, count, first[3], first[4])
    if count > 2**31 - 1 or max(rows, columns) > MOST:
        raise ValueError(f"{path} has {count} entries: too many for {rows} rows and 32-bit indices")
    if max(rows, columns) > ROWS_OF_ENTRY * count + ROWS_FREE:
        raise ValueError(
            f"{path} is {rows} x {columns} with {count} entries: its rows and columns are limited to {ROWS_OF_ENTRY} "
            f"for each entry and {ROWS_FREE} more"
        )
    if header.symmetry != "general" and rows != columns:
        raise ValueError(f"{path} is {header.symmetry}, but not square: {rows} x {columns}")
    return header


def _one_triangle(path: str, header: Header, rows: NDArray[Any], columns: NDArray[Any]) -> None:
    """Raises ValueError for entries on both sides of the diagonal, which would be added to each other, and for entries
    on it that must be zero."""
    if header.symmetry == "skew-symmetric" and (on := rows == columns).any():
        k = int(np.argmax(on))
        raise ValueError(f"{path} is skew-symmetric, but its entry {k + 1} is on the diagonal: row {rows[k] + 1}")
    below, above = rows > columns, rows < columns
    if below.any() and above.any():
        k = int(max(np.argmax(below), np.argmax(above)))
        raise ValueError(
            f"{path} is {header.symmetry}, but has entries on both sides of the diagonal: its entry {k + 1} (row "
            f"{rows[k] + 1}, column {columns[k] + 1}) is {'below' if below[k] else 'above'}, earlier ones are not"
        )
