"""Tuning's groundwork, wired: what is tuned, the program whose launch parameters are open, its data, measured cells."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc import api
from dagc.errors import DagcError, UsageError

if TYPE_CHECKING:
    from dagc.graph import Graph
    from dagc.ir import Program
    from dagc.run.target import Choice
    from dagc.run.tuning import Timing
    from dagc.sym import Number
    from dagc.tune.types import Cell, Point, Settings, Unit

RESULTS_AGREE = 1e-3  # largest difference between two settings of one op, over the largest value
DEFAULT_FLUSH = 128 << 20  # bytes: more than twice the L2 cache of any GPU so far


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be tuned of one program.

    `settings` holds the legal ones of each unit, the default first; `check_at` is where results are compared with the
    reference.
    """

    path: Path
    defines: Mapping[str, Any]
    chosen: Choice
    graph: Graph
    units: tuple[Unit, ...]
    points: tuple[Point, ...]
    settings: Mapping[str, tuple[Settings, ...]]
    check_at: Point
    seed: int = 0

    @property
    def program(self) -> Program:
        return self.graph.program


@dataclass(frozen=True, slots=True)
class AtPoint:
    """The program at one size: its data, the values of its scalars, how often it repeats."""

    point: Point
    data: Path
    scalars: Mapping[str, Number]
    repeats: int
    fits: Mapping[str, tuple[Settings, ...]]


@dataclass(slots=True)
class Prepared:
    """Ready to be measured: the runner library and the data of every size. `failures`: settings that do not compile."""

    plan: Plan
    library: Path
    at: dict[Point, AtPoint] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


# ---- what is to be tuned --------------------------------------------------------------------


def plan(
    path: str | Path,
    *,
    kernels: Iterable[str] = (),
    sizes: str = "",
    check_at: str = "",
    defines: Mapping[str, Any] | None = None,
    target: str | None = None,
    arch: str | None = None,
    seed: int = 0,
    hardware: Mapping[str, int] | None = None,
) -> Plan:
    """Text -> Plan. `sizes` and `check_at` are texts of `dagc.tune.sizes`; without them the values after `over`.

    Raises ProgramError and UsageError.
    """
    from dagc.run.target import choose_target
    from dagc.tune.legal import legal_settings, units
    from dagc.tune.sizes import parse_size

    chosen = choose_target(target, arch)
    graph = api.load_graph(path, defines)
    found = units(graph, kernels)
    points = _points(graph.program, sizes)
    limits = dict(hardware or {"max_threads_per_block": 1024, "shared_per_block": 49152, "warp_size": 32})
    settings = {u.op: legal_settings(graph, u, limits) for u in found}
    for unit in found:
        if not settings[unit.op]:
            raise UsageError(f"op `{unit.op}`: no value of its tunables is legal", "look at its `require`s")
    check = parse_size(check_at, graph.program, "--check-at") if check_at else min(points, key=_volume)
    return Plan(Path(path), dict(defines or {}), chosen, graph, found, points, settings, check, seed)


def _volume(point: Point) -> tuple[float, str]:
    product = 1.0
    for _, value in point.params:
        product *= value
    return product, point.text


def _points(program: Program, sizes: str) -> tuple[Point, ...]:
    """Those of the text; without one, the values after `over`, first with first and so on; else the defaults."""
    from dagc.tune.sizes import parse_sizes
    from dagc.tune.types import Point

    if sizes:
        return parse_sizes(sizes, program)
    trained = {p.name: p.over for p in program.params if p.over and all(type(v) is int for v in p.over)}
    if not trained:
        return (Point(()),)
    longest = max(len(v) for v in trained.values())
    return tuple(
        dict.fromkeys(Point.of({n: int(v[min(i, len(v) - 1)]) for n, v in trained.items()}) for i in range(longest))
    )


# ---- made ready -----------------------------------------------------------------------------


def prepare(made: Plan, folder: Path, jobs: int | None = None) -> Prepared:
    """Build the library and write the data of each size, side by side. Runs the program's Python code."""
    from dagc.api_tune_build import build_what_compiles

    every = list(dict.fromkeys((made.check_at, *made.points)))
    with ThreadPoolExecutor(max_workers=jobs or max(1, (os.cpu_count() or 2) // 2)) as pool:
        built = pool.submit(build_what_compiles, made, folder)
        at, notes = _taken(made, list(pool.map(lambda p: _tried(made, p, folder), every)), (made.check_at,))
        library, made, failures = built.result()
    made = replace(made, points=tuple(p for p in made.points if any(p == a.point for a in at)))
    if failures:
        at = [only(a, made.settings) for a in at]
    out = Prepared(made, library, {a.point: a for a in at}, notes, failures)
    for a in at:
        for unit in made.units:
            if not a.fits[unit.op]:
                out.notes.append(f"{unit.op} at {a.point.text}: nothing to launch, left out")
    return out


def unbuilt(made: Plan, folder: Path) -> Prepared:
    """The data of each size alone, where nothing is measured. Runs the program's Python code."""
    at, notes = _taken(made, [_tried(made, p, folder) for p in made.points], ())
    points = tuple(p for p in made.points if any(p == a.point for a in at))
    return Prepared(replace(made, points=points), Path(), {a.point: a for a in at}, notes)


def _tried(made: Plan, point: Point, folder: Path) -> AtPoint | tuple[Point, DagcError]:
    try:
        return at_point(made, point, folder)
    except DagcError as error:
        return point, error


def _taken(
    made: Plan, tried: Sequence[AtPoint | tuple[Point, DagcError]], needed: Sequence[Point]
) -> tuple[list[AtPoint], list[str]]:
    """Sizes that the set-up takes, and notes of the others. Raises its error for one that is `needed`, and where none
    is left to tune."""
    at = [a for a in tried if isinstance(a, AtPoint)]
    failed = [f for f in tried if not isinstance(f, AtPoint)]
    for point, error in failed:
        if point in needed or not any(a.point in made.points for a in at):
            raise error
    return at, [f"{point.text}: left out: {' '.join(str(error).split())}" for point, error in failed]


def only(at: AtPoint, settings: Mapping[str, tuple[Settings, ...]]) -> AtPoint:
    """The same with some of the settings."""
    return replace(at, fits={op: tuple(s for s in fits if s in settings[op]) for op, fits in at.fits.items()})


def at_point(made: Plan, point: Point, folder: Path) -> AtPoint:
    """Write the data of one size (the references only where results are checked), and read its scalars."""
    from dagc.setup import run_setup
    from dagc.tune.legal import fits

    program = api.load(made.path, {**made.defines, **dict(point.params)})
    data = folder / ("data-" + "-".join(f"{n}{v}" for n, v in point.params))
    run_setup(program, made.path.parent, 1, made.seed, data, references=point == made.check_at)
    scalars = read_scalars(program, data)
    return AtPoint(
        point, data, scalars, repeats_of(program, scalars),
        {u.op: tuple(s for s in made.settings[u.op] if fits(made.graph, u, s, scalars)) for u in made.units},
    )  # fmt: skip


def read_scalars(program: Program, data: Path) -> dict[str, Number]:
    """Values of rank 0's scalars, `rank` and `ranks` included."""
    import numpy as np

    from dagc.setup import file_name

    found: dict[str, Number] = {"rank": 0, "ranks": 1}
    for scalar in program.scalars:
        found[scalar.name] = np.load(data / "rank-0000" / f"{file_name(scalar.name)}.npy").item()
    return found


def repeats_of(program: Program, scalars: Mapping[str, Number]) -> int:
    """How often the dag runs: 1 where it has no `repeat`."""
    from dagc.sym import evaluate

    return max(1, int(evaluate(program.repeat, scalars))) if program.repeat is not None else 1


# ---- measured -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wanted:
    """Cells to measure: settings of a unit at a point."""

    op: str
    point: Point
    settings: tuple[Settings, ...]


@dataclass(frozen=True, slots=True)
class Checked:
    """Whether the whole program is right under settings of one unit; `failure` is "" or what is wrong."""

    op: str
    settings: Settings
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
) -> Iterator[Cell | Checked]:
    """Check, then time; each result as it comes. Within an op and a size the order is random, by the plan's seed.

    `check` names settings by op that are compared with the reference first; those that fail are not timed. `later`
    names others that are compared when all is timed. `seconds` ends it between two cells.
    """
    wrong: set[tuple[str, Settings]] = set()
    base = {u.op: u.default for u in ready.plan.units}
    end = None if seconds is None else clock() + seconds
    for result in _check(ready, check, timing, base) if check else ():
        if result.failure:
            wrong.add((result.op, result.settings))
        yield result
        if end is not None and clock() > end:
            return
    order = random.Random(f"{ready.plan.seed} order")
    by_point: dict[Point, list[Wanted]] = {}
    for item in wanted:
        by_point.setdefault(item.point, []).append(item)
    points = list(by_point)
    order.shuffle(points)
    for cell in _time(ready, [(p, by_point[p]) for p in points], wrong, timing, order, base, later or {}):
        yield cell
        if end is not None and clock() > end:
            return


def _decisions(unit: Unit, settings: Settings) -> tuple[tuple[str, int], ...]:
    return tuple((f"{unit.op}.{name}", value) for name, value in settings)


def _planned(ready: Prepared, point: Point, iterations: int) -> Any:
    from dagc.emit import rows
    from dagc.run.tuning import PlannedPoint
    from dagc.space import Space

    at, graph = ready.at[point], ready.plan.graph
    first = Space(graph).first()
    issued = [a for kind, a, _ in rows(first) if kind == 0 and graph.ops[a].name != "end"]
    return PlannedPoint(at.data, tuple(rows(first)), tuple(issued), at.repeats, iterations)


def _all_defaults(made: Plan) -> list[tuple[str, int]]:
    return _all(made, {u.op: u.default for u in made.units})


def _all(made: Plan, base: Mapping[str, Settings]) -> list[tuple[str, int]]:
    return [pair for u in made.units for pair in _decisions(u, base[u.op])]


def _check(
    ready: Prepared, check: Mapping[str, Sequence[Settings]], timing: Timing, base: dict[str, Settings]
) -> Iterator[Checked]:
    """Settings of one op at a time, the others at `base`. Where that is wrong itself, a setting that is right takes its
    place, and ops of which no setting was right beside it are checked again."""
    right: dict[str, Settings] = {}
    failed: list[Checked] = []
    for result in _checked(ready, check, timing, base):
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
) -> Iterator[Checked]:
    from dagc.run.tuning import measure

    keys: list[tuple[str, Settings]] = []
    point = _check_point(ready, check, 0, keys)
    if point is None:
        return
    for done in measure(ready.library, [point], _all(ready.plan, base), timing, RESULTS_AGREE):
        yield Checked(*keys[done.number], done.failure)


def _check_point(
    ready: Prepared, check: Mapping[str, Sequence[Settings]], first: int, keys: list[tuple[str, Settings]]
) -> Any:
    """What to run at the size where results are checked, None for nothing. Cells are numbered from `first`; `keys` gets
    what each is."""
    from dagc.run.tuning import PlannedCell, PlannedUnit

    made = ready.plan
    units: list[PlannedUnit] = []
    for unit in made.units:
        cells = []
        for settings in check.get(unit.op, ()):
            if settings not in ready.at[made.check_at].fits[unit.op]:
                continue
            cells.append(PlannedCell(first + len(keys), _decisions(unit, settings)))
            keys.append((unit.op, settings))
        if cells:
            units.append(PlannedUnit(unit.index, tuple(cells)))
    if not units:
        return None
    return replace(_planned(ready, made.check_at, 0), repeats=1, check=tuple(units))  # as `verify` wants it


def _time(
    ready: Prepared,
    items: Sequence[tuple[Point, list[Wanted]]],
    wrong: set[tuple[str, Settings]],
    timing: Timing,
    order: random.Random,
    base: Mapping[str, Settings],
    later: Mapping[str, Sequence[Settings]],
) -> Iterator[Cell | Checked]:
    from dagc.run.tuning import PlannedCell, PlannedUnit, measure
    from dagc.tune.types import Cell

    made = ready.plan
    units = {u.op: u for u in made.units}
    keys: list[tuple[str, Point, Settings]] = []
    points = []
    for point, wanted in items:
        at = ready.at[point]
        planned: list[PlannedUnit] = []
        for item in wanted:
            fitting = [s for s in item.settings if s in at.fits[item.op] and (item.op, s) not in wrong]
            order.shuffle(fitting)
            cells = []
            for settings in fitting:
                cells.append(PlannedCell(len(keys), _decisions(units[item.op], settings)))
                keys.append((item.op, point, settings))
            if cells:
                planned.append(PlannedUnit(units[item.op].index, tuple(cells)))
        if planned:
            # In the middle of a program that repeats: there its kernels do what they do on average.
            points.append(replace(_planned(ready, point, (at.repeats - 1) // 2), time=tuple(planned)))
    checked: list[tuple[str, Settings]] = []
    last = _check_point(ready, later, len(keys), checked)
    points += [last] if last is not None else []
    if not points:
        return
    for done in measure(ready.library, points, _all(made, base), timing, RESULTS_AGREE):
        if done.number >= len(keys):
            yield Checked(*checked[done.number - len(keys)], done.failure)
            continue
        op, point, settings = keys[done.number]
        yield Cell(op, point, settings, done.times, done.failure)
