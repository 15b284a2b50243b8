"""Which inputs `dagc tune` labels by measurement: all, those of a list that teach most, or what Algorithm 1 draws."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from dagc.base.errors import UsageError, counted
from dagc.choice.selector import FEWEST
from dagc.recipes.tune_choosers import Asked, features_of
from dagc.recipes.tune_inputs import Inputs, order_of
from dagc.recipes.tune_prepare import TuningTask, draws_of
from dagc.recipes.tune_results import choosable

if TYPE_CHECKING:
    from dagc.choice.draws import Draws
    from dagc.choice.types import Point
    from dagc.recipes.options import TuneOptions

ITERATIONS = 25  # labelled inputs of incremental tuning: Nitro (Muralidharan et al. 2014, section III-B)


def drawn_less(task: TuningTask, options: TuneOptions) -> list[str]:
    """Where fewer inputs were drawn than asked for, or none of those that could be."""
    count = len(task.points)
    if options.samples is not None and count < options.samples:
        return [f"--samples {options.samples}: there are only {counted(count, 'different input')} to draw"]
    named = {n for p in task.points for n, _ in p.params}
    spread = [p for p in task.program.params if p.spread is not None and p.name not in {*named, *task.text.defines}]
    if options.samples is None and spread:
        what = ", ".join(f"{p.name} over {p.spread.text}" for p in spread if p.spread is not None)
        return [f"{what}: not drawn from; draw inputs with --samples"]
    return []


def label_all(inputs: Inputs) -> list[str]:
    """Label every input, while time and budget last."""
    order = order_of(inputs.task)
    points = [p for p in order if p in inputs.task.points]
    inputs.total = len(points) * sum(map(len, inputs.task.settings.values()))
    for number, point in enumerate(points):
        if inputs.over:
            return [f"stopped by --time or --budget: {counted(len(points) - number, 'input')} left; use --resume"]
        inputs.visit(point)
    return []


def first_samples(options: TuneOptions) -> int:
    """How many inputs `--active` draws at random, before those that it chooses. Raises UsageError."""
    from dagc.choice.active import Sampling  # loads msgspec

    if options.samples is None:
        raise UsageError("--active draws inputs up to the number in --samples", "add --samples 200")
    if options.incremental:
        raise UsageError("--active draws inputs, --incremental takes them from a list", "give one of them")
    return Sampling.of(options.samples, options.initial, options.batch, options.margin).initial


def label_actively(inputs: Inputs, options: TuneOptions) -> list[str]:
    """Label inputs by Algorithm 1 of MLCD: the task's, which were drawn at random, then batches of what is drawn where
    the guide is unsure, until there are `options.samples` or no candidate is left where it is.

    The guide sees the values that were drawn, so that a candidate costs no set-up. What is labelled in the file already
    counts. An input that the set-up refuses is not a sample.
    """
    from dagc.choice.active import Sampling, guide, uncertain  # loads msgspec

    assert options.samples is not None
    draws = draws_of(inputs.task.text, inputs.task.program, options.inputs, options.seed)
    sampling = Sampling.of(options.samples, options.initial, options.batch, options.margin)
    earlier = _labelled(inputs)
    label_all(inputs)
    tried = {*inputs.task.points, *inputs.known.inputs, *inputs.refused}
    labelled = _labelled(inputs)
    begun = [f"{len(earlier)} of the file"] if earlier else []
    begun += [f"{len(labelled) - len(earlier)} at random"] if len(labelled) > len(earlier) else []
    looked, batches, why = 0, 0, ""
    while len(labelled) < options.samples and not why:
        draws.drop(tried)
        seen = [draws.vector(p) for p in labelled]
        guides = [guide(seen, times, options.seed + batches) for times in _choosable_times(inputs, labelled)]
        size = min(sampling.batch, options.samples - len(labelled))
        batch = uncertain(guides, draws.candidates, draws.vector, size, sampling.margin)
        looked, batches = looked + batch.looked, batches + bool(batch.inputs)
        inputs.total = inputs.done + len(batch.inputs) * sum(map(len, inputs.task.settings.values()))
        inputs.prefetch.expect(batch.inputs)
        labelled += [p for p in batch.inputs if not inputs.over and inputs.visit(p)]
        tried.update(batch.inputs)
        if inputs.over:
            why = "stopped by --time or --budget; use --resume"
        elif not batch.inputs:
            why = _exhausted(draws, batch.looked, sampling.margin)
        elif inputs.refused.issuperset(batch.inputs):
            why = "stopped: no input of the last batch could be measured"
    inputs.ready.task = inputs.task = replace(inputs.task, points=tuple(labelled))
    then = f"then {counted(batches, 'batch', 'batches')} from {counted(looked, 'candidate')}"
    summary = f"active: {counted(len(labelled), 'sample')}: {', '.join([*begun, then])}"
    return [f"{summary}; {why}" if why else summary]


def _choosable_times(inputs: Inputs, points: Sequence[Point]) -> list[list[dict[int, float]]]:
    """For each op: the times of its answers at some inputs, but for those that are never chosen."""
    fit, _ = choosable(inputs.task, inputs.known.measured.checks, inputs.known.measured.cells)
    out = []
    for unit in inputs.task.units:
        kept = {n for n, s in enumerate(inputs.task.settings[unit.op]) if s in fit[unit.op]}
        rows = (times_at(inputs, unit.op, p) for p in points)
        out.append([{n: t for n, t in at.items() if n in kept} for at in rows])
    return out


def _labelled(inputs: Inputs) -> list[Point]:
    """Inputs to learn from at which every answer was tried, in the order in which they were measured."""
    known = {p: inputs.ready.at.get(p) for p, facts in inputs.known.inputs.items() if not facts.test}
    return [p for p, at in known.items() if at is not None and inputs.known.complete(p, at.fits)]


def _exhausted(draws: Draws, looked: int, margin: float) -> str:
    if draws.spent and not looked:
        return "stopped: every input that can be drawn is labelled"
    return (
        f"stopped: none of {counted(looked, 'candidate')} has a margin below {margin:g}: the guide is sure everywhere"
    )


def label_incrementally(inputs: Inputs, asked: Mapping[str, Asked], options: TuneOptions) -> list[str]:
    """Features of all inputs first; then label one after the other, that which teaches most, until enough."""
    from dagc.choice.active import next_input  # loads msgspec

    points = [p for p in order_of(inputs.task) if p in inputs.task.points and inputs.visit(p, label=False)]
    most = options.iterations or (len(points) if options.accuracy is not None else ITERATIONS)
    inputs.total = min(most, len(points)) * sum(map(len, inputs.task.settings.values()))
    labelled = {p for p in points if inputs.known.complete(p, inputs.ready.at[p].fits)}
    units, tried, reached = inputs.task.units, 0, math.nan
    while len(labelled) < most and tried < len(points) and not inputs.over:
        unit = units[tried % len(units)]
        names = asked[unit.op].data or features_of(inputs.ready, unit, points)
        vectors = [vector(inputs, unit.op, names, p) for p in points]
        table = {i: times_at(inputs, unit.op, p) for i, p in enumerate(points) if p in labelled}
        chosen = next_input(names, vectors, table, asked[unit.op].method, options.seed, options.next)
        tried += 1
        if chosen is None:
            break
        if inputs.visit(points[chosen]):
            labelled.add(points[chosen])
        else:
            points.pop(chosen)
        if options.accuracy is not None and len(labelled) > max(FEWEST, *map(len, inputs.task.settings.values())):
            reached = _accuracy(inputs, asked, options, labelled)
            if reached >= options.accuracy:
                break
    inputs.ready.task = inputs.task = replace(inputs.task, points=tuple(p for p in inputs.task.points if p in labelled))
    note = f"incremental: {counted(len(labelled), 'input')} labelled of {len(points)}, chosen by {options.next}"
    return [note + ("" if math.isnan(reached) else f"; accuracy {reached:.1%}")]


def _accuracy(inputs: Inputs, asked: Mapping[str, Asked], options: TuneOptions, labelled: set[Point]) -> float:
    """The least accuracy of all ops: at the file's test inputs where there are any, else by leaving one input out."""
    from dagc.choice.active import trained  # loads msgspec
    from dagc.choice.judge import judge  # only with --accuracy

    tests = [p for p, facts in inputs.known.inputs.items() if facts.test]
    out = []
    for unit in inputs.task.units:
        names = asked[unit.op].data or features_of(inputs.ready, unit, list(labelled))
        rows = sorted(labelled)
        vectors = [vector(inputs, unit.op, names, p) for p in rows]
        times = [times_at(inputs, unit.op, p) for p in rows]
        points = tests or rows
        chosen = []
        for number, point in enumerate(points):
            known = {i: t for i, t in enumerate(times) if tests or i != number}
            selector = trained(names, vectors, known, asked[unit.op].method, options.seed, 0.0)
            x = vector(inputs, unit.op, names, point)
            chosen.append(selector.order(x) if selector is not None and all(map(math.isfinite, x)) else 0)
        truth = [times_at(inputs, unit.op, p) for p in points]
        out.append(judge([p.text for p in points], truth, chosen, 0, noises(inputs, unit.op, points)).all.accuracy)
    return min((a for a in out if not math.isnan(a)), default=math.nan)


def vector(inputs: Inputs, op: str, names: Sequence[str], point: Point) -> tuple[float, ...]:
    """The features of an op at an input; NaN where one is not known."""
    known = inputs.known.inputs[point].features.get(op, {})
    return tuple(known.get(name, math.nan) for name in names)


def times_at(inputs: Inputs, op: str, point: Point, priced: bool = True) -> dict[int, float]:
    """The objective of each answer of an op at an input, by number: infinite where it is not allowed there, missing
    where it failed or was not measured. Seconds, if not `priced`."""
    fits, out = set(inputs.ready.at[point].fits[op]), {}
    for number, settings in enumerate(inputs.task.settings[op]):
        cell = inputs.known.measured.cells.get((op, point, settings))
        if settings not in fits:
            out[number] = math.inf
        elif cell is not None and cell.times and not cell.failure:
            out[number] = (inputs.priced(cell) if priced else cell).value
    return out


def noise(inputs: Inputs, op: str) -> float:
    """The noise of a comparison of two answers of an op, relative: the median over the inputs."""
    return median(noises(inputs, op, list(inputs.known.inputs)) or [0.0])


def noises(inputs: Inputs, op: str, points: Sequence[Point]) -> list[float]:
    """The noise of comparing the two fastest answers of an op at each input, relative."""
    from dagc.choice.train import noise_of_best  # loads msgspec

    intervals_at: dict[Point, list[tuple[float, float, float]]] = {p: [] for p in points}
    for (o, point, _), cell in inputs.known.measured.cells.items():
        if o == op and point in intervals_at and cell.times and not cell.failure:
            intervals_at[point].append((cell.interval[0], cell.value, cell.interval[1]))
    return [noise_of_best(intervals) for intervals in intervals_at.values()]
