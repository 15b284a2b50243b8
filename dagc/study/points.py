"""The data points of functions that are fitted to hardware counters (KLARAPTOR's step 1): launches of an op under a
setting at a size.

By default sizes form a Latin hypercube over the ranges of the requested sizes, in logarithms, so that most are not
powers of two; no product of sizes exceeds the largest requested one. Different settings are drawn at each size. All
numbers of lanes of a warp along x are equally frequent, since memory instructions depend mostly on that.

`optimal` is a D-optimal design instead: of more such sizes and the corners of the ranges, and of the launches there,
those that determine a quadratic function of the logarithms of sizes and block best.

Anything else lists the points as `--sizes` does, with the names of tunables too.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from dagc.base.errors import UsageError, counted
from dagc.base.python import np
from dagc.choice.legal import block_of, op_of
from dagc.choice.selector import Extent
from dagc.choice.types import Case, Cell, Site
from dagc.ir.choice import Choice, own_name
from dagc.perf.fit import d_optimal, sample_points
from dagc.study.cases import parse_sizes
from dagc.study.task import TuningTask

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


def optimal(task: TuningTask, ops: Sequence[str], sizes: int = SIZES, per_size: int = SETTINGS) -> Points:
    """A D-optimal design: sizes first, then the launches at these."""
    pool = tuple(dict.fromkeys((*_corners(task.cases), *sizes_to_count(task.cases, task.seed, POOL * sizes))))
    cases = [pool[i] for i in _best([_logs(case.sizes.values()) for case in pool], sizes)]
    cells: list[Cell] = []
    for site in (site for site in task.sites if site.name in ops):
        every = [Cell(site.name, case, choice) for case in cases for choice in site.choices]
        best = _best([_coordinates(task, site, cell) for cell in every], sizes * per_size)
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
    from dagc.perf.counted import FEWEST  # loads numpy, sympy

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
