"""GPU-dependent inputs of tuning: limits, speed, and hardware counters with functions fitted to them.

The data points of these functions are launches of an op under a setting at a size (KLARAPTOR's step 1). By default
sizes form a Latin hypercube over the ranges of the requested sizes, in logarithms, so that most are not powers of two;
no product of sizes exceeds the largest requested one. Different settings are drawn at each size. All numbers of lanes
of a warp along x are equally frequent, since memory instructions depend mostly on that. `optimal` is a D-optimal design
instead: of more such sizes and the corners of the ranges, and of the launches there, those that determine a quadratic
function of the logarithms of sizes and block best. Anything else lists the points as `--sizes` does, with the names of
tunables too.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc.base.errors import DagcError, MissingTool, RunFailed, UsageError, counted
from dagc.base.python import np
from dagc.base.sample import Sample
from dagc.build import toolchain
from dagc.build.ranks import joined
from dagc.build.toolchain import find_nvcc
from dagc.choice.legal import block_of, op_of, place_of
from dagc.choice.selector import Extent
from dagc.choice.types import Case, Cell, Site
from dagc.ir.choice import Choice, own_name
from dagc.ir.plan import Target
from dagc.lab.launches import Launches, Timing
from dagc.measure.machine import ACHIEVED, METRICS, probe, profiled
from dagc.measure.service import Service, WorkerLink
from dagc.perf.fit import d_optimal, sample_points
from dagc.perf.hardware import Hardware, load_hardware, nearest_hardware
from dagc.study.build import attempted
from dagc.study.cases import parse_sizes
from dagc.study.measure import decisions, sized_program
from dagc.study.prepare import Prepared, at_case
from dagc.study.task import TuningTask

if TYPE_CHECKING:
    from dagc.perf.fit import Fitted


SIZES, SETTINGS = 9, 8  # counted for each program, and for each kernel at each of its sizes
WARP = 32  # threads
POOL = 6  # times as many sizes, of which an optimal design has the best
OPTIMAL = "optimal"


@dataclass(frozen=True, slots=True)
class Points:
    """The launches to count, and how they were chosen."""

    cells: tuple[Cell, ...]
    how: str

    @property
    def text(self) -> str:
        """`72 launches of syrk at 9 sizes (NI 256 to 2048), by a Latin hypercube`."""
        cases = dict.fromkeys(cell.case for cell in self.cells)
        ranges = Extent.of({n: float(v) for n, v in case.sizes.items()} for case in cases).text
        ops = ", ".join(dict.fromkeys(cell.site for cell in self.cells))
        where = f"{counted(len(cases), 'size')}{f' ({ranges})' if ranges else ''}"
        return f"points of the fit: {counted(len(self.cells), 'launch', 'launches')} of {ops} at {where}, {self.how}"


def points_of(task: TuningTask, ops: Sequence[str], spec: str = "") -> Points:
    """The points that `--points` names, for some ops. Raises UsageError, also for too few."""
    if not spec:
        return drawn(task, ops)
    return optimal(task, ops) if spec.strip() == OPTIMAL else _listed(task, ops, spec)


def drawn(task: TuningTask, ops: Sequence[str], sizes: int = SIZES, per_size: int = SETTINGS) -> Points:
    """A Latin hypercube of sizes, with settings drawn at each."""
    cases, draw = sizes_to_count(task.cases, task.seed, sizes), random.Random(f"{task.seed} count")
    sites = [site for site in task.sites if site.name in ops]
    cells = (Cell(s.name, p, c) for p in cases for s in sites for c in settings_to_count(s, s.choices, draw, per_size))
    return Points(tuple(cells), "by a Latin hypercube (--points)")


def optimal(task: TuningTask, ops: Sequence[str]) -> Points:
    """A D-optimal design: sizes first, then the launches at these."""
    pool = tuple(dict.fromkeys((*_corners(task.cases), *sizes_to_count(task.cases, task.seed, POOL * SIZES))))
    cases = [pool[i] for i in _best([_logs(case.sizes.values()) for case in pool], SIZES)]
    cells: list[Cell] = []
    for site in (site for site in task.sites if site.name in ops):
        every = [Cell(site.name, case, choice) for case in cases for choice in site.choices]
        best = _best([_coordinates(task, site, cell) for cell in every], SIZES * SETTINGS)
        cells += [every[i] for i in best]
    return Points(tuple(cells), "D-optimal for quadratic functions of the logarithms of sizes and block (--points)")


def _corners(cases: Sequence[Case]) -> list[Case]:
    """The combinations of the ends of the ranges, as far as no product exceeds the largest of the cases."""
    largest, ranges = max(_product(case.sizes) for case in cases), _ranges(cases)
    ends = (dict(zip(ranges, values, strict=True)) for values in product(*(ranges.values())))
    return [Case.of(sizes) for sizes in ends if _product(sizes) <= largest]


def _best(rows: Sequence[Sequence[float]], number: int) -> list[int]:
    if not rows or not rows[0]:
        return list(range(min(number, len(rows))))
    return d_optimal(np.array(rows), min(number, len(rows)))


def _coordinates(task: TuningTask, site: Site, cell: Cell) -> list[float]:
    block = block_of(task.program, op_of(task.graph, site), cell.choice)
    return _logs((*cell.case.sizes.values(), min(block[0], WARP), *block))


def _logs(values: Any) -> list[float]:
    return [math.log2(max(1, value)) for value in values]


def _listed(task: TuningTask, ops: Sequence[str], spec: str) -> Points:
    """The points of a list; where it names no tunable of an op, settings are drawn for it."""
    sites = [site for site in task.sites if site.name in ops]
    params = {p.name for p in task.program.params}
    tunables = {own_name(name) for site in sites for choice in site.choices for name in choice} - params
    draw, cells = random.Random(f"{task.seed} count"), dict[Cell, None]()
    for case in parse_sizes(spec, task.program, "--points", tunables):
        sizes = Case(tuple((n, v) for n, v in case.params if n not in tunables))
        for site in sites:
            own = {n: v for n, v in case.params if n in tunables and n in site.choices[0].own}
            fitting = [s for s in site.choices if own.items() <= s.own.items()]
            if not fitting:
                raise UsageError(f"--points: {site.name} has no legal setting with {_named(own)}", "name others")
            chosen = fitting if own else settings_to_count(site, fitting, draw, SETTINGS)
            cells |= dict.fromkeys(Cell(site.name, sizes, choice) for choice in chosen)
    _require_enough(tuple(cells))
    return Points(tuple(cells), "as listed by --points")


def _require_enough(cells: Sequence[Cell]) -> None:
    from dagc.perf.mwp_cwp import FEWEST  # loads numpy, sympy

    for op in dict.fromkeys(cell.site for cell in cells):
        number = sum(cell.site == op for cell in cells)
        if number < FEWEST:
            what = f"--points: {counted(number, 'launch', 'launches')} of {op}, too few for a fit"
            raise UsageError(what, f"name {FEWEST} or more: further sizes, or further values of tunables")


def _named(values: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())


def sizes_to_count(cases: Sequence[Case], seed: int, n: int) -> tuple[Case, ...]:
    """Up to `n` sizes; fewer if the ranges do not contain as many. A parameter with one value varies from half to twice
    that value; one below 2 is kept."""
    ranges = _ranges(cases)
    if not ranges:
        return tuple(cases)
    largest = max(_product(p.sizes) for p in cases)
    names = list(ranges)

    def keep(rows: Any) -> Any:
        return rows.astype(float).prod(axis=1) <= largest

    for wanted in range(n, 0, -1):
        try:
            rows = sample_points(ranges, wanted, seed, keep=keep)
        except UsageError:
            continue
        return tuple(Case.of(dict(zip(names, map(int, row), strict=True))) for row in rows)
    return tuple(cases)


def _ranges(cases: Sequence[Case]) -> dict[str, tuple[int, int]]:
    """The least and the largest value of each parameter, or half and twice its only one."""
    values: dict[str, list[int]] = {}
    for case in cases:
        for name, value in case.sizes.items():
            values.setdefault(name, []).append(value)
    ranges = {k: (min(v), max(v)) for k, v in values.items()}
    return {k: (max(1, a // 2), 2 * b) if a == b and a > 1 else (a, b) for k, (a, b) in ranges.items()}


def _product(sizes: Mapping[str, int]) -> float:
    return math.prod(map(float, sizes.values()))


def settings_to_count(site: Site, choices: Sequence[Choice], draw: random.Random, n: int) -> tuple[Choice, ...]:
    """`n` of the settings; the numbers of lanes along x take turns."""
    axis = next((own_name(d.name) for d in site.open if d.axis == "x"), None)
    groups: dict[int, list[Choice]] = {}
    for s in choices:
        groups.setdefault(min(WARP, int(s.own[axis])) if axis else 0, []).append(s)
    for group in groups.values():
        draw.shuffle(group)
    out: list[Choice] = []
    turns = list(groups.values())
    draw.shuffle(turns)
    while len(out) < n and any(turns):
        for group in turns:
            if group and len(out) < n:
                out.append(group.pop())
    return tuple(out)


def is_here(task: TuningTask) -> bool:
    """Whether this machine has a GPU of the target architecture; times of another would be meaningless."""
    here = toolchain.gpus()
    return bool(here) and here[0].arch.rstrip("af") == task.chosen.arch.rstrip("af")


def gpu_name(task: TuningTask, hardware: Hardware, measured: bool) -> str:
    """The GPU of the times, or else of the model; a named descriptor may be that of a similar GPU."""
    return (
        toolchain.gpus()[0].name if measured and task.chosen.target is Target.CUDA and is_here(task) else hardware.name
    )


def hardware_at_hand(task: TuningTask, gpu: str | None, measured: bool = True) -> tuple[Hardware, list[str]]:
    """The descriptor named by the user, else this machine's GPU (queried and measured once, unless `measured` is
    false), else that of the architecture, or of the nearest one; and notes.

    Raises UsageError if no descriptor has the name.
    """
    if gpu is not None:
        return load_hardware(gpu), _elsewhere(task)
    here = toolchain.gpus() if measured and task.chosen.target is Target.CUDA else ()
    if not here or not is_here(task):
        hardware, notes = nearest_hardware(task.chosen.arch)
        return hardware, [*notes, *(_elsewhere(task) if measured else ())]
    try:
        return load_hardware(str(probe(here[0]))), []
    except (MissingTool, RunFailed, OSError) as error:
        hardware, notes = nearest_hardware(task.chosen.arch)
        return hardware, [f"the GPU's speed is taken from a descriptor: {error}", *notes]


def _elsewhere(task: TuningTask) -> list[str]:
    here = toolchain.gpus() if task.chosen.target is Target.CUDA else ()
    if not here or is_here(task):
        return []
    return [f"this machine's GPU is {here[0].arch}, not {task.chosen.arch}: nothing is measured"]


def can_run(task: TuningTask) -> bool:
    if task.ranks > 1 and joined() is not None:
        return False  # one of several ranks cannot start others
    if not task.chosen.here:
        return False
    return task.chosen.target is Target.HOST or (is_here(task) and find_nvcc() is not None)


def unmeasured(task: TuningTask, hardware: Hardware) -> list[str]:
    """A note that everything is ranked by the model of a GPU that is not here, and how to measure on this machine."""
    if can_run(task) or toolchain.gpus():
        return []
    how = "--target host measures on the CPU, whose times do not apply to a GPU"
    return [f"no GPU was found: settings are ranked by the model of {hardware.name} (--gpu), none was measured; {how}"]


def require_runs(task: TuningTask, what: str) -> None:
    """Raises UsageError if nothing can run here. `what` is measured."""
    if not can_run(task):
        raise UsageError(
            f"{what} are measured, and nothing can run here: {task.chosen.reason}",
            "use --target host, or run it on a machine with a GPU",
        )


# ---- hardware counters ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Counted:
    """`fits`: op -> count -> function; `samples`: op -> counts, as stored in the tuned file; `text`: a summary, "" if
    nothing was counted. `ranges`: op -> the least and the largest value of each size at the points of the fits."""

    fits: Mapping[str, Mapping[str, Fitted]] = field(default_factory=dict)
    samples: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)
    text: str = ""
    notes: tuple[str, ...] = ()
    ranges: Mapping[str, tuple[tuple[str, float, float], ...]] = field(default_factory=dict)


NOT_COUNTED = Counted()
NOTHING_RAN = Counted(notes=("no hardware counters where nothing is launched: counts are read from the kernel's text",))


def fitted_counts(ready: Prepared, points: Points, folder: Path, seed: int) -> Counted:
    """Count the launches and fit functions of each op. Without counters: no fits, and a note."""
    from dagc.perf.mwp_cwp import fit_counts  # loads numpy, sympy

    if ready.task.graphs:
        return Counted(
            notes=("no hardware counters where sizes are constants: counts are read from the kernel's text",)
        )
    if ready.task.ranks > 1:
        return Counted(notes=("no hardware counters with several ranks: counts are read from the kernel's text",))
    if ready.task.chosen.target is not Target.CUDA:
        return Counted(notes=("no hardware counters on the host target: counts are read from the kernel's text",))
    try:
        at, samples = collect(ready, folder, points)
    except (MissingTool, RunFailed) as error:
        return Counted(notes=(f"{' '.join(str(error).split())}; counts are read from the kernel's text",))
    fits: dict[str, dict[str, Fitted]] = {}
    ranges: dict[str, tuple[tuple[str, float, float], ...]] = {}
    ops = {cell.site for cell in points.cells}
    notes = [
        points.text,
        *at.notes,
        *(f"{c.site} at {c.case.text}: {s.failure}" for c, s in samples.items() if s.failure),
    ]
    for site in ready.task.sites:
        if site.name not in ops:
            continue
        op = op_of(ready.task.graph, site)
        whole = [c for c, s in samples.items() if c.site == site.name and set(METRICS.values()) <= set(s.metrics)]
        launches = [launch_of(at, cell, samples[cell]) for cell in whole]
        try:
            fits[site.name] = fit_counts(ready.task.program, op, launches, seed=seed)
            ranges[site.name] = Extent.of({n: float(v) for n, v in one.scalars.items()} for one in launches).ranges
            notes += outside(ready, site.name, ranges[site.name])
        except UsageError as error:
            notes.append(f"{error.message}; counts are read from the kernel's text")
    records = {op: [_record(c, s) for c, s in samples.items() if c.site == op] for op in ops}
    return Counted(fits, records, _words(len(samples), fits), tuple(notes), ranges)


def outside(ready: Prepared, op: str, ranges: tuple[tuple[str, float, float], ...]) -> list[str]:
    """Notes on the sizes that lie outside of the `ranges` of the points of the fitted functions of an op."""
    extent = Extent(ranges)
    far = []
    for case in ready.task.cases:
        beyond = extent.beyond({n: float(v) for n, v in ready.at[case].scalars.items()})
        far += [case.text] if any(factor > 1 for factor in beyond.values()) else []
    if not far:
        return []
    cases = ", ".join(far[:3]) + (", ..." if len(far) > 3 else "")
    return [f"{op}: outside of the points of the fit ({extent.text}), where its error is not known: {cases}"]


def _record(cell: Cell, sample: Sample) -> dict[str, Any]:
    return {
        "point": dict(cell.case.params), "settings": cell.choice.own, "counts": dict(sample.metrics),
        "failure": sample.failure,
    }  # fmt: skip


def launch_of(ready: Prepared, cell: Cell, sample: Sample) -> Any:
    """A counted launch as an input of `dagc.perf.mwp_cwp`."""
    from dagc.perf.mwp_cwp import CountedLaunch  # loads numpy

    site = next(site for site in ready.task.sites if site.name == cell.site)
    block = block_of(ready.task.program, op_of(ready.task.graph, site), cell.choice)
    scalars = {n: int(v) for n, v in ready.at[cell.case].scalars.items() if isinstance(v, int)}
    return CountedLaunch(scalars, block, dict(sample.metrics))


def _words(launches: int, fits: Mapping[str, Mapping[str, Fitted]]) -> str:
    from statistics import median

    errors = [count.held_out for counts in fits.values() for count in counts.values()]
    if not errors:
        return ""
    middle, largest = median(e.median for e in errors), max(e.largest for e in errors)
    error = f"median {middle:.2%}, largest {largest:.0%}"
    return f"counters of {launches} launches, fitted; error at held-out points: {error}"


def collect(ready: Prepared, folder: Path, points: Points) -> tuple[Prepared, dict[Cell, Sample]]:
    """Count the launches at the cases of the points, whose data are in what is returned; the metrics are the counts of
    ncu. A size that the program refuses is skipped, with a note.

    Raises MissingTool if counters cannot be read.
    """
    task = ready.task
    cases = tuple(dict.fromkeys(cell.case for cell in points.cells))
    at, refused = attempted(lambda case: at_case(task, case, folder), cases, DagcError, jobs=4)
    skipped = (f"no counters at {p.text}: {' '.join(str(error).split())}" for p, error in refused.items())
    here = Prepared(replace(task, cases=tuple(at)), ready.library, at, tuple(skipped))
    fitting = [cell for cell in points.cells if cell.case in at and cell.choice in at[cell.case].fits[cell.site]]
    return here, _counted(here, fitting, METRICS)


def achieved(ready: Prepared, cells: Sequence[Cell]) -> dict[Cell, float]:
    """The achieved occupancy of launches, a fraction, by ncu; those that fail are missing. Raises MissingTool if
    counters cannot be read, and RunFailed."""
    here = replace(ready, at={case: ready.at[case] for case in dict.fromkeys(cell.case for cell in cells)})
    samples = _counted(here, cells, ACHIEVED)
    return {c: s.metrics["achieved"] / 100 for c, s in samples.items() if "achieved" in s.metrics}


def _counted(ready: Prepared, wanted: Sequence[Cell], metrics: Mapping[str, str]) -> dict[Cell, Sample]:
    """All counts, available only at the end: the profiler writes when the profiled process has ended."""
    task = ready.task
    sites = {site.name: site for site in task.sites}
    base = [pair for site in task.sites for pair in decisions(task.graph, site, site.default)]
    failures: dict[Cell, str] = {}
    with profiled(metrics) as profiler:
        with Service(WorkerLink(1, profiler.command)) as service:
            for case in ready.at:
                program = sized_program(ready, case)
                for cell in (w for w in wanted if w.case == case):
                    site = sites[cell.site]
                    launches = Launches(
                        service, program, place_of(task.graph_at(case), site), base,
                        partial(decisions, task.graph, site), timing=Timing(), tolerance=(0.0, 0.0),
                    )  # fmt: skip
                    failures[cell] = launches.count(cell.choice)
                service.close(program.library)
        counts = iter(profiler.counts(list(failures.values()).count("")))
    return {c: Sample(failure=why) if why else Sample(metrics=next(counts)) for c, why in failures.items()}
