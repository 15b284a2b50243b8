"""Visits of the cases of a task, one after the other: how an input is set up, checked and labelled by measurement. The
data of only a few are on disk at a time, and one compiled program serves all; `dagc.study.sampling` decides which are
visited.

For each input, its set-up runs during the measurement of another one, its features are computed, and every allowed
answer is compared with the default and timed. A failure at an input is recorded there, and the other inputs continue.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from dagc.base.errors import DagcError, RunFailed, UsageError, counted
from dagc.base.sample import Sample
from dagc.base.signals import ENDLESS
from dagc.build.mpi import cores
from dagc.choice.feature import offered, values_of
from dagc.choice.legal import op_of
from dagc.choice.types import Case, Cell
from dagc.ir.choice import Choice
from dagc.ir.plan import selects_device
from dagc.lab.launches import AGREE, OVER, Timing, agree
from dagc.setup.arrays import elements
from dagc.setup.prefetch import AHEAD, Job, Prefetch
from dagc.study.build import build_what_compiles, computed_of
from dagc.study.cases import bytes_of, volume
from dagc.study.choosers import Asked, features_of
from dagc.study.expected import LEAST, Expected
from dagc.study.files import Session
from dagc.study.measure import Hangs, Measuring, Recording, Wanted, answer_in_words, features_at
from dagc.study.prepare import AtCase, Prepared, fitting, read_case
from dagc.study.results import OTHER, choosable, failures_before, paid
from dagc.study.task import TuningTask
from dagc.study.train import TrainingTable, tabulated

if TYPE_CHECKING:
    from dagc.ir.program import Program
    from dagc.ir.sym import Number
    from dagc.store.tuned import InputFacts


ROUNDS = 3  # most series of launches of an answer
CLEAR = 1.25  # times the best so far at an input: slower answers are timed only a few times
PROCESSES = max(1, min(8, cores() // 2))  # processes that run set-ups during measurements on a GPU
BETWEEN = min(16, cores())  # processes that run set-ups between measurements that use the cores
EACH = 4  # inputs ahead for each of these processes
SHARE = 0.25  # of the time limit that the launches of one op at one input may take
PILOT = 2 * LEAST  # small inputs that come first with --cut
MORE = 1.1  # times the inputs by which the times of answers are expected (--cut): they are learned anew
FAILED_CHECKS = 3  # failing inputs after which the program counts as failing at all
MANY = 10_000  # most inputs on disk in incremental tuning; their bytes are limited as well
# Values of an input by name, its features by op, and seconds to compute each code feature: as in `InputFacts`.
Loaded: TypeAlias = tuple[dict[str, Any], dict[str, dict[str, float]], dict[str, float]]


# ---- what is known of inputs ----------------------------------------------------------------


def elements_of(data: Path) -> int:
    """The number of elements of the largest array of the first rank."""
    return max((elements(file) for file in (data / "rank-0000").glob("*.npy")), default=0)


def candidates(cases: Iterable[Case], check_at: Case, program: Program, given: bool) -> tuple[Case, ...]:
    """The cases at which results may be compared with the reference, in this order: `check_at`, then the smaller ones
    first. Only `check_at` if the user has given it."""
    others = () if given else sorted((p for p in cases if p != check_at), key=lambda p: bytes_of(p, program))
    return (check_at, *others)


def check_at_first(
    cases: Iterable[Case], check: Callable[[Case], None], refuse: Callable[[Case, DagcError], None]
) -> None:
    """Check at the first suitable case; those before it are refused. A program that does not run at FAILED_CHECKS of
    them counts as failing at all. Raises UsageError if none is suitable."""
    errors: dict[str, DagcError] = {}
    for case in cases:
        try:
            check(case)
            return
        except DagcError as error:
            errors[case.text or "as given"] = error
            refuse(case, error)
        if sum(isinstance(e, RunFailed) for e in errors.values()) == FAILED_CHECKS:
            break
    raise _none_suitable(errors)


def _none_suitable(errors: Mapping[str, DagcError]) -> UsageError:
    """Of inputs that all failed: each cause, with the inputs that have it, three at most."""
    of: dict[str, list[str]] = {}
    for text, error in errors.items():
        of.setdefault(error.message, []).append(text)
    what = ", where results are compared with the reference"
    lines = [f"{', '.join(texts)}{what}: {cause}" for cause, texts in of.items()]
    more = [f"and {counted(len(lines) - 3, 'further cause')}"] if len(lines) > 3 else []
    help = next((error.help for error in errors.values() if error.help), "")
    return UsageError(
        "\n".join([*lines[:3], *more]), "; or ".join(filter(None, [help, "name another input with --check-at"]))
    )


# ---- one input after the other --------------------------------------------------------------


def note_on_repeats(again: Sequence[tuple[float, float]], answers: int, every: bool) -> list[str]:
    """A note on the answers, of so many, whose launches were timed again in a run; none if there are none, or if
    `every` answer is timed again in any case and no time changed. `again`: seconds of the first series, and of all."""
    moved = sum(not agree([[first], [value]]) for first, value in again)
    told = moved > 0 if every else bool(again)
    what = f"{len(again)} of {counted(answers, 'answer')} timed again later"
    return [f"{what}: the time of {moved} changed by more than {AGREE - 1:.0%}"] if told else []


class Visits(Recording):
    """A task whose inputs (or sizes) are visited one after the other. A failure at one is recorded there, and the
    others continue.

    The task tunes kernels (`Inputs`) or whole programs (`PlanCases`). These classes define what is compiled (`begin`),
    and the actions of a visit (`_load`, `_label`, `_leave`, `_drop`).
    """

    def __init__(self, session: Session, asked: Mapping[str, Asked], job: Callable[[Arrays], Job]) -> None:
        """`asked`: how each site is chosen, if that is learned; `job`: sets up the arrays of a case."""
        self.asked, self.task, self.options, self.objective = asked, session.task, session.options, session.objective
        super().__init__(
            session.measured, session.records, session.progress, session.flush, self.task.check_at,
            self.options.budget,
        )  # fmt: skip
        self.notes += session.notes
        self.service, self.folder = session.service, session.folder
        self.refused: set[Case] = set()
        self.wrong = {key for key, failure in self.measured.checks.items() if failure}
        self.end = ENDLESS
        self.hangs = Hangs(self.options.watchdog)
        unknown = self.options.cut is not None and len(self.measured.inputs) < PILOT
        self.pilot = PILOT if unknown else 0  # inputs that tell what is slow at large ones
        self.service.on_death = self.say  # hanging answers are tried again, so report progress
        cores_used = not self.task.of_programs and uses_cores(self.task)
        self.timing = Timing(
            seconds=self.options.cell, flush=self.flush, clear=CLEAR, objective=self.objective, rounds=ROUNDS,
            every=cores_used, watchdog=self.options.watchdog,
        )  # fmt: skip
        how = processes(cores_used or self.task.of_programs, MANY if self.options.incremental else AHEAD)
        self.prefetch = Prefetch(self.folder / "inputs", job, **how)

    def begin(self) -> None:
        """Compile what is timed, while the set-ups of the first cases run. Raises BuildFailed if nothing compiles."""
        raise NotImplementedError

    def count_earlier(self) -> None:
        """Before the training of a resumed file goes on: what it has measured counts for the budget, and its failures
        are reported again, since they are not measured again."""
        earlier = {c: sample for c, sample in self.measured.samples.items() if c.case not in self.tests}
        self.left = max(0, self.left - len(earlier))
        self.failures += failures_before(earlier)

    def limit_time(self) -> None:
        """From now on, the time limit of the options counts."""
        self.end = self.options.deadline

    # ---- what is chosen ------------------------------------------------------------------------

    @property
    def answers(self) -> Mapping[str, Sequence[Choice]]:
        """The settings of each site, by number."""
        return self.task.choices

    def fits(self, case: Case) -> Mapping[str, Sequence[Choice]]:
        """The answers that are allowed at a visited case."""
        raise NotImplementedError

    def values(self, case: Case) -> Mapping[str, Any]:
        """The values at a visited case from which a chooser computes its features."""
        raise NotImplementedError

    @property
    def number_of_answers(self) -> int:
        """Of all sites together, at one case."""
        return sum(map(len, self.answers.values()))

    def choosable(self) -> Mapping[str, Sequence[Choice]]:
        """The answers that a chooser may return, as far as is known."""
        raise NotImplementedError

    def names(self, asked: Mapping[str, Asked], op: str, cases: Collection[Case]) -> tuple[str, ...]:
        """The features by which an op is chosen, if choices depend on the inputs."""
        return asked[op].data

    # ---- what is known -------------------------------------------------------------------------

    @property
    def tests(self) -> frozenset[Case]:
        """The inputs of the file that are measured for evaluation only."""
        return frozenset(p for p, facts in self.measured.inputs.items() if facts.test)

    @property
    def over(self) -> bool:
        """Whether the time limit or the budget is reached."""
        return self.left <= 0 or self.end.over

    def past(self, share: float) -> bool:
        """Whether this share of the time limit is over."""
        return self.end.part(share).over

    @property
    def remarks(self) -> list[str]:
        """Notes on how the answers were measured in this run."""
        repeats = note_on_repeats(self.again, self.done, self.timing.every)
        return [*repeats, *self.hangs.notes, *self._omitted()]

    def _omitted(self) -> list[str]:
        """Notes on answers that were not measured where they were expected to be slow."""
        return []

    def priced(self, cell: Cell, sample: Sample) -> Sample:
        """A sample in values of the objective, including the share of its conversion."""
        return paid(cell, sample, self.measured.inputs.get(cell.case), self.options.calls, self.objective)

    def table(self, op: str, names: Sequence[str], cases: Iterable[Case], priced: bool = True) -> TrainingTable:
        """The samples of an op at some visited inputs. Values of the objective; seconds, unless `priced`."""
        cases, known = list(cases), self.measured.inputs
        features = {case: known[case].features.get(op, {}) for case in cases}
        allowed = {case: set(self.fits(case)[op]) for case in cases}
        samples = self.measured.samples.items()
        own = ((c, self.priced(c, one) if priced else one) for c, one in samples if c.site == op)
        table = tabulated(names, self.answers[op], cases, own, features, allowed)
        return replace(table, rows=tuple(replace(row, elements=known[row.case].elements) for row in table.rows))

    def noise(self, op: str) -> float:
        """The noise of a comparison of two answers of an op, relative: the median over the inputs."""
        own = (pair for pair in self.measured.samples.items() if pair[0].site == op)
        return tabulated((), self.answers[op], self.measured.inputs, own, {}).noise

    def complete(self, case: Case) -> bool:
        """Whether every allowed answer at a case was tried, except those with wrong results."""
        samples, fits = self.measured.samples, self.fits(case)
        return all((op, case, s) in samples for op, of in fits.items() for s in of if (op, s) not in self.wrong)

    # ---- visits -------------------------------------------------------------------------------

    def take(self, task: TuningTask) -> None:
        """Continue with another task of the same program, which differs in its cases."""
        self.task = task

    def expect(self, cases: Sequence[Case]) -> None:
        """Announce the cases to visit next, in this order."""
        self.prefetch.expect([(case, None) for case in cases])

    def check(self) -> None:
        """At the input of the checks, compare every answer that was not compared yet with the reference. An unsuitable
        input is reported, and the next one is taken, unless the user has named it.

        Raises UsageError if none is suitable.
        """
        todo = {op: choices for op, choices in self._unchecked().items() if choices}
        if todo:
            given = bool(self.options.check_at)
            cases = candidates(self.task.cases, self.task.check_at, self.task.program, given)
            check_at_first(cases, lambda case: self._check_at(case, todo), self._refuse)

    def _unchecked(self) -> dict[str, list[Choice]]:
        checks = self.measured.checks
        return {op: [s for s in legal if (op, s) not in checks] for op, legal in self.answers.items()}

    def _check_at(self, case: Case, todo: Mapping[str, Sequence[Choice]]) -> None:
        """Raises DagcError if that is impossible at this input."""
        raise NotImplementedError

    def _refuse(self, case: Case, error: DagcError) -> None:
        self.skip(case, " ".join(str(error).split()))
        self.refused.add(case)
        self._drop(case)

    def visit(
        self, case: Case, label: bool = True, test: bool = False, then: Callable[[AtCase], str] | None = None
    ) -> bool:
        """Compute the features of an input and, with `label`, time every allowed answer. Returns whether that
        succeeded: the set-up may refuse the input, and the program may fail on it.

        `then`: called while its arrays are loaded; returns "" or why it failed.
        """
        if case in self.refused:
            return False
        if then is None and case in self.measured.inputs and (not label or self.complete(case)):
            return True
        self.say(case.text)
        try:
            self._read(case, test, self.end.timeout)
        except DagcError as error:
            self._refuse(case, error)
            return False
        failure = self._label(case, then) if label else ""
        if failure:
            self.skip(case, failure)
        self._leave(case)
        if label or not self.prefetch.roomy:
            self._drop(case)
        return not failure

    def measure(self, case: Case) -> Sample:
        """As `visit`, of a proposal of what is labelled next."""
        return Sample() if self.visit(case) else Sample(failure="not labelled")

    def _read(self, case: Case, test: bool = False, wait: float | None = None) -> None:
        """Load the arrays of an input, and note its features. `test`: whether it is for evaluation only, if it is new;
        `wait`: for its set-up, seconds at most. Raises DagcError."""
        from dagc.store.tuned import InputFacts  # loads msgspec, sqlite3

        self.task.require_same_at(case)
        place, before = self.prefetch.get((case, None), wait), self.measured.inputs.get(case)
        values, features, seconds = self._load(case, place)
        test, conversions = (before.test, before.conversions) if before is not None else (test, {})
        facts = InputFacts(dict(case.params), test, values, features, seconds, elements_of(place), conversions)
        if before is None and not test:
            self._note_undefined(facts)
        self.note_input(facts)

    def _load(self, case: Case, place: Path) -> Loaded:
        """Load the arrays of an input, which are at `place`. Raises DagcError."""
        raise NotImplementedError

    def _note_undefined(self, facts: InputFacts) -> None:
        """Note the features that are not finite at an input, which is then not used for training."""
        for op, names in self.task.features.items():
            undefined = [n for n in names if n not in facts.features.get(op, {})]
            if undefined:
                what = f"{', '.join(undefined)} not finite: not used for training"
                self.notes.append(f"{op} at {facts.case.text or 'as given'}: {what}")

    def _label(self, case: Case, then: Callable[[AtCase], str] | None) -> str:
        """Time the answers that are missing; returns "" or why nothing was timed there: the program does not run, or
        takes too long."""
        raise NotImplementedError

    def _leave(self, case: Case) -> None:
        """Free the arrays of an input."""

    def _drop(self, case: Case) -> None:
        """Remove its data."""
        self.prefetch.drop((case, None))


class Inputs(Visits):
    """The inputs of a task of kernels.

    `ready` has the cases that were visited or are known from an earlier run, and their features; the arrays of a case
    exist only while it is visited.
    """

    def __init__(self, session: Session, asked: Mapping[str, Asked]) -> None:
        task = session.task
        # The case whose data include references, which changes with the input of the checks.
        self.references = [task.check_at] if asked else []
        self.cut: dict[tuple[str, Choice], int] = {}  # inputs at which an answer was not measured
        self.expectations: dict[str, tuple[int, Expected | None]] = {}  # by op: of so many inputs
        super().__init__(session, asked, partial(job, task, self.references))

    def begin(self) -> None:
        self.limit_time()
        self.expect([p for p in order_of(self.task, self.pilot) if p not in self.measured.inputs])
        self.say("setting up the first inputs, compiling")
        library, task, failures = build_what_compiles(self.task, self.folder)
        self.failures += failures
        self.task, self.codes = task, [f.name for f in computed_of(task)]
        before = (at_before(task, facts, self.codes) for facts in self.measured.inputs.values())
        ready = Prepared(task, library).having(*before)
        self.run = Measuring(ready, self.service, self.timing, self, dict(self.measured.samples), self.end)
        self.run.hangs = self.hangs

    @property
    def ready(self) -> Prepared:
        return self.run.ready

    def fits(self, case: Case) -> Mapping[str, Sequence[Choice]]:
        return self.ready.at[case].fits

    def values(self, case: Case) -> Mapping[str, Any]:
        return self.ready.at[case].values

    def choosable(self) -> Mapping[str, Sequence[Choice]]:
        return choosable(self.task, self.measured.checks, self.measured.samples)[0]

    def names(self, asked: Mapping[str, Asked], op: str, cases: Collection[Case]) -> tuple[str, ...]:
        site = next(site for site in self.task.sites if site.name == op)
        return asked[op].data or features_of(self.ready, site, list(cases))

    def _omitted(self) -> list[str]:
        what = f"not measured, expected to take more than {self.options.cut} times the fastest"
        return [f"{answer_in_words(*key)}: at {counted(n, 'input')} {what}" for key, n in sorted(self.cut.items())]

    def take(self, task: TuningTask) -> None:
        self.task, self.run.ready = task, replace(self.ready, task=task)

    def _check_at(self, case: Case, todo: Mapping[str, Sequence[Choice]]) -> None:
        """Check at this input from now on: its data include references."""
        self.say(f"checking at {case.text or 'as given'}")
        if case != self.task.check_at:
            self._drop(case)  # it was set up without references
        self.take(replace(self.task, check_at=case))
        self.check_at = case
        self.references[:] = [case]
        self._read(case)
        self.wrong |= self.run.check(todo)
        self._leave(case)
        if case not in self.task.cases:
            self._drop(case)

    def _refuse(self, case: Case, error: DagcError) -> None:
        self.run.ready = replace(self.ready, at={p: at for p, at in self.ready.at.items() if p != case})
        super()._refuse(case, error)

    def _label(self, case: Case, then: Callable[[AtCase], str] | None) -> str:
        failure = self.run.time_at(case, self._wanted(self.ready.at[case]), self.wrong)
        if not failure:
            self._settle(case)
            failure = then(self.ready.at[case]) if then else ""
        if not failure:
            self._note_conversions(case)
        return failure

    # ---- which of two results is right -----------------------------------------------------

    def _settle(self, case: Case) -> None:
        """Where answers differ from the default, compare the default with the reference. If it is wrong, it has failed
        there, and those that are right are timed."""
        samples = self.measured.samples
        differ: dict[str, list[Choice]] = {}
        for site in self.task.sites:
            here = {s: samples.get(Cell(site.name, case, s)) for s in self.ready.at[case].fits[site.name]}
            base, wrong = here.get(self.run.base[site.name]), [s for s, c in here.items() if c and OTHER in c.failure]
            if wrong and base is not None and base.good:
                differ[site.name] = wrong
        if not differ or not self.task.program.verifies:
            return
        try:
            if not self._with_references(case):
                return
            for op, wrong in differ.items():
                self._settle_op(op, case, wrong)
        except DagcError as error:
            what = "whether the default or what differs from it is right is not known"
            self.notes.append(f"{case.text or 'as given'}: {what}: {' '.join(str(error).split())}")

    def _with_references(self, case: Case) -> bool:
        """Load the arrays of a case again, with references; False if there is no time for that."""
        if self.task.compared or case in self.references:
            return True
        left = self.end.left
        if left <= 0:
            return False
        self.say(f"comparing at {case.text or 'as given'}")
        before = list(self.references)
        self.run.close(case)
        self._drop(case)
        self.references[:] = [case]
        try:
            self._read(case, wait=min(left, self.options.watchdog))
        finally:
            self.references[:] = before
        return True

    def _settle_op(self, op: str, case: Case, differ: list[Choice]) -> None:
        base, run = self.run.base[op], self.run
        failure = next((sample.failure for _, sample in run.results({op: [base]}, case)), "")
        if not failure:
            return
        right = [cell.choice for cell, sample in run.results({op: differ}, case) if not sample.failure]
        for choice in (base, *right):
            self.forget(Cell(op, case, choice))
        self.keep(Cell(op, case, base), Sample(failure=failure))
        if not right:
            return
        run.base[op] = right[0]
        try:
            run.time_at(case, [Wanted(op, case, tuple(right))], self.wrong)
        finally:
            run.base[op] = base

    def _leave(self, case: Case) -> None:
        self.run.close(case)

    def _note_conversions(self, case: Case) -> None:
        """Record the time of `prepare`, including that of an earlier start of the ranks."""
        facts = self.measured.inputs[case]
        conversions = {op: dict(of) for op, of in facts.conversions.items()}
        for op, of in self.run.conversions(case).items():
            conversions[op] = conversions.get(op, {}) | of
        if conversions != facts.conversions:
            self.note_input(replace(facts, conversions=conversions))

    def _wanted(self, at: AtCase) -> list[Wanted]:
        out = []
        left, limit = self.left, self.options.seconds
        seconds = math.inf if limit is None else SHARE * limit
        for site in self.task.sites:
            known = [s for s in at.fits[site.name] if (site.name, at.case, s) in self.measured.samples]
            new = [s for s in at.fits[site.name] if s not in known][: max(0, left)]
            new = new if self.options.cut is None else self._hopeful(site.name, at.case, new)
            left -= len(new)
            if new:
                out.append(Wanted(site.name, at.case, (*known, *new), seconds=seconds))
        return out

    def _hopeful(self, op: str, case: Case, new: Sequence[Choice]) -> list[Choice]:
        """The answers that earlier inputs do not expect to be far slower than the fastest; the others count as tried.
        The one that is expected to be the fastest runs first, as what the others are compared with."""
        expected = self._expected(op)
        if expected is None:
            return list(new)
        answers, wrong = self.answers[op], {s for site, s in self.wrong if site == op}
        fits = {i for i, s in enumerate(answers) if s in self.fits(case)[op] and s not in wrong}
        seconds = {a: t for a, t in expected.seconds(self.measured.inputs[case].features[op]).items() if a in fits}
        slow = expected.slow(seconds, self.options.cut or 1, OVER * self.timing.seconds) if seconds else frozenset()
        for choice in (s for s in new if answers.index(s) in slow):
            self.keep(Cell(op, case, choice), Sample())
            self.cut[op, choice] = self.cut.get((op, choice), 0) + 1
        if seconds:
            self.run.base[op] = answers[min(seconds, key=lambda a: (seconds[a], a))]
        return [s for s in new if answers.index(s) not in slow]

    def _expected(self, op: str) -> Expected | None:
        """What is expected by the inputs measured so far; learned anew when there are MORE times as many."""
        rows, expected = self.expectations.get(op, (0, None))
        tried = {cell.case for cell in self.measured.samples if cell.site == op}
        if len(tried) > MORE * rows:
            cases = [case for case in tried if case in self.ready.at]
            table = self.table(op, self.names(self.asked, op, cases), cases, priced=False)
            expected = Expected.of(table)
            self.expectations[op] = len(tried), expected
        return expected

    def _load(self, case: Case, place: Path) -> Loaded:
        self.run.programs.pop(case, None)  # its arrays were at another address
        at, before = read_case(self.task, case, place), self.measured.inputs.get(case)
        self.run.ready = self.ready.having(at)
        if before is None:
            values, seconds, unknown = features_at(self.service, self.ready, case, self.codes)
            self.notes += unknown
            at = replace(at, computed=dict.fromkeys(self.codes, math.nan) | values)
        else:
            at, seconds = replace(at, computed=computed_before(before, self.codes)), dict(before.seconds)
        at = with_allowed(self.task, at)
        if self.task.sites and not any(at.fits.values()):
            raise DagcError("no op has anything to launch there")
        self.run.ready = self.ready.having(at)
        features: dict[str, dict[str, float]] = {}
        for site in self.task.sites:
            known = offered(self.task.program, op_of(self.task.graph, site))
            computed = values_of(known, at.values, at.constants)
            wanted = self.task.features.get(site.name) or computed
            features[site.name] = {n: v for n, v in computed.items() if n in wanted and math.isfinite(v)}
        values = {n: _plain(v) for n, v in {**at.scalars, **at.computed}.items() if math.isfinite(_plain(v))}
        return values, features, dict(seconds)


def computed_before(facts: InputFacts, codes: Collection[str]) -> dict[str, float]:
    """The features computed for an input in an earlier run; NaN if missing."""
    return {name: float(facts.values.get(name, math.nan)) for name in codes}


def with_allowed(task: TuningTask, at: AtCase, memory: int | None = None) -> AtCase:
    """The case with its allowed answers; none for an op whose default has nothing to launch. `memory`: that of the
    device, None: that of this machine."""
    fits = fitting(task, at, memory)
    default = {site.name: site.default for site in task.sites if site.default in site.choices}
    empty = {op for op, choice in default.items() if choice not in fits[op]}
    return replace(at, fits={op: () if op in empty else of for op, of in fits.items()})


def at_before(task: TuningTask, facts: InputFacts, codes: Collection[str], memory: int | None = None) -> AtCase:
    """An input of an earlier run, without its arrays."""
    scalars: dict[str, Number] = {n: v for n, v in facts.values.items() if n not in codes}
    return with_allowed(task, AtCase(facts.case, Path(), scalars, 1, {}, {}, computed_before(facts, codes)), memory)


def _plain(value: Any) -> int | float | bool:
    return value if isinstance(value, bool | int) else float(value)


# ---- how set-ups run ---------------------------------------------------------------------------


def processes(cores_used: bool, ahead: int = AHEAD) -> dict[str, Any]:
    """How set-ups run: during measurements, or between them if what is measured uses the cores: threads of its own, or
    the host's loop of a whole program, which another process would hold up for a few milliseconds."""
    number = BETWEEN if cores_used else PROCESSES
    threads = max(1, cores() // (number if cores_used else number + 1))
    return {"processes": number, "ahead": max(ahead, EACH * number), "between": cores_used, "threads": threads}


def uses_cores(task: TuningTask) -> bool:
    """Whether answers of an op run on all cores. An OpenMP thread that loses its core to another process makes all
    other threads wait for milliseconds, so nothing may run during such a measurement, and disturbances have to be
    detected."""
    return any(selects_device(task.graph.program, op_of(task.graph, site)) for site in task.sites)


Arrays: TypeAlias = "tuple[Case, Choice | None]"  # the data of a case; with the references of a plan


def job(task: TuningTask, references: Collection[Case], arrays: Arrays) -> Job:
    """The set-up of a case: with references if results are compared everywhere, or at this case, or for a plan."""
    case, plan = arrays
    compared = task.compared or plan is not None or case in references
    return Job(task.program_at(case, plan), task.text.path.parent, task.ranks, task.seed, compared)


def order_of(task: TuningTask, pilot: int = 0) -> list[Case]:
    """The input of the checks first, the others in random order, so that a time limit omits a random part of them; but
    so many of the smaller half come before all others."""
    others = [p for p in task.cases if p != task.check_at]
    random.Random(f"{task.seed} order").shuffle(others)
    half = sorted(others, key=volume)[: len(others) // 2]
    first = half[:: max(1, len(half) // pilot)][:pilot] if pilot else []
    known = set(first)
    return [task.check_at, *first, *(p for p in others if p not in known)]


def to_visit(task: TuningTask, pilot: int = 0) -> list[Case]:
    """`order_of`, without an input of the checks that is not one of the task."""
    order = order_of(task, pilot)
    return order[len(order) - len(task.cases) :]
