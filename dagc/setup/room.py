"""Whether the arrays of the ranks have room, on the disk and in memory: asked before the set-up computes them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from dagc.base.errors import UsageError, counted
from dagc.ir.enums import Role
from dagc.ir.program import Program
from dagc.ir.sym import UnboundName, evaluate
from dagc.setup.checks import SET_ROLES, dtype


def least_bytes(program: Program, roles: Sequence[Role] | None = None) -> int:
    """Of the arrays of a rank, in these roles (None: all), whose sizes are constants of the program."""
    out = 0
    for array in program.arrays:
        elements = 1
        with suppress(UnboundName, ArithmeticError):
            for dim in array.dims:
                elements *= int(evaluate(dim, {})) if dim is not None else 0
            out += elements * dtype(array.type).itemsize if roles is None or array.role in roles else 0
    return out


def require_disk(program: Program, ranks: int, out: Path) -> None:
    """Raises UsageError if what the set-up returns does not fit into the file system of `out`."""
    folder = next((folder for folder in out.absolute().parents if folder.is_dir()), Path("/"))
    _require(program, ranks, least_bytes(program, SET_ROLES), shutil.disk_usage(folder).free, f"free in {folder}")


def require_memory(program: Program, ranks: int) -> None:
    """Raises UsageError if the arrays of so many ranks, which run on this host's processors, exceed its free memory."""
    each = least_bytes(program) + least_bytes(program, (Role.INOUT,))  # whose first values are kept
    with suppress(OSError):  # not on Linux
        found = re.search(r"^MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
        if found is not None:
            _require(program, ranks, each, int(found[1]) << 10, "of free memory")


def _require(program: Program, ranks: int, each: int, free: int, what: str) -> None:
    if ranks * each > free:
        took = f"the arrays of {counted(ranks, 'rank')} take at least {ranks * each / 1e9:.3g} GB"
        params = ", ".join(f"{name}={value}" for name, value in program.param_values.items())
        help = f"give smaller sizes with -D ({params})" if params else "give fewer ranks with -n"
        raise UsageError(f"{took}, and there are {free / 1e9:.3g} GB {what}", help)
