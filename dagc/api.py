"""The stages, wired. Reads top to bottom like a recipe; the command line only calls what is here.

Everything takes paths and plain values and returns frozen results; failures are `dagc.errors.DagcError`s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from dagc.errors import LOOK, DagcError, Diagnostic, ProgramError, RunFailed, Severity, UsageError, WrongResult
from dagc.report.live import SILENT, Display
from dagc.source import Source

if TYPE_CHECKING:
    from dagc.compiled import Compiled
    from dagc.graph import Graph
    from dagc.ir import Program, Value
    from dagc.lang.ast import Module
    from dagc.launching import Chooser, OpenTunable
    from dagc.plan import Plan
    from dagc.report.counting import CountReport
    from dagc.run.target import Choice as TargetChoice
    from dagc.space import Space
    from dagc.traversal import Traversal

Defines = Mapping[str, "str | Value"]


# ---- text -> Program -> Graph -> Space ------------------------------------------------------


def read(path: str | Path) -> tuple[Source, Module]:
    """Read and parse a `.dag` file. Raises UsageError (no such file, not UTF-8), ProgramError (syntax)."""
    from dagc.lang.parse import parse

    source = _read_source(path)
    return source, parse(source)


def _read_source(path: str | Path, what: str = "a .dag file") -> Source:
    """The text of `what`. Raises UsageError."""
    try:
        str(path).encode()  # it is written into what is emitted
    except UnicodeEncodeError:
        raise UsageError(f"{path}: the path is not UTF-8", "rename it, or go into its folder") from None
    try:
        return Source.read(path)
    except UnicodeDecodeError as error:
        what = "a NUL" if error.reason == "a NUL" else "not UTF-8"
        raise UsageError(f"{path}: byte {error.start} is {what}", "save the file as UTF-8 text") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", f"give the path of {what}") from None


def load(path: str | Path, defines: Defines | None = None) -> Program:
    """Text -> Program: every structural choice made, loops expanded, names resolved.

    `defines` override parameters and fix decisions, as `-D NAME=VALUE`. Raises ProgramError with all findings.
    """
    from dagc.lang.lower import lower

    source, module = read(path)
    return lower(module, source, dict(defines or {}))


def load_graph(path: str | Path, defines: Defines | None = None) -> Graph:
    """Text -> Graph: messages lowered, edges inferred, hazards checked."""
    from dagc.passes import build_graph

    return build_graph(load(path, defines))


def load_space(path: str | Path, defines: Defines | None = None) -> Space:
    """Text -> Space: all traversals of the graph."""
    from dagc.space import Space

    return Space(load_graph(path, defines))


@dataclass(frozen=True, slots=True)
class Checked:
    """What `check` found: every diagnostic of every stage."""

    diagnostics: tuple[Diagnostic, ...]
    sources: Mapping[str, Source]

    @property
    def errors(self) -> int:
        return sum(d.severity is Severity.ERROR for d in self.diagnostics)

    def render(self) -> str:
        return "\n".join(d.render(dict(self.sources)) for d in self.diagnostics)


def check(path: str | Path, defines: Defines | None = None) -> Checked:
    """Every diagnostic at once: syntax, names, types, sizes, hazards, cycles, and warnings. Runs no user code."""
    from dagc.lang.lower import analyse
    from dagc.lang.parse import parse
    from dagc.passes import graph_with_diagnostics

    source = _read_source(path)
    try:
        lowered = analyse(parse(source), source, dict(defines or {}))
    except ProgramError as error:
        return Checked(error.diagnostics, {source.path: source, **error.sources})
    if lowered.program is None:
        return Checked(lowered.diagnostics, lowered.sources)
    _, more = graph_with_diagnostics(lowered.program)
    return Checked((*lowered.diagnostics, *more), lowered.program.sources)


def count(
    path: str | Path, defines: Defines | None = None, display: Display = SILENT, seconds: float | None = None
) -> CountReport:
    """The exact number of implementations, of the program as asked for and of its variations.

    A count that takes more than `seconds` is cut; a lower bound stands in for it.
    """
    from dagc.lang.lower import lower
    from dagc.passes import build_graph
    from dagc.report.counting import count_report

    source, module = read(path)
    asked = dict(defines or {})

    def build(choices: dict[str, Value]) -> Graph:
        return build_graph(lower(module, source, {**asked, **choices}))

    return count_report(lower(module, source, asked), build, display, seconds)


def traversals(
    path: str | Path, defines: Defines | None = None, limit: int | None = None, prune_syncs: bool = False
) -> Iterator[tuple[int, str]]:
    """(ID, text) of the traversals in the order of their IDs, which count from 0.

    With `prune_syncs` sync ops that prove nothing are removed; of those that become equal the first is given.
    """
    from dagc.space.prune import prune
    from dagc.text import traversal_text
    from dagc.verify import Prover

    space = load_space(path, defines)
    if not prune_syncs:
        return islice(((i, traversal_text(t, space.graph)) for i, t in enumerate(space)), limit)
    prover, seen = Prover(space.graph), set[str]()

    def pruned() -> Iterator[tuple[int, str]]:
        for number, traversal in enumerate(space):
            text = traversal_text(prune(traversal, prover), space.graph)
            if text not in seen:
                seen.add(text)
                yield number, text

    return islice(pruned(), limit)


def show(path: str | Path, defines: Defines | None = None, format: str = "text") -> str:
    """The DAG as `text`, `dot` or `svg`."""
    from dagc.report import picture

    drawings = {"text": picture.as_text, "dot": picture.as_dot, "svg": picture.as_svg}
    if format not in drawings:
        raise UsageError(f"there is no format {format}", f"one of: {', '.join(drawings)}")
    return drawings[format](load_graph(path, defines))


def run_setup(
    path: str | Path,
    ranks: int,
    out: str | Path,
    seed: int = 0,
    defines: Defines | None = None,
    display: Display = SILENT,
) -> None:
    """Run the program's set-up and references for each rank and write the arrays. Runs the user's Python code."""
    _write_arrays(load(path, defines), Path(path).parent, Path(out), ranks, seed, display)


# ---- compile --------------------------------------------------------------------------------


def compile(
    path: str | Path,
    out: str | Path | None = None,
    *,
    target: str | None = None,
    arch: str | None = None,
    defines: Defines | None = None,
    traversal: str = "first",
    prune_syncs: bool = False,
    build: bool = True,
    run: bool = False,
    ranks: int | None = None,
    seed: int = 0,
    seconds: float = 0.01,
    repeats: int = 20,
    mpi_takes_device_pointers: bool = False,
    force: bool = False,
    launch: str = "fixed",
    display: Display = SILENT,
) -> Compiled:
    """Compile a `.dag` into `out` (default: `dagc-out/PROGRAM`), and with `run` set it up, check it and time it.

    `target` is "cuda", "host" or None (what is there), `arch` nvcc's name (default: the GPU's, else sm_90).
    `traversal` is "first", an ID, or a file (a traversal's text, or a `plan.json`); `prune_syncs` removes those of its
    sync ops that prove nothing. `seconds` is the length of one
    measurement, `repeats` their number. `launch` is "fixed" (the values of the program) or a tuned file: its choosers
    are compiled in, or choose among plans (docs/how-to/plans.md). The set-up runs the user's Python code; nothing else
    here does, and it runs before the compiler. `ranks` is by default 4, under mpiexec or srun their number.
    """
    from dagc.run.place import rank_among, ranks_or_default
    from dagc.run.target import choose_target

    ranks = ranks_or_default(ranks)
    rank = rank_among(ranks) if run else None
    chosen = choose_target(target, arch)

    def arrays(program: Program, directory: Path) -> None:
        folder = Path(program.path).parent
        _write_arrays(program, folder, directory / f"data-{ranks}", ranks, seed, display)

    if launch != "fixed":
        from dagc.api_compile_plans import compile_plans, has_plans

        if has_plans(launch):
            made = compile_plans(
                path, out, launch, chosen, defines=defines or {}, traversal=traversal, prune_syncs=prune_syncs,
                build=build or run, force=force, arrays=arrays if run else None, display=display,
            )  # fmt: skip
            return made.run(ranks, seconds, repeats, mpi_takes_device_pointers, display) if run else made.compiled

    def compile_here() -> Compiled:
        graph = load_graph(path, defines)  # text -> AST -> Program -> Graph
        with display.phase("finding the traversal"):
            picked, number = _traversal(graph, traversal)  # Graph -> Traversal
        directory = Path(out) if out is not None else Path("dagc-out") / graph.program.name
        opened, chooser = _launch(graph, launch, chosen)
        made = compile_traversal(
            graph, picked, chosen, directory, prune_syncs=prune_syncs, build=build or run, force=force, open=opened,
            chooser=chooser, arrays=arrays if run else None, display=display,
        )  # fmt: skip
        return replace(made, number=number)

    if rank is not None:
        return _run_as_rank(compile_here, seconds, repeats, mpi_takes_device_pointers)
    done = compile_here()
    if not run or done.binary is None:
        return done
    from dagc.emit.declared import promises
    from dagc.run.bench import fails_in_a_kernel, run_bench

    data = done.directory / f"data-{ranks}"
    if promises(done.plan.graph):
        _audit(done, data, ranks, mpi_takes_device_pointers, display)
    try:
        with display.phase("checking the results, timing"):
            result = run_bench(done.binary, data, ranks, seconds, repeats, mpi_takes_device_pointers)
    except (WrongResult, RunFailed) as error:
        wrong = isinstance(error, WrongResult)
        if wrong or fails_in_a_kernel(error):
            _audit(done, data, ranks, mpi_takes_device_pointers, display)  # may know which op it is
        if not wrong:
            raise
        audited = "" if done.plan.open else "run one by one, all ops change only what their headers declare; "
        raise WrongResult(error.message, audited + LOOK) from None
    return replace(done, result=result)


def _audit(done: Compiled, data: Path, ranks: int, device_pointers: bool, display: Display) -> None:
    """Raises WrongResult that names the op, where an op changes what its header does not declare as written.

    In the order of the plan and in the one furthest from the text, so that parts that overlap show in either.
    """
    from dagc.emit import table_line
    from dagc.run.bench import run_audit
    from dagc.space import Space

    if done.plan.open:
        return  # its launch parameters are chosen when the program runs
    with display.phase("compiling the runner, checking what each op changes"):
        runner = _build(done.directory, done.plan, "audit")
        tables = [table_line(t) for t in (done.plan.traversal, Space(done.plan.graph).last())]
        run_audit(runner, data, ranks, tables, device_pointers)


def _write_arrays(program: Program, folder: Path, data: Path, ranks: int, seed: int, display: Display) -> None:
    """The set-up and the references of each rank. Runs the user's Python code, from `folder`."""
    from dagc.setup import run_setup as write

    with display.phase("setting up the arrays, running the references", ranks, "rank") as phase:
        write(program, folder, ranks, seed, data, done=phase.advance)


def compile_traversal(
    graph: Graph,
    traversal: Traversal,
    chosen: TargetChoice,
    directory: Path,
    *,
    prune_syncs: bool = False,
    build: bool = True,
    force: bool = False,
    open: tuple[OpenTunable, ...] = (),
    chooser: Chooser | None = None,
    arrays: Callable[[Program, Path], None] | None = None,
    display: Display = SILENT,
) -> Compiled:
    """Compile one traversal of a graph into `directory`. Nothing is emitted unproved.

    `open` tunables are settled when the program runs, by `chooser` where there is one. `arrays` writes the data into
    the directory: before the compiler runs, which takes longer.
    """
    from dagc.compiled import Compiled

    plan = replace(_plan(graph, traversal, chosen, prune_syncs), open=open, chooser=chooser)  # -> Plan, proved
    files = _write_sources(plan, directory, force)  # Plan -> source files
    if arrays is not None:
        arrays(graph.program, directory)
    with display.phase("compiling"):
        binary = _build(directory, plan, "bench") if build else None  # source files -> binary
    return Compiled(directory, plan, None, chosen.reason, files, binary, None, _left_out(plan))


def _launch(graph: Graph, launch: str, chosen: TargetChoice) -> tuple[tuple[OpenTunable, ...], Chooser | None]:
    if launch == "fixed":
        return (), None
    from dagc.api_tune_use import launch_of
    from dagc.plan import Target

    return launch_of(graph, launch, chosen.arch if chosen.target is Target.CUDA else None)


def _run_as_rank(compile_here: Callable[[], Compiled], seconds: float, repeats: int, device_pointers: bool) -> Compiled:
    """This command was started as one rank of many: rank 0 compiles, all run."""
    from dagc.emit import rows
    from dagc.run.team import Team

    team = Team()

    def prepare() -> tuple[Compiled, Path, Path]:
        done = compile_here()
        data = done.directory / f"data-{team.size}"
        return done, data.absolute(), _build(done.directory, done.plan, "runner")

    done, data, library = team.first(prepare)
    result = team.measure(library, data, rows(done.plan.traversal), seconds, repeats, device_pointers)
    return replace(done, result=result if team.rank == 0 else None)


def _plan(graph: Graph, traversal: Traversal, chosen: TargetChoice, prune_syncs: bool) -> Plan:
    """Nothing is emitted unproved."""
    from dagc.plan import Plan
    from dagc.space.prune import prune
    from dagc.verify import Prover

    prover = Prover(graph)
    prover.prove(traversal, "the traversal")
    return Plan(graph, prune(traversal, prover) if prune_syncs else traversal, chosen.target, chosen.arch)


def _left_out(plan: Plan) -> str:
    """What could not be written for a target, and why."""
    from dagc.emit import why_no_driver
    from dagc.plan import Target

    reason = why_no_driver(plan) if plan.target is Target.CUDA else ""
    return f"driver.py: {reason}" if reason else ""


def _write_sources(plan: Plan, directory: Path, force: bool) -> tuple[str, ...]:
    from dagc.emit import emit, runtime_headers
    from dagc.files import output_directory

    files = emit(plan)
    contents = {name: text.encode() for name, text in files.items()}
    contents |= {f"include/{name}": header.read_bytes() for name, header in runtime_headers().items()}
    with output_directory(directory, force=force) as scratch:
        for name, content in contents.items():
            (scratch / name).parent.mkdir(parents=True, exist_ok=True)
            (scratch / name).write_bytes(content)
    return tuple(sorted(files))


# The ID of a traversal that was given whole is worth so many states, a few seconds, and no more.
_ID_STATES = 20_000
_ID_DIGITS = 4300  # that Python reads as one number


def _traversal(graph: Graph, wanted: str) -> tuple[Traversal, int | None]:
    """The traversal that `first`, an ID or a file names, and its ID (None: of no space, or of one too large)."""
    from dagc.plan import plan_from_json
    from dagc.space import Space, TooManyStates
    from dagc.text import parse_traversal

    space = Space(graph)
    if wanted == "first":
        return space.first(), 0
    if wanted.isdecimal() and len(wanted) > _ID_DIGITS:
        raise UsageError(f"an ID of {len(wanted)} digits is that of no traversal", "see `dagc count`")
    if wanted.isdecimal():
        return space.at(int(wanted)), int(wanted)
    source = _read_source(wanted, "a traversal's text or of a plan.json, an ID, or first")
    if source.text.lstrip().startswith("{"):
        found = plan_from_json(source.text, graph, wanted).traversal
    else:
        found = parse_traversal(source.text, graph, wanted)
    try:
        return found, Space(graph, limit=_ID_STATES).id_of(found)
    except (UsageError, TooManyStates):
        return found, None  # proved or refused by the caller; a pruned traversal is right, but not in the space


def _build(directory: Path, plan: Plan, what: str) -> Path:
    """Build `bench` (a program), `runner` (a shared library), or `audit` (the runner as a program, not optimised)."""
    from dagc.build import build
    from dagc.emit import uses_nccl
    from dagc.plan import Target
    from dagc.toolchain import require_mpi
    from dagc.toolchain_nccl import require_nccl

    cuda, library = plan.target is Target.CUDA, what == "runner"
    source = "runner" if what == "audit" else what
    flags = require_nccl().flags() if cuda and uses_nccl(plan) else ()
    return build(
        [directory / f"{source}.{'cu' if cuda else 'cpp'}"], directory / (f"lib{what}.so" if library else what),
        target=plan.target.value, arch=plan.arch, mpi=require_mpi(), shared=library, warnings_as_errors=False,
        flags=(*flags, "-O0") if what == "audit" else flags, defines=("DAGC_RUNNER_MAIN",) if what == "audit" else (),
    )  # fmt: skip


def format_source(path: str | Path) -> tuple[str, str]:
    """(text as it is, text as `dagc fmt` writes it)."""
    from dagc.lang.fmt import format_source as formatted

    source = _read_source(path)
    return source.text, formatted(source)


__all__ = [
    "Checked", "DagcError", "check", "compile", "count", "format_source", "load", "load_graph",
    "load_space", "read", "run_setup", "show", "traversals",
]  # fmt: skip
