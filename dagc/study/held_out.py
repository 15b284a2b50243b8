"""What the choosers of a tuned file learned, judged at cases that are held out: of kernels and of whole programs, over
inputs and at sizes alike."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dagc.base.errors import UsageError, counted
from dagc.choice.selector import FEWEST, Answer, Extent, Selector
from dagc.choice.types import Case
from dagc.ir.choice import PROGRAM, Choice
from dagc.ir.plan import FAR
from dagc.study.choosers import plan_table
from dagc.study.judge import Figures, Judged, judged_at, percent
from dagc.study.merged import plans_of, text_of
from dagc.study.results import minimised, paid
from dagc.study.train import TrainingTable, folds_of, leave_one_out, tabulated, train, trained_without

if TYPE_CHECKING:
    from dagc.choice.avoid import Avoided
    from dagc.store.tuned import Tuned

# ---- the sites of a tuned file ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LearnedSite:
    """A site of a tuned file: its choices by number, the default first, and the samples of all cases as a table, with
    the features of its selector (None if nothing was learned).

    `fallback`: what is chosen where the selector does not apply. `default`: in training, the confidence is learned
    below which this choice is better; None: it is not.
    """

    name: str
    method: str
    choices: tuple[Choice, ...]
    table: TrainingTable
    selector: Selector | None
    fallback: int = 0
    default: int | None = 0


def sites_in(tuned: Tuned, names: Sequence[str] = ()) -> list[LearnedSite]:
    """The sites at which a file chooses; with `names`, only these ops."""
    ops = [site_of(tuned, op) for op in sorted(tuned.kernel_choosers) if not names or op in names]
    return ops if names or tuned.program_chooser is None else [*ops, _plans(tuned)]


def site_of(tuned: Tuned, op: str) -> LearnedSite:
    """An op of a file. Its table has the cases that have finite features and a time, in the order in which they were
    measured. The constraint of a choice without a sample fails at the case: its time is infinite."""
    chooser, objective = tuned.kernel_choosers[op], minimised(tuned)
    inputs, known = {one.case: one for one in tuned.facts.inputs}, set(chooser.settings)
    samples = [
        (c, paid(c, sample, inputs.get(c.case), tuned.facts.calls, objective))
        for c, sample in tuned.samples
        if c.site == op and c.choice in known
    ]
    tried: dict[Case, set[Choice]] = {}
    for cell, _ in samples:
        tried.setdefault(cell.case, set()).add(cell.choice)
    names = chooser.selector.data if chooser.selector is not None else chooser.data
    table = tabulated(names, chooser.settings, tried, samples, tuned.facts.features_of(op), tried)
    return LearnedSite(op, chooser.method, chooser.settings, _judgeable(table, tuned), chooser.selector)


def _plans(tuned: Tuned) -> LearnedSite:
    """Whole programs: all plans that were tried, of which the selector of the file has few, by other numbers."""
    stored = tuned.program_chooser
    assert stored is not None
    task, samples, data = plans_of(tuned, tuned.path, text_of(tuned))
    table, plans, _ = plan_table(task, samples, data)
    table = _judgeable(table, tuned)
    known = table.part(False).merged
    selector = train(stored.method, known, task.seed) if len(known.rows) >= FEWEST else None
    fallback = plans.index(stored.settings[0]) if stored.settings[0] in plans else 0
    return LearnedSite(PROGRAM, stored.method, plans, table, selector, fallback, None)


def _judgeable(table: TrainingTable, tuned: Tuned) -> TrainingTable:
    """The usable rows with the test cases marked, and the noise of all."""
    tests = tuned.facts.tests
    rows = tuple(replace(row, test=row.case in tests) for row in table.usable.rows)
    return replace(table, rows=rows).with_noise(table.tolerance)


# ---- what is chosen, and why --------------------------------------------------------------------


def taken(answer: Answer, selector: Selector, beyond: float, fallback: int = 0) -> tuple[int, str]:
    """The choice and the reason. `beyond`: how far outside of the trained range the case is; `fallback`: what is chosen
    there, and where the selector is unsure."""
    if beyond > FAR:
        return fallback, "outside"
    return (fallback, "unsure") if answer.sure < selector.least_sure else (answer.label, "chosen")


def choice_at(
    selector: Selector, avoided: Avoided, extent: Extent, x: Sequence[float], fallback: int = 0
) -> tuple[int, str]:
    """The choice and the reason, as a chooser decides."""
    beyond = max(extent.beyond(dict(zip(selector.data, x, strict=True))).values(), default=1)
    label, reason = taken(selector.ask(x), selector, beyond, fallback)
    failed = avoided.at(x)
    if label not in failed:
        return label, reason
    other = next((answer for answer in selector.order(x) if answer not in failed), None)
    return (fallback, "failed") if other is None else (other, "avoided")


def extent_of(table: TrainingTable) -> Extent:
    """The range of the features of a table."""
    return Extent.of(dict(zip(table.names, x, strict=True)) for x in table.features)


# ---- judged -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HeldOut:
    """One site. `judged`: all held-out cases, once each; `parts`: those of each fold; `null`: of always taking what is
    best most often in training; `beside`: a line on the cross-validation of all cases."""

    judged: Judged
    parts: tuple[Figures, ...]
    trained: int
    null: Figures
    beside: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """What is printed besides the table."""
        null = f"null accuracy {percent(self.null.accuracy)}: always what is best most often in training"
        return (*self._spread(), null, *self.beside)

    def _spread(self) -> list[str]:
        """Mean and standard deviation over the folds; nothing for one part."""
        parts = [f for f in self.parts if f.inputs]  # in which the choice works at an input
        if len(parts) < 2:
            return []
        named = [("PPP", [f.regret for f in parts]), ("PoIS", [f.ideal for f in parts])]
        named.append(("accuracy", [f.accuracy for f in parts]))
        shown = (f"{n} {percent(statistics.fmean(v))} +- {percent(statistics.stdev(v))}" for n, v in named)
        return [f"mean and standard deviation of {len(parts)} folds: {', '.join(shown)}"]


def held_out(tuned: Tuned, site: LearnedSite, seed: int, folds: int = 0, share: float = 1.0) -> HeldOut:
    """Evaluate selectors trained without a part of the training cases at this part: each of so many `folds`, or
    without folds this `share` of the cases. Raises UsageError if nothing was learned, or if too few cases remain."""
    if site.selector is None:
        raise UsageError(f"{tuned.path}: nothing was learned for {site.name}", "tune it with more inputs")
    inputs = site.table.part(False)
    count = len(inputs.rows)
    if not count:
        raise UsageError(
            f"{tuned.path}: the features of the sizes at which {site.name} was tuned are not in the file",
            "tune with --resume and the same sizes, which adds them and measures nothing again",
        )
    if folds and count < max(2, folds):
        raise UsageError(f"{site.name}: {folds} folds of {counted(count, 'input')}", "give fewer --folds")
    parts = folds_of(count, folds or 1, f"{seed} left out")
    parts = parts if folds else [parts[0][: max(1, round(share * count))]]
    few = min(len(inputs.without(part).merged.rows) for part in parts)
    if few < FEWEST:
        left = counted(few, "input")
        raise UsageError(f"{left} to train on, {FEWEST} are needed", "leave fewer out, or tune with more")
    figures, answers, constant, trained = [], [], [], 0
    for part, selector, kept in trained_without(site.method, inputs, parts, seed, site.default):
        avoided, extent = kept.merged.avoided, extent_of(kept)
        found = [choice_at(selector, avoided, extent, x, site.fallback) for x in inputs.only(part).features]
        figures.append(_judged(inputs, part, found).all)
        answers += found
        constant += [(_most_frequent(kept), "")] * len(part)
        trained = max(trained, len(kept.rows))
    every = [i for part in parts for i in part]
    crossed = None if folds else leave_one_out(site.method, inputs, seed)
    return HeldOut(
        _judged(inputs, every, answers), tuple(figures), trained, _judged(inputs, every, constant).all,
        () if crossed is None else (crossed.text,),
    )  # fmt: skip


def _most_frequent(table: TrainingTable) -> int:
    """The choice that is best at most of the cases; the lowest of equal ones."""
    best = Counter(min(at, key=lambda choice: (at[choice], choice)) for at in (row.finite for row in table.rows))
    return min(best, key=lambda choice: (-best[choice], choice))


def _judged(inputs: TrainingTable, numbers: Sequence[int], answers: Sequence[tuple[int, str]]) -> Judged:
    reasons = [reason for _, reason in answers]
    return judged_at(inputs.only(numbers), [answer for answer, _ in answers], 0, inputs.tolerance, reasons)
