"""Hardware counters for tuning, wired: sample points, their data, launches under ncu."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dagc.recipes import tune_cells as api_tune_cells
from dagc.recipes.tune_cells import Plan, Prepared
from dagc.recipes.tune_measure import Wanted, all_defaults, decisions, planned_point

if TYPE_CHECKING:
    from dagc.choice.types import Point, Settings
    from dagc.ir.sym import Number


@dataclass(frozen=True, slots=True)
class Sample:
    """What ncu counted in one launch; `scalars` are the per-rank values that the kernel's sizes are made of."""

    op: str
    point: Point
    settings: Settings
    scalars: dict[str, Number]
    counts: dict[str, float]
    failure: str = ""


def sample_plan(made: Plan, ops: Sequence[str], sizes: int, per_size: int) -> tuple[tuple[Point, ...], list[Wanted]]:
    """The sizes at which counters are read, and the settings at each (of those that are legal at all)."""
    from dagc.choice.collect import settings_to_count, sizes_to_count

    points = sizes_to_count(made.points, made.seed, sizes)
    draw = random.Random(f"{made.seed} count")
    wanted = [
        Wanted(u.op, p, settings_to_count(u, made.settings[u.op], draw, per_size))
        for p in points
        for u in made.units
        if u.op in ops
    ]
    return points, wanted


def collect(ready: Prepared, folder: Path, ops: Sequence[str], sizes: int, per_size: int) -> Iterator[Sample]:
    """Count launches of the ops at sample points. A size that the program does not take is left out; a note tells.

    Raises MissingTool where counters cannot be read.
    """
    from concurrent.futures import ThreadPoolExecutor

    from dagc.base.errors import DagcError

    made = ready.plan
    points, wanted = sample_plan(made, ops, sizes, per_size)

    def written(point: Point) -> tuple[Point, api_tune_cells.AtPoint | str]:
        try:
            return point, api_tune_cells.at_point(made, point, folder)
        except DagcError as error:
            return point, str(error)

    at: dict[Point, api_tune_cells.AtPoint] = {}
    with ThreadPoolExecutor(max_workers=4) as pool:
        for point, found in pool.map(written, points):
            if isinstance(found, str):
                ready.notes.append(f"no counters at {point.text}: {' '.join(found.split())}")
            else:
                at[point] = found
    here = Prepared(replace(made, points=tuple(at)), ready.library, at)
    yield from _counted(here, [w for w in wanted if w.point in at])


def _counted(ready: Prepared, wanted: Sequence[Wanted]) -> Iterator[Sample]:
    from dagc.measure.cells import PlannedCell, PlannedUnit
    from dagc.measure.profile import count

    made = ready.plan
    units = {u.op: u for u in made.units}
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
    for done in count(points, all_defaults(made)):
        key = keys[done.number]
        yield Sample(key.op, key.point, key.settings[0], dict(ready.at[key.point].scalars), done.counts, done.failure)
