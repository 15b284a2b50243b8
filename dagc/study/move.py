"""A tuned file on another machine: the loss of its choices there, and its correction by a few samples.

`--evaluate --other-machine` evaluates a file here and compares with its own machine. `--warm-start FILE` measures some
of its inputs here, and also learns from the others: with their times unchanged, or with those of each answer scaled by
the median ratio of its times here to those there, whichever is better by cross-validation at the inputs measured here.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING

from dagc.base.errors import UsageError, counted
from dagc.base.objective import parse_objective
from dagc.base.sample import Sample
from dagc.choice.selector import FEWEST
from dagc.measure.machine import machine_facts
from dagc.measure.metrics import observed, units
from dagc.study.choosers import Asked
from dagc.study.inputs import Inputs, at_before, noise, times_at, vector
from dagc.study.judge import Judged, judge
from dagc.study.report import FOLDS, cross_validated
from dagc.study.results import paid
from dagc.study.tuned import check_tuned

if TYPE_CHECKING:
    from dagc.choice.types import Case, Cell, Samples
    from dagc.ir.choice import Choice
    from dagc.ir.program import Program
    from dagc.stages.options import TunedFileOptions, TuneOptions
    from dagc.store.tuned import KernelChooser, Tuned
    from dagc.study.prepare import AtCase
    from dagc.study.task import TuningTask

Rows = Mapping["Case", tuple[Sequence[float], Mapping[int, float]]]  # features and times of the answers
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


def lost_by_move(tuned: Tuned, op: str, chooser: KernelChooser, here: Judged, seed: int) -> str:
    """One line on the loss of a file's choices on another machine."""
    try:
        home = cross_validated(tuned, op, chooser, FOLDS, seed).judged.all
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
    for name in observed(parse_objective(options.objective or "time", units())):
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
    for unit in task.units:
        names = inputs.names(asked, unit.op, task.cases)
        theirs = _theirs(inputs, tuned, unit.op, names, fit[unit.op])
        rows = {p: (vector(inputs, unit.op, names, p), times_at(inputs, unit.op, p)) for p in task.cases}
        kept = set(theirs.number.values())
        only = {p: (x, {n: t for n, t in at.items() if n in kept}) for p, (x, at) in rows.items()}
        ours = {p: row for p, row in only.items() if _usable(row)}
        method, tolerance = asked[unit.op].method, noise(inputs, unit.op)
        losses = losses_of(method, names, ours, theirs.rows, tolerance, seed)
        way = min(range(len(WAYS)), key=lambda n: losses[n])
        shown = ", ".join(f"{what} {loss.text}" for what, loss in zip(WAYS, losses, strict=True))
        notes.append(f"{unit.op}: learned from {WAYS[way]}; PPP at {counted(len(ours), 'sample')} here: {shown}")
        if way:
            ratios = ratios_of(ours, theirs.rows) if way == 2 else {}
            for cell, sample in theirs.samples.items():
                if cell.case not in ours and cell.case in facts:
                    factor = ratios.get(theirs.number[cell.choice], ratios.get(-1, 1.0))
                    samples[cell] = Sample.of(tuple(t * factor for t in sample.times), metrics=sample.metrics)
    at = {p: at_before(inputs.task, facts[p], inputs.codes) for p in {cell.case for cell in samples}}
    return Borrowed(samples, at, tuple(notes))


@dataclass(frozen=True, slots=True)
class _Theirs:
    """An op of the file: its cells, the numbers of the answers here, and the rows of all inputs with a time."""

    samples: Samples
    number: Mapping[Choice, int]
    rows: Rows


def _theirs(inputs: Inputs, tuned: Tuned, op: str, names: Sequence[str], fit: Sequence[Choice]) -> _Theirs:
    """The op in values of the objective, like the samples here."""
    number = {s: n for n, s in enumerate(inputs.task.settings[op]) if s in fit}
    tests, facts, wanted = tuned.facts.tests, {one.case: one for one in tuned.facts.inputs}, observed(inputs.objective)
    samples = {
        c: paid(c, sample, facts.get(c.case), inputs.options.calls, inputs.objective)
        for c, sample in tuned.samples
        if c.site == op and c.choice in number and sample.good and c.case not in tests
        if sample.metrics.keys() >= {*wanted}
    }
    times: dict[Case, dict[int, float]] = {}
    for (_, case, answer), sample in samples.items():
        times.setdefault(case, {})[number[answer]] = sample.value
    features = {p: one.features.get(op, {}) for p, one in facts.items()}
    rows = {p: (tuple(features.get(p, {}).get(n, math.nan) for n in names), at) for p, at in times.items()}
    return _Theirs(samples, number, {p: row for p, row in rows.items() if _usable(row)})


def _usable(row: tuple[Sequence[float], Mapping[int, float]]) -> bool:
    return all(map(math.isfinite, row[0])) and any(map(math.isfinite, row[1].values()))


def ratios_of(ours: Rows, theirs: Rows) -> dict[int, float]:
    """For each answer: the median ratio of its time here to that there; -1: that of all answers."""
    of_answer: dict[int, list[float]] = {}
    for case, (_, at) in ours.items():
        for answer, seconds in at.items():
            there = theirs[case][1].get(answer, math.inf) if case in theirs else math.inf
            if math.isfinite(seconds) and math.isfinite(there):
                of_answer.setdefault(answer, []).append(seconds / there)
    every = [ratio for ratios in of_answer.values() for ratio in ratios]
    medians = {answer: median(ratios) for answer, ratios in of_answer.items()}
    return {**medians, **({-1: median(every)} if every else {})}


def losses_of(
    method: str, names: Sequence[str], ours: Rows, theirs: Rows, tolerance: float, seed: int, folds: int = 5
) -> list[MeanRegret]:
    """Mean PPP of each of WAYS at the samples here, each left out in turn with a fold of the others."""
    order = random.Random(f"{seed} moved").sample(sorted(ours), len(ours))
    lost: list[list[float]] = [[] for _ in WAYS]
    for fold in (order[k::folds] for k in range(folds)):
        kept = {p: row for p, row in ours.items() if p not in set(fold)}
        others = {p: row for p, row in theirs.items() if p not in ours}
        ratios = ratios_of(kept, theirs)
        scaled = {
            p: (x, {a: t * ratios.get(a, ratios.get(-1, 1.0)) for a, t in at.items()}) for p, (x, at) in others.items()
        }
        borrowed: tuple[Rows, ...] = ({}, others, scaled)
        for way, more in enumerate(borrowed):
            lost[way] += _regrets(method, names, {**more, **kept}, [ours[p] for p in fold], tolerance, seed)
    return [mean_regret(regrets) for regrets in lost]


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


def _regrets(
    method: str,
    names: Sequence[str],
    rows: Rows,
    asked: Sequence[tuple[Sequence[float], Mapping[int, float]]],
    tolerance: float,
    seed: int,
) -> list[float]:
    from dagc.study.sampling import trained  # loads msgspec

    vectors, times = [x for x, _ in rows.values()], dict(enumerate(at for _, at in rows.values()))
    if len(rows) < FEWEST or not asked:
        return [math.inf] * len(asked)
    selector = trained(names, vectors, times, method, seed, tolerance)
    orders = [selector.order(x) if selector is not None else 0 for x, _ in asked]
    return [verdict.ratio - 1 for verdict in judge([""] * len(asked), [at for _, at in asked], orders).verdicts]
