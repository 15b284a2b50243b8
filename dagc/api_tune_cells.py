"""Tuning's groundwork, wired: what is tuned, the program whose launch parameters are open, its data."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
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
    from dagc.sym import Number
    from dagc.tune.types import Point, Settings, Unit

DEFAULT_FLUSH = 128 << 20  # bytes: more than twice the L2 cache of any GPU so far


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be tuned of one program.

    `settings` holds the legal ones of each unit, the default first; `check_at` is where results are compared with the
    reference. `ranks` run the program together. `data`: arrays of its one size that are there already, with references.
    `device_pointers`: the user vouches that this MPI takes them.
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
    ranks: int = 1
    data: Path | None = None
    device_pointers: bool = False

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
    ranks: int = 1,
) -> Plan:
    """Text -> Plan. `sizes` and `check_at` are texts of `dagc.tune.sizes`; without them the values after `over`.

    Raises ProgramError and UsageError.
    """
    from dagc.run.target import choose_target
    from dagc.tune.legal import units
    from dagc.tune.sizes import parse_size

    chosen = choose_target(target, arch)
    graph = api.load_graph(path, defines)
    found = units(graph, kernels)
    points = _points(graph.program, sizes)
    check = parse_size(check_at, graph.program, "--check-at") if check_at else min(points, key=_volume)
    return Plan(
        Path(path), dict(defines or {}), chosen, graph, found, points, _legal(graph, found), check, seed, ranks
    )  # fmt: skip


def plan_as_given(
    path: str | Path, graph: Graph, chosen: Choice, ranks: int, data: Path, device_pointers: bool = False
) -> Plan:
    """All that is open in a graph, to be tuned at the one size of its program, with arrays that are there already.

    Raises UsageError where nothing is open.
    """
    from dagc.tune.legal import units
    from dagc.tune.types import Point

    found, here = units(graph), Point(())
    return Plan(
        Path(path), {}, chosen, graph, found, (here,), _legal(graph, found), here, ranks=ranks, data=data,
        device_pointers=device_pointers,
    )  # fmt: skip


_LIMITS = {"max_threads_per_block": 1024, "shared_per_block": 49152, "warp_size": 32}


def _legal(graph: Graph, found: Iterable[Unit]) -> dict[str, tuple[Settings, ...]]:
    """The legal settings by op. Raises UsageError for an op that has none."""
    from dagc.tune.legal import legal_settings

    settings = {u.op: legal_settings(graph, u, _LIMITS) for u in found}
    for op, legal in settings.items():
        if not legal:
            raise UsageError(f"op `{op}`: no value of its tunables is legal", "look at its `require`s")
    return settings


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

    program, data = made.program, made.data
    if data is None:
        program = api.load(made.path, {**made.defines, **dict(point.params)})
        data = folder / ("data-" + "-".join(f"{n}{v}" for n, v in point.params))
        run_setup(program, made.path.parent, made.ranks, made.seed, data, references=point == made.check_at)
    scalars = read_scalars(program, data, made.ranks)
    return AtPoint(
        point, data, scalars, repeats_of(program, scalars),
        {u.op: tuple(s for s in made.settings[u.op] if fits(made.graph, u, s, scalars)) for u in made.units},
    )  # fmt: skip


def read_scalars(program: Program, data: Path, ranks: int = 1) -> dict[str, Number]:
    """Values of rank 0's scalars, `rank` and `ranks` included."""
    import numpy as np

    from dagc.setup import file_name

    found: dict[str, Number] = {"rank": 0, "ranks": ranks}
    for scalar in program.scalars:
        found[scalar.name] = np.load(data / "rank-0000" / f"{file_name(scalar.name)}.npy").item()
    return found


def repeats_of(program: Program, scalars: Mapping[str, Number]) -> int:
    """How often the dag runs: 1 where it has no `repeat`."""
    from dagc.sym import evaluate

    return max(1, int(evaluate(program.repeat, scalars))) if program.repeat is not None else 1
