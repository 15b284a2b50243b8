"""What tuning measures: checks and timings of settings, and hardware counters."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from dagc.base.errors import DagcError, RunFailed
from dagc.choice.legal import unit_in
from dagc.choice.types import Cell
from dagc.ir.enums import Opcode
from dagc.measure.cells import PlannedCell, PlannedPoint, PlannedUnit, Ranks
from dagc.measure.cells import measure as run_planned
from dagc.measure.profile import count
from dagc.recipes import tune_prepare
from dagc.recipes.tune_prepare import Prepared, TuningTask
from dagc.space import Space

if TYPE_CHECKING:
    from dagc.choice.types import Point, Settings, Unit
    from dagc.ir.sym import Number
    from dagc.measure.cells import Timing


# ---- checks and timings ----


RESULTS_AGREE = 1e-3  # largest difference between two settings of one op, over the largest value
Key: TypeAlias = "tuple[str, Point | None, Settings]"  # what a cell is: op, size (None: the check), settings


@dataclass(frozen=True, slots=True)
class Wanted:
    """Cells to measure: settings of a unit at a point."""

    op: str
    point: Point
    settings: tuple[Settings, ...]


@dataclass(frozen=True, slots=True)
class CheckedSettings:
    """Whether the whole program is right under settings of one unit; `failure` is "" or what is wrong. `took`: as of
    cells."""

    op: str
    settings: Settings
    failure: str
    took: float = 0.0


@dataclass(frozen=True, slots=True)
class Lost:
    """A size at which the program itself does not run, whatever the settings."""

    point: Point
    failure: str


def measure(
    ready: Prepared,
    wanted: Sequence[Wanted],
    timing: Timing,
    *,
    check: Mapping[str, Sequence[Settings]] | None = None,
    later: Mapping[str, Sequence[Settings]] | None = None,
    seconds: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Cell | CheckedSettings | Lost]:
    """Check, then time; each result as it comes. Within an op and a size the order is random, by the task's seed.

    `check` names settings by op that are compared with the reference first; those that fail are not timed. `later`
    names others that are compared when all is timed. `seconds` ends it between two cells. Raises RunFailed where the
    program does not run at the size of the checks, or at none.
    """
    base = {u.op: u.default for u in ready.task.units}
    end = None if seconds is None else clock() + seconds
    for result in _measured(ready, wanted, timing, base, check or {}, later or {}):
        yield result
        if end is not None and clock() > end:
            return


def _measured(
    ready: Prepared,
    wanted: Sequence[Wanted],
    timing: Timing,
    base: dict[str, Settings],
    check: Mapping[str, Sequence[Settings]],
    later: Mapping[str, Sequence[Settings]],
) -> Iterator[Cell | CheckedSettings | Lost]:
    """One process does all as long as every setting is right: it takes a second to start. With the first that is wrong
    it is ended, the rest is checked, and another one times what was right."""
    tried: list[CheckedSettings] = []
    with closing(_time(ready, wanted, set(), timing, base, later, check)) as all_:
        for result in all_:
            if isinstance(result, CheckedSettings) and result.settings in check.get(result.op, ()):
                tried.append(result)
                if result.failure:
                    break
            yield result
        else:
            return
    wrong: set[tuple[str, Settings]] = set()
    for checked in _check(ready, check, timing, base, tried):
        if checked.failure:
            wrong.add((checked.op, checked.settings))
        yield checked
    yield from _time(ready, wanted, wrong, timing, base, later)


def decisions(unit: Unit, settings: Settings) -> tuple[tuple[str, int], ...]:
    """Settings of a unit, named as the program names its open launch parameters."""
    return tuple((f"{unit.op}.{name}", value) for name, value in settings)


def planned_point(ready: Prepared, point: Point, iterations: int) -> PlannedPoint:
    """The program at a size, without cells yet. `iterations` runs of it precede the launches that are timed."""
    from dagc.emit import rows  # loads jinja2

    at, graph = ready.at[point], ready.task.graph_at(point)
    first = Space(graph).first()
    issued = [a for kind, a, _ in rows(first) if kind == Opcode.ISSUE and graph.ops[a].name != "end"]
    return PlannedPoint(ready.library_at(point), at.data, tuple(rows(first)), tuple(issued), at.repeats, iterations)


def all_defaults(task: TuningTask) -> list[tuple[str, int]]:
    """Every open launch parameter with its default."""
    return _all(task, {u.op: u.default for u in task.units})


def _all(task: TuningTask, base: Mapping[str, Settings]) -> list[tuple[str, int]]:
    return [pair for u in task.units for pair in decisions(u, base[u.op])]


def _check(
    ready: Prepared,
    check: Mapping[str, Sequence[Settings]],
    timing: Timing,
    base: dict[str, Settings],
    tried: Sequence[CheckedSettings],
) -> Iterator[CheckedSettings]:
    """Check the settings of one op at a time, with the others at `base`. Those already `tried` are not run again; their
    failures are yielded here. If `base` itself is wrong, a setting that is right replaces it, and ops of which no
    setting was right beside it are checked again."""
    right: dict[str, Settings] = {}
    for result in tried:
        if not result.failure:
            right.setdefault(result.op, result.settings)
    failed = [result for result in tried if result.failure]
    known = {(result.op, result.settings) for result in tried}
    left = {op: [s for s in settings if (op, s) not in known] for op, settings in check.items()}
    for result in _checked(ready, left, timing, base):
        if result.failure:
            failed.append(result)
        else:
            right.setdefault(result.op, result.settings)
            yield result
    moved = {r.op: right[r.op] for r in failed if r.settings == base[r.op] and r.op in right}
    base.update(moved)
    again = {r.op: check[r.op] for r in failed if r.op not in right} if moved else {}
    yield from (r for r in failed if r.op not in again)
    if again:
        yield from _checked(ready, again, timing, base)


def _checked(
    ready: Prepared, check: Mapping[str, Sequence[Settings]], timing: Timing, base: Mapping[str, Settings]
) -> Iterator[CheckedSettings]:
    keys: list[Key] = []
    point = _check_point(ready, check, keys)
    if point is None:
        return
    for done in run_planned([point], _all(ready.task, base), timing, RESULTS_AGREE, ranks=_ranks(ready)):
        op, _, settings = keys[done.number]
        yield CheckedSettings(op, settings, done.failure, done.took)


def _ranks(ready: Prepared) -> Ranks:
    return Ranks(ready.task.ranks, ready.task.device_pointers)


def _check_point(ready: Prepared, check: Mapping[str, Sequence[Settings]], keys: list[Key]) -> PlannedPoint | None:
    """What to run at the size where results are checked, None for nothing. A cell's number is its place in `keys`."""
    task = ready.task
    units: list[PlannedUnit] = []
    for unit in task.units:
        cells = []
        for settings in check.get(unit.op, ()):
            if settings not in ready.at[task.check_at].fits[unit.op]:
                continue
            cells.append(PlannedCell(len(keys), decisions(unit, settings)))
            keys.append((unit.op, None, settings))
        if cells:
            units.append(PlannedUnit(unit_in(task.graph_at(task.check_at), unit).index, tuple(cells)))
    if not units:
        return None
    return replace(planned_point(ready, task.check_at, 0), repeats=1, check=tuple(units))  # as `verify` wants it


def _time(
    ready: Prepared,
    wanted: Sequence[Wanted],
    wrong: Set[tuple[str, Settings]],
    timing: Timing,
    base: Mapping[str, Settings],
    later: Mapping[str, Sequence[Settings]],
    before: Mapping[str, Sequence[Settings]] | None = None,
) -> Generator[Cell | CheckedSettings | Lost]:
    """Cells that are not `wrong`, sizes and settings in random order; settings that are checked `before` and `later`,
    in the same process."""
    keys: list[Key] = []
    first = _check_point(ready, before or {}, keys)
    sizes = _sizes(ready, wanted, wrong, keys)
    last = _check_point(ready, later, keys)
    points = [p for p in (first, *sizes, last) if p is not None]
    yield from _results(ready, points, keys, timing, base)


def _sizes(
    ready: Prepared, wanted: Sequence[Wanted], wrong: Set[tuple[str, Settings]], keys: list[Key]
) -> list[PlannedPoint]:
    """What to time at each size; `keys` as in `_check_point`."""
    task = ready.task
    units = {u.op: u for u in task.units}
    order = random.Random(f"{task.seed} order")
    by_point: dict[Point, list[Wanted]] = {}
    for item in wanted:
        by_point.setdefault(item.point, []).append(item)
    sizes = list(by_point)
    order.shuffle(sizes)
    points = []
    for point in sizes:
        at = ready.at[point]
        planned: list[PlannedUnit] = []
        for item in by_point[point]:
            fitting = [s for s in item.settings if s in at.fits[item.op] and (item.op, s) not in wrong]
            order.shuffle(fitting)
            cells = []
            for settings in fitting:
                cells.append(PlannedCell(len(keys), decisions(units[item.op], settings)))
                keys.append((item.op, point, settings))
            if cells:
                planned.append(PlannedUnit(unit_in(task.graph_at(point), units[item.op]).index, tuple(cells)))
        if planned:
            # In the middle of a program that repeats: there its kernels do what they do on average.
            points.append(replace(planned_point(ready, point, (at.repeats - 1) // 2), time=tuple(planned)))
    return points


def _results(
    ready: Prepared, points: list[PlannedPoint], keys: Sequence[Key], timing: Timing, base: Mapping[str, Settings]
) -> Generator[Cell | CheckedSettings | Lost]:
    """What comes of the points, in their order. Goes on behind a size at which the program does not run."""
    known: set[int] = set()
    every, ranks = _all(ready.task, base), _ranks(ready)
    while points:
        try:
            for done in run_planned(points, every, timing, RESULTS_AGREE, ranks=ranks):
                known.add(done.number)
                op, size, settings = keys[done.number]
                if size is None:
                    yield CheckedSettings(op, settings, done.failure, done.took)
                else:
                    yield Cell(op, size, settings, done.times, done.failure, done.took)
            return
        except RunFailed as error:
            # Sizes come one after the other, so it is the first of which a cell is missing.
            place = next(i for i, p in enumerate(points) if any(n not in known for n in _numbers(p)))
            lost, points = points[place], points[place + 1 :]
            where = next(point for point, size in ready.at.items() if size.data == lost.data)
            others = any(keys[n][1] is not None for n in known) or any(p.time for p in points)
            if lost.check or not others:
                help = "leave this size out; with --resume what was measured stays"
                raise RunFailed(f"at {where.text or 'this size'}: {error.message}", help) from None
            yield Lost(where, error.message)


def _numbers(planned: PlannedPoint) -> Iterator[int]:
    return (cell.number for unit in (*planned.check, *planned.time) for cell in unit.cells)


# ---- hardware counters ----


@dataclass(frozen=True, slots=True)
class Sample:
    """What ncu counted in one launch; `scalars` are the per-rank values that the kernel's sizes are made of."""

    op: str
    point: Point
    settings: Settings
    scalars: dict[str, Number]
    counts: dict[str, float]
    failure: str = ""


def sample_plan(
    task: TuningTask, ops: Sequence[str], sizes: int, per_size: int
) -> tuple[tuple[Point, ...], list[Wanted]]:
    """The sizes at which counters are read, and the settings at each (of those that are legal at all)."""
    from dagc.choice.collect import settings_to_count, sizes_to_count  # loads numpy, sympy

    points = sizes_to_count(task.points, task.seed, sizes)
    draw = random.Random(f"{task.seed} count")
    wanted = [
        Wanted(u.op, p, settings_to_count(u, task.settings[u.op], draw, per_size))
        for p in points
        for u in task.units
        if u.op in ops
    ]
    return points, wanted


def collect(ready: Prepared, folder: Path, ops: Sequence[str], sizes: int, per_size: int) -> Iterator[Sample]:
    """Count launches of the ops at sample points. A size that the program refuses is skipped, with a note.

    Raises MissingTool where counters cannot be read.
    """
    from concurrent.futures import ThreadPoolExecutor

    task = ready.task
    points, wanted = sample_plan(task, ops, sizes, per_size)

    def written(point: Point) -> tuple[Point, tune_prepare.AtPoint | str]:
        try:
            return point, tune_prepare.at_point(task, point, folder)
        except DagcError as error:
            return point, str(error)

    at: dict[Point, tune_prepare.AtPoint] = {}
    with ThreadPoolExecutor(max_workers=4) as pool:
        for point, sample in pool.map(written, points):
            if isinstance(sample, str):
                ready.notes.append(f"no counters at {point.text}: {' '.join(sample.split())}")
            else:
                at[point] = sample
    here = Prepared(replace(task, points=tuple(at)), ready.library, at)
    yield from _counted(here, [w for w in wanted if w.point in at])


def _counted(ready: Prepared, wanted: Sequence[Wanted]) -> Iterator[Sample]:
    task = ready.task
    units = {u.op: u for u in task.units}
    keys: list[Wanted] = []
    points = []
    for point, at in ready.at.items():
        planned = []
        for item in (w for w in wanted if w.point == point):
            cells = []
            for settings in item.settings:
                if settings in at.fits[item.op]:
                    cells.append(PlannedCell(len(keys), decisions(units[item.op], settings)))
                    keys.append(replace(item, settings=(settings,)))
            if cells:
                planned.append(PlannedUnit(units[item.op].index, tuple(cells)))
        middle = (at.repeats - 1) // 2
        points.append(replace(planned_point(ready, point, middle), time=tuple(planned)))
    for done in count(points, all_defaults(task)):
        key = keys[done.number]
        yield Sample(key.op, key.point, key.settings[0], dict(ready.at[key.point].scalars), done.counts, done.failure)
