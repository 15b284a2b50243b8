"""Matrix Market files for set-ups. Bad files are refused with file, line and reason, before memory is taken for what a
header says.

Lines of entries are compared with a regular expression, which is the format (about 350 MB/s), and then read by SciPy.
SciPy's reader alone stops in the middle of a word that it cannot read (2.5D+01 is 2.5), and ends the process, or reads
outside its buffer, for some malformed headers and lines. It is given checked lines of entries only, below a header made
here.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
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
CHUNK = 4 << 20  # bytes of lines that are checked and read at a time
COMMENTS = 16 << 20  # bytes before the first entry
BLANK = 1000 * LINE  # bytes after the size that belong to no entry
# A header may promise rows without entries, whose arrays take memory: 2e9 of them 8 GB, in a file of 80 bytes. With
# this limit the pointers to rows take at most 4 MB, and 256 bytes for each entry, whose line has at least 4. Matrices
# of applications have entries in most of their rows and columns, not in one of 64.
ROWS_OF_ENTRY, ROWS_FREE = 64, 1_000_000
# Possessive repeats (`*+`): without them a chunk of lines needs memory to go back, and a long one time.
REAL = rb"[+-]?+(?:[0-9]++\.?+[0-9]*+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+"
GAP, INDEX = rb"[ \t]++", rb"0*+[1-9][0-9]{0,9}+"
BLANKS = re.compile(rb"(?:[ \t]*+\r?+\n)*+")
SYMMETRIES = ("general", "symmetric", "skew-symmetric", "hermitian")


class Field(NamedTuple):
    """A kind of values: pattern, what it is called, the largest amount, symmetries that such a matrix may have."""

    pattern: bytes
    words: str
    most: float
    symmetries: tuple[str, ...]

    def entries(self) -> re.Pattern[bytes]:
        """The longest row of lines of entries."""
        return re.compile(rb"(?:[ \t]*+" + INDEX + GAP + INDEX + self.pattern + rb"[ \t]*+\r?+\n)*+")


_REAL = Field(GAP + REAL, " and a real number such as -2.5e-1", np.inf, SYMMETRIES[:3])
FIELDS = {
    "real": _REAL,
    "double": _REAL,
    "integer": Field(GAP + rb"[+-]?+[0-9]++", " and an integer", 2.0**63, SYMMETRIES[:3]),
    "unsigned-integer": Field(GAP + rb"\+?+[0-9]++", " and an integer without a sign", 2.0**64, SYMMETRIES[:2]),
    "pattern": Field(b"", "", np.inf, SYMMETRIES[:2]),
    "complex": Field((GAP + REAL) * 2, " and two real numbers such as -2.5e-1", np.inf, SYMMETRIES),
}
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
    has values outside the range of this type."""
    header = checked(path)
    if header.field == "complex":
        raise ValueError(f"{path} is complex; the kernels are for real matrices")
    out = rows_of(path, header, dtype)
    if out.nnz == 0:
        raise ValueError(f"{path} has no entries")
    with naming(path), np.errstate(over="ignore"):
        out.data = (values(out.nnz, 1) if header.field == "pattern" else out.data).astype(dtype)
        if not (finite := np.isfinite(out.data)).all():
            k = int(np.argmin(finite))
            row, column = np.searchsorted(out.indptr, k, side="right"), out.indices[k] + 1
            raise ValueError(f"{path}: row {row}, column {column}: the sum of the entries {_outside(dtype)}")
    return out


def edges(path: str) -> tuple[Header, NDArray[np.int32], NDArray[np.int32]]:
    """The entries of a matrix as edges of a graph: header, rows (first vertices) and columns (last ones), from 0, with
    both directions of a symmetric one. Raises ValueError for a matrix that is not square, complex or skew-symmetric."""
    header = checked(path)
    if header.field == "complex" or header.symmetry not in ("general", "symmetric"):
        kind = f"{header.field} {header.symmetry}"
        raise ValueError(f"{path} is {kind}; a graph is real, integer or pattern, and general or symmetric")
    if header.rows != header.columns:
        shape = f"{header.rows} and {header.columns}"
        raise ValueError(f"{path}: a graph has as many rows as columns, this matrix has {shape}")
    matrix = entries(path, header)
    first, last = (np.asarray(index, np.int32) for index in (matrix.row, matrix.col))
    return header, first, last


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


def rows_of(path: str, header: Header, dtype: Any = np.float64) -> Any:
    """The matrix as CSR, expanded, without duplicates, 32-bit indices. Raises ValueError, also for a value outside the
    range of `dtype`."""
    if not header.rows or not header.columns:
        raise ValueError(f"{path} is empty: {header.rows} x {header.columns}")
    with naming(path):
        out = sparse.csr_array(entries(path, header, dtype).tocsr())
        out.sum_duplicates()
        if out.shape[0] + out.nnz > MOST:
            raise ValueError(f"{path} has {out.shape[0]} rows and {out.nnz} non-zeros: too many for 32-bit indices")
        out.indptr, out.indices = out.indptr.astype(np.int32), out.indices.astype(np.int32)
    return out


def entries(path: str, header: Header, dtype: Any = np.float64) -> Any:
    """The matrix as COO: the entries in the order of the file, then the other halves of symmetric ones. Values are
    float64 or complex128. Raises ValueError with the line of an entry that is malformed, is outside the matrix or the
    range of `dtype`, or contradicts the symmetry, and where the number of entries differs from the header."""
    with naming(path):
        parts = list(_parts(path, header, dtype))
        row, column, data = (np.concatenate(part) for part in zip(*parts, strict=True))
        if header.symmetry != "general":
            _one_triangle(path, header, row, column, data)
            off = row != column
            other = -data[off] if header.symmetry == "skew-symmetric" else data[off]
            other = other.conj() if header.symmetry == "hermitian" else other
            row, column = np.concatenate([row, column[off]]), np.concatenate([column, row[off]])
            data = np.concatenate([data, other])
        return sparse.coo_array((data, (row, column)), shape=(header.rows, header.columns))


def checked(path: str) -> Header:
    """The header of a file. Raises ValueError if it is malformed, or describes a matrix that is too large."""
    with naming(path), opened(path) as text:
        return _header(path, text)[0]


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


def _header(path: str, file: BinaryIO) -> tuple[Header, int]:
    """What the lines before the entries say, and how many they are."""
    first = file.readline(LINE).decode("ascii", "backslashreplace").lower().split()
    if first[:3] != ["%%matrixmarket", "matrix", "coordinate"] or len(first) != 5:
        raise ValueError(
            f"{path}:1: not the first line of a sparse matrix, `%%MatrixMarket matrix coordinate FIELD SYMMETRY`"
        )
    field, symmetry = first[3:]
    for word, known in ((field, FIELDS), (symmetry, SYMMETRIES)):
        if word not in known:
            raise ValueError(f"{path}:1: unknown word {_shown(word)}: expected one of {', '.join(known)}")
    if symmetry not in FIELDS[field].symmetries:
        raise ValueError(f"{path}:1: the format has no {field} matrix that is {symmetry}")
    lines, left, size = 1, COMMENTS, b""
    while left > 0 and (size := file.readline(left)):
        lines, left = lines + 1, left - len(size)
        if size.strip() and not size.startswith(b"%"):
            break
    numbers = size.split()
    if left <= 0 or len(numbers) != 3 or not all(number.isdigit() and len(number) < 12 for number in numbers):
        where = f"line of rows, columns and entries in its first {COMMENTS >> 20} MiB"
        raise ValueError(f"{path}:{lines}: no {where}, but {_shown(size.decode('ascii', 'backslashreplace'))}")
    rows, columns, count = map(int, numbers)
    header = Header(rows, columns, count, field, symmetry)
    _limited(path, header)
    return header, lines


def _limited(path: str, header: Header) -> None:
    """Raises ValueError for a matrix that is too large, or symmetric and not square."""
    rows, columns, count = header[:3]
    if count > 2**31 - 1 or max(rows, columns) > MOST:
        raise ValueError(f"{path} has {count} entries: too many for {rows} rows and 32-bit indices")
    if max(rows, columns) > ROWS_OF_ENTRY * count + ROWS_FREE:
        raise ValueError(
            f"{path} is {rows} x {columns} with {count} entries: its rows and columns are limited to {ROWS_OF_ENTRY} "
            f"for each entry and {ROWS_FREE} more"
        )
    if header.symmetry != "general" and rows != columns:
        raise ValueError(f"{path} is {header.symmetry}, but not square: {rows} x {columns}")


def _parts(path: str, header: Header, dtype: Any) -> Iterator[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]]:
    """Rows, columns and values, counted from 0, some MiB of text at a time."""
    index, kind = np.empty(0, np.int32), np.complex128 if header.field == "complex" else np.float64
    yield index, index, np.empty(0, kind)
    before = 0
    for lines in _lines(path, header):
        row, column, data = _scanned(lines, header.field)
        before += data.size
        outside = (row >= header.rows) | (column >= header.columns)
        with np.errstate(over="ignore"):
            far = ~np.isfinite(data if kind is np.complex128 else data.astype(dtype, copy=False))
        far |= np.abs(data) > FIELDS[header.field].most
        if (wrong := outside | far).any():
            k = int(np.argmax(wrong))
            line = _line_of(path, before - data.size + k)
            size = f"is outside the matrix of {header.rows} x {header.columns}"
            raise ValueError(f"{path}:{line}: the entry {size if outside[k] else _outside(dtype)}")
        yield row.astype(np.int32), column.astype(np.int32), data


def _scanned(lines: bytes, field: str) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The entries of lines that are well-formed."""
    from scipy.io import mmread

    # The size makes SciPy use 64 bits for indices, which have up to 10 digits. Integers are read as float64: sums of
    # duplicates do not wrap.
    header = f"%%MatrixMarket matrix coordinate {field if field in ('pattern', 'complex') else 'real'} general\n"
    text = f"{header}9999999999 9999999999 {lines.count(10)}\n".encode() + lines
    with warnings.catch_warnings():
        # Newer SciPy announces that it will return a sparse array: what is used here, both kinds have.
        warnings.simplefilter("ignore", DeprecationWarning)
        out = mmread(io.BytesIO(text))
    return out.row, out.col, out.data


def _lines(path: str, header: Header) -> Iterator[bytes]:
    """Lines of entries, some MiB at a time, without blank lines and plus signs. Raises ValueError unless all lines are
    well-formed, and as many as the header says."""
    field, left = FIELDS[header.field], header.entries
    pattern, line = field.entries(), 0
    for before, chunk in _chunks(path, header):
        at, pieces = 0, []
        while at < len(chunk):
            end = pattern.match(chunk, at).end()  # type: ignore[union-attr]  # it matches nothing, too
            # Python before 3.11.5 counts the part of a line that matched before the rest did not (gh-106052).
            end = max(at, chunk.rfind(b"\n", at, end) + 1)
            pieces.append(chunk[at:end])
            at = BLANKS.match(chunk, end).end()  # type: ignore[union-attr]
            if at == end < len(chunk):
                found = chunk[at : chunk.index(b"\n", at)].decode("ascii", "backslashreplace")
                line = before + chunk.count(b"\n", 0, at) + 1
                raise ValueError(f"{path}:{line}: expected a row, a column{field.words}, but found {_shown(found)}")
        lines, line = b"".join(pieces), before + chunk.count(b"\n")
        left -= lines.count(b"\n")
        if left < 0:
            line = _line_of(path, header.entries)
            raise ValueError(f"{path}:{line}: a line after the last one of {header.entries} entries")
        if lines:
            yield lines.replace(b" +", b"  ").replace(b"\t+", b"\t ")
    if left:
        raise ValueError(f"{path}:{line}: the file ends after {header.entries - left} of {header.entries} entries")


def _chunks(path: str, header: Header) -> Iterator[tuple[int, bytes]]:
    """What follows the header, some MiB of whole lines at a time, and how many lines are before it."""
    length, most, rest = 0, header.entries * LINE + BLANK, b""
    with opened(path) as text:
        before = _header(path, text)[1]
        while chunk := text.read(CHUNK):
            length += len(chunk)
            if length > most:
                raise ValueError(f"{path} has over {most} bytes for {header.entries} entries")
            chunk, newline, rest = (rest + chunk).rpartition(b"\n")
            yield before, chunk + newline
            before += chunk.count(b"\n") + len(newline)
            if len(rest) > LINE:
                raise ValueError(f"{path}:{before + 1}: a line of over {LINE} bytes")
        yield before, rest + b"\n" * bool(rest)


def _line_of(path: str, entry: int) -> int:
    """The line of an entry, counted from 0, of a file that is well-formed up to it."""
    with opened(path) as text:
        line = _header(path, text)[1]
        for words in text:
            line += 1
            if words.strip():
                if not entry:
                    break
                entry -= 1
    return line


def _outside(dtype: Any) -> str:
    return f"is outside the range of {np.dtype(dtype).name}"


def _shown(text: str) -> str:
    """Text of a file for a message: without control characters, and short."""
    return f"`{ascii(text.strip())[1:-1][:80]}`" if text.strip() else "the end of the file"


def _one_triangle(path: str, header: Header, rows: NDArray[Any], columns: NDArray[Any], data: NDArray[Any]) -> None:
    """Raises ValueError for entries on both sides of the diagonal, which would be added to each other, and for entries
    on it that must be zero."""
    zero = {"skew-symmetric": data, "hermitian": data.imag}.get(header.symmetry)
    if zero is not None and (wrong := (rows == columns) & (zero != 0)).any():
        k = int(np.argmax(wrong))
        part = "imaginary part" if header.symmetry == "hermitian" else "entry"
        raise ValueError(
            f"{path}:{_line_of(path, k)}: the matrix is {header.symmetry}, but the {part} on the diagonal in row "
            f"{rows[k] + 1} is not zero"
        )
    below, above = rows > columns, rows < columns
    if below.any() and above.any():
        k = int(max(np.argmax(below), np.argmax(above)))
        side = "below" if below[k] else "above"
        raise ValueError(
            f"{path}:{_line_of(path, k)}: the matrix is {header.symmetry}, but has entries on both sides of the "
            f"diagonal: row {rows[k] + 1}, column {columns[k] + 1} is {side}, earlier ones are not"
        )
