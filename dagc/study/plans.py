"""`dagc compile --launch` with a tuned program: its plans, compiled in parallel, and the program that chooses among
them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc.base.children import Workers
from dagc.base.errors import UsageError
from dagc.base.files import output_directory
from dagc.base.source import encoded
from dagc.build.builder import Build, build, write_wheel
from dagc.build.mpi import cores as compilers
from dagc.build.ranks import joined, refuse
from dagc.choice.choose import Chooser, avoided_of, emitted
from dagc.choice.feature import offered
from dagc.choice.selector import Extent, far_parameters
from dagc.choice.types import Site
from dagc.ir.choice import PROGRAM
from dagc.ir.plan import Features, Plan
from dagc.ir.sym import free
from dagc.report.display import Display
from dagc.setup import read_scalars
from dagc.space import Space
from dagc.stages.artifacts import (
    Compiled,
    Launcher,
    Library,
    build_artifact,
    build_chooser,
    build_shared,
    enqueued_of,
    left_out,
    library_of,
    proved_plan,
)
from dagc.stages.options import CompileOptions
from dagc.stages.program import read
from dagc.stages.running import Running
from dagc.store.settings import check_fixed, fixed_choices
from dagc.study.task import numbers, plan_label
from dagc.study.tuned import check_tuned, open_choices, tried_in

if TYPE_CHECKING:
    from dagc.build.toolchain import TargetChoice
    from dagc.choice.choose import Chooser
    from dagc.ir.program import Graph, Program
    from dagc.store.tuned import ProgramChooser, Tuned


@dataclass(frozen=True, slots=True)
class PlanSelection:
    """The chooser among plans, and the names of the plans in the order of its answers."""

    compiled: Compiled
    chooser: Chooser
    labels: tuple[str, ...]

    def run(self, how: Running) -> Compiled:
        """Check and time the program, with the arrays that were written before it was compiled."""
        done = self.compiled
        assert done.launcher is not None
        scalars = read_scalars(done.plan.program, how.data(done))
        vector = zip(self.chooser.data, self.chooser.vector(scalars), strict=True)
        at = ", ".join(f"{name} = {value:.15g}" for name, value in vector)
        choice = f"{self.labels[self.chooser.choose(scalars)]} for {at}"
        return replace(done, result=how.time(done), launcher=replace(done.launcher, chosen=choice))


def has_plans(tuned: Tuned) -> bool:
    """Whether a tuned file chooses among programs."""
    return tuned.program_chooser is not None or (not tuned.choosers and tuned.facts.program is not None)


def compile_plans(
    path: str | Path, out: str | Path | None, tuned: Tuned, chosen: TargetChoice, mode: Features, how: Running
) -> PlanSelection:
    """Write (and build) a plan for each answer of the selector of `tuned`, and the program or library that chooses
    among them.

    If the options of `how` run it, the data of the first plan's program are written into the directory before the
    compiler runs. `mode`: that of the choosers of kernels tuned into the same file. Raises UsageError if the file was
    tuned for another text, GPU, or other parameters, if a selected decision is fixed, and under mpiexec.
    """
    _alone()
    options = how.options
    text, without = read(path, options.defines).on(chosen.target)
    program = text.program()
    stored, chooser = _choosers(program, tuned, chosen, options)
    plans = {plan_label(s): _plan(text.graph(s), tuned, chosen, options, mode) for s in stored.choices}
    directory = Path(out) if out is not None else Path("dagc-out") / program.name
    library = library_of(options, program.name)
    launcher = Launcher(tuple(plans), f"{stored.selector.text}, from {', '.join(chooser.data)}")
    if library is not None:
        files = _write_library(plans, chooser, library, directory, options.force)
    else:
        files = _write(plans, chooser, launcher.chooses_by, directory, options.force)
    first = next(iter(plans.values()))
    if options.run:
        how.arrays(first.program, directory)
    binary = _build(plans, library, directory, how.display) if options.build else None
    far = far_parameters(
        program, (cell.case for cell, sample in tuned.samples if cell.site == PROGRAM and sample.times)
    )
    left, name = (without, library.name) if library is not None else ((*without, *left_out(first)), "")
    compiled = Compiled(directory, first, None, chosen.reason, files, binary, None, left, launcher, far, name)
    return PlanSelection(compiled, chooser, launcher.plans)


def _alone() -> None:
    """Raises UsageError if the command was started as one of several ranks."""
    if joined() is not None:
        help = "start dagc alone: -n RANKS starts the ranks"
        refuse(UsageError("plans cannot be compiled by a rank of a running program", help))


def _program_chooser(tuned: Tuned) -> ProgramChooser:
    """Raises UsageError if the file has none, or if two of its settings are equal."""
    stored = tuned.program_chooser
    if stored is None:
        raise UsageError(f"{tuned.path}: no chooser in it: tuning did not end", "tune again with --resume")
    if len(set(stored.choices)) != len(stored.choices):
        raise UsageError(f"{tuned.path}: two settings are the same", "tune again into another file")
    return stored


def plan_chooser(program: Program, tuned: Tuned) -> Chooser:
    """The chooser among the plans of a tuned file. Raises UsageError if there is none, or if it uses values that the
    launcher cannot read."""
    stored = _program_chooser(tuned)
    features = offered(program)
    known = numbers(program)
    for name in stored.data:
        if name not in features or not free(features[name].expression) <= known:
            raise UsageError(
                f"{tuned.path}: chooses by `{name}`, neither a scalar nor a feature of {program.name}", "tune again"
            )
    try:
        extent = _measured_data(tuned, stored.data)
    except ValueError as error:
        raise UsageError(f"{tuned.path}: the sizes are damaged ({error})", "tune again into another file") from None
    site = Site(PROGRAM, stored.choices)
    avoided = avoided_of(stored.data, stored.choices, tried_in(tuned, PROGRAM))
    return Chooser(
        site, tuple(features[n] for n in stored.data), selector=stored.selector, extent=extent, avoided=avoided
    )


def _measured_data(tuned: Tuned, names: Sequence[str]) -> Extent:
    """The range of the features `names` over the sizes at which plans were timed. Raises ValueError if the file has
    other features for them."""
    timed = {cell.case for cell, sample in tuned.samples if cell.site == PROGRAM and sample.times} - tuned.facts.tests
    known = tuned.facts.of_programs(names)
    return Extent.of(one.features[PROGRAM] for case, one in known.items() if case in timed)


def _choosers(
    program: Program, tuned: Tuned, chosen: TargetChoice, options: CompileOptions
) -> tuple[ProgramChooser, Chooser]:
    """The chooser among the plans as stored, and in use. Raises UsageError if the file does not suit the program or the
    options."""
    check_tuned(tuned, program, chosen.gpu_arch)
    stored = _program_chooser(tuned)
    chooser = plan_chooser(program, tuned)
    _check_request(tuned, stored.names, options.defines or {}, options.traversal)
    _check_fixed(tuned, program, stored)
    return stored, chooser


def _check_request(tuned: Tuned, names: Any, defines: Mapping[str, Any], traversal: str) -> None:
    for name in names:
        if name in defines:
            raise UsageError(f"{tuned.path} chooses {name} when the program starts", f"drop -D {name} or --launch")
    if traversal != "first":
        raise UsageError(f"--traversal {traversal}: every plan of {tuned.path} has its own orders", "drop --traversal")


def _check_fixed(tuned: Tuned, program: Any, stored: ProgramChooser) -> None:
    sizes = {name for cell, _ in tuned.samples if cell.site == PROGRAM for name, _ in cell.case.params}
    if tuned.facts.program is None:
        raise UsageError(f"{tuned.path}: the fixed values are missing", "tune again into another file")
    check_fixed(tuned.path, tuned.facts.program, fixed_choices(program, stored.names, sizes))


def _plan(graph: Graph, tuned: Tuned, chosen: TargetChoice, options: CompileOptions, mode: Features) -> Plan:
    """The proved plan of a setting, with the choosers of kernels tuned into the same file."""
    plan = proved_plan(graph, Space(graph).first(), chosen, options.prune_syncs)
    if set(tuned.choosers) == {PROGRAM}:
        return plan
    return open_choices(graph, tuned, chosen.gpu_arch, mode, options.constraints).of(plan)


def _write(plans: Mapping[str, Plan], chooser: Chooser, why: str, directory: Path, force: bool) -> tuple[str, ...]:
    """Write all sources, completely or not at all; returns the names of those at the top."""
    from dagc.emit import emit, runtime_headers  # loads jinja2
    from dagc.emit.program import emit_launcher  # loads jinja2

    headers = {f"include/{name}": header.read_text(encoding="utf-8") for name, header in runtime_headers().items()}
    program = next(iter(plans.values())).program
    top = emit_launcher(program, emitted([chooser]), chooser.data, tuple(plans), why)
    files = {**top, **headers}
    for label, plan in plans.items():
        files |= {f"plans/{label}/{name}": text for name, text in {**emit(plan), **headers}.items()}
    _write_all(files, directory, force)
    return (*sorted(top), "plans/")


def _write_library(
    plans: Mapping[str, Plan], chooser: Chooser, library: Library, directory: Path, force: bool
) -> tuple[str, ...]:
    """As `_write`, for a library of each plan and the one that chooses among them."""
    from dagc.emit.library import emit_plans  # loads jinja2

    given = [(label, plan, enqueued_of(plan, library.in_flight)) for label, plan in plans.items()]
    files = emit_plans(given, library.name, emitted([chooser]), chooser.data)
    _write_all(files, directory, force, ("lib", "dist") if library.wheel else ("lib",))
    return (*sorted(n for n in files if not n.startswith(("plans/", "src/include/"))), "plans/")


def _write_all(files: Mapping[str, str], directory: Path, force: bool, folders: tuple[str, ...] = ()) -> None:
    with output_directory(directory, force=force) as scratch:
        for name, text in files.items():
            (scratch / name).parent.mkdir(parents=True, exist_ok=True)
            (scratch / name).write_bytes(encoded(text))
        for folder in folders:
            (scratch / folder).mkdir()


@contextmanager
def _building(plans: Mapping[str, Plan], build_plan: Callable[[str, Plan], object], display: Display) -> Iterator[None]:
    """Build all plans in parallel, beside what is built inside. Raises what `build_plan` raises."""
    with (
        display.phase("compiling", len(plans), "plan") as phase,
        Workers(compilers()) as pool,
    ):
        jobs = [pool.submit(build_plan, label, plan) for label, plan in plans.items()]
        for job in jobs:
            job.add_done_callback(lambda _: phase.advance())
        yield
        for job in jobs:
            job.result()


def _build_library(plans: Mapping[str, Plan], library: Library, directory: Path, display: Display) -> Path:
    """Build all plans, then the library that chooses among them, in one directory: `lib`."""
    from dagc.emit.library import plan_name  # loads jinja2

    names = {label: plan_name(library.name, k) for k, label in enumerate(plans)}

    def build_plan(label: str, plan: Plan) -> Path:
        name = names[label]
        return build_shared(directory / "plans" / label, plan, name, directory / f"lib/lib{name}.so")

    with _building(plans, build_plan, display):
        pass
    built = build_chooser(directory, next(iter(plans.values())), library.name, names)
    return write_wheel(directory, library.name, built) if library.wheel else built


def _build(plans: Mapping[str, Plan], library: Library | None, directory: Path, display: Display) -> Path:
    """Build all plans, and the program that chooses among them."""
    if library is not None:
        return _build_library(plans, library, directory, display)
    with _building(plans, lambda label, plan: build_artifact(directory / "plans" / label, plan, "bench"), display):
        return build(Build([directory / "bench.cpp"]), directory / "bench")
