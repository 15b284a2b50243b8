"""`dagc compile --launch` with a tuned program: its plans, side by side, and the program that chooses among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc.base.errors import UsageError
from dagc.base.files import output_directory
from dagc.build.builder import build
from dagc.build.mpi import cores as compilers
from dagc.build.mpi import joined, refuse
from dagc.choice.extent import far_parameters
from dagc.choice.feature import offered
from dagc.choice.site import Site, SiteKind
from dagc.choice.types import PROGRAM
from dagc.ir.plan import Features
from dagc.ir.sym import free
from dagc.lab.plans import measured_data, numbers, plan_label
from dagc.recipes.artifacts import build_artifact, left_out, proved_plan
from dagc.recipes.compiled import Compiled, Launcher, Running
from dagc.recipes.program import read
from dagc.recipes.tuned import check_tuned, launch_of
from dagc.report.display import SILENT, Display
from dagc.setup import read_scalars
from dagc.space import Space
from dagc.store.fixed import check_fixed, fixed_choices

if TYPE_CHECKING:
    from dagc.build.target import TargetChoice
    from dagc.choice.choose import Chooser
    from dagc.ir.plan import Plan
    from dagc.ir.program import Graph, Program
    from dagc.store.tuned import ProgramChooser, Tuned


@dataclass(frozen=True, slots=True)
class Chosen:
    """What chooses among plans, and their names, by its answers."""

    compiled: Compiled
    chooser: Chooser
    labels: tuple[str, ...]

    def run(self, how: Running) -> Compiled:
        """Check and time it, with the arrays that were written before it was compiled."""
        done = self.compiled
        assert done.launcher is not None
        scalars = read_scalars(done.plan.program, how.data(done))
        vector = zip(self.chooser.data, self.chooser.vector(scalars), strict=True)
        at = ", ".join(f"{name} = {value:.15g}" for name, value in vector)
        choice = f"{self.labels[self.chooser.choose(scalars)]} for {at}"
        return replace(done, result=how.time(done), launcher=replace(done.launcher, chosen=choice))


def has_plans(tuned: Tuned) -> bool:
    """Does a tuned file choose among programs?"""
    return tuned.program_chooser is not None or (not tuned.choosers and tuned.facts.program is not None)


def compile_plans(
    path: str | Path,
    out: str | Path | None,
    tuned: Tuned,
    chosen: TargetChoice,
    *,
    defines: Mapping[str, Any],
    traversal: str = "first",
    prune_syncs: bool = False,
    build: bool = True,
    force: bool = False,
    arrays: Callable[[Program, Path], None] | None = None,
    mode: Features = Features.NOW,
    constraints: bool = True,
    display: Display = SILENT,
) -> Chosen:
    """Write (and build) a plan for each answer of the selector of `tuned`, and the program that chooses.

    `arrays` writes the data of the first plan's program into the directory, before the compiler runs. `mode`,
    `constraints`: of the choosers of kernels that were tuned into the same file.
    Raises UsageError where the file was tuned for another text, GPU, or other parameters, where a decision that is
    selected is fixed, and under mpiexec.
    """
    if joined() is not None:
        help = "start dagc alone: -n RANKS starts the ranks"
        refuse(UsageError("plans cannot be compiled by a rank of a running program", help))
    text, without = read(path, defines).on(chosen.target)
    program = text.program()
    check_tuned(tuned, program, chosen.gpu_arch)
    stored = _program_chooser(tuned, program)
    chooser = plan_chooser(program, tuned)
    _check_request(tuned, stored.names, defines, traversal)
    _check_fixed(tuned, program, stored)
    labels = tuple(plan_label(s) for s in stored.settings)
    plans = {
        label: _plan(text.graph(dict(s)), tuned, chosen, prune_syncs, mode, constraints)
        for label, s in zip(labels, stored.settings, strict=True)
    }
    first = plans[labels[0]]
    directory = Path(out) if out is not None else Path("dagc-out") / program.name
    why = f"{stored.selector.text}, from {', '.join(chooser.data)}"
    files = _write(plans, chooser, why, directory, force)
    if arrays is not None:
        arrays(first.program, directory)
    binary = _build(plans, directory, display) if build else None
    far = far_parameters(program, (cell for cell in tuned.cells if cell.op == PROGRAM))
    left, launcher = (*without, *left_out(first)), Launcher(labels, why)
    compiled = Compiled(directory, first, None, chosen.reason, files, binary, None, left, launcher, far)
    return Chosen(compiled, chooser, labels)


def _program_chooser(tuned: Tuned, program: Program) -> ProgramChooser:
    """Raises UsageError where the file has none, or two of its settings are the same."""
    stored = tuned.program_chooser
    if stored is None:
        raise UsageError(f"{tuned.path}: no chooser in it: tuning did not end", "tune again with --resume")
    if len({plan_label(setting) for setting in stored.settings}) != len(stored.settings):
        raise UsageError(f"{tuned.path}: two settings are the same", "tune again into another file")
    return stored


def plan_chooser(program: Program, tuned: Tuned) -> Chooser:
    """What chooses among the plans of a tuned file. Raises UsageError where it has none, or asks for what the launcher
    cannot read."""
    from dagc.choice.choose import Chooser  # loads numpy, sympy

    stored = _program_chooser(tuned, program)
    features = offered(program)
    known = numbers(program)
    for name in stored.data:
        if name not in features or not free(features[name].expression) <= known:
            raise UsageError(
                f"{tuned.path}: chooses by `{name}`, which is no scalar or feature of {program.name}", "tune again"
            )
    try:
        extent = measured_data(tuned, stored.data)
    except ValueError as error:
        raise UsageError(f"{tuned.path}: the sizes are damaged ({error})", "tune again into another file") from None
    site = Site(SiteKind.PLAN, PROGRAM, stored.settings)
    return Chooser(site, tuple(features[n] for n in stored.data), selector=stored.selector, extent=extent)


def _check_request(tuned: Tuned, names: Any, defines: Mapping[str, Any], traversal: str) -> None:
    for name in names:
        if name in defines:
            raise UsageError(f"{tuned.path} chooses {name} when the program starts", f"drop -D {name} or --launch")
    if traversal != "first":
        raise UsageError(
            f"--traversal {traversal}: every plan of {tuned.path} has orders of its own", "drop --traversal"
        )


def _check_fixed(tuned: Tuned, program: Any, stored: ProgramChooser) -> None:
    sizes = {name for cell in tuned.cells if cell.op == PROGRAM for name, _ in cell.point.params}
    if tuned.facts.program is None:
        raise UsageError(f"{tuned.path}: what was fixed is missing", "tune again into another file")
    check_fixed(tuned.path, tuned.facts.program, fixed_choices(program, stored.names, sizes))


def _plan(
    graph: Graph, tuned: Tuned, chosen: TargetChoice, prune_syncs: bool, mode: Features, constraints: bool
) -> Plan:
    """One setting's plan, proved; with the choosers of kernels that were tuned into the same file."""
    plan = proved_plan(graph, Space(graph).first(), chosen, prune_syncs)
    if set(tuned.choosers) == {PROGRAM}:
        return plan
    launched = launch_of(graph, tuned, chosen.gpu_arch, mode, constraints)
    return replace(plan, open=launched.open, chooser=launched.chooser, features=launched.features)


def _write(plans: Mapping[str, Plan], chooser: Chooser, why: str, directory: Path, force: bool) -> tuple[str, ...]:
    """All sources, whole or not at all; the names of those at the top."""
    from dagc.choice.choose import emitted  # loads numpy, sympy
    from dagc.emit import emit, runtime_headers  # loads jinja2
    from dagc.emit.program import emit_launcher  # loads jinja2

    headers = {f"include/{name}": header.read_text(encoding="utf-8") for name, header in runtime_headers().items()}
    program = next(iter(plans.values())).program
    top = emit_launcher(program, emitted([chooser]), chooser.data, tuple(plans), why)
    files = {**top, **headers}
    for label, plan in plans.items():
        files |= {f"plans/{label}/{name}": text for name, text in {**emit(plan), **headers}.items()}
    with output_directory(directory, force=force) as scratch:
        for name, text in files.items():
            (scratch / name).parent.mkdir(parents=True, exist_ok=True)
            (scratch / name).write_text(text, encoding="utf-8")
    return (*sorted(top), "plans/")


def _build(plans: Mapping[str, Plan], directory: Path, display: Display) -> Path:
    """All plans side by side, and what chooses among them."""
    with (
        display.phase("compiling", len(plans), "plan") as phase,
        ThreadPoolExecutor(max_workers=compilers()) as pool,
    ):
        folder = directory / "plans"
        jobs = [pool.submit(build_artifact, folder / label, plan, "bench") for label, plan in plans.items()]
        for job in jobs:
            job.add_done_callback(lambda _: phase.advance())
        launcher = build([directory / "bench.cpp"], directory / "bench")
        for job in jobs:
            job.result()
    return launcher
