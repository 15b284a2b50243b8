"""What `dagc tune` found: measurements, and the lines that it prints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc.recipes.tune_cells import Plan, Prepared, whole_scalars

if TYPE_CHECKING:
    from dagc.choice.types import Cell, Point, Settings, Unit
    from dagc.recipes.tune_gpu import Counted
    from dagc.recipes.tune_selectors import Asked, Learned


GUESS = "the default"  # what limits a launch of which nothing is known: neither a model nor a measurement


@dataclass(frozen=True, slots=True)
class Line:
    """One kernel at one size. Times in seconds, NaN where not measured; `best` is the fastest that was measured.

    `trained`: what chooses was trained on this size, so that the regret here says nothing about other sizes;
    `left_out`: the regret here of what was trained without it, NaN where that is not known.
    """

    op: str
    point: Point
    default: Settings
    chosen: Settings
    best: Settings | None
    default_seconds: float
    chosen_seconds: float
    best_seconds: float
    why: str
    trained: bool = False
    left_out: float = math.nan


@dataclass(frozen=True, slots=True)
class Tuning:
    """What `dagc tune` found. `seconds`: of checking and timing `cells` settings, all told; `busy`: of these, what the
    checks and timings took themselves, without starting processes and loading data."""

    lines: tuple[Line, ...]
    grade: str
    method: str
    cells: int
    failures: tuple[str, ...]
    notes: tuple[str, ...]
    output: Path | None
    seconds: float = 0.0
    busy: float = 0.0


@dataclass(slots=True)
class Found:
    """Measurements. `seconds` and `busy` as in `Tuning`."""

    cells: dict[tuple[str, Point, Settings], Cell]
    checks: dict[tuple[str, Settings], str]
    failures: list[str]
    seconds: float = 0.0
    busy: float = 0.0


def grade(made: Plan, cells: int, counted: Counted, asked: Mapping[str, Asked]) -> str:
    from dagc.choice.models import MODELS
    from dagc.ir.plan import Target

    if made.chosen.target is Target.HOST:
        return "host target: kernels run on the CPU, times say nothing about a GPU"
    if counted.text:
        return f"with ncu: {counted.text}"
    if not cells:
        return "without measurement: by the model alone"
    ranked = any(a.method in MODELS for a in asked.values())
    what = "the model's best" if ranked else "legal settings"
    return f"with a GPU: {what} were measured"


def methods(asked: Mapping[str, Asked]) -> str:
    """`volume`, or `knn (fill), volume (gemm)` where kernels differ."""
    ops: dict[str, list[str]] = {}
    for op, a in asked.items():
        ops.setdefault(a.method, []).append(op)
    return next(iter(ops)) if len(ops) == 1 else ", ".join(f"{m} ({' '.join(o)})" for m, o in ops.items())


def best_cell(cells: Mapping[Any, Cell], op: str, point: Point) -> Cell | None:
    timed = [c for (o, p, _), c in cells.items() if o == op and p == point and c.times and not c.failure]
    return min(timed, key=lambda c: c.seconds, default=None)


def line_of(
    ready: Prepared, unit: Unit, point: Point, chooser: Any, cells: Mapping[Any, Cell], learned: Learned
) -> Line:
    """`chooser`: of the program at this size."""
    sizes = whole_scalars(ready.at[point])
    index = chooser.choose(sizes)
    chosen, best = chooser.settings[index], best_cell(cells, unit.op, point)

    def seconds(settings: Settings) -> float:
        cell = cells.get((unit.op, point, settings))
        return cell.seconds if cell is not None else math.nan

    guess = chooser.model is None and chooser.selector is None and not chooser.anchors
    return Line(
        unit.op, point, unit.default, chosen, best.settings if best else None, seconds(unit.default), seconds(chosen),
        best.seconds if best else math.nan, GUESS if guess else chooser.why(sizes, index),
        point in learned.left_out, learned.left_out.get(point, math.nan),
    )  # fmt: skip
