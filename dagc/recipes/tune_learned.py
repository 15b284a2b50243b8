"""What is learned from measured programs: the selector, how well it does on sizes left out, and the table of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc.base.errors import UsageError, counted

if TYPE_CHECKING:
    from dagc.choice.selector import Selector
    from dagc.choice.types import Cell, Point, Settings
    from dagc.recipes.tune_found import Line, Tuning
    from dagc.recipes.tune_programs import ProgramPlan

Cells = Mapping[tuple["Point", "Settings"], "Cell"]
Data = Mapping["Point", tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Learned:
    """`selector` answers with indices of `settings`, all of which it may answer; None: too little was measured.
    `left_out`: the regret at each training size of what was learned without it, NaN where that is not known."""

    method: str
    selector: Selector | None
    settings: tuple[Settings, ...]
    why: str
    notes: tuple[str, ...]
    left_out: Mapping[Point, float] = field(default_factory=dict)


def learn(made: ProgramPlan, method: str, cells: Cells, data: Data) -> Learned:
    """Labels by rule, within the noise of the best at each size, and the selector trained on them."""
    from dagc.choice.labels import corrected_labels, observed_labels
    from dagc.choice.methods import fit
    from dagc.choice.selector import FEWEST
    from dagc.choice.train import leave_one_out, merged
    from dagc.lab.plans import measured

    found = measured(cells.values(), made.settings, data)
    notes, names = list(found.notes), made.select.data
    training = merged(found.data, found.times, found.intervals)
    sizes, times = training.sizes, training.times
    fewest = 1 if method == "exhaustive" else FEWEST
    if len(sizes) < fewest:
        notes.append(f"no chooser yet: measured in full: {counted(len(sizes), 'size')} of {fewest}; use --resume")
        return Learned(method, None, (), "", tuple(notes))
    exhaustive = method == "exhaustive"
    labels = observed_labels(times) if exhaustive else corrected_labels(sizes, times, training.tolerance)
    answers = sorted(set(labels))
    numbers = [answers.index(label) for label in labels]
    settings = tuple(found.settings[i] for i in answers)
    if exhaustive:
        return Learned(method, _nearest(names, sizes, numbers), settings, "nearest measured size", tuple(notes))
    try:
        selector = fit(method, names, sizes, numbers, made.seed)
    except UsageError as error:
        return Learned(method, None, (), "", (*notes, f"no chooser: {error.message}"))
    default = [found.settings.index(made.default)] * len(sizes) if made.default in found.settings else None
    out = leave_one_out(method, names, training, made.seed, {"default": default} if default else {})
    line = out.text if out is not None else f"leave one out: takes {FEWEST + 1} sizes or more"
    notes.append(f"{selector.text}, by {', '.join(names)}; {line}")
    regrets = dict(zip(out.sizes, out.regrets, strict=True)) if out is not None else {}
    left_out = {p: regrets.get(row, math.nan) for p, row in zip(found.points, found.data, strict=True)}
    return Learned(method, selector, settings, selector.text, tuple(notes), left_out)


def _nearest(names: Sequence[str], sizes: Sequence[tuple[int, ...]], labels: Sequence[int]) -> Selector:
    """The label of the nearest size, without training."""
    from dagc.choice.knn import Knn

    order = sorted(range(len(sizes)), key=lambda i: sizes[i])
    return Knn(tuple(names), tuple(sizes[i] for i in order), tuple(labels[i] for i in order), 1, "uniform")


def kept(made: ProgramPlan, learned: Learned) -> dict[str, Any]:
    """A selector as the tuned file keeps it."""
    assert learned.selector is not None
    return {
        "method": learned.method, "why": learned.why, "names": list(made.select.names), "data": list(made.select.data),
        "settings": [dict(s) for s in learned.settings], "selector": learned.selector.to_json(),
    }  # fmt: skip


def tuning(
    made: ProgramPlan, learned: Learned, cells: Cells, data: Data, failures: Sequence[str], output: str | Path | None
) -> Tuning:
    """The table: a line for each size of this run that has anything measured."""
    from dagc.ir.plan import Target
    from dagc.recipes.tune_found import Tuning

    host = made.chosen.target is Target.HOST
    grade = "host target: programs run on the CPU, times say nothing about a GPU" if host else "with a GPU"
    lines = tuple(_line(made, learned, p, cells, data[p]) for p in made.points if p in data)
    out = Path(output) if output is not None else None
    return Tuning(
        lines,
        f"{grade}; {len(made.settings)} programs",
        learned.method,
        len(cells),
        tuple(failures),
        learned.notes,
        out,
    )


def _line(made: ProgramPlan, learned: Learned, point: Point, cells: Cells, data: tuple[int, ...]) -> Line:
    from dagc.choice.types import PROGRAM
    from dagc.recipes.tune_found import Line

    chosen = made.default
    if learned.selector is not None:
        chosen = learned.settings[learned.selector.choose(data)]
    timed = [c for (p, _), c in cells.items() if p == point and c.times and not c.failure]
    best = min(timed, key=lambda c: c.seconds, default=None)

    def seconds(settings: Settings) -> float:
        cell = cells.get((point, settings))
        return cell.seconds if cell is not None else math.nan

    return Line(
        PROGRAM, point, made.default, chosen, best.settings if best else None, seconds(made.default), seconds(chosen),
        best.seconds if best else math.nan, learned.why or "the default",
        point in learned.left_out, learned.left_out.get(point, math.nan),
    )  # fmt: skip
