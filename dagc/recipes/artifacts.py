"""From a traversal to what is compiled of it: the proved plan, its sources, the binary."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dagc.base.errors import UsageError
from dagc.base.files import output_directory
from dagc.build.builder import build
from dagc.build.toolchain import require_mpi, require_nccl
from dagc.build.wheel import write_wheel
from dagc.ir.plan import Plan, Target
from dagc.ir.program import KernelOp
from dagc.recipes.compiled import Compiled
from dagc.report.display import SILENT, Display
from dagc.space.enqueue import without_host
from dagc.space.loops import unroll
from dagc.space.proof import Prover
from dagc.space.prune import prune

if TYPE_CHECKING:
    from dagc.build.target import TargetChoice
    from dagc.ir.plan import Chooser, CodeFeature, OpenTunable
    from dagc.ir.program import Graph, Program
    from dagc.ir.traversal import Traversal


@dataclass(frozen=True, slots=True)
class Library:
    """That a plan becomes a library of this name, for applications; with `wheel`, as a Python package, too."""

    name: str
    wheel: bool = False


def library_of(form: str, program: str, name: str | None) -> Library | None:
    """What `--as FORM --name NAME` asks for; None: a program of its own. Raises UsageError."""
    if form == "program":
        if name is not None:
            raise UsageError("--name is the name of a library", "add --as library, or drop --name")
        return None
    from dagc.emit.library import library_name  # loads jinja2

    library = Library(library_name(program, name), form == "wheel")
    if library.wheel and library.name in sys.stdlib_module_names:
        raise UsageError(
            f"Python has a module `{library.name}` of its own, which hides the wheel's", "give --name NAME"
        )
    return library


def compile_traversal(
    graph: Graph,
    traversal: Traversal,
    chosen: TargetChoice,
    directory: Path,
    *,
    library: Library | None = None,
    prune_syncs: bool = False,
    build: bool = True,
    force: bool = False,
    open: tuple[OpenTunable, ...] = (),
    chooser: Chooser | None = None,
    features: tuple[CodeFeature, ...] = (),
    arrays: Callable[[Program, Path], None] | None = None,
    display: Display = SILENT,
) -> Compiled:
    """Compile one traversal of a graph into `directory`. Nothing is emitted unproved.

    `library`: as a library instead of a program. `open` tunables are settled when the program runs, by `chooser` where
    there is one; `features` are computed then.
    `arrays` writes the data into the directory: before the compiler runs, which takes longer.
    """
    if library is not None and library.wheel and not build:
        raise UsageError("a wheel holds the library that is built", "drop --no-build, or write --as library")
    plan = proved_plan(graph, traversal, chosen, prune_syncs)  # -> Plan, proved
    plan = replace(plan, open=open, chooser=chooser, features=features)
    files = write_sources(plan, directory, force, library)  # Plan -> source files
    if arrays is not None:
        arrays(graph.program, directory)
    with display.phase("compiling"):
        if library is None:
            binary = build_artifact(directory, plan, "bench") if build else None  # source files -> binary
        else:
            binary = build_library(directory, plan, library) if build else None
    name = library.name if library is not None else ""
    return Compiled(
        directory, plan, None, chosen.reason, files, binary, None, left_out(plan) if not name else (), library=name
    )


def proved_plan(graph: Graph, traversal: Traversal, chosen: TargetChoice, prune_syncs: bool) -> Plan:
    """Nothing is emitted unproved. Loops of a folded graph are unrolled."""
    prover = Prover(graph)
    prover.prove(traversal, "the traversal")
    kept = prune(traversal, prover) if prune_syncs else traversal
    period = (graph, kept) if graph.folding is not None else None
    return Plan(*unroll(graph, kept), chosen.target, chosen.arch, period=period)


def left_out(plan: Plan) -> tuple[str, ...]:
    """What could not be written for a target, and why."""
    from dagc.emit import why_no_driver  # loads jinja2

    reason = why_no_driver(plan) if plan.target is Target.CUDA else ""
    notes: tuple[str, ...] = (f"driver.py: {reason}",) if reason else ()
    placed = [op.name for op in plan.graph.ops if isinstance(op.op, KernelOp) and op.op.placed]
    if placed and plan.capture:
        notes += (
            f"capture of op `{placed[0]}`: it may run on the host, as its device is chosen when the program runs",
        )
    return notes


def write_sources(plan: Plan, directory: Path, force: bool, library: Library | None = None) -> tuple[str, ...]:
    contents = _library_files(plan, library.name) if library is not None else _program_files(plan)
    with output_directory(directory, force=force) as scratch:
        for name, content in contents.items():
            (scratch / name).parent.mkdir(parents=True, exist_ok=True)
            (scratch / name).write_bytes(content)
        if library is not None:
            for folder in ("lib", "dist") if library.wheel else ("lib",):
                (scratch / folder).mkdir()  # what is built later; an old one never stays beside new sources
    return tuple(sorted(name for name in contents if not name.startswith(HEADERS)))


HEADERS = ("include/dagc/", "src/include/")


def _program_files(plan: Plan) -> dict[str, bytes]:
    from dagc.emit import emit, runtime_headers  # loads jinja2

    contents = {name: text.encode() for name, text in emit(plan).items()}
    return contents | {f"include/{name}": header.read_bytes() for name, header in runtime_headers().items()}


def _library_files(plan: Plan, name: str) -> dict[str, bytes]:
    from dagc.emit.library import emit_library  # loads jinja2

    enqueued = without_host(plan.graph, plan.traversal)
    return {file: text.encode() for file, text in emit_library(plan, name, enqueued).items()}


def build_library(directory: Path, plan: Plan, library: Library) -> Path:
    """`lib/libNAME.so`, whose symbols are those of the C interface; or the wheel with it."""
    from dagc.emit import linked, uses_nccl  # loads jinja2

    cuda, others = plan.target is Target.CUDA, linked(plan)
    hidden = ("-Xcompiler=-fvisibility=hidden",) if cuda else ("-fvisibility=hidden",)
    nccl = require_nccl().flags() if cuda and uses_nccl(plan) else ()
    names = (f"{library.name}.{'cu' if cuda else 'cpp'}", *others.sources)
    built = build(
        [directory / "src" / name for name in names], directory / f"lib/lib{library.name}.so", directory=directory,
        include=("include", "src/include", *(f"src/{f}" for f in others.include)), libraries=others.libraries,
        openmp=others.openmp,
        target=plan.target.value, arch=plan.arch, mpi=require_mpi(), shared=True, warnings_as_errors=False,
        flags=(*hidden, *nccl),
    )  # fmt: skip
    return write_wheel(directory, library.name, built) if library.wheel else built


def build_artifact(directory: Path, plan: Plan, what: str) -> Path:
    """Build `bench` (a program), `runner` (a shared library), or `audit` (the runner as a program, not optimised)."""
    from dagc.emit import linked, uses_nccl  # loads jinja2

    cuda, library = plan.target is Target.CUDA, what == "runner"
    source = "runner" if what == "audit" else what
    flags = require_nccl().flags() if cuda and uses_nccl(plan) else ()
    others = linked(plan)
    main = f"{source}.{'cu' if cuda else 'cpp'}"
    return build(
        [directory / name for name in (main, *others.sources)], directory / (f"lib{what}.so" if library else what),
        target=plan.target.value, arch=plan.arch, include=("include", *others.include), libraries=others.libraries,
        openmp=others.openmp,
        mpi=require_mpi(), shared=library, warnings_as_errors=False,
        flags=(*flags, "-O0") if what == "audit" else flags, defines=("DAGC_RUNNER_MAIN",) if what == "audit" else (),
    )  # fmt: skip
