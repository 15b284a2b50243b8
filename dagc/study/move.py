"""A tuned file on another machine: the loss of its choices there, and its correction by a few samples.

`--evaluate --other-machine` evaluates a file here and compares with its own machine. `--warm-start FILE` measures some
of its inputs here, and also learns from the others: with their times unchanged, or with those of each answer scaled by
the median ratio of its times here to those there, whichever is better by cross-validation at the inputs measured here.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import TYPE_CHECKING

from dagc.base.errors import UsageError, counted
from dagc.base.sample import Sample, parse_objective
from dagc.choice.selector import FEWEST, Selector
from dagc.measure.machine import machine_facts
from dagc.measure.metrics import observed, units
from dagc.study.choosers import Asked
from dagc.study.held_out import held_out, site_of
from dagc.study.inputs import Inputs, at_before
from dagc.study.judge import Judged, judged_at
from dagc.study.results import paid
from dagc.study.train import TrainingTable, folds_of, tabulated, trained_each
from dagc.study.tuned import check_tuned

if TYPE_CHECKING:
    from dagc.choice.types import Case, Cell, Samples
    from dagc.ir.choice import Choice
    from dagc.ir.program import Program
    from dagc.stages.options import TunedFileOptions, TuneOptions
    from dagc.store.tuned import Tuned
    from dagc.study.prepare import AtCase
    from dagc.study.task import TuningTask

FOLDS = 10  # of the inputs of a file, to evaluate it on its own machine
WAYS = ("the samples here alone", "the file's times, unscaled", "the file's times, scaled")

# ---- judged elsewhere -----------------------------------------------------------------------


def home_of(task: TuningTask, tuned: Tuned, options: TunedFileOptions) -> str:
    """The machine that a file was tuned on, "" if it is this one. Raises UsageError for another machine, unless the
    user allows it, and for a file of another target."""
    target = task.chosen.target.value
    here = machine_facts(target, task.chosen.arch).key
    homes = [run.machine.key for run in tuned.runs]
    if not homes or here in homes:
        return ""
    if tuned.facts.target != target:
        raise UsageError(f"{tuned.path}: tuned on the target {tuned.facts.target}, this is {target}", "tune it here")
    if not options.other_machine:
        raise UsageError(
            f"{tuned.path}: tuned on another machine ({homes[-1]}; this is {here})",
            "use --other-machine to evaluate it on this machine",
        )
    return homes[-1]


def lost_by_move(tuned: Tuned, op: str, here: Judged, seed: int) -> str:
    """One line on the loss of a file's choices on another machine."""
    try:
        home = held_out(tuned, site_of(tuned, op), seed, FOLDS).judged.all
    except UsageError as error:
        return f"on its own machine unknown: {error.message}"
    if not (home.inputs and here.all.inputs):
        where = "on its own machine" if here.all.inputs else "here"
        return f"PPP here and on its own machine unknown: the choice failed at every input {where}"
    lost = 100 * (here.all.regret - home.regret)
    return (
        f"PPP on its own machine {100 * home.regret:.2f} % ({FOLDS} folds of its inputs), here"
        f" {100 * here.all.regret:.2f} %:"
        f" {'loses' if lost > 0 else 'gains'} {abs(lost):.2f} percentage points; correct it with --warm-start"
    )


# ---- corrected by samples here -------------------------------------------------------------


def cases_of_file(tuned: Tuned, program: Program, options: TuneOptions) -> tuple[Case, ...]:
    """Some of the inputs of a file, to be measured here. Raises UsageError."""
    check_tuned(tuned, program, None)
    if options.samples is None:
        raise UsageError("--warm-start measures some inputs of that file here", "give a number: --samples 50")
    if options.active or options.incremental or options.sizes or options.inputs:
        raise UsageError("--warm-start takes its inputs from that file", "drop --active, --incremental and the inputs")
    for name in observed(parse_objective(options.objective or "time", units(program))):
        if not any(name in sample.metrics for _, sample in tuned.samples):
            raise UsageError(
                f"{tuned.path}: {name} was not measured",
                f"tune there with --objective {options.objective}, or drop --objective here",
            )
    cases = sorted({c.case for c, sample in tuned.samples if sample.times} - tuned.facts.tests)
    draw = random.Random(f"{options.seed} warm start")
    return tuple(draw.sample(cases, min(options.samples, len(cases))))


@dataclass(frozen=True, slots=True)
class Borrowed:
    """Cells of another machine as used for training here (values of the objective), with the facts about their
    inputs."""

    samples: Samples
    at: Mapping[Case, AtCase]
    notes: tuple[str, ...]


def borrowed(
    inputs: Inputs,
    task: TuningTask,
    asked: Mapping[str, Asked],
    fit: Mapping[str, Sequence[Choice]],
    tuned: Tuned,
    seed: int,
) -> Borrowed:
    """Training data from a file of another machine, in addition to the inputs of `task`, which were measured here.
    `fit`: the answers that may be chosen."""
    facts = {one.case: one for one in tuned.facts.inputs if not one.test}
    samples: dict[Cell, Sample] = {}
    notes = []
    for site in task.sites:
        number = {s: n for n, s in enumerate(site.choices) if s in fit[site.name]}
        method, names = asked[site.name].method, inputs.names(asked, site.name, task.cases)
        noise, there = inputs.noise(site.name), _samples_of(inputs, tuned, site.name, number)
        theirs = _theirs(inputs, tuned, site.name, names, there).with_noise(noise)
        ours = inputs.table(site.name, names, task.cases).among(number.values()).usable.with_noise(noise)
        losses = losses_of(method, ours, theirs, seed)
        way = min(range(len(WAYS)), key=lambda n: losses[n])
        shown = ", ".join(f"{what} {loss.text}" for what, loss in zip(WAYS, losses, strict=True))
        notes.append(f"{site.name}: learned from {WAYS[way]}; PPP at {counted(len(ours.rows), 'sample')} here: {shown}")
        ratios, measured = ratios_of(ours, theirs) if way == 2 else {}, {row.case for row in ours.rows}
        for cell, sample in there if way else ():
            if cell.case not in measured and cell.case in facts:
                factor = ratios.get(number[cell.choice], ratios.get(-1, 1.0))
                samples[cell] = Sample.of(tuple(t * factor for t in sample.times), metrics=sample.metrics)
    at = {p: at_before(inputs.task, facts[p], inputs.codes) for p in {cell.case for cell in samples}}
    return Borrowed(samples, at, tuple(notes))


def _samples_of(inputs: Inputs, tuned: Tuned, op: str, fit: Collection[Choice]) -> list[tuple[Cell, Sample]]:
    """What a file measured of an op at training inputs, in values of the objective, like the samples here."""
    facts, wanted = {one.case: one for one in tuned.facts.inputs}, {*observed(inputs.objective)}
    return [
        (c, paid(c, sample, facts.get(c.case), inputs.options.calls, inputs.objective))
        for c, sample in tuned.samples
        if c.site == op and c.choice in fit and sample.good and c.case not in tuned.facts.tests
        if wanted <= sample.metrics.keys()
    ]


def _theirs(
    inputs: Inputs, tuned: Tuned, op: str, names: Sequence[str], samples: Sequence[tuple[Cell, Sample]]
) -> TrainingTable:
    """The samples of a file, with the numbers of the answers here."""
    features = {one.case: one.features.get(op, {}) for one in tuned.facts.inputs}
    cases = dict.fromkeys(cell.case for cell, _ in samples)
    return tabulated(names, inputs.task.choices[op], cases, samples, features).usable


def ratios_of(ours: TrainingTable, theirs: TrainingTable) -> dict[int, float]:
    """For each answer: the median ratio of its time here to that there; -1: that of all answers."""
    of_answer: dict[int, list[float]] = {}
    there = {row.case: row.finite for row in theirs.rows}
    for row in ours.rows:
        for answer, seconds in row.finite.items():
            if answer in there.get(row.case, {}):
                of_answer.setdefault(answer, []).append(seconds / there[row.case][answer])
    every = [ratio for ratios in of_answer.values() for ratio in ratios]
    medians = {answer: median(ratios) for answer, ratios in of_answer.items()}
    return {**medians, **({-1: median(every)} if every else {})}


def scaled(table: TrainingTable, ratios: Mapping[int, float]) -> TrainingTable:
    """The table with the times of each answer multiplied by its ratio."""
    rows = (
        replace(row, times={a: t * ratios.get(a, ratios.get(-1, 1.0)) for a, t in row.times.items()})
        for row in table.rows
    )
    return replace(table, rows=tuple(rows))


def losses_of(method: str, ours: TrainingTable, theirs: TrainingTable, seed: int) -> list[MeanRegret]:
    """Mean PPP of each of WAYS at the samples here, each left out in turn with a fold of the others."""
    ours = replace(ours, rows=tuple(sorted(ours.rows, key=lambda row: row.case)))
    measured = {row.case for row in ours.rows}
    others = replace(theirs, rows=tuple(row for row in theirs.rows if row.case not in measured))
    parts = folds_of(len(ours.rows), 5, f"{seed} moved")
    lost = []
    for way in range(len(WAYS)):
        known = []
        for kept in map(ours.without, parts):
            more = scaled(others, ratios_of(kept, theirs) if way == 2 else {}).rows if way else ()
            known.append(replace(kept, rows=(*more, *kept.rows)))
        selectors = trained_each(known, method, seed)
        pairs = zip(known, selectors, map(ours.only, parts), strict=True)
        lost.append(mean_regret([regret for pair in pairs for regret in _regrets(*pair)]))
    return lost


@dataclass(frozen=True, slots=True, order=True)
class MeanRegret:
    """`failed`: the number of inputs at which the choice failed, or nothing could be trained; `mean`: over the others,
    0 without any."""

    failed: int
    mean: float
    inputs: int

    @property
    def text(self) -> str:
        """`1.20 %`, `1.20 % and 2 failures`, `-`."""
        worked = self.inputs - self.failed
        shown = f"{100 * self.mean:.2f} %" if worked else "-"
        return shown + (f" and {counted(self.failed, 'failure')}" if self.failed and worked else "")


def mean_regret(regrets: Sequence[float]) -> MeanRegret:
    """Of regrets that are infinite where the choice failed."""
    worked = [regret for regret in regrets if math.isfinite(regret)]
    return MeanRegret(len(regrets) - len(worked), fmean(worked) if worked else 0.0, len(regrets))


def _regrets(known: TrainingTable, selector: Selector | None, asked: TrainingTable) -> list[float]:
    if len(known.rows) < FEWEST:
        return [math.inf] * len(asked.rows)
    orders = [selector.order(x) if selector is not None else 0 for x in asked.features]
    return [verdict.ratio - 1 for verdict in judged_at(asked, orders).verdicts]
