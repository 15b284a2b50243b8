"""What the choosers of a tuned file learned, judged at cases that are held out: of kernels and of whole programs, over
inputs and at sizes alike."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc.base.errors import UsageError, counted
from dagc.base.sample import Sample
from dagc.base.source import Source
from dagc.build.toolchain import choose_target
from dagc.choice.feature import asked_features
from dagc.choice.selector import FEWEST, Answer, Extent, Selector
from dagc.choice.types import Case, Cell, Site
from dagc.ir.choice import PROGRAM, Choice, qualified
from dagc.ir.plan import FAR, Target
from dagc.ir.program import DEVICE
from dagc.lang.lower import parse_with_includes
from dagc.passes import build_graph
from dagc.stages.program import ProgramText
from dagc.store.settings import values_fixed
from dagc.study.choosers import Data, plan_table
from dagc.study.judge import Figures, Judged, judged_at, percent
from dagc.study.results import minimised, paid
from dagc.study.task import TuningTask, plan_values, program_select
from dagc.study.train import TrainingTable, folds_of, leave_one_out, tabulated, train, trained_without

if TYPE_CHECKING:
    from dagc.choice.choose import Avoided
    from dagc.store.tuned import ProgramChooser, Tuned

# ---- the program of a tuned file ----------------------------------------------------------------


def text_of(tuned: Tuned) -> ProgramText:
    """The program of the file, for its target, with the values that were fixed."""
    texts = dict(tuned.program.sources)
    parsed = parse_with_includes(Source(tuned.program.path, texts[tuned.program.path]), texts)
    text, _ = ProgramText(Path(tuned.program.path), parsed, {}, forms=tuned.forms).on(target_of(tuned), here=False)
    kept = tuned.facts.kernels or tuned.facts.program
    if kept is None:
        return text
    text = text.with_defines(kept["params"])
    return text.with_defines({**text.defines, **_given(tuned, kept["decisions"], text)})


def target_of(tuned: Tuned) -> Target:
    """That of the measurements."""
    return Target(tuned.facts.target or "host")


def _given(tuned: Tuned, decisions: Mapping[str, Any], text: ProgramText) -> dict[str, Any]:
    """The decisions given by -D: no setting of the file assigns them, and they differ from the text."""
    opened = {name for c, _ in tuned.samples for name in c.choice}
    opened |= {qualified(c.site, DEVICE) for c, _ in tuned.samples if "." in c.choice.variant}
    as_written = values_fixed(text.program())["decisions"]
    return {name: v for name, v in decisions.items() if name not in opened and as_written.get(name, v) != v}


def plans_of(
    tuned: Tuned, stored: ProgramChooser, path: Path, text: ProgramText
) -> tuple[TuningTask, dict[Cell, Sample], Data]:
    """The whole programs of a file: their task, with the plans that were tried, the program's own first; the samples of
    those with correct results, in values of the objective; the features of each case. Raises UsageError, naming `path`,
    if the text does not select what `stored` chooses."""
    program = text.program()
    select = program_select(program)
    if select is None or select.names != stored.names:
        raise UsageError(f"{path}: chooses {', '.join(stored.names)}, which its text does not select", "tune again")
    wrong = {choice for (op, choice), failure in tuned.checks.items() if op == PROGRAM and failure}
    objective = minimised(tuned)
    samples = {
        c: sample.priced(objective) for c, sample in tuned.samples if c.site == PROGRAM and c.choice not in wrong
    }
    default = Choice(tuple((n, program.decision(n)) for n in select.names))
    places = {n: {v: k for k, v in enumerate(of)} for n, of in plan_values(program, select, {}).items()}

    def place(plan: Choice) -> tuple[bool, list[int]]:
        """Its place in the order of the program, which has its own plan first."""
        return plan != default, [places[name].get(value, len(places[name])) for name, value in plan.items()]

    choices = sorted({cell.choice for cell in samples}, key=place)
    cases = tuple(sorted({cell.case for cell in samples}))
    chosen = choose_target(tuned.facts.target or None, tuned.facts.arch or None)
    seed, names = tuned.runs[0].seed, tuple(f.name for f in asked_features(program, None, select.args))
    task = TuningTask(
        text, chosen, build_graph(program), (Site(PROGRAM, tuple(choices)),), cases, cases[0], seed,
        features={PROGRAM: names},
    )  # fmt: skip
    data = {p: tuple(one.features[PROGRAM][n] for n in names) for p, one in tuned.facts.of_programs(names).items()}
    return task, samples, data


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
    inputs, known = {one.case: one for one in tuned.facts.inputs}, set(chooser.choices)
    samples = [
        (c, paid(c, sample, inputs.get(c.case), tuned.facts.calls, objective))
        for c, sample in tuned.samples
        if c.site == op and c.choice in known
    ]
    tried: dict[Case, set[Choice]] = {}
    for cell, _ in samples:
        tried.setdefault(cell.case, set()).add(cell.choice)
    names = chooser.selector.data if chooser.selector is not None else chooser.data
    table = tabulated(names, chooser.choices, tried, samples, tuned.facts.features_of(op), tried)
    return LearnedSite(op, chooser.method, chooser.choices, _judgeable(table, tuned), chooser.selector)


def _plans(tuned: Tuned) -> LearnedSite:
    """Whole programs: all plans that were tried, of which the selector of the file has few, by other numbers."""
    stored = tuned.program_chooser
    assert stored is not None
    task, samples, data = plans_of(tuned, stored, tuned.path, text_of(tuned))
    table, plans, _ = plan_table(task, samples, data)
    table = _judgeable(table, tuned)
    known = table.part(False).merged
    selector = train(stored.method, known, task.seed) if len(known.rows) >= FEWEST else None
    fallback = plans.index(stored.choices[0]) if stored.choices[0] in plans else 0
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
class HeldOutCases:
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


def held_out(tuned: Tuned, site: LearnedSite, seed: int, folds: int = 0, share: float = 1.0) -> HeldOutCases:
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
    return HeldOutCases(
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
