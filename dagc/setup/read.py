"""Arrays that `dagc setup` wrote: do they fit the program, as it is now? Looked at before anything is compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dagc.errors import UsageError
from dagc.ir import Program
from dagc.setup.checks import Checker, dtype, wanted
from dagc.setup.write import file_name
from dagc.source import NOWHERE


def check_arrays(program: Program, folder: Path, ranks: int) -> None:
    """Raises UsageError naming the first file that is missing, or has another type or shape than is declared."""
    span = program.setup.span if program.setup is not None else NOWHERE
    for rank in range(ranks):
        part = folder / f"rank-{rank:04d}"
        checker = Checker(program, rank, ranks, span, str(part))
        for scalar in program.scalars:
            path = part / f"{file_name(scalar.name)}.npy"
            checker.scalar(scalar, _array(path, scalar.name, dtype(scalar.type))[()])
        needed = set(wanted(program))
        for array in program.arrays:
            if array.name in needed:
                path = part / f"{file_name(array.name)}.npy"
                found = _array(path, array.name, dtype(array.type))
                shape = checker.shape(array)
                if shape is not None and not _same(shape, found.shape):
                    want = tuple("*" if size is None else size for size in shape)
                    raise _refused(path, f"has shape {_text(found.shape)}, but `{array.name}` has {_text(want)}")
        for verify in program.verifies:
            name = verify.region.array
            declared = next(a for a in program.arrays if a.name == name)
            _array(part / "expected" / f"{file_name(name)}.npy", name, dtype(declared.type))


def _array(path: Path, name: str, kind: Any) -> Any:
    """The array of a file, not read into memory."""
    import numpy as np

    try:
        found = np.lib.format.open_memmap(path, mode="r")
    except FileNotFoundError:
        raise _refused(path, f"no such file, but the program has `{name}`") from None
    except Exception as error:  # a damaged header makes NumPy raise TypeError, OverflowError, BadZipFile and others
        raise _refused(path, f"is no array of NumPy ({' '.join(str(error).split())[:300]})") from None
    if found.dtype != kind:
        raise _refused(path, f"holds {found.dtype}, but `{name}` is {kind}")
    return found


def _refused(path: Path, why: str) -> UsageError:
    return UsageError(f"{path}: {why}", "make the arrays anew with `dagc setup`, with the same -D and ranks")


def _same(shape: tuple[int | None, ...], found: tuple[int, ...]) -> bool:
    return len(shape) == len(found) and all(s is None or s == f for s, f in zip(shape, found, strict=True))


def _text(shape: tuple[Any, ...]) -> str:
    return f"({', '.join(map(str, shape))})"
