"""Libraries of a task: of its kernels with all launch parameters open, and of each of its whole programs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dagc.base.children import Workers
from dagc.base.errors import BuildFailed, DagcError
from dagc.base.files import scratch_directory
from dagc.build.mpi import cores
from dagc.build.toolchain import find_nvcc, kernel_resources
from dagc.choice.feature import offered
from dagc.choice.legal import op_of, unit_in
from dagc.choice.types import Case, Unit
from dagc.cuda.ptx import ASSUMED, Resources
from dagc.emit import linked
from dagc.emit.kernels import Functions
from dagc.ir.choice import VARIANT, Choice
from dagc.ir.plan import CodeFeature, Opened, OpenTunable, Plan, Target, needed_features
from dagc.ir.program import Graph, Value
from dagc.ir.traversal import Row
from dagc.lab.plans import plan_label
from dagc.space import Space
from dagc.stages.artifacts import OpenChoices, build_artifact, proved_plan, write_sources
from dagc.study.task import TuningTask

if TYPE_CHECKING:
    from dagc.stages.options import Progress


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def attempted(
    make: Callable[[K], V],
    keys: Iterable[K],
    refused: type[DagcError] = BuildFailed,
    report: Callable[[int, K], None] = lambda done, key: None,
    jobs: int | None = None,
) -> tuple[dict[K, V], dict[K, DagcError]]:
    """What `make` gives for each key, as many at once as there are cores; and for which it was `refused`, and why. Both
    in the order of the keys. `report`: called with the number of keys done, and the last one."""
    with Workers(jobs or cores()) as pool:
        pending = {pool.submit(make, key): key for key in keys}
        for number, job in enumerate(as_completed(pending)):
            error = job.exception()
            if error is not None and not isinstance(error, refused):
                raise error
            report(number + 1, pending[job])
        made = {key: job.result() for job, key in pending.items() if job.exception() is None}
        errors = {key: error for job, key in pending.items() if isinstance(error := job.exception(), DagcError)}
    return made, errors


def build(task: TuningTask, folder: Path) -> Path:
    """The runner library with the launch parameters of all units open."""
    directory = folder / "program"
    return build_artifact(directory, _written(task, directory), "runner")


def _written(task: TuningTask, directory: Path) -> Plan:
    """The plan whose launch parameters are open, with its sources in a directory."""
    opened = OpenChoices(_open(task), features=computed_of(task))
    plan = opened.of(proved_plan(task.graph, Space(task.graph).first(), task.chosen))
    write_sources(plan, directory, force=True)
    return plan


def _open(task: TuningTask) -> tuple[OpenTunable, ...]:
    return tuple(t for u in task.units for t in u.tunables)


def computed_of(task: TuningTask) -> tuple[CodeFeature, ...]:
    """The code features that the program computes: those of its selectors, and those in `require`s and sizes of scratch
    of its variants."""
    out: dict[str, CodeFeature] = {}
    program = task.program
    for op, names in task.features.items():
        unit = next((u for u in task.units if u.op == op), None)
        if unit is not None and names:
            known = offered(program, op_of(task.graph, unit_in(task.graph, unit)))
            out |= {code.name: code for name in names if name in known for code in known[name].code}
    opened = Opened(_open(task))
    for one in opened.every_op(program):
        out |= {code.name: code for code in needed_features(program, one)}
    return tuple(out.values())


def resources_of(task: TuningTask, folder: Path) -> dict[str, Resources]:
    """`most_of` for nvcc's report on a task's kernels."""
    return most_of(task, compiled_resources(task, folder))


def compiled_resources(task: TuningTask, folder: Path) -> dict[str, Resources]:
    """Resources of each kernel function, by its name; empty without nvcc. Raises BuildFailed if it does not compile."""
    directory = folder / "resources"
    plan = _written(task, directory)
    return kernel_resources(directory / "kernels.cu", task.chosen.arch, linked(plan).include)


def most_of(task: TuningTask, compiled: Mapping[str, Resources]) -> dict[str, Resources]:
    """Resources of the kernel of each unit, by op; if several are compiled for their tunables, the maxima, and the
    instructions of the one with the defaults, or of the first. An op that nvcc does not report is missing."""
    out = {}
    for unit in task.units:
        own = [compiled[name] for name in _functions_of(task, unit).values() if name in compiled]
        if own:
            most = {n: max(getattr(r, n) for r in own) for n in ("registers", "shared", "spills")}
            out[unit.op] = Resources(**most, instructions=own[0].instructions)
    return out


def of_settings(task: TuningTask, compiled: Mapping[str, Resources]) -> dict[str, tuple[Resources, ...]]:
    """The same for each setting of a unit, by op, in the order of `task.settings`; for one that nvcc does not report,
    those of the unit."""
    most, out = most_of(task, compiled), {}
    for unit in task.units:
        functions, known = _functions_of(task, unit), most.get(unit.op, ASSUMED)
        names = (functions.get(_code(unit, s.own), "") for s in task.settings[unit.op])
        out[unit.op] = tuple(compiled.get(name, known) for name in names)
    return out


def settings_compiled(task: TuningTask) -> dict[str, tuple[Resources, ...]]:
    """`of_settings` for nvcc's report; empty where kernels are not compiled by nvcc."""
    if task.chosen.target is Target.HOST:
        return {}
    with scratch_directory("dagc-resources-") as folder:
        try:
            return of_settings(task, compiled_resources(task, folder))
        except BuildFailed:
            return {}


def _functions_of(task: TuningTask, unit: Unit) -> dict[tuple[Any, ...], str]:
    """The names of the functions that the unit's kernel is compiled to, by `_code`; the one with the defaults first."""
    functions = Functions(task.graph, task.chosen.target, _open(task))
    op = op_of(task.graph, unit)
    settled = sorted(functions.settled(op), key=lambda one: (one.answer, one.tunables) != (op.answer, op.tunables))
    return {_code(unit, {**dict(one.tunables), VARIANT: one.answer}): functions.name(one) for one in settled}


def _code(unit: Unit, values: Mapping[str, Value]) -> tuple[Any, ...]:
    """The values among these that are constants of the compiled code of a unit."""
    variant = values.get(VARIANT) if unit.variants else None
    return (variant, *(values.get(t.name) for t in unit.tunables_of(str(variant or "")) if not t.axis))


def assumed(task: TuningTask, resources: Mapping[str, Resources]) -> list[str]:
    """A note about the units that nvcc does not report, on the CUDA target."""
    unknown = [u.op for u in task.units if u.op not in resources]
    if not unknown or task.chosen.target.value != "cuda":
        return []
    why = f"does not report them for {task.chosen.arch}" if find_nvcc() is not None else "was not found"
    what = f"{ASSUMED.registers} registers a thread are assumed, and instructions counted in the text"
    return [f"{', '.join(unknown)}: {what}, since nvcc {why}"]


def build_programs(task: TuningTask, folder: Path) -> tuple[dict[Case, Path], TuningTask, tuple[str, ...]]:
    """Build the library of each size; returns also the task without values that do not compile, and these as failures.

    Values that do not compile are found with the program of the size at which results are checked.
    """
    first = task.graph_at(task.check_at)
    library, left, failures = build_what_compiles(_of(task, first), folder)
    task = replace(task, units=left.units, settings=left.settings)
    others = {id(g): g for g in map(task.graph_at, task.cases) if g is not first}
    folders = {key: folder / f"size-{number}" for number, key in enumerate(others)}
    built, refused = attempted(lambda key: build(_of(task, others[key]), folders[key]), others)
    for error in refused.values():
        raise error
    libraries = {id(first): library} | built
    return {p: libraries[id(task.graph_at(p))] for p in (task.check_at, *task.cases)}, task, failures


def _of(task: TuningTask, graph: Graph) -> TuningTask:
    """The task with the program of one of its sizes."""
    return replace(task, graph=graph)


def build_what_compiles(task: TuningTask, folder: Path) -> tuple[Path, TuningTask, tuple[str, ...]]:
    """(library, task, failures): if a value of a constant tunable does not compile, the task excludes it.

    Raises BuildFailed if the program does not compile with its defaults either, or for another reason.
    """
    try:
        return build(task, folder), task, ()
    except BuildFailed as error:
        left, failures = _without_what_fails(task, folder, error)
        return build(left, folder / "left"), left, tuple(failures)


def _without_what_fails(task: TuningTask, folder: Path, error: BuildFailed) -> tuple[TuningTask, list[str]]:
    """Compile each value other than the default, with the other constants at their defaults; tunables of variants only
    for variants that compile. Raises `error` if no value is the cause."""
    refused: dict[tuple[int, OpenTunable, Value], DagcError] = {}
    for of_variants in (False, True):
        without = {(u, value) for u, t, value in refused if t.name == VARIANT and not t.variant}
        tried = [
            (u, t, value)
            for u, unit in enumerate(task.units)
            for t in unit.tunables
            if not t.axis and bool(t.variant) == of_variants and (u, t.variant) not in without
            for value in t.values
        ]
        refused |= attempted(lambda one: _build_one(task, folder, *one), tried)[1]
        if any(value == t.default for _, t, value in refused):
            raise error
    if not refused:
        raise error
    units, failures = task.units, []
    for u, unit in enumerate(task.units):
        for t in unit.tunables:
            bad = {value: why for (at, other, value), why in refused.items() if (at, other) == (u, t)}
            what = f"{t.variant} {t.name}".strip()
            failures += [f"{unit.op} {what}={value}: does not compile: {why.first}" for value, why in bad.items()]
            if bad:
                units = _with_values(units, u, t, tuple(v for v in t.values if v not in bad))
    settings = {x.op: tuple(s for s in task.settings[x.op] if s in set(x.every)) for x in units}
    return replace(task, units=units, settings=settings), failures


def _build_one(task: TuningTask, folder: Path, unit: int, tunable: OpenTunable, value: Value) -> Path:
    """The library with one value of a tunable beside the default, and the other constants at their defaults."""
    units = tuple(_at_default(one, tunable) for one in task.units)
    units = _with_values(units, unit, tunable, tuple(dict.fromkeys((tunable.default, value))))
    name = f"{task.units[unit].op}-{tunable.variant}-{tunable.name}-{value}"
    return build(replace(task, units=units), folder / name)


def _at_default(unit: Unit, open_tunable: OpenTunable) -> Unit:
    """The unit with the defaults of its constant tunables, and with the variant of `beside`."""

    def values(t: OpenTunable) -> tuple[Value, ...]:
        if t.axis:
            return t.values
        also = (open_tunable.variant,) if (t.op, t.name) == (open_tunable.op, VARIANT) and open_tunable.variant else ()
        return tuple(dict.fromkeys((t.default, *also)))

    return replace(unit, tunables=tuple(replace(t, values=values(t)) for t in unit.tunables))


def _with_values(
    units: tuple[Unit, ...], unit: int, tunable: OpenTunable, values: tuple[Value, ...]
) -> tuple[Unit, ...]:
    key = tunable.variant, tunable.name
    changed = tuple(replace(t, values=values) if (t.variant, t.name) == key else t for t in units[unit].tunables)
    return (*units[:unit], replace(units[unit], tunables=changed), *units[unit + 1 :])


@dataclass(frozen=True, slots=True)
class BuiltProgram:
    """A runner library, and the traversal to run with it."""

    library: Path
    rows: tuple[Row, ...]


def build_plans(
    task: TuningTask, settings: Sequence[Choice], folder: Path, progress: Progress | None = None
) -> tuple[dict[Choice, BuiltProgram], dict[Choice, DagcError]]:
    """The runner library of each setting, compiled in parallel; and why some have none."""
    from dagc.emit import rows  # loads jinja2

    def make(setting: Choice) -> BuiltProgram:
        graph = task.text.graph(setting)
        first = Space(graph).first()
        directory = folder / plan_label(setting)
        plan = proved_plan(graph, first, task.chosen)
        write_sources(plan, directory, force=True)
        return BuiltProgram(build_artifact(directory, plan, "runner"), tuple(rows(first)))

    def report(done: int, setting: Choice) -> None:
        if progress is not None:
            progress(done, len(settings), f"compiled {plan_label(setting)}")

    return attempted(make, settings, DagcError, report)
