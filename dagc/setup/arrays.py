"""Arrays of each rank: written by the user's Python of a `setup` line, and checked against the program before use."""

from __future__ import annotations

import inspect
import json
import math
import os
import shlex
import signal
import stat
import sys
import threading
import types
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, TypeVar

from dagc.base import signals
from dagc.base.errors import Diagnostic, ProgramError, UsageError, counted
from dagc.base.files import output_directory
from dagc.base.python import np
from dagc.base.source import NOWHERE, Span, find_file, read_file
from dagc.ir.enums import ElementType
from dagc.ir.names import alike, data_file
from dagc.ir.program import Program, Scalar, Setup, Verify
from dagc.ir.sym import Number, UnboundName
from dagc.setup.checks import Checker, Matching, RankMembers, dtype, least_bytes, require_disk, team, wanted
from dagc.setup.isolated import Wait, isolated, say

# ---- the user's Python -----------------------------------------------------------------------------


_NUMBERS = count()  # of the modules: several run concurrently, one for each size
_PATH = threading.Lock()  # held only where set-ups run in threads of this process, and then none is forked
_HERE: list[str] = []  # the working directory, of each file that runs: that before the first of them
_RUNNING = threading.local()  # `process`: that in which this thread runs code of a set-up
_exit_now = os._exit


def _exit(status: int) -> None:
    """`os._exit`, but an exception if a set-up calls it: the command would end at once without a message.

    In processes that a set-up forked, it exits as usual.
    """
    if getattr(_RUNNING, "process", None) == os.getpid():
        raise SystemExit(f"it calls os._exit({status})")
    _exit_now(status)


@contextmanager
def _exits_raise() -> Iterator[None]:
    os._exit = _exit  # type: ignore[assignment]
    before, _RUNNING.process = getattr(_RUNNING, "process", None), os.getpid()
    try:
        yield
    finally:
        _RUNNING.process = before


def refuse(program: Program, code: str, message: str, span: Span, help: str) -> ProgramError:
    """A ProgramError with one diagnostic."""
    return ProgramError([Diagnostic(code, message, span, help)], dict(program.sources))


class SetupCode:
    """The loaded set-up file of a program."""

    def __init__(self, program: Program, setup: Setup, base_dir: Path) -> None:
        """Run the file at `base_dir / setup.file`, or where `dagc.base.source.find_file` finds it.

        Raises ProgramError (no such file, or outside of the program's directory), UsageError (it failed).
        """
        self._program = program
        self._setup = setup
        self._path = base_dir / setup.file
        try:
            self._path = find_file(setup.file, base_dir, base_dir)
            text = read_file(self._path, regular=True)
        except PermissionError as error:
            message = f"cannot read the set-up file {self._path}: {error.strerror}"
            help = "move it there, or give its directory with -I DIR"
            raise refuse(program, "setup-file", message, setup.span, help) from None
        except OSError as error:
            message = f"cannot read the set-up file {self._path}: {error.strerror}"
            help = f"write it; it defines `{setup.function}(rank, size, seed, ...)`"
            raise refuse(program, "setup-file", message, setup.span, help) from None
        self._module = types.ModuleType(f"_dagc_setup_{self._path.stem}_{next(_NUMBERS)}")
        self._module.__file__ = str(self._path)
        with self._running("while it was loaded"):
            # Compiled here rather than imported: no name in sys.modules to clash with, no __pycache__ beside the file.
            exec(compile(text, str(self._path), "exec"), self._module.__dict__)

    def function(self, name: str, span: Span) -> Callable[..., Any]:
        """A function of the file. Raises ProgramError at `span` if there is none of that name."""
        defined = getattr(self._module, name, None)
        if not callable(defined):
            own = sorted(n for n, v in vars(self._module).items() if inspect.isfunction(v) and not n.startswith("_"))
            help = f"its functions are {', '.join(own)}" if own else f"define `{name}` in it"
            raise refuse(self._program, "setup-function", f"{self._setup.file} has no function `{name}`", span, help)
        return defined  # type: ignore[no-any-return]

    def call(
        self, name: str, span: Span, args: tuple[Any, ...], named: Mapping[str, Any], rank: int, wanted: Sequence[str],
        only: Collection[str] | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Call a function that must return a dict with names as keys, `wanted`. Values may be functions without
        arguments; those of `only` (None: all) are called. Raises ProgramError or UsageError."""
        function = self.function(name, span)
        try:
            inspect.signature(function).bind(*args, **named)
        except TypeError as error:
            message = f"`{name}` of {self._setup.file} cannot be called: {error}"
            help = f"it is called as {name}({_call_text(args, named)})"
            raise refuse(self._program, "setup-arguments", message, span, help) from None
        with self._running(f"in {name}(rank={rank})"):
            result = function(*args, **named)
            for key, value in result.items() if isinstance(result, dict) else ():
                if callable(value) and (only is None or key in only):
                    result[key] = value()
        of_dict = isinstance(result, dict)
        if not of_dict or not all(isinstance(key, str) for key in result):
            other = (f"a dict with the key {key!r}" for key in result if not isinstance(key, str)) if of_dict else ()
            kind = next(iter(other), type(result).__name__)
            message = f"`{name}` of {self._setup.file} returned {kind}, not a dict by declared names"
            raise refuse(self._program, "setup-result", message, span, _dict_help(wanted))
        return dict(result)

    @contextmanager
    def _running(self, what: str) -> Iterator[None]:
        """Makes the file's directory importable, and keeps the working directory, in which relative paths of the next
        rank, and of the output, begin. An exception becomes a UsageError with its line."""
        directory = str(self._path.parent.resolve())
        # A new list each time: another thread may be iterating over the old one to import something.
        say("file", str(self._path))
        say("what", what)
        with _PATH:
            _HERE.append(_HERE[0] if _HERE else os.path.realpath("."))
            sys.path = [directory, *sys.path]
        sys.modules[self._module.__name__] = self._module  # dataclasses and pickling look there
        try:
            with _exits_raise():
                yield
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is not signal.SIG_DFL:
                raise  # of the user; in a process of its own, the file has raised it
            help = f"correct {self._path.name}: it failed {what}"
            if isinstance(error, (ValueError, MemoryError)):  # by which a set-up refuses an input, or cannot hold it
                help = f"give another input or parameter, or {help}"
            raise UsageError(f"{self._place(error)}: {_reason(error)}", help) from None
        finally:
            sys.modules.pop(self._module.__name__, None)
            with _PATH:
                left = list(sys.path)
                if directory in left:
                    left.remove(directory)
                sys.path = left
                if (here := _HERE.pop()) != os.path.realpath("."):
                    os.chdir(here)

    def _place(self, error: BaseException) -> str:
        """The place, `file:line`, of the innermost frame in the set-up's directory."""
        if isinstance(error, SyntaxError) and error.filename:
            return f"{error.filename}:{error.lineno or 1}:{error.offset or 1}"
        place = f"{self._path}:1"
        directory = self._path.parent.resolve()
        trace = error.__traceback__
        while trace is not None:
            file = trace.tb_frame.f_code.co_filename
            if file == str(self._path) or Path(file).resolve().parent == directory:
                place = f"{file}:{trace.tb_lineno}"
            trace = trace.tb_next
        return place


def _reason(error: BaseException) -> str:
    try:
        text = error.msg if isinstance(error, SyntaxError) else str(error)
    except Exception:  # of its own class
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _dict_help(names: Sequence[str]) -> str:
    shown = ", ".join(f"{name!r}: ..." for name in names[:3]) or "'x': ..."
    return f"return a dict such as {{{shown}{', ...' if len(names) > 3 else ''}}}"


def _call_text(args: tuple[Any, ...], named: Mapping[str, Any]) -> str:
    shown = ["data" if isinstance(a, dict) else str(a) for a in args]
    return ", ".join(shown + [f"{k}={v!r}" for k, v in named.items()])


# ---- arrays ----------------------------------------------------------------------------------------


# ---- writing ----
# `dagc setup`: run a program's set-up and references for every rank and write the arrays that `bench --data` reads.
#
#     DIR/setup.json                     program, path, params, ranks, seed, names (display name -> file name)
#     DIR/rank-0000/NAME.npy             what the set-up returned; per-rank scalars are 0-d arrays
#     DIR/rank-0000/expected/NAME.npy    each `verify` target (of a slice, the slice) after one run of the dag; the
#                                        second `verify` of an array has NAME.2.npy, and so on
#
# A process holds one rank in memory at a time; where there are cores and memory for it, several processes write ranks,
# each with a set-up file of its own. This runs Python code that belongs to the program.

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
    """Write the arrays of `ranks` ranks into `out`, all or nothing; with `references`, also the expected results.

    `done` is called after each rank. Raises like `setup_under_way`.
    """
    with setup_under_way(program, base_dir, ranks, seed, out, references=references) as wait:
        wait(done)


@contextmanager
def setup_under_way(
    program: Program,
    base_dir: Path,
    ranks: int,
    seed: int,
    out: Path,
    *,
    references: bool = True,
) -> Iterator[Wait]:
    """As `run_setup`. Yields the function that waits for the end; where the set-up runs in a process of its own, that
    begins now, and other work can be done meanwhile. Enter it before threads start, since it forks.

    `base_dir` is the directory that the set-up's file name is relative to: that of the `.dag`. Earlier output of this
    function at `out` is replaced. Raises ProgramError if the results do not match the declarations, UsageError if the
    functions fail or an argument is bad, DagcError for disk errors.
    """
    setup = _setup_of(program, ranks, seed)
    require_disk(program, ranks, out)
    job = _Job(program, setup, base_dir, ranks, seed, out, references)
    if signals.isolates():
        with isolated(lambda: job.write(lambda: say("done"))) as wait:
            yield wait
    else:
        yield job.write


def _setup_of(program: Program, ranks: int, seed: int) -> Setup:
    if program.setup is None:
        raise UsageError(f"{program.path} has no set-up", 'add a line such as: setup "setup.py" arrays(n)')
    if ranks < 1:
        raise UsageError(f"{ranks} ranks", "use 1 or more")
    if seed < 0:
        raise UsageError(f"seed {seed} is negative", "use 0 or more")
    return program.setup


def values_of_ranks(
    program: Program,
    base_dir: Path,
    ranks: int,
    seed: int,
    names: Collection[str],
    done: Callable[[], None] | None = None,
) -> list[dict[str, Any]]:
    """The values of each rank: `rank` and `ranks`, those of communicators, its scalars, and its arrays of these names.
    Other arrays are not computed where the set-up returns functions.

    Nothing is written; the ranks take all cores. `done` is called after each rank. Raises like `setup_under_way`.
    """
    setup = _setup_of(program, ranks, seed)
    kept = {*names, *(scalar.name for scalar in program.scalars)}

    def given(part: range, done: Callable[[], None] | None) -> list[dict[str, Any]]:
        code, out = SetupCode(program, setup, base_dir), []
        for rank in part:
            arguments, needed = (rank, ranks, seed), wanted(program)
            data = code.call(setup.function, setup.span, arguments, dict(setup.args), rank, needed, kept)
            checker = Checker(program, rank, RankMembers(ranks), setup.span, setup.function)
            checker.names(data, needed)
            _raise(program, checker.diagnostics)
            out.append({name: value for name, value in data.items() if name in kept})
            if done is not None:
                done()
        return out

    number = _processes(program, ranks, 1)
    parts = _side_by_side(given, [range(first, ranks, number) for first in range(number)], done)
    every = [parts[rank % number][rank // number] for rank in range(ranks)]
    ours = _team(program, setup, every.__getitem__, ranks)
    matching, out = Matching(program, ours, setup.span), []
    for rank, data in enumerate(every):
        checker = Checker(program, rank, ours, setup.span, setup.function)
        out.append(_add(program, checker, matching, ours.of(rank), _checked(program, checker, data, data)))
    _raise(program, matching.finish())
    return out


Part = TypeVar("Part")
Done: TypeAlias = Callable[[], None] | None


def _side_by_side(work: Callable[[range, Done], Part], parts: Sequence[range], done: Done) -> list[Part]:
    """What `work` returns of each part; several are in processes of their own."""
    if len(parts) == 1:
        return [work(parts[0], done)]
    with ExitStack() as stack:
        waits = [stack.enter_context(isolated(partial(work, part, lambda: say("done")))) for part in parts]
        return [wait(done) for wait in waits]


def _processes(program: Program, ranks: int, cores_of_one: int) -> int:
    """How many compute ranks at the same time: as there are cores, and memory for what NumPy code holds. Code of a
    set-up may not work in processes that are forked once it has run, so each process runs all of it."""
    if not signals.isolates():
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE") // 2
    fit = memory // max(1, COPIES * least_bytes(program))
    return max(1, min(ranks, cores // cores_of_one, fit))


@dataclass(frozen=True, slots=True)
class _Job:
    """What a set-up writes."""

    program: Program
    setup: Setup
    base_dir: Path
    ranks: int
    seed: int
    out: Path
    references: bool

    def write(self, done: Callable[[], None] | None) -> None:
        """Runs the user's code."""
        program = self.program
        with output_directory(self.out) as directory:
            say("directory", str(directory))
            number = _processes(program, self.ranks, CORES_OF_ONE)
            parts = [range(first, self.ranks, number) for first in range(number)]
            matching, *others = _side_by_side(partial(self._ranks, directory), parts, done)
            for other in others:
                matching.merge(other)
            _raise(program, matching.finish())
            description = json.dumps(_description(program, self.ranks, self.seed), indent=2)
            (directory / "setup.json").write_text(description + "\n")

    def _ranks(self, directory: Path, part: range, done: Done) -> Matching:
        """Write these ranks."""
        program, setup = self.program, self.setup
        code = SetupCode(program, setup, self.base_dir)
        code.function(setup.function, setup.span)
        for verify in program.verifies:
            code.function(verify.function, verify.span)
        scalars = {scalar.name for scalar in program.scalars}

        def data(rank: int) -> dict[str, Any]:
            arguments = (rank, self.ranks, self.seed)
            return code.call(setup.function, setup.span, arguments, dict(setup.args), rank, wanted(program), scalars)

        ours = _team(program, setup, data, self.ranks)
        run = _Run(program, setup, code, ours, self.seed)
        matching = Matching(program, ours, setup.span)
        for rank in part:
            run.write(rank, directory / f"rank-{rank:04d}", matching, self.references)
            if done is not None:
                done()
        return matching


CORES_OF_ONE = 4  # for each process that writes ranks
COPIES = 8  # of the arrays of a rank that its set-up and references may hold


def _team(program: Program, setup: Setup, given: Callable[[int], Mapping[str, Any]], ranks: int) -> RankMembers:
    """The communicators. `given`: what the set-up returns of a rank, where their colours depend on scalars."""

    def scalars(rank: int) -> dict[str, Number]:
        data = given(rank)
        checker = Checker(program, rank, RankMembers(ranks), setup.span, setup.function)
        for scalar in program.scalars:
            if scalar.name in data:
                checker.scalar(scalar, data[scalar.name])
        _raise(program, checker.diagnostics)
        return checker.env

    try:
        return team(program, ranks, scalars)
    except (UnboundName, ArithmeticError, ValueError, TypeError) as error:
        why = f"`{error.args[0]}` is not returned" if isinstance(error, UnboundName) else str(error)
        message = f"`{setup.function}` makes the colour or the key of a communicator invalid: {why}"
        help = "change the scalars that it depends on"
        raise ProgramError(
            [Diagnostic("setup-size", message, program.comms[0].span, help)], dict(program.sources)
        ) from None


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of a set-up, for all ranks."""

    program: Program
    setup: Setup
    code: SetupCode
    team: RankMembers
    seed: int

    def write(self, rank: int, directory: Path, matching: Matching, references: bool) -> None:
        """The arrays of one rank. Raises ProgramError, UsageError."""
        program, setup = self.program, self.setup
        arguments = (rank, self.team.ranks, self.seed)
        data = self.code.call(setup.function, setup.span, arguments, dict(setup.args), rank, wanted(program))
        checker = Checker(program, rank, self.team, setup.span, setup.function)
        checked = _checked(program, checker, data, wanted(program))
        _add(program, checker, matching, self.team.of(rank), checked)
        (directory / "expected").mkdir(parents=True)
        for name, value in checked.items():
            _save(directory / data_file(name), value)
        files = [data_file(name) for name in checked]
        for file, value in self._references(data, rank) if references else ():
            _save(directory / file, value)
            files.append(file)
        for one, other in alike(files):
            if (directory / one).samefile(directory / other):
                message = f"{one} and {other} are one file in {directory.parent}, whose file system ignores case"
                raise UsageError(message, "write to another file system, or rename an array")

    def _references(self, data: dict[str, Any], rank: int) -> Iterator[tuple[str, Any]]:
        """(file, expected array) of each `verify`; a reference used several times is called once. Where it is compared
        after several runs, each call gets the arrays that the one before returned."""
        results: dict[str, dict[str, Any]] = {}
        # References get the set-up's results unchanged, whatever an earlier reference did: arrays are read-only.
        frozen = {name: _read_only(value) for name, value in data.items()}
        every = self.program.verifies
        for verify, file in zip(every, self.program.expected_files, strict=True):
            given = {"rank": rank, "size": self.team.ranks, "seed": self.seed}
            named = given | dict(self.setup.args) | dict(verify.args)
            key = repr((verify.function, verify.args, verify.runs))
            if key not in results:
                names = [v.returned for v in every if (v.function, v.args) == (verify.function, verify.args)]
                state = dict(frozen)
                for _ in range(verify.runs):
                    result = self.code.call(verify.function, verify.span, (dict(state),), named, rank, names)
                    state |= {name: _read_only(value) for name, value in result.items() if name in state}
                results[key] = result
            yield file, self._expected(verify, results[key], data, rank)

    def _expected(self, verify: Verify, result: Mapping[str, Any], data: Mapping[str, Any], rank: int) -> Any:
        """The verified slice of what a reference returned."""
        program, region = self.program, verify.region
        checker = Checker(program, rank, self.team, verify.span, verify.function)
        checker.env |= {s.name: np.asarray(data[s.name]).item() for s in program.scalars}
        checker.names([verify.returned] if verify.returned in result else [], [verify.returned])
        _raise(program, checker.diagnostics)
        if verify.of:
            number = checker.scalar(Scalar(verify.returned, ElementType.F64), result[verify.returned])
            value = np.array([np.nan if number is None else number])
        else:
            value = checker.array(program.array(region.array), result[region.array])
        _raise(program, checker.diagnostics)
        if value.dtype.kind == "f" and not verify.nan_equal and np.isnan(value).any():
            message = f"`{verify.function}` returns NaN in `{verify.returned}` (rank {rank}), which nothing equals"
            help = "give a finite value, or write `nan equal` after the tolerance if NaN is the correct result"
            _raise(program, [Diagnostic("setup-nan", message, verify.span, help)])
        if region.stop is None or verify.of:
            return value
        start = checker.size(region.start, f"the start of `{region.array}`") if region.start is not None else 0
        stop = checker.size(region.stop, f"the end of `{region.array}`")
        _raise(program, checker.diagnostics)
        return value[start:stop]


def _add(
    program: Program, checker: Checker, matching: Matching, members: Mapping[str, Number], checked: Mapping[str, Any]
) -> dict[str, Any]:
    """Collect the messages of a rank. Returns its values. Raises ProgramError."""
    env = {**members, **{s.name: checked[s.name].item() for s in program.scalars}}
    shapes = {name: value.shape for name, value in checked.items()}
    for array in program.arrays:
        size = checker.shape(array)
        if array.name not in shapes and size is not None and None not in size:
            shapes[array.name] = size
    _raise(program, checker.diagnostics)
    matching.add(checked, shapes, env)
    return {**checked, **env}


def _checked(program: Program, checker: Checker, data: Mapping[str, Any], needed: Collection[str]) -> dict[str, Any]:
    """The values in their declared types. Raises ProgramError."""
    checker.names(data, needed)
    out: dict[str, Any] = {}
    # Scalars first: sizes of arrays depend on them.
    for scalar in program.scalars:
        if scalar.name in data:
            out[scalar.name] = checker.scalar(scalar, data[scalar.name])
    for array in program.arrays:
        if array.name in needed and array.name in data:
            out[array.name] = checker.array(array, data[array.name])
    checker.conditions()
    _raise(program, checker.diagnostics)
    return out


def _read_only(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    view = value.view()
    view.flags.writeable = False
    return view


def _save(path: Path, value: Any) -> None:
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
        "params": program.param_values,
        "ranks": ranks,
        "seed": seed,
        "names": {name: data_file(name).removesuffix(".npy") for name in names},
    }


# ---- reading ----
# Checks that arrays written by `dagc setup` match the present program. They run before anything is compiled.
#
# A directory of arrays is untrusted data: only regular files in it are opened, no Python object is unpickled, and the
# header of a file is compared with its length before memory is allocated.


def check_arrays(program: Program, directory: Path, ranks: int) -> None:
    """Raises UsageError if `directory` is not for `ranks` ranks, or naming the first file that is missing, unusable, or
    of another type or shape than declared."""
    _check_ranks(directory, ranks)
    span = program.setup.span if program.setup is not None else NOWHERE
    ours = _team_of(program, directory, ranks)
    for rank in range(ranks):
        part = directory / f"rank-{rank:04d}"
        checker = Checker(program, rank, ours, span, str(part))
        for scalar in program.scalars:
            checker.scalar(scalar, _read_scalar(directory, rank, scalar.name, dtype(scalar.type)))
        needed = set(wanted(program))
        for array in program.arrays:
            if array.name in needed:
                path = part / data_file(array.name)
                header = _header(path, directory, array.name, dtype(array.type))
                shape = checker.shape(array)
                if shape is not None and not _same(shape, header.shape):
                    want = tuple("*" if size is None else size for size in shape)
                    raise _refused(path, f"has shape {_text(header.shape)}, but `{array.name}` has {_text(want)}")
        for verify, file in zip(program.verifies, program.expected_files, strict=True):
            of = ElementType.F64 if verify.of else program.array(verify.region.array).type
            _header(part / file, directory, verify.returned, dtype(of))


def read_scalars(program: Program, directory: Path, ranks: int = 1, rank: int = 0) -> dict[str, Number]:
    """Values of a rank's scalars, `rank` and `ranks` and those of communicators included. Raises UsageError as
    `check_arrays`."""
    return _team_of(program, directory, ranks).of(rank) | _scalars(program, directory, rank)


def scalars_of_ranks(program: Program, directory: Path, ranks: int) -> list[dict[str, Number]]:
    """As `read_scalars`, of each rank. The communicators, which may need the scalars of all, are computed once."""
    ours = _team_of(program, directory, ranks)
    return [ours.of(rank) | _scalars(program, directory, rank) for rank in range(ranks)]


def _scalars(program: Program, directory: Path, rank: int) -> dict[str, Number]:
    return {s.name: _read_scalar(directory, rank, s.name, dtype(s.type)).item() for s in program.scalars}


def _team_of(program: Program, directory: Path, ranks: int) -> RankMembers:
    """The communicators, computed from the scalars in the directory. Raises UsageError."""
    try:
        return team(program, ranks, lambda rank: _scalars(program, directory, rank))
    except (UnboundName, ArithmeticError, ValueError, TypeError) as error:
        raise _refused(directory, f"the colour or the key of a communicator is invalid: {error}") from None


def elements(file: Path) -> int:
    """The number of elements of a .npy file that `run_setup` wrote. Raises DagcError."""
    try:
        with file.open("rb") as stream:
            return math.prod(_parsed(stream).shape)
    except Exception as error:  # as in `_header`
        raise _refused(file, f"is not a NumPy array ({' '.join(str(error).split())[:200]})") from None


def _check_ranks(directory: Path, ranks: int) -> None:
    command = f"create it with `dagc setup FILE -n {ranks} -o {shlex.quote(str(directory))}`"
    if not directory.is_dir():
        raise UsageError(f"{directory}: no such directory", command)
    there = sum(1 for _ in directory.glob("rank-[0-9]*"))
    if there != ranks:
        what = f"written for {counted(there, 'rank')}, not {ranks}" if there else "holds no arrays of `dagc setup`"
        raise UsageError(f"{directory}: {what}", command)


# ---- .npy files -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Header:
    """The header of a .npy file. `offset`: of the data, in bytes."""

    shape: tuple[int, ...]
    type: np.dtype[Any]
    offset: int


def _read_scalar(directory: Path, rank: int, name: str, kind: np.dtype[Any]) -> Any:
    path = directory / f"rank-{rank:04d}" / data_file(name)
    header = _header(path, directory, name, kind)
    if header.shape:
        raise _refused(path, f"has shape {_text(header.shape)}, but `{name}` is one number")
    return np.fromfile(path, kind, 1, offset=header.offset)[0]


def _header(path: Path, directory: Path, name: str, kind: np.dtype[Any]) -> _Header:
    """The header of a file whose type and length are as declared. Raises UsageError."""
    try:
        if not path.resolve().is_relative_to(directory.resolve()):
            raise _refused(path, f"a symbolic link leads out of {directory}")
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
        raise _refused(path, f"is not a NumPy array ({' '.join(str(error).split())[:200]})") from None
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
        warnings.simplefilter("ignore")  # about headers that Python 2 wrote
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
    return UsageError(f"{path}: {why}", "write the arrays again with `dagc setup`, with the same -D and ranks")


def _same(declared: tuple[int | None, ...], shape: tuple[int, ...]) -> bool:
    return len(declared) == len(shape) and all(d is None or d == s for d, s in zip(declared, shape, strict=True))


def _text(shape: tuple[Any, ...]) -> str:
    return f"({', '.join(map(str, shape[:32]))})"
