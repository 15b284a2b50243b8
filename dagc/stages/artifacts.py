"""From a traversal to its artifacts: the proved plan, its sources, the binary, and how to run it; and the traversal
that `--traversal` names."""

from __future__ import annotations

import sys
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from dagc.base.errors import UsageError, counted
from dagc.base.files import output_directory
from dagc.base.source import encoded
from dagc.build.builder import Build, build, require_wheel, write_wheel
from dagc.build.mpi import require_mpi
from dagc.build.toolchain import require_nccl
from dagc.ir.choice import is_formed
from dagc.ir.plan import (
    CodeFeature,
    EmittedChoosers,
    Plan,
    Target,
    open_variants,
    plan_from_json,
    plan_inputs,
    program_hash,
    traversal_in,
)
from dagc.ir.program import Decision, Device, Graph, KernelOp, Program, Value, shown
from dagc.ir.traversal import Traversal, parse_traversal
from dagc.passes.loops import repeated
from dagc.passes.private import private_arrays
from dagc.report.display import SILENT, Display
from dagc.report.stages import NOTHING_PRINTED, Printer
from dagc.space import Counter as StateCounter
from dagc.space import Space, TooManyStates
from dagc.space.enqueue import LANES, MOST, MOST_LANES, overlapped, prove_phases, rounds_of, without_host
from dagc.space.loops import is_folded_text, unroll
from dagc.space.moves import Moves
from dagc.space.proof import Prover, prune
from dagc.stages.options import IN_FLIGHT, CompileOptions, FormOptions
from dagc.stages.program import read_source

if TYPE_CHECKING:
    from dagc.build.toolchain import TargetChoice
    from dagc.emit.library import Enqueued
    from dagc.measure.bench import BenchResult


@dataclass(frozen=True, slots=True)
class Library:
    """Compile a plan as a library of this name, for applications; with `wheel`, also as a Python package.
    `in_flight`: so many iterations may overlap with arrays of their own."""

    name: str
    wheel: bool = False
    in_flight: int = IN_FLIGHT


@dataclass(frozen=True, slots=True)
class OpenChoices:
    """Choices that stay open until the program runs: `decisions`, which `chooser` sets by `features` that are computed
    then.

    Without a chooser the caller of the program sets them.
    """

    decisions: tuple[Decision, ...] = ()
    chooser: EmittedChoosers | None = None
    features: tuple[CodeFeature, ...] = ()

    def of(self, plan: Plan) -> Plan:
        """The plan with these choices open."""
        return replace(plan, open=self.decisions, chooser=self.chooser, features=self.features)


NOTHING_OPEN = OpenChoices()


def library_of(options: FormOptions, program: str) -> Library | None:
    """The library of `--as FORM --name NAME`; None for a standalone program, in C++ or Python.

    Raises UsageError, MissingTool."""
    if options.form in ("program", "driver"):
        if options.name is not None:
            raise UsageError("--name is the name of a library", "add --as library, or drop --name")
        return None
    from dagc.emit.library import library_name  # loads jinja2

    library = Library(library_name(program, options.name), options.form == "wheel", options.in_flight)
    if library.wheel:
        _check_module(library.name)
    if not 1 <= library.in_flight <= MOST_LANES:
        why = f"--in-flight {library.in_flight}: at most {MOST_LANES} iterations are in flight"
        raise UsageError(why, f"give a number from 1 to {MOST_LANES}")
    if library.wheel and not options.build:
        raise UsageError("a wheel holds the library that is built", "drop --no-build, or write --as library")
    if library.wheel:
        require_wheel()
    return library


def compile_traversal(
    graph: Graph,
    traversal: Traversal,
    chosen: TargetChoice,
    directory: Path,
    options: CompileOptions,
    *,
    open: OpenChoices = NOTHING_OPEN,
    arrays: Callable[[Program, Path], None] | None = None,
    display: Display = SILENT,
    printer: Printer = NOTHING_PRINTED,
) -> Compiled:
    """Compile one traversal of a graph into `directory`, in the form that the options ask for. Nothing is emitted
    unproved.

    `open`: what is settled when the program runs. `arrays` writes the data into the directory: before the compiler
    runs, which takes longer.
    """
    library = library_of(options, graph.program.name)
    plan = open.of(proved_plan(graph, traversal, chosen, options.prune_syncs))  # -> Plan, proved
    printer.after_proof(plan)
    if options.form == "driver":
        _require_driver(plan)
    files = write_sources(plan, directory, options.force, library)  # Plan -> source files
    if arrays is not None:
        arrays(graph.program, directory)
    binary = called = None
    if options.build:  # source files -> binary
        with display.phase("compiling"):
            if library is not None:
                binary = build_library(directory, plan, library)
            else:
                binary = build_artifact(directory, plan, "bench")
                if options.form == "driver" and "driver.cu" in files:
                    called = build_artifact(directory, plan, "driver")
    left = left_out(plan) if library is None else shared_arrays(plan) if library.in_flight > 1 else ()
    name = library.name if library is not None else ""
    return Compiled(
        directory, plan, None, chosen.reason, files, binary, None, left, library=name, driver=called
    )  # fmt: skip


def proved_plan(graph: Graph, traversal: Traversal, chosen: TargetChoice, prune_syncs: bool = False) -> Plan:
    """Nothing is emitted unproved. Loops of a folded graph are unrolled."""
    prover = Prover(graph)
    prover.prove(traversal, "the traversal")
    kept = prune(traversal, prover) if prune_syncs else traversal
    period = (graph, kept) if graph.folding is not None else None
    plan = Plan(*unroll(graph, kept), chosen.target, chosen.arch, period=period)
    if plan.loop is not None and isinstance(why := without_host(plan.graph, plan.traversal), str):
        raise UsageError(f"loop=device: {why}", "give another traversal, or -D loop=host")
    return plan


def left_out(plan: Plan) -> tuple[str, ...]:
    """Files that could not be written for a target, and why."""
    from dagc.emit import why_no_driver  # loads jinja2

    reason = why_no_driver(plan) if plan.target is Target.CUDA else ""
    notes: tuple[str, ...] = (f"driver.py: {reason}",) if reason else ()
    placed = [op.name for op in plan.graph.ops if op.placed]
    if placed and plan.capture:
        notes += (
            f"capture of op `{placed[0]}`: it may run on the host, as its device is chosen when the program runs",
        )
    return notes


def _require_driver(plan: Plan) -> None:
    from dagc.emit import why_no_driver  # loads jinja2

    if plan.target is not Target.CUDA:
        raise UsageError("--as driver: PyCUDA needs a GPU, and the target is host", "add --target cuda")
    if reason := why_no_driver(plan):
        raise UsageError(f"--as driver: {reason}", "drop --as driver")


def write_sources(plan: Plan, directory: Path, force: bool, library: Library | None = None) -> tuple[str, ...]:
    prove_phases(plan.graph)
    contents = _library_files(plan, library) if library is not None else _program_files(plan)
    return _write(contents, directory, force, library)


def write_runner(plan: Plan, directory: Path) -> None:
    """The sources of the runner alone, in place of what is in the directory."""
    from dagc.emit import emit_runner  # loads jinja2

    prove_phases(plan.graph)
    _write(_with_headers(emit_runner(plan)), directory, force=True)


def _write(
    contents: Mapping[str, bytes], directory: Path, force: bool, library: Library | None = None
) -> tuple[str, ...]:
    with output_directory(directory, force=force) as scratch:
        for name, content in contents.items():
            (scratch / name).parent.mkdir(parents=True, exist_ok=True)
            (scratch / name).write_bytes(content)
        if library is not None:
            for folder in ("lib", "dist") if library.wheel else ("lib",):
                (scratch / folder).mkdir()  # built later; an old binary never remains with new sources
    return tuple(sorted(name for name in contents if not name.startswith(HEADERS)))


HEADERS = ("include/dagc/", "src/include/")


def _program_files(plan: Plan) -> dict[str, bytes]:
    from dagc.emit import emit  # loads jinja2

    return _with_headers(emit(plan))


def _with_headers(texts: Mapping[str, str]) -> dict[str, bytes]:
    from dagc.emit import runtime_headers  # loads jinja2

    contents = {name: encoded(text) for name, text in texts.items()}
    return contents | {f"include/{name}": header.read_bytes() for name, header in runtime_headers().items()}


def _library_files(plan: Plan, library: Library) -> dict[str, bytes]:
    from dagc.emit.library import emit_library  # loads jinja2

    texts = emit_library(plan, library.name, enqueued_of(plan, library.in_flight))
    return {file: encoded(text) for file, text in texts.items()}


def enqueued_of(plan: Plan, in_flight: int = IN_FLIGHT) -> Enqueued | str:
    """A plan's GPU work without host waits, for one iteration and several, of which `in_flight` have arrays of their
    own where they may; or why it needs the host. Proved."""
    from dagc.emit.library import Enqueued  # loads jinja2

    iteration = without_host(plan.graph, plan.traversal)
    if isinstance(iteration, str):
        return iteration
    if len(plan.graph.ops) - 1 > MOST:
        return Enqueued(iteration)
    why_not = private_arrays(plan.graph) if in_flight > 1 and plan.loop is None else {}
    own = tuple(name for name, why in why_not.items() if not why)
    lanes = in_flight if own else LANES
    many = repeated(plan.graph, rounds_of(lanes), own, lanes)
    rounds = overlapped(many, iteration, lanes) if many is not None else None
    if rounds is None:
        return Enqueued(iteration)
    return Enqueued(iteration, (rounds.traversal, rounds.back, lanes), own)


def shared_arrays(plan: Plan) -> tuple[str, ...]:
    """Why iterations do not overlap; of those that do, the arrays that have one copy for all, and why."""
    if plan.loop is not None:
        return ()
    if isinstance(why := without_host(plan.graph, plan.traversal), str):
        return (f"iterations in flight: {why}",)
    if (ops := len(plan.graph.ops) - 1) > MOST:
        return (f"iterations in flight: each has {ops} ops, more than {MOST}",)
    return tuple(f"a second copy of `{name}`: {why}" for name, why in private_arrays(plan.graph).items() if why)


def build_library(directory: Path, plan: Plan, library: Library) -> Path:
    """`lib/libNAME.so`, whose symbols are those of the C interface; or the wheel with it."""
    built = build_shared(directory, plan, library.name, directory / f"lib/lib{library.name}.so")
    return write_wheel(directory, library.name, built) if library.wheel else built


def build_chooser(directory: Path, plan: Plan, name: str, plans: Mapping[str, str]) -> Path:
    """`lib/libNAME.so` of a library that chooses among plans, from the target of one of them. `plans`: the library of
    each directory below `plans`; all are in the directory `lib`."""
    cuda = plan.target is Target.CUDA
    hidden = "-Xcompiler=-fvisibility=hidden" if cuda else "-fvisibility=hidden"
    order = Build(
        [directory / f"src/{name}.{'cu' if cuda else 'cpp'}"], directory=directory,
        include=("include", "src/include", *(f"plans/{label}/include" for label in plans)),
        libraries=tuple(plans.values()), target=plan.target.value, arch=plan.arch, mpi=require_mpi(), shared=True,
        warnings_as_errors=False, flags=(hidden, "-Llib", "-Xlinker", "-rpath=$ORIGIN"),
    )  # fmt: skip
    return build(order, directory / f"lib/lib{name}.so")


# Packages whose communicators and arrays a wheel takes, and what these import.
_USED_WITH = frozenset("numpy mpi4py cupy cupy_backends torch jax jaxlib numba pycuda pytools scipy ml_dtypes".split())


def _check_module(name: str) -> None:
    """Raises UsageError for a wheel whose module would hide another one, or be hidden."""
    if name in sys.stdlib_module_names:
        raise UsageError(f"Python's own module `{name}` would hide the wheel's", "give --name NAME")
    installed = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    there = PathFinder.find_spec(name, installed)
    place = Path(there.origin).parent if there is not None and there.origin is not None else None
    # An earlier wheel of the same name is replaced.
    if name.lower() in _USED_WITH or (place is not None and not (place / f"lib{name}.so").exists()):
        where = f" in {place}" if place is not None else ""
        raise UsageError(f"the wheel's module would hide the module `{name}`{where}", "give --name NAME")


def build_shared(directory: Path, plan: Plan, name: str, out: Path) -> Path:
    """The shared library of one plan, from the directory of its sources."""
    from dagc.emit import linked, uses_nccl  # loads jinja2

    cuda, others = plan.target is Target.CUDA, linked(plan)
    hidden = ("-Xcompiler=-fvisibility=hidden",) if cuda else ("-fvisibility=hidden",)
    # A missing function is an error at link time, not when the library is loaded. Threads of streams run its code
    # until the process ends: dlclose must leave it there.
    linker = tuple(word for z in ("defs", "nodelete") for word in ("-Xlinker", "-z", "-Xlinker", z))
    nccl = require_nccl().flags() if cuda and uses_nccl(plan) else ()
    names = (f"{name}.{'cu' if cuda else 'cpp'}", *others.sources)
    order = Build(
        [directory / "src" / source for source in names], directory=directory,
        include=("include", "src/include", *(f"src/{f}" for f in others.include)), libraries=others.libraries,
        openmp=others.openmp, reads=tuple(f"src/{f}" for f in others.reads), target=plan.target.value, arch=plan.arch,
        mpi=require_mpi(), shared=True, warnings_as_errors=False, flags=(*hidden, *linker, *nccl),
    )  # fmt: skip
    return build(order, out)


def build_artifact(directory: Path, plan: Plan, what: str, hurry: bool = False) -> Path:
    """Build `bench` (a program), `runner` or `driver` (shared libraries), or `audit` (the runner as a program, not
    optimised). `hurry`: where that is possible by one compiler more, which reads all headers again, so that the others
    end a third earlier."""
    from dagc.emit import LAUNCHES, REST, linked, uses_nccl  # loads jinja2

    cuda, library = plan.target is Target.CUDA, what in ("runner", "driver")
    source = "runner" if what == "audit" else what
    flags = require_nccl().flags() if cuda and uses_nccl(plan) else ()
    others = linked(plan)
    of_gpu = all(op.kernel is None or (op.kernel.device is Device.GPU and not op.placed) for op in plan.graph.ops)
    apart = source == "runner" and (directory / LAUNCHES).exists()
    hurry = hurry and apart
    parts = (LAUNCHES, "runner.cpp", *([REST] if hurry else []))
    names = parts if apart else (f"{source}.{'cu' if cuda else 'cpp'}", *others.sources)
    # All sources at once; and a launcher that is missing is an error here.
    flags += ("-t", str(len(parts)), "-Xlinker", "-z", "-Xlinker", "defs") if apart else ()
    defines = (["DAGC_RUNNER_MAIN"] if what == "audit" else []) + (["DAGC_RUNNER_PARTS"] if hurry else [])
    order = Build(
        [directory / name for name in names], target=plan.target.value, arch=plan.arch,
        include=("include", *others.include), libraries=others.libraries, openmp=others.openmp, reads=others.reads,
        mpi=require_mpi(), shared=library, warnings_as_errors=False,
        flags=(*flags, "-O0") if what == "audit" else flags, defines=defines,
        issues=what == "runner" and of_gpu and not plan.features and not others.sources,
    )  # fmt: skip
    return build(order, directory / (f"lib{what}.so" if library else what))


# ---- what compile returns --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Launcher:
    """Plans of a program that selects one when it starts: their labels, the selection criteria, the plan of a run."""

    plans: tuple[str, ...]
    chooses_by: str
    chosen: str = ""


def as_given(path: Path, directory: Path) -> Path:
    """A file below `directory`, relative to where that is relative to."""
    below = directory.absolute()
    return directory / path.relative_to(below) if path.is_relative_to(below) else path


@dataclass(frozen=True, slots=True)
class Compiled:
    """The written, built and measured program. `binary` is None without a build, `result` without a run.

    `target_reason` explains the target; `number` is the traversal's ID, None if it has none (not in the counted space,
    or the space is too large to count). With a `launcher`, `plan` is the first of its plans.
    """

    directory: Path
    plan: Plan
    number: int | None
    target_reason: str
    files: tuple[str, ...]
    binary: Path | None
    result: BenchResult | None
    left_out: tuple[str, ...] = ()  # implementations and files that are missing, and why: "driver.py: ..."
    launcher: Launcher | None = None
    far: tuple[str, ...] = ()  # warnings about sizes known when compiling
    library: str = ""  # the name of the library that `binary` is, "" for a program
    driver: Path | None = None  # the library that driver.py calls, if it was built

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about sizes far from the measured ones: those of the run, which reads the data, else those of the
        compilation."""
        if self.result is not None and self.result.warnings:
            return self.result.warnings
        return self.far or (self.plan.chooser.warnings if self.plan.chooser is not None else ())

    def render(self) -> str:
        """A few lines: the target and why, the implementation, the files, and the table of a run."""
        plan = self.plan
        arch = f" {plan.arch}" if plan.target is Target.CUDA else ""
        out = [
            f"target     {plan.target.value}{arch} ({self.target_reason})",
            *self._what(),
            f"wrote      {self.directory}/: {', '.join(named_files(self.files))}",
        ]
        out += [f"left out   {what}" for what in self.left_out]
        if self.binary is not None:
            built = (path for path in (self.binary, self.driver) if path is not None)
            out.append(f"built      {', '.join(str(as_given(path, self.directory)) for path in built)}")
        if self.binary is not None and self.binary.suffix == ".whl":
            out.append(f"use        pip install {self.binary}, then import {self.library}")
        elif self.library:
            out.append(
                f"use        {self.library}.h, {self.library}.hpp, fortran/, python/, CMakeLists.txt, {self.library}.pc"
            )
        if self.result is not None:
            out += [f"chosen     {line}" for line in self.result.chosen]
            out += ["", *self.result.table()]
        return "\n".join(out) + "\n"

    def _what(self) -> list[str]:
        plan, launcher = self.plan, self.launcher
        program = f"program    {plan.program.name} {program_hash(plan.program)}"
        if launcher is None:
            number = "without an ID" if self.number is None else f"{self.number}"
            choices = " ".join(f"{name}={shown(value)}" for name, value in plan.decisions if "." not in name)
            return [f"{program}, {choices}", f"traversal  {number}, proved", *forms_of(plan.decisions)]
        chosen = [f"taken      {launcher.chosen}"] if launcher.chosen else []
        plans = f"plans      {', '.join(launcher.plans)}; chosen by {launcher.chooses_by}"
        return [program, plans, *chosen]


FEW_FILES = 3  # of a directory, which are named


def named_files(files: Sequence[str]) -> list[str]:
    """The files, those of a directory that has more than FEW_FILES by their number."""
    below = Counter(path.partition("/")[0] for path in files if "/" in path)
    number = {folder: count for folder, count in below.items() if count > FEW_FILES}
    counts = [f"{folder}/ ({counted(count, 'file')})" for folder, count in number.items()]
    return [*(path for path in files if "/" not in path or path.partition("/")[0] not in number), *counts]


def forms_of(decisions: Iterable[tuple[str, Value]]) -> list[str]:
    """A line on the kernels that are not as written, and on launches that are one; none without such."""
    formed = [f"{name}={shown(value)}" for name, value in decisions if is_formed(name, value)]
    return [f"forms      {' '.join(formed)}"] if formed else []


def defaults_of_open_devices(graph: Graph) -> OpenChoices:
    """For each op whose device is open without a learned choice (`-D OP.device=any`): its default, and its first
    implementation on the CPU, which runs if the default cannot."""
    ops = {op.op.site: op.op for op in graph.ops if isinstance(op.op, KernelOp) and op.op.placed}
    sites = [s for s, op in ops.items() if op.device is Device.GPU and open_variants(graph.program, op)]
    if not sites:
        return OpenChoices()
    from dagc.choice.choose import default_chooser, emitted  # only with such an op

    choosers = [default_chooser(graph, site) for site in sites]
    return OpenChoices(tuple(d for c in choosers for d in c.site.taken), emitted(choosers))


# Limit of states, a few seconds, to find the ID of a traversal that was given as text.
_ID_STATES = 20_000
_FIRST = 1000  # traversals that are enumerated, where counting may take minutes
_COUNTED = 1_000_000  # limit of states to find the traversal of an ID: about a minute, some hundred megabytes
_ID_DIGITS = 4300  # limit for Python's conversion to one number


def wanted_traversal(
    graph: Graph, wanted: str, show: Callable[[int], None] = lambda states: None
) -> tuple[Graph, Traversal, int | None]:
    """The traversal named by `first`, an ID or a file, and its ID (None: not in the space, or in one too large to
    count).

    If `graph` is folded, so is a traversal by ID. A file may give every round of a loop instead; the graph returned
    with it is then the unrolled one. `show`: called with the number of states that were counted for an ID.
    """
    if wanted == "first":
        return graph, Space(graph).first(), 0
    if wanted.isdecimal() and len(wanted) > _ID_DIGITS:
        raise UsageError(f"no traversal has an ID of {len(wanted)} digits", "see `dagc count`")
    if wanted.isdecimal():
        return graph, _of_number(graph, int(wanted), show), int(wanted)
    source = read_source(wanted, "a traversal's text or of a plan.json, an ID, or first")
    if source.text.lstrip().startswith("{"):
        read_for, traversal = graph.unrolled, plan_from_json(source.text, graph.unrolled, wanted).traversal
        period = plan_inputs(source.text, wanted).period
        if graph.folding is not None and period:
            read_for, traversal = graph, traversal_in(source.text, period, graph, wanted)
    else:
        read_for = graph if is_folded_text(source.text, graph) else graph.unrolled
        traversal = parse_traversal(source.text, read_for, wanted)
    return read_for, traversal, number_of(graph, traversal) if read_for is graph else None


def _of_number(graph: Graph, number: int, show: Callable[[int], None]) -> Traversal:
    """The traversal of an ID. Raises UsageError if there is none, or too much to count."""
    if number < _FIRST and (found := next(islice(Space(graph), number, None), None)) is not None:
        return found
    try:
        return Space(graph, counter=StateCounter(Moves.of(graph), _COUNTED, show)).at(number)
    except TooManyStates:
        why = f"traversal {number}: more than {_COUNTED} states must be counted to find it"
        raise UsageError(why, f"give a file with its text, or an ID below {_FIRST}, see `dagc list`") from None


def number_of(graph: Graph, traversal: Traversal) -> int | None:
    """The ID of a traversal; None if it is not in the space, or in one too large to count."""
    try:
        return Space(graph, limit=_ID_STATES).id_of(traversal)
    except (UsageError, TooManyStates):
        return None  # the caller proves or refuses it; a pruned traversal is not in the space
