"""`dagc setup`: run a program's set-up and references for every rank and write the arrays that `bench --data` reads.

    DIR/setup.json                     program, path, params, ranks, seed, names (display name -> file name)
    DIR/rank-0000/NAME.npy             what the set-up returned; per-rank scalars are 0-d arrays
    DIR/rank-0000/expected/NAME.npy    each `verify` target (of a slice, the slice) after one run of the dag

One rank is held in memory at a time. This runs Python code that belongs to the program.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dagc.base.errors import Diagnostic, ProgramError, UsageError
from dagc.base.files import output_directory
from dagc.ir.program import Program, Setup, Verify
from dagc.setup.checks import Checker, environment, wanted
from dagc.setup.code import SetupCode
from dagc.setup.messages import Matching

SCHEMA_VERSION = 1


def run_setup(
    program: Program,
    base_dir: Path,
    ranks: int,
    seed: int,
    out: Path,
    *,
    references: bool = True,
    done: Callable[[], None] | None = None,
) -> None:
    """Write the arrays of `ranks` ranks into `out`, all or nothing; without `references` none to compare with.

    `done` is called after each rank.

    `base_dir` is the folder that the set-up's file name is relative to: that of the `.dag`. An earlier output of this
    function at `out` is replaced. Raises ProgramError where what the functions return does not fit the declarations,
    UsageError where they fail or an argument is bad, DagcError where the disk is.
    """
    if program.setup is None:
        raise UsageError(f"{program.path} has no set-up", 'add a line such as: setup "setup.py" arrays(n)')
    if ranks < 1:
        raise UsageError(f"{ranks} ranks", "use 1 or more")
    if seed < 0:
        raise UsageError(f"seed {seed} is negative", "use 0 or more")
    code = SetupCode(program, program.setup, base_dir)
    code.function(program.setup.function, program.setup.span)
    for verify in program.verifies:
        code.function(verify.function, verify.span)
    with output_directory(out) as folder:
        matching = Matching(program, ranks, program.setup.span)
        for rank in range(ranks):
            part = folder / f"rank-{rank:04d}"
            _write_rank(program, program.setup, code, rank, ranks, seed, part, matching, references)
            if done is not None:
                done()
        _raise(program, matching.finish())
        (folder / "setup.json").write_text(json.dumps(_description(program, ranks, seed), indent=2) + "\n")


def file_name(name: str) -> str:
    """`nbr[x,lo]` -> `nbr_x_lo`: the name of an array in files and C++."""
    return re.sub(r"[\[,.]", "_", name).replace("]", "")


def _write_rank(
    program: Program,
    setup: Setup,
    code: SetupCode,
    rank: int,
    ranks: int,
    seed: int,
    folder: Path,
    matching: Matching,
    references: bool,
) -> None:
    data = code.call(setup.function, setup.span, (rank, ranks, seed), dict(setup.args), rank)
    checker = Checker(program, rank, ranks, setup.span, setup.function)
    checked = _checked(program, checker, data)
    env = environment(program, checked, rank, ranks)
    shapes = {name: value.shape for name, value in checked.items()}
    for array in program.arrays:
        size = checker.shape(array)
        if array.name not in shapes and size is not None and None not in size:
            shapes[array.name] = size
    _raise(program, checker.diagnostics)
    matching.add(checked, shapes, env)
    folder.mkdir()
    for name, value in checked.items():
        _save(folder / f"{file_name(name)}.npy", value)
    expected = folder / "expected"
    expected.mkdir()
    if not references:
        return
    for name, value in _references(program, setup, code, data, rank, ranks, seed):
        _save(expected / f"{file_name(name)}.npy", value)


def _checked(program: Program, checker: Checker, data: Mapping[str, Any]) -> dict[str, Any]:
    """The values in their declared types. Raises ProgramError."""
    needed = wanted(program)
    checker.names(data, needed)
    out: dict[str, Any] = {}
    # Scalars first: the sizes of arrays depend on them.
    for scalar in program.scalars:
        if scalar.name in data:
            out[scalar.name] = checker.scalar(scalar, data[scalar.name])
    for array in program.arrays:
        if array.name in needed and array.name in data:
            out[array.name] = checker.array(array, data[array.name])
    checker.conditions()
    _raise(program, checker.diagnostics)
    return out


def _references(
    program: Program, setup: Setup, code: SetupCode, data: dict[str, Any], rank: int, ranks: int, seed: int
) -> Iterator[tuple[str, Any]]:
    """(name, expected array) of each `verify`; a reference that serves several is called once."""
    results: dict[str, dict[str, Any]] = {}
    # References see what the set-up returned, unchanged, whatever an earlier reference did: arrays are read-only.
    frozen = {name: _read_only(value) for name, value in data.items()}
    for verify in program.verifies:
        named = {"rank": rank, "size": ranks, "seed": seed} | dict(setup.args) | dict(verify.args)
        key = repr((verify.function, verify.args))
        if key not in results:
            results[key] = code.call(verify.function, verify.span, (dict(frozen),), named, rank)
        yield verify.region.array, _expected(program, verify, results[key], data, rank, ranks)


def _expected(
    program: Program, verify: Verify, result: Mapping[str, Any], data: Mapping[str, Any], rank: int, ranks: int
) -> Any:
    import numpy as np

    name = verify.region.array
    checker = Checker(program, rank, ranks, verify.span, verify.function)
    checker.env |= {s.name: np.asarray(data[s.name]).item() for s in program.scalars}
    value = None
    if name in result:
        declared = next(a for a in program.arrays if a.name == name)
        value = checker.array(declared, result[name])
    else:
        checker.names([], [name])
    _raise(program, checker.diagnostics)
    if value is not None and value.dtype.kind == "f" and not verify.nan_equal and np.isnan(value).any():
        message = f"`{verify.function}` returns NaN in `{name}` (rank {rank}), which nothing equals"
        help = "give a finite value, or write `nan equal` behind the tolerance where NaN is the right result"
        _raise(program, [Diagnostic("setup-nan", message, verify.span, help)])
    return _part(program, verify, checker, value)


def _part(program: Program, verify: Verify, checker: Checker, value: Any) -> Any:
    """The verified slice of the array that a reference returned."""
    region = verify.region
    if region.stop is None:
        return value
    start = checker.size(region.start, f"the start of `{region.array}`") if region.start is not None else 0
    stop = checker.size(region.stop, f"the end of `{region.array}`")
    _raise(program, checker.diagnostics)
    return value[start:stop]


def _read_only(value: Any) -> Any:
    import numpy as np

    if not isinstance(value, np.ndarray):
        return value
    view = value.view()
    view.flags.writeable = False
    return view


def _save(path: Path, value: Any) -> None:
    import numpy as np

    np.save(path, value, allow_pickle=False)


def _raise(program: Program, diagnostics: list[Diagnostic]) -> None:
    if diagnostics:
        raise ProgramError(diagnostics, dict(program.sources))


def _description(program: Program, ranks: int, seed: int) -> dict[str, Any]:
    names = [s.name for s in program.scalars] + [a.name for a in program.arrays]
    return {
        "schema_version": SCHEMA_VERSION,
        "program": program.name,
        "path": program.path,
        "params": {p.name: getattr(p.value, "value", p.value) for p in program.params},
        "ranks": ranks,
        "seed": seed,
        "names": {name: file_name(name) for name in names},
    }
