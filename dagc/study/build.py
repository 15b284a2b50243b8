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
from dagc.choice.legal import op_of
from dagc.choice.types import Case, Site
from dagc.cuda.ptx import ASSUMED, Resources, function_of, largest, unqualified
from dagc.emit import linked
from dagc.emit.kernels import Functions
from dagc.ir.choice import AS_WRITTEN, VARIANT, Choice, own_name, qualified, site_of
from dagc.ir.plan import CodeFeature, Opened, Plan, Target, needed_features
from dagc.ir.program import Decision, Graph, Value
from dagc.ir.traversal import Row
from dagc.space import Space
from dagc.stages.artifacts import OpenChoices, build_artifact, proved_plan, write_runner
from dagc.study.task import TuningTask, plan_label

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
    """The runner library with the launch parameters of all sites open."""
    directory = folder / "program"
    return build_artifact(directory, _written(task, directory), "runner")


def _written(task: TuningTask, directory: Path) -> Plan:
    """The plan whose launch parameters are open, with its sources in a directory."""
    opened = OpenChoices(_open(task), features=computed_of(task))
    plan = opened.of(proved_plan(task.graph, Space(task.graph).first(), task.chosen))
    write_runner(plan, directory)
    return plan


def _open(task: TuningTask) -> tuple[Decision, ...]:
    return tuple(decision for site in task.sites for decision in site.open)


def computed_of(task: TuningTask) -> tuple[CodeFeature, ...]:
    """The code features that the program computes: those of its selectors, and those in `require`s and sizes of scratch
    of its variants."""
    out: dict[str, CodeFeature] = {}
    program = task.program
    for op, names in task.features.items():
        site = next((site for site in task.sites if site.name == op), None)
        if site is not None and names:
            known = offered(program, op_of(task.graph, site))
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
    include = linked(_written(task, directory)).include
    out = kernel_resources(directory / "kernels.cu", task.chosen.arch, include)
    for unit in Functions(task.graph, task.chosen.target, _open(task)).units:
        entries = {entry.name: unqualified(entry.call) for entry in unit.entries if entry.kernel}
        try:
            found = kernel_resources(directory / unit.source, task.chosen.arch, include) if entries else {}
        except BuildFailed:
            continue  # it compiles with what is defined before it is included
        for name, function in entries.items():
            own = [needs for symbol, needs in found.items() if function_of(symbol) == function]
            out |= {name: largest(own)} if own else {}
    return out


def most_of(task: TuningTask, compiled: Mapping[str, Resources]) -> dict[str, Resources]:
    """Resources of the kernel of each site, by op; if several are compiled for their tunables, the maxima, and the
    instructions of the one with the defaults, or of the first. An op that nvcc does not report is missing."""
    out = {}
    for site in task.sites:
        own = [compiled[name] for name in _functions_of(task, site).values() if name in compiled]
        if own:
            out[site.name] = largest(own)
    return out


def of_settings(task: TuningTask, compiled: Mapping[str, Resources]) -> dict[str, tuple[Resources, ...]]:
    """The same for each setting of a site, by op, in the order of its choices; for one that nvcc does not report,
    those of the site."""
    most, out = most_of(task, compiled), {}
    for site in task.sites:
        functions, known = _functions_of(task, site), most.get(site.name, ASSUMED)
        names = (functions.get(_code(site, s.own), "") for s in site.choices)
        out[site.name] = tuple(compiled.get(name, known) for name in names)
    return out


def without_spills(task: TuningTask, compiled: Mapping[str, Resources]) -> tuple[TuningTask, tuple[str, ...]]:
    """The task without settings of forms whose code spills registers where that of the kernel as written does not; and
    for each of these forms a failure."""
    failures: dict[str, None] = {}

    def left(site: Site) -> Site:
        if not any(c.formed for c in site.choices):
            return site
        spills = {code: compiled[n].spills for code, n in _functions_of(task, site).items() if n in compiled}

        def fits(choice: Choice) -> bool:
            plain = {**choice.own, **{own_name(name): AS_WRITTEN for name in choice.formed}}
            own, written = spills.get(_code(site, choice.own), 0), spills.get(_code(site, plain), 0)
            if not choice.formed or own <= written:
                return True
            under = ", ".join(f"{own_name(name)}={choice[name]}" for name in choice.formed)
            failures[f"{site.name} {under}: a thread spills {own} bytes of registers, as written {written}"] = None
            return False

        return replace(site, choices=tuple(filter(fits, site.choices)))

    return replace(task, sites=tuple(map(left, task.sites))), tuple(failures)


def settings_compiled(task: TuningTask) -> dict[str, tuple[Resources, ...]]:
    """`of_settings` for nvcc's report; empty where kernels are not compiled by nvcc."""
    if task.chosen.target is Target.HOST:
        return {}
    with scratch_directory("dagc-resources-") as folder:
        try:
            return of_settings(task, compiled_resources(task, folder))
        except BuildFailed:
            return {}


def _functions_of(task: TuningTask, site: Site) -> dict[tuple[Any, ...], str]:
    """The names of the functions that the site's kernel is compiled to, by `_code`; the one with the defaults first."""
    functions = Functions(task.graph, task.chosen.target, _open(task))
    op = op_of(task.graph, site)
    settled = sorted(functions.settled(op), key=lambda one: (one.answer, one.tunables) != (op.answer, op.tunables))
    return {_code(site, {**dict(one.tunables), VARIANT: one.answer}): functions.name(one) for one in settled}


def _code(site: Site, values: Mapping[str, Value]) -> tuple[Any, ...]:
    """The values among these that are constants of the compiled code of a site."""
    variant = values.get(VARIANT) if site.variants else None
    return (variant, *(values.get(own_name(d.name)) for d in site.tunables(str(variant or "")) if not d.axis))


def assumed(task: TuningTask, resources: Mapping[str, Resources]) -> list[str]:
    """A note about the sites that nvcc does not report, on the CUDA target."""
    unknown = [site.name for site in task.sites if site.name not in resources]
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
    task = replace(task, sites=left.sites)
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
    refused: dict[tuple[Decision, Value], DagcError] = {}
    opened = _open(task)
    for of_variants in (False, True):
        without = {(site_of(d.name), value) for d, value in refused if own_name(d.name) == VARIANT}
        tried = [
            (d, value)
            for d in opened
            if not d.axis and bool(d.variant) == of_variants and (site_of(d.name), d.variant) not in without
            for value in d.values
        ]
        refused |= attempted(lambda one: _build_one(task, folder, *one), tried)[1]
        if any(value == d.chosen for d, value in refused):
            raise error
    if not refused:
        raise error
    failures = [
        f"{site_of(d.name)} {f'{d.variant} {own_name(d.name)}'.strip()}={value}: does not compile: {why.first}"
        for d in opened
        for (other, value), why in refused.items()
        if other == d
    ]
    left = _with_values(task, lambda d: [value for value in d.values if (d, value) not in refused])
    kept = (replace(site, choices=tuple(c for c in site.choices if c in set(site.every))) for site in left.sites)
    return replace(left, sites=tuple(kept)), failures


def _build_one(task: TuningTask, folder: Path, tried: Decision, value: Value) -> Path:
    """The library with one value of a decision beside the default, under its variant, and the other constants at their
    defaults."""
    variant = qualified(site_of(tried.name), VARIANT)

    def values(d: Decision) -> Iterable[Value]:
        if d == tried:
            return d.chosen, value
        if d.axis:
            return d.values
        return (d.chosen, tried.variant) if d.name == variant and tried.variant else (d.chosen,)

    name = f"{site_of(tried.name)}-{tried.variant}-{own_name(tried.name)}-{value}"
    return build(_with_values(task, values), folder / name)


def _with_values(task: TuningTask, values: Callable[[Decision], Iterable[Value]]) -> TuningTask:
    """The task with these values of the open decisions, each once."""

    def left(site: Site) -> Site:
        return replace(site, open=tuple(replace(d, values=tuple(dict.fromkeys(values(d)))) for d in site.open))

    return replace(task, sites=tuple(map(left, task.sites)))


@dataclass(frozen=True, slots=True)
class BuiltProgram:
    """A runner library, and the traversal to run with it."""

    library: Path
    rows: tuple[Row, ...]


def build_plans(
    task: TuningTask, choices: Sequence[Choice], folder: Path, progress: Progress | None = None
) -> tuple[dict[Choice, BuiltProgram], dict[Choice, DagcError]]:
    """The runner library of each setting, compiled in parallel; and why some have none."""
    from dagc.emit import rows  # loads jinja2

    def make(choice: Choice) -> BuiltProgram:
        graph = task.text.graph(choice)
        first = Space(graph).first()
        directory = folder / plan_label(choice)
        plan = proved_plan(graph, first, task.chosen)
        write_runner(plan, directory)
        return BuiltProgram(build_artifact(directory, plan, "runner"), tuple(rows(first)))

    def report(done: int, choice: Choice) -> None:
        if progress is not None:
            progress(done, len(choices), f"compiled {plan_label(choice)}")

    return attempted(make, choices, DagcError, report)
