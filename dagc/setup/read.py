"""Arrays that `dagc setup` wrote: do they fit the program, as it is now? Looked at before anything is compiled.

A folder of arrays comes from anywhere, and is data: only regular files in it are opened, no Python object is unpickled,
and what a header says is compared with the length of its file before memory is taken.
"""

from __future__ import annotations

import math
import os
import stat
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from dagc.base.errors import UsageError, counted
from dagc.base.source import NOWHERE
from dagc.ir.program import Program
from dagc.ir.sym import Number
from dagc.setup.checks import Checker, dtype, wanted
from dagc.setup.write import file_name

if TYPE_CHECKING:
    import numpy as np


def check_arrays(program: Program, folder: Path, ranks: int) -> None:
    """Raises UsageError where `folder` is not of `ranks` ranks, or naming the first file that is missing, cannot be
    used, or has another type or shape than is declared."""
    _check_ranks(folder, ranks)
    span = program.setup.span if program.setup is not None else NOWHERE
    for rank in range(ranks):
        part = folder / f"rank-{rank:04d}"
        checker = Checker(program, rank, ranks, span, str(part))
        for scalar in program.scalars:
            checker.scalar(scalar, _read_scalar(folder, rank, scalar.name, dtype(scalar.type)))
        needed = set(wanted(program))
        for array in program.arrays:
            if array.name in needed:
                path = part / f"{file_name(array.name)}.npy"
                header = _header(path, folder, array.name, dtype(array.type))
                shape = checker.shape(array)
                if shape is not None and not _same(shape, header.shape):
                    want = tuple("*" if size is None else size for size in shape)
                    raise _refused(path, f"has shape {_text(header.shape)}, but `{array.name}` has {_text(want)}")
        for verify in program.verifies:
            name = verify.region.array
            declared = next(a for a in program.arrays if a.name == name)
            _header(part / "expected" / f"{file_name(name)}.npy", folder, name, dtype(declared.type))


def read_scalars(program: Program, folder: Path, ranks: int = 1) -> dict[str, Number]:
    """Values of rank 0's scalars, `rank` and `ranks` included. Raises UsageError as `check_arrays`."""
    found: dict[str, Number] = {"rank": 0, "ranks": ranks}
    for scalar in program.scalars:
        found[scalar.name] = _read_scalar(folder, 0, scalar.name, dtype(scalar.type)).item()
    return found


def _check_ranks(folder: Path, ranks: int) -> None:
    command = f"make it with `dagc setup FILE -n {ranks} -o {folder}`"
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder", command)
    there = sum(1 for _ in folder.glob("rank-[0-9]*"))
    if there != ranks:
        what = f"made for {counted(there, 'rank')}, not {ranks}" if there else "holds no arrays of `dagc setup`"
        raise UsageError(f"{folder}: {what}", command)


# ---- .npy files -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Header:
    """What a .npy file says of itself. `offset`: of the data, in bytes."""

    shape: tuple[int, ...]
    type: np.dtype[Any]
    offset: int


def _read_scalar(folder: Path, rank: int, name: str, kind: np.dtype[Any]) -> Any:
    import numpy as np

    path = folder / f"rank-{rank:04d}" / f"{file_name(name)}.npy"
    header = _header(path, folder, name, kind)
    if header.shape:
        raise _refused(path, f"has shape {_text(header.shape)}, but `{name}` is one number")
    return np.fromfile(path, kind, 1, offset=header.offset)[0]


def _header(path: Path, folder: Path, name: str, kind: np.dtype[Any]) -> _Header:
    """The header of a file, whose data have this type and the length that it says. Raises UsageError."""
    try:
        if not path.resolve().is_relative_to(folder.resolve()):
            raise _refused(path, f"a symbolic link leads out of {folder}")
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY), "rb") as file:
            state = os.fstat(file.fileno())
            if not stat.S_ISREG(state.st_mode):
                raise _refused(path, "is not a regular file")
            header = _parsed(file)
    except FileNotFoundError:
        raise _refused(path, f"no such file, but the program has `{name}`") from None
    except UsageError:
        raise
    except Exception as error:  # a damaged header makes NumPy raise TypeError, OverflowError, TokenError and others
        raise _refused(path, f"is no array of NumPy ({' '.join(str(error).split())[:200]})") from None
    if header.type != kind:
        raise _refused(path, f"holds {header.type}, but `{name}` is {kind}")
    size, there = math.prod(header.shape) * kind.itemsize, state.st_size - header.offset
    if size != there:
        raise _refused(path, f"has {counted(there, 'byte')} of data, but its shape {_text(header.shape)} needs {size}")
    return header


def _parsed(file: BinaryIO) -> _Header:
    """Raises ValueError, and whatever else NumPy's parser of headers raises."""
    from numpy.lib import format as npy

    version = npy.read_magic(file)
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"format {version[0]}.{version[1]} is not supported (1.0 and 2.0 are)")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of headers that Python 2 wrote
        shape, fortran, kind = readers[version](file)
    if math.prod(shape) >= 2**63:
        raise ValueError("the header's shape is too large")
    if any(type(size) is not int or size < 0 for size in shape):
        raise ValueError(f"the header's shape {_text(shape)} is broken")
    if fortran and len(shape) > 1:
        raise ValueError("Fortran order is not supported; store the array in C order")
    return _Header(shape, kind, file.tell())


def _refused(path: Path, why: str) -> UsageError:
    why = "".join(c if c.isprintable() else "\ufffd" for c in why)
    return UsageError(f"{path}: {why}", "make the arrays again with `dagc setup`, with the same -D and ranks")


def _same(declared: tuple[int | None, ...], shape: tuple[int, ...]) -> bool:
    return len(declared) == len(shape) and all(d is None or d == s for d, s in zip(declared, shape, strict=True))


def _text(shape: tuple[Any, ...]) -> str:
    return f"({', '.join(map(str, shape[:32]))})"
