"""The evaluation of a tuned file (`dagc tune --evaluate`): of the choices of its kernels, variants, devices or whole
programs, at inputs that are measured now, or that are held out of those in the file."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dagc.base.errors import UsageError, counted
from dagc.choice.types import Case
from dagc.ir.choice import PROGRAM
from dagc.ir.plan import places_together
from dagc.stages.options import COSTS, Progress, TuneOptions
from dagc.study.cases import Sampling
from dagc.study.choosers import grade, grade_of_plans
from dagc.study.costs import costs
from dagc.study.gpu import NOT_COUNTED, require_runs
from dagc.study.held_out import LearnedSite, held_out, sites_in
from dagc.study.inputs import Inputs, Visits, to_visit
from dagc.study.judge import Evaluated, Evaluation, judged_at
from dagc.study.move import home_of, lost_by_move
from dagc.study.placed import TOGETHER, PlacedPrograms
from dagc.study.plans import plan_chooser
from dagc.study.prepare import AtCase
from dagc.study.replay import replayed
from dagc.study.task import TuningTask, program_task, tuning_task
from dagc.study.tuned import check_tuned, choosers_of
from dagc.study.tuning import visiting

if TYPE_CHECKING:
    from dagc.choice.choose import Chooser
    from dagc.stages.program import ProgramText
    from dagc.store.tuned import Tuned


def evaluate_tuned(
    text: ProgramText, tuned: Tuned, options: TuneOptions, progress: Progress | None = None
) -> Evaluation:
    """Evaluate the choices of a tuned file: by cross-validation (`options.folds`) or at a fraction (`options.hold_out`)
    of its training inputs, else at test inputs, at which every answer is measured.

    The measurements are stored in the file, marked as test data, and not used for training. Inputs that the file was
    trained on are reported and skipped. Raises UsageError if the file has no chooser, or belongs to another program.
    """
    if options.folds is not None or options.hold_out is not None or options.replay is not None:
        return _left_out(text, tuned, options)
    if tuned.program_chooser is not None:
        return _programs(text, tuned, options, progress)
    return _kernels(text, tuned, options, progress)


def _left_out(text: ProgramText, tuned: Tuned, options: TuneOptions) -> Evaluation:
    check_tuned(tuned, text.program(), None)
    began, ops, trained = time.monotonic(), [], 0
    share, folds = options.hold_out or 0.1, options.folds or 0
    for site in sites_in(tuned, options.kernels):
        again = _replayed(site, options) if options.replay is not None else ()
        result = held_out(tuned, site, options.seed, folds, share)
        trained = max(trained, result.trained)
        ops.append(Evaluated(site.name, result.judged, site.choices, (*result.lines, *again)))
    if not ops:
        raise UsageError(f"{tuned.path}: no chooser in it", "tune with --inputs or --samples first")
    how = f"{folds}-fold cross-validation" if folds else f"{share:.0%} held out"
    what = f"{how} of the inputs that {tuned.path.name} was trained on"
    count = max(len(one.judged.verdicts) for one in ops)
    return Evaluation(tuple(ops), what, count, (), (), time.monotonic() - began, trained)


def _replayed(site: LearnedSite, options: TuneOptions) -> tuple[str, ...]:
    """Active learning on the inputs of a site, up to `options.samples` labelled ones."""
    table, seeds = site.table.part(False), options.replay or 1
    most = options.samples or len(table.rows)
    sampling = Sampling.of(most, options.initial, options.batch, options.margin)
    done = replayed(table, site.method, seeds, sampling, most, options.seed)
    return (f"{counted(seeds, 'replay')} of active learning, another tenth held out in each:", *done.lines())


# ---- at test inputs -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Measured:
    """An evaluation in progress: the inputs at which every answer was tried, in order, and notes."""

    visits: Visits
    cases: tuple[Case, ...]
    notes: tuple[str, ...]
    began: float

    @classmethod
    def of(cls, visits: Visits, notes: Sequence[str], then: Callable[[AtCase], str] | None = None) -> _Measured:
        """Visit the inputs of a task, and measure the answers there. Raises UsageError if none could be measured."""
        began, failures = time.monotonic(), visits.failures
        cases = to_visit(visits.task)
        visits.total = len(cases) * sum(map(len, visits.answers.values()))
        visited = [p for p in cases if not visits.over and visits.visit(p, test=True, then=then)]
        done = sorted(p for p in visited if visits.complete(p))
        if not done:
            why = f": {failures[0]}" if failures else ""
            raise UsageError(f"no input could be evaluated{why}", "name others with --inputs, or give more --time")
        left = len(visited) - len(done)
        partly = [f"{counted(left, 'input')} measured in part: not judged"] if left else []
        return cls(visits, tuple(done), (*notes, *partly, *visits.remarks), began)

    def evaluated(self, chooser: Chooser, default: int, reasons: bool, costs: Sequence[str] = ()) -> Evaluated:
        """The answers of a chooser. `default`: its number; `reasons`: whether the reasons of answers are counted."""
        visits, op = self.visits, chooser.site.name
        number = {choice: i for i, choice in enumerate(visits.answers[op])}
        values = [visits.values(case) for case in self.cases]
        chosen = [[number[chooser.choices[i]] for i in chooser.order(at)] for at in values]
        why = [chooser.decide(at)[1].value for at in values] if reasons else ()
        judged = judged_at(visits.table(op, (), self.cases), chosen, default, reasons=why, banded=True)
        return Evaluated(op, judged, tuple(visits.answers[op]), tuple(costs))

    def result(self, ops: Sequence[Evaluated], grade: str, notes: Sequence[str] = (), trained: int = 0) -> Evaluation:
        failures, changed = self.visits.failures, self.visits.task.text.changed()
        return Evaluation(
            tuple(ops), grade, len(self.cases), tuple(failures), (*self.notes, *notes, *changed),
            time.monotonic() - self.began, trained,
        )  # fmt: skip


def _kernels(text: ProgramText, tuned: Tuned, options: TuneOptions, progress: Progress | None) -> Evaluation:
    task, choosers, home, trained, notes = _unseen(text, tuned, options)
    options = replace(options, resume=True, objective=options.objective or tuned.facts.objective)
    with visiting(task, tuned.path if not home else None, options, progress) as inputs:
        placed = _placed(inputs, choosers, tuned) if places_together(task.program) else None
        found = _Measured.of(inputs, notes, placed.time if placed is not None else None)
        ops = []
        for site in inputs.task.sites:
            chooser = choosers[site.name]
            default = chooser.choices.index(site.default) if site.default in chooser.choices else 0
            lines = costs(inputs, replace(inputs.task, sites=(site,)), {site.name: chooser})
            one = found.evaluated(chooser, default, reasons=True, costs=lines)
            if home:
                lost = lost_by_move(tuned, site.name, one.judged, options.seed)
                one = replace(one, costs=(lost, *one.costs))
            ops.append(one)
        ops += [Evaluated(TOGETHER, *placed.judged())] if placed is not None else []
        what = grade(task, len(inputs.measured.samples), NOT_COUNTED, {})
        return found.result(ops, what, inputs.notes, trained)


def _programs(text: ProgramText, tuned: Tuned, options: TuneOptions, progress: Progress | None) -> Evaluation:
    task = program_task(text, options, test=True)
    chooser = plan_chooser(task.program, tuned)
    cases, _, notes = untrained(task.cases, tuned, programs=True)
    task = replace(task, cases=cases)
    with visiting(task, tuned.path, replace(options, resume=True), progress) as plans:
        found = _Measured.of(plans, notes)
        return found.result([found.evaluated(chooser, 0, reasons=False)], grade_of_plans(task))


def _unseen(
    text: ProgramText, tuned: Tuned, options: TuneOptions
) -> tuple[TuningTask, dict[str, Chooser], str, int, list[str]]:
    """The task of measuring the answers of a tuned file at inputs that it was not trained on, its choosers by op, the
    machine that it was tuned on (`home_of`), the number of inputs that it was trained on, and notes."""
    if not tuned.kernel_choosers:
        raise UsageError(f"{tuned.path}: no chooser in it", "tune with --inputs first")
    task = tuning_task(text, options, test=True, kernels=tuple(tuned.kernel_choosers), check_at="")
    require_runs(task, "inputs")
    cases, trained, notes = untrained(task.cases, tuned)
    home = home_of(task, tuned, options)
    notes += [f"tuned on {home}: measurements of this machine are not stored in the file"] if home else []
    choosers = {c.op: c for c in choosers_of(task.graph, tuned, task.chosen.gpu_arch, other_machine=bool(home))}
    task = replace(
        task, cases=cases, check_at=cases[0],
        sites=tuple(replace(site, choices=choosers[site.name].choices) for site in task.sites),
        features={op: c.data for op, c in choosers.items()},
    )  # fmt: skip
    return task, choosers, home, trained, notes


def _placed(inputs: Inputs, choosers: Mapping[str, Any], tuned: Tuned) -> PlacedPrograms:
    """Raises UsageError for a file without the data needed for placement."""
    if tuned.facts.transfers is None or not all(c.predicts for c in choosers.values() if c.site.variants):
        what = "no times of transfers, or no predicted times, by which the ops are placed together"
        raise UsageError(f"{tuned.path}: {what}", f"tune with --method {COSTS}")
    return PlacedPrograms.of(inputs, choosers, tuned.facts.transfers)


def untrained(asked: Sequence[Case], tuned: Tuned, programs: bool = False) -> tuple[tuple[Case, ...], int, list[str]]:
    """The inputs that the ops of a file, or its whole `programs`, were not trained on; the number of training inputs;
    and notes on skipped inputs. Raises UsageError if none remains."""
    timed = (cell for cell, sample in tuned.samples if sample.times)
    trained = {cell.case for cell in timed if (cell.site == PROGRAM) is programs} - tuned.facts.tests
    cases = tuple(p for p in asked if p not in trained)
    if not cases:
        raise UsageError(
            "all of these inputs are training inputs of the file", "name others with --inputs or --samples"
        )
    return cases, len(trained), [f"{p.text}: skipped: the file was trained on it" for p in asked if p in trained]
