"""From a traversal to what is compiled of it: the proved plan, its sources, the binary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dagc.base.files import output_directory
from dagc.build.builder import build
from dagc.build.toolchain import require_mpi, require_nccl
from dagc.ir.plan import Plan, Target
from dagc.recipes.compiled import Compiled
from dagc.report.display import SILENT, Display
from dagc.space.loops import unroll
from dagc.space.proof import Prover
from dagc.space.prune import prune

if TYPE_CHECKING:
    from dagc.build.target import TargetChoice
    from dagc.ir.plan import Chooser, CodeFeature, OpenTunable
    from dagc.ir.program import Graph, Program
    from dagc.ir.traversal import Traversal


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
    features: tuple[CodeFeature, ...] = (),
    arrays: Callable[[Program, Path], None] | None = None,
    display: Display = SILENT,
) -> Compiled:
    """Compile one traversal of a graph into `directory`. Nothing is emitted unproved.

    `open` tunables are settled when the program runs, by `chooser` where there is one; `features` are computed then.
    `arrays` writes the data into the directory: before the compiler runs, which takes longer.
    """
    plan = proved_plan(graph, traversal, chosen, prune_syncs)  # -> Plan, proved
    plan = replace(plan, open=open, chooser=chooser, features=features)
    files = write_sources(plan, directory, force)  # Plan -> source files
    if arrays is not None:
        arrays(graph.program, directory)
    with display.phase("compiling"):
        binary = build_artifact(directory, plan, "bench") if build else None  # source files -> binary
    return Compiled(directory, plan, None, chosen.reason, files, binary, None, left_out(plan))


def proved_plan(graph: Graph, traversal: Traversal, chosen: TargetChoice, prune_syncs: bool) -> Plan:
    """Nothing is emitted unproved. Loops of a folded graph are unrolled."""
    prover = Prover(graph)
    prover.prove(traversal, "the traversal")
    kept = prune(traversal, prover) if prune_syncs else traversal
    period = (graph, kept) if graph.folding is not None else None
    return Plan(*unroll(graph, kept), chosen.target, chosen.arch, period=period)


def left_out(plan: Plan) -> str:
    """What could not be written for a target, and why."""
    from dagc.emit import why_no_driver  # loads jinja2

    reason = why_no_driver(plan) if plan.target is Target.CUDA else ""
    return f"driver.py: {reason}" if reason else ""


def write_sources(plan: Plan, directory: Path, force: bool) -> tuple[str, ...]:
    from dagc.emit import emit, runtime_headers  # loads jinja2

    files = emit(plan)
    contents = {name: text.encode() for name, text in files.items()}
    contents |= {f"include/{name}": header.read_bytes() for name, header in runtime_headers().items()}
    with output_directory(directory, force=force) as scratch:
        for name, content in contents.items():
            (scratch / name).parent.mkdir(parents=True, exist_ok=True)
            (scratch / name).write_bytes(content)
    return tuple(sorted(files))


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
        mpi=require_mpi(), shared=library, warnings_as_errors=False,
        flags=(*flags, "-O0") if what == "audit" else flags, defines=("DAGC_RUNNER_MAIN",) if what == "audit" else (),
    )  # fmt: skip
