"""Measurements of tuning: checks and timings of settings."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from dagc.base.errors import RunFailed, counted
from dagc.base.signals import ENDLESS, Deadline
from dagc.choice.legal import op_of, op_under, place_of
from dagc.choice.types import Case, Cell, Samples, Site
from dagc.ir.choice import PROGRAM, VARIANT, Choice, own_name
from dagc.ir.enums import Mode, Opcode
from dagc.ir.plan import MEASURED, selects_device, variant_number
from dagc.ir.program import Graph, KernelOp, Program, Region
from dagc.lab.across import CONFIRMED, RIVALS, AcrossSizes
from dagc.lab.engine import NOTHING_KNOWN, TRIED, SearchOptions, explore
from dagc.lab.launches import EXPECTED, Launches, Programs, SizedProgram, Timing, Values, middle, repeated, verify
from dagc.lab.settings import LaunchSettings
from dagc.lab.strategy import Strategy, find
from dagc.measure.service import GIVE_UP, RanksDied, RunnerLibrary, Service, WorkerLink
from dagc.report.si import seconds as in_units
from dagc.space import Space
from dagc.stages.options import Progress
from dagc.study.cases import volume
from dagc.study.prepare import Prepared, fitting
from dagc.study.results import Measurements
from dagc.study.task import TuningTask

if TYPE_CHECKING:
    from dagc.store.records import Records
    from dagc.store.tuned import InputFacts
from dagc.base.sample import CHECK, Sample

# ---- checks and timings ----


FEATURE_LIMIT = 30.0  # seconds that the code of all features may take at one size before it counts as hanging
RESULTS_AGREE = 1e-3  # tolerance of results without a `verify`
NONE_KNOWN: Samples = MappingProxyType({})
LAUNCHES = 2  # of each setting, at least: one is compared, one is timed


def tolerance_between(program: Program, op: KernelOp) -> tuple[float, float]:
    """Of two settings of an op: `results_agree`, and twice the largest `atol` of what it writes."""
    written = {access.region.array for access in op.accesses if access.mode is not Mode.IN}
    atol = max((v.atol for v in program.verifies if v.region.array in written), default=0.0)
    return results_agree(program, op), 2 * atol


def results_agree(program: Program, op: KernelOp) -> float:
    """The largest difference between two settings of an op, over the largest value. If every array that the op writes
    has a `verify`, of all or of a part: twice the largest tolerance, since both may differ from the reference; of those
    of a whole array the smallest counts. Else RESULTS_AGREE, or more if a `verify` allows more, since settings may
    approximate."""
    allowed: dict[str, float] = {}
    for array in dict.fromkeys(v.region.array for v in program.verifies):
        whole = [v.rtol for v in program.verifies if v.region == Region(array) and not v.of]
        allowed[array] = min(whole) if whole else max(v.rtol for v in program.verifies if v.region.array == array)
    written = {access.region.array for access in op.accesses if access.mode is not Mode.IN}
    if written <= allowed.keys():
        return 2 * max((allowed[array] for array in written), default=RESULTS_AGREE)
    return max(RESULTS_AGREE, *allowed.values(), 0.0)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The settings of a site to measure at a case: `budget` of these settings, first those in `first`, then the
    proposals of the strategy; all of them without a budget. `prior`: a model's time of each, in any unit. `seconds`:
    if their launches would take longer, by the first one, none is timed."""

    op: str
    case: Case
    choices: tuple[Choice, ...]
    strategy: str = "exhaustive"
    budget: int | None = None
    first: tuple[Choice, ...] = ()
    prior: tuple[float, ...] = ()
    seconds: float = math.inf

    @property
    def number(self) -> int:
        """The most settings that are measured."""
        return len(self.choices) if self.budget is None else min(self.budget, len(self.choices))


class Recorder(Protocol):
    """Receives what is measured, as it comes."""

    def keep(self, cell: Cell, sample: Sample) -> None:
        """A sample. That of a check says whether the whole program gives correct results under a setting of one op, the
        others being at their defaults."""

    def skip(self, case: Case, why: str) -> None:
        """A case at which the program itself does not run, whatever the settings."""

    def say(self, what: str) -> None:
        """What is being done now."""


def in_words(cell: Cell) -> str:
    """A setting of an op at a case, in messages."""
    return f"{answer_in_words(cell.site, cell.choice)} at {cell.case.text or 'as given'}"


def answer_in_words(op: str, choice: Choice) -> str:
    """A choice at an op, in messages."""
    text = choice.in_words
    return text if op == PROGRAM else f"{op} {text}"


class Recording:
    """The results of a run, which change here alone: they are stored in memory and in the tuned file, and progress is
    reported.

    `measured`: all so far, with those of earlier runs; it grows with them. `seconds` and `busy` as in `Tuning`;
    `again`: for each cell that was timed again, its value by the first series of launches, and its value now. `done`:
    stored cells, of `total`; `left`: cells that the budget permits. Settings are checked at `check_at`.
    """

    def __init__(
        self, measured: Measurements, records: Records | None, progress: Progress | None, flush: int, check_at: Case,
        budget: int | None = None, total: int = 0,
    ) -> None:  # fmt: skip
        self._samples, self._checks, self._inputs = dict(measured.samples), dict(measured.checks), dict(measured.inputs)
        self.measured = Measurements(
            MappingProxyType(self._samples), MappingProxyType(self._checks), MappingProxyType(self._inputs)
        )
        self.failures: list[str] = []
        self.notes: list[str] = []
        self.seconds = self.busy = 0.0
        self.again: list[tuple[float, float]] = []
        self.records, self.progress = records, progress
        self.flush, self.check_at = flush, check_at
        self.left = budget if budget is not None else 10**9
        self.done, self.total = 0, total
        self.now = ""  # what is being done

    def keep(self, cell: Cell, sample: Sample) -> None:
        """Store a sample, which may replace that of the first series of the launches of the cell."""
        self.busy += sample.took
        if sample.failure:
            self.failures.append(f"{in_words(cell)}: {sample.failure}")
        if sample.purpose == CHECK:
            self._checks[cell.site, cell.choice] = sample.failure
            if self.records is not None:
                self.records.add_check(cell.site, cell.choice, cell.case, sample.failure)
        else:
            self._count(cell, sample)
            self._samples[cell] = sample
            if self.records is not None:
                self.records.add_sample(cell, sample, self.flush)
        self.say(self.now)

    def skip(self, case: Case, why: str) -> None:
        """Report a case at which nothing is measured."""
        self.failures.append(f"{case.text or 'as given'}: skipped: {why}")

    def forget(self, cell: Cell) -> None:
        """Forget a sample that is measured again, or replaced."""
        sample = self._samples.pop(cell)
        self.done, self.left, self.busy = self.done - 1, self.left + 1, self.busy - sample.took
        with suppress(ValueError):
            self.failures.remove(f"{in_words(cell)}: {sample.failure}")

    def note_input(self, facts: InputFacts) -> None:
        """Store the facts about an input."""
        from dagc.store.tuned import input_key, input_to_json  # loads msgspec, sqlite3

        self._inputs[facts.case] = facts
        if self.records is not None:
            self.records.set_fact(input_key(list(self._inputs).index(facts.case)), input_to_json(facts))

    def _count(self, cell: Cell, sample: Sample) -> None:
        first = self._samples.get(cell)
        if first is None:
            self.done, self.left = self.done + 1, self.left - 1
            return
        self.busy -= first.took
        if not sample.failure:
            self.again.append((first.value, sample.value))

    def say(self, what: str) -> None:
        """Report progress: what is being done now."""
        self.now = what
        if self.progress is not None:
            self.progress(self.done, max(self.total, self.done), what)


class Hangs:
    """Counts the inputs at which answers hang. An answer that hung at GIVE_UP of them is not measured at others: each
    hang takes as long as the watchdog waits."""

    def __init__(self, watchdog: float) -> None:
        self._watchdog = watchdog
        self._at: dict[tuple[str, Choice], dict[Case, None]] = {}

    def measure(self, machine: Launches | Programs, cell: Cell) -> Sample:
        """Measure an answer at an input, unless it was given up."""
        at = self._at.setdefault((cell.site, cell.choice), {})
        if len(at) >= GIVE_UP:
            return Sample(failure=f"not measured: it hung at {GIVE_UP} other inputs")
        sample = machine.measure(cell.choice)
        if sample.failure.startswith("hang"):
            at[cell.case] = None
        return sample

    @property
    def notes(self) -> list[str]:
        """Notes on what was given up, and on when something counts as hung if something did."""
        given_up = ((key, cases) for key, cases in self._at.items() if len(cases) >= GIVE_UP)
        out = [
            f"{answer_in_words(*key)}: given up, since it hung at {', '.join(p.text or 'as given' for p in cases)}"
            for key, cases in given_up
        ]
        if any(self._at.values()):
            out.append(
                f"a measurement counts as hung after {self._watchdog:g} s, or {EXPECTED:.0f} times its expected length"
                " if that is longer; --watchdog sets other seconds"
            )
        return out


def computed_features(ready: Prepared, names: Sequence[str]) -> Prepared:
    """Have the program compute its code features at each size; a note gives the largest time of each. A size at which
    they cannot be computed is not used for training: its features are missing."""
    slowest = dict.fromkeys(names, 0.0)
    cases, notes = [], []
    with Service(WorkerLink(ready.task.ranks)) as service:
        for case, at in ready.at.items():
            values, seconds, unknown = features_at(service, ready, case, names)
            at = replace(at, computed=values)
            cases.append(replace(at, fits=fitting(ready.task, at)))
            notes += unknown
            slowest = {n: max(slowest[n], seconds.get(n, 0.0)) for n in names}
            service.close(sized_program(ready, case).library)
    notes += [f"{name.removeprefix(MEASURED)} takes up to {in_units(s)} to compute" for name, s in slowest.items() if s]
    return ready.having(*cases).noting(notes)


def features_at(
    service: Service, ready: Prepared, case: Case, names: Sequence[str]
) -> tuple[dict[str, float], dict[str, float], list[str]]:
    """(values, seconds) of the code features of the program at a case, by name, and notes. Empty, with a note, if they
    cannot be computed."""
    if not names:
        return {}, {}, []
    library = sized_program(ready, case).library
    ask = partial(service.ask, library, do="features", limit=FEATURE_LIMIT)
    answer = service.insist(("features", case), ask)
    if "error" in answer:
        return {}, {}, [f"{case.text or 'as given'}: no features: {answer['error']}"]
    # The requested ones come first, then those that the program itself needs.
    values, seconds = (dict(zip(names, map(float, answer[what]), strict=False)) for what in ("values", "seconds"))
    return values, seconds, []


class Measuring:
    """Checks and timings of a task at the cases that are ready, in the order of the requests. `ready` is replaced where
    cases come one after the other."""

    def __init__(
        self, ready: Prepared, service: Service, timing: Timing, recorder: Recorder, known: Samples = NONE_KNOWN,
        end: Deadline = ENDLESS, at_least: int = 0,
    ) -> None:  # fmt: skip
        """`known`: samples of an earlier run. At `end` it ends between two cells, but not before `at_least` cells were
        timed."""
        self.ready, self.service, self.timing = ready, service, timing
        self.recorder, self.known, self.end, self.at_least = recorder, known, end, at_least
        self.sites = {site.name: site for site in self.task.sites}
        self.base = {name: site.default for name, site in self.sites.items()}
        self.hangs = Hangs(timing.watchdog)
        self.timed = 0  # cells
        self.late = 0  # wrong results after the end
        self.least: float | None = None  # seconds of a comparison with the reference
        self.compared: set[tuple[str, Choice]] = set()  # with the reference
        self.programs: dict[Case, SizedProgram] = {}
        self._decisions: dict[tuple[str, Choice], Values] = {}

    @property
    def task(self) -> TuningTask:
        return self.ready.task

    def keep(self, cell: Cell, sample: Sample) -> None:
        self.timed += 1
        self.recorder.keep(cell, sample)

    def over(self) -> bool:
        return self.end.over and (self.timed >= self.at_least or self.late >= TRIED)

    def values(self) -> list[tuple[str, int]]:
        """Every open launch parameter."""
        return [pair for op, site in self.sites.items() for pair in self.decisions(site, self.base[op])]

    def decisions(self, site: Site, choice: Choice) -> Values:
        key = site.name, choice
        if key not in self._decisions:
            self._decisions[key] = decisions(self.task.graph, site, choice)
        return self._decisions[key]

    # ---- whole programs, against the references -------------------------------------------

    def check(self, check: Mapping[str, Sequence[Choice]]) -> set[tuple[str, Choice]]:
        """Compare the settings of one op at a time, with the others at `base`; returns the wrong ones.

        If `base` itself is wrong, a correct setting replaces it, and ops without a correct setting in combination with
        it are checked again.
        """
        right: dict[str, Choice] = {}
        failed: dict[Cell, Sample] = {}
        for cell, sample in self.results(check):
            if sample.failure:
                failed[cell] = sample
            else:
                right.setdefault(cell.site, cell.choice)
                self.recorder.keep(cell, sample)
        moved = {c.site: right[c.site] for c in failed if c.choice == self.base[c.site] and c.site in right}
        self.base.update(moved)
        again = {c.site: check[c.site] for c in failed if c.site not in right} if moved else {}
        failed = {cell: sample for cell, sample in failed.items() if cell.site not in again}
        for cell, sample in (*failed.items(), *self.results(again)):
            self.recorder.keep(cell, sample)
            if sample.failure:
                failed[cell] = sample
        return {(cell.site, cell.choice) for cell in failed}

    def verify(self, later: Mapping[str, Sequence[Choice]]) -> None:
        """Compare those of these settings that were not compared yet."""
        new = {op: [s for s in of if (op, s) not in self.compared] for op, of in later.items()}
        for cell, sample in self.results(new):
            self.recorder.keep(cell, sample)

    def results(self, check: Mapping[str, Sequence[Choice]], case: Case | None = None) -> Iterator[tuple[Cell, Sample]]:
        """Compare settings with the references, at the input of the checks or another one that has references."""
        case = self.task.check_at if case is None else case
        for op, choices in check.items():
            for one in choices:
                if one not in self.ready.at[case].fits[op]:
                    continue
                if self.over():
                    return
                cell = Cell(op, case, one)
                self.recorder.say(f"checking {in_words(cell)}")
                began = time.perf_counter()
                try:
                    values = self.decisions(self.sites[op], one)
                    limit = self.timing.allowed(self.least)
                    failure = verify(self.service, self.program(case), self.values(), values, limit)
                except RunFailed as error:
                    raise _not_here(case, error.message) from None
                took = time.perf_counter() - began
                if not failure:
                    self.least = took if self.least is None else min(self.least, took)
                if case == self.task.check_at:
                    self.compared.add((op, one))
                yield cell, Sample(failure=failure, purpose=CHECK, took=took)
                if self.end.over and not failure:
                    return
                self.late += self.end.over

    def require_short(self) -> None:
        """Raises RunFailed if a launch takes too long where results are compared: where nothing is smaller."""
        if math.isinf(self.timing.longest):
            return
        case = self.task.check_at
        for op in self.sites:
            if self.ready.at[case].fits[op] and (why := self.machine(op, case).unusable()).startswith("a launch"):
                raise _not_here(case, why)

    # ---- single launches -------------------------------------------------------------------

    def time(self, wanted: Sequence[Wanted], wrong: set[tuple[str, Choice]]) -> None:
        """Time what is wanted but for what is wrong; sizes come in random order, by the task's seed. Raises RunFailed
        where the program runs at none of them."""
        order = random.Random(f"{self.task.seed} order")
        by_case: dict[Case, list[Wanted]] = {}
        for item in wanted:
            by_case.setdefault(item.case, []).append(item)
        cases = list(by_case)
        order.shuffle(cases)
        if math.isfinite(self.timing.longest):
            cases.sort(key=volume)  # large ones may take too long
        for number, case in enumerate(cases):
            failure = self.time_at(case, by_case[case], wrong)
            self.close(case)
            if failure and number == len(cases) - 1 and not self.timed:
                raise _not_here(case, failure)
            if failure:
                self.recorder.skip(case, failure)
            if self.over():
                return

    def time_at(self, case: Case, wanted: Sequence[Wanted], wrong: set[tuple[str, Choice]]) -> str:
        """Time the requested settings at one case. Returns "" or why that was not possible."""
        graph = self.task.graph_at(case)
        # In program order, since the program advances from op to op.
        items = sorted(wanted, key=lambda item: place_of(graph, self.sites[item.op]))
        return next(filter(None, (self._time_unit(item, wrong) for item in items)), "")

    def close(self, case: Case) -> None:
        """Free the arrays of a case."""
        self.service.close(self.program(case).library)

    def conversions(self, case: Case) -> dict[str, dict[str, float]]:
        """Seconds of `prepare` of each op and variant since the arrays of a case were read."""
        try:
            answer = self.service.ask(self.program(case).library, do="preparations", limit=FEATURE_LIMIT)
        except RanksDied:
            return {}
        out: dict[str, dict[str, float]] = {}
        for name, seconds in answer.get("seconds", {}).items():
            op, _, variant = name.partition(" ")
            if seconds > 0:
                out.setdefault(op, {})[variant] = float(seconds)
        return out

    def program(self, case: Case) -> SizedProgram:
        if case not in self.programs:
            self.programs[case] = sized_program(self.ready, case)
        return self.programs[case]

    def machine(self, op: str, case: Case) -> Launches:
        """The machine that times single launches of an op at a case."""
        site, graph = self.sites[op], self.task.graph_at(case)
        op_at = op_of(graph, site)
        transfers = selects_device(graph.program, op_at)
        return Launches(
            self.service, self.program(case), place_of(graph, site), self.values(),
            lambda choice: self.decisions(site, choice), timing=replace(self.timing, transfers=transfers),
            tolerance=tolerance_between(graph.program, op_at),
        )  # fmt: skip

    def _time_unit(self, item: Wanted, wrong: set[tuple[str, Choice]]) -> str:
        """Time settings of one site at one size. Returns "" or why not at this size."""
        at = self.ready.at[item.case]
        right = [i for i, s in enumerate(item.choices) if s in at.fits[item.op] and (item.op, s) not in wrong]
        if self.end.over:  # the others could not be compared
            right = [i for i in right if (item.op, item.choices[i]) in self.compared]
        if not right or self.over():
            return ""
        machine = self.machine(item.op, item.case)
        failure = machine.unusable()
        if failure:
            return failure
        done = {s: known for (op, case, s), known in self.known.items() if (op, case) == (item.op, item.case)}
        new = sum(item.choices[i] not in done for i in right)
        if LAUNCHES * machine.took * new > item.seconds:
            first = f"the first launch of {item.op} takes {in_units(machine.took)}"
            return f"{first}, and those of {counted(new, 'setting')} more than {in_units(item.seconds)}"
        domain = LaunchSettings([item.choices[i] for i in right], [item.prior[i] for i in right] if item.prior else ())
        strategy = find(item.strategy)(domain, self.task.seed)
        known = {s: [sample.priced(self.timing.objective)] for s, sample in done.items() if s in domain}
        budget = None if item.budget is None else item.budget - len(known)
        # With several series of each, the fastest need no other confirmation.
        confirm = CONFIRMED if self.timing.rounds == 1 else 0
        options = SearchOptions(
            budget, self.end.timeout, confirm=confirm, repeats=1, seed=self.task.seed, rivals=RIVALS
        )
        timings = SiteTimings(item.op, item.case, machine, self.hangs, self.keep, self.recorder.say)
        timings.search(domain, strategy, options, known, [s for s in item.first if s in domain])
        for cell, sample in timings.again(self.timing, self.task.seed, self.over):
            self.recorder.keep(cell, sample)
        return ""


CHECKED_TOGETHER = 8  # settings of an op compared in one pass, since a comparison needs other arrays


class Searching:
    """Times what a search over sizes proposes, one cell after another. What is wrong at the size of the checks is timed
    nowhere. `checked`: what was compared earlier, and what was wrong."""

    def __init__(self, run: Measuring, search: AcrossSizes, checked: Mapping[tuple[str, Choice], str]) -> None:
        self.measuring, self.search = run, search
        self.right = {key for key, failure in checked.items() if not failure}
        for op, choice in (key for key, failure in checked.items() if failure):
            if op in search.ops:
                search.exclude(op, choice)
        self.samples = {cell: sample for cell, sample in run.known.items() if search.has(cell)}
        self.at: tuple[str, Case | None] = "", None  # whose arrays are loaded
        self.timings: SiteTimings | None = None  # there
        self.lost: dict[Case, str] = {}  # sizes at which the program does not run, and why

    def run(self) -> str:
        """Returns why the model was given up, or ""."""
        left = self.measuring.end.left

        def over() -> bool:
            self.search.out_of_time = self._late(left)
            return self.measuring.over()

        self._check({op: self.search.hopeful(op, CHECKED_TOGETHER) for op in self.search.ops})
        options = SearchOptions(confirm=CONFIRMED, repeats=1, until=self.search.until, rivals=RIVALS)
        done = explore(
            None, self.search, self, self, options, known={cell: [sample] for cell, sample in self.samples.items()},
            among=lambda cell: cell[:2], ended=over, show=self.measuring.timing.objective.show,
        )  # fmt: skip
        if done.interrupted:
            raise KeyboardInterrupt
        self._leave()
        if self.lost and not self.measuring.timed:
            raise _not_here(*list(self.lost.items())[-1])
        for case, why in self.lost.items():
            self.measuring.recorder.skip(case, why)
        return done.given_up

    def _late(self, left: float) -> bool:
        """Whether the remaining time suffices only for the settings that may be chosen. `left`: seconds at the
        beginning."""
        run = self.measuring
        if run.end.timeout is None or not run.timed:
            return False
        now = run.end.left
        return now < (left - now) / run.timed * (1 + self.search.to_confirm + self.search.to_repeat)

    def measure(self, cell: Cell) -> Sample:
        """Time a cell, after a check of its setting; the sample of a check where it is not timed."""
        if not (self._is_right(cell) and self._placed(cell)):
            return Sample(failure="not timed", purpose=CHECK)
        assert self.timings is not None
        self.timings.begin(cell.choice)
        return self.timings.measure(cell.choice)

    def begin(self, candidate: Cell) -> Cell:
        return candidate

    def add(self, key: Cell, sample: Sample) -> None:
        if sample.purpose != CHECK and self.timings is not None:
            self.timings.add(key, sample)

    # ---- checks -------------------------------------------------------------------------

    def _is_right(self, cell: Cell) -> bool:
        """Whether a setting agrees with the reference, if it can be launched at the size of the checks."""
        key = cell.site, cell.choice
        if (
            key in self.right
            or cell.choice not in self.measuring.ready.at[self.measuring.task.check_at].fits[cell.site]
        ):
            return True
        choices = (cell.choice, *self.search.hopeful(cell.site, 10**6))
        unknown = [s for s in dict.fromkeys(choices) if (cell.site, s) not in self.right]
        self._check({cell.site: unknown[:CHECKED_TOGETHER]})
        return key in self.right

    def _check(self, choices: Mapping[str, Sequence[Choice]]) -> None:
        run = self.measuring
        here = run.ready.at[run.task.check_at].fits
        new = {op: [s for s in some if s in here[op] and (op, s) not in self.right] for op, some in choices.items()}
        new = {op: some for op, some in new.items() if some}
        if not new:
            return
        self._leave()
        wrong = run.check(new)
        for op, some in new.items():
            for one in some:
                if (op, one) in wrong:
                    self.search.exclude(op, one)
                elif (op, one) in run.compared:
                    self.right.add((op, one))
        run.close(run.task.check_at)

    # ---- timings ------------------------------------------------------------------------

    def _leave(self) -> None:
        if self.at[1] is not None:
            self.measuring.close(self.at[1])
        self.at, self.timings = ("", None), None

    def _placed(self, cell: Cell) -> bool:
        """Stop the program before the op at the size. A size at which it does not run is abandoned."""
        if self.timings is not None and self.at == (cell.site, cell.case):
            return True
        if self.at[1] != cell.case:
            self._leave()
        self.at = cell.site, cell.case
        run, machine = self.measuring, self.measuring.machine(cell.site, cell.case)
        self.timings = SiteTimings(cell.site, cell.case, machine, run.hangs, run.keep, run.recorder.say, self.samples)
        failure = machine.unusable()
        if failure:
            self.search.skip(cell.case)
            self.lost[cell.case] = failure
            self._leave()
        return not failure


def _not_here(case: Case, why: str) -> RunFailed:
    return RunFailed(f"at {case.text or 'this size'}: {why}", "drop this size; --resume keeps what was measured")


def with_another(first: Sample, again: Sample) -> Sample:
    """The launches of two series (`dagc.lab.launches.middle`), with the metrics of the first. What fails when it is
    timed again has failed: it may fail in the program, too."""
    took = first.took + again.took
    if again.failure:
        return Sample(failure=f"{again.failure} (when it was timed again)", took=took)
    return replace(Sample.of(middle([first.times, again.times]), metrics=first.metrics), took=took)


class SiteTimings:
    """The machine and the store of an op, or of the whole program, at a case. An answer that `hangs` has given up is
    not measured. Each is announced to `say`, and handed to `keep`; the values of `samples` are times, whatever the
    objective."""

    def __init__(
        self, site: str, case: Case, machine: Launches | Programs, hangs: Hangs,
        keep: Callable[[Cell, Sample], None], say: Callable[[str], None], samples: dict[Cell, Sample] | None = None,
    ) -> None:  # fmt: skip
        """`samples`: those so far, to which others of the same cells are added."""
        self._site, self._case, self._machine, self._hangs = site, case, machine, hangs
        self._keep, self._say, self._began = keep, say, 0.0
        self.samples: dict[Cell, Sample] = {} if samples is None else samples

    def search(
        self,
        domain: LaunchSettings,
        strategy: Strategy[Choice],
        options: SearchOptions,
        known: Mapping[Choice, Sequence[Sample]] = NOTHING_KNOWN,
        first: Sequence[Choice] = (),
    ) -> None:
        """Time what a strategy proposes. Raises KeyboardInterrupt."""
        if explore(domain, strategy, self, self, options, known=known, first=first).interrupted:
            raise KeyboardInterrupt

    def begin(self, candidate: Choice) -> Cell:
        cell = Cell(self._site, self._case, candidate)
        self._say(in_words(cell))
        self._began = time.perf_counter()
        return cell

    def measure(self, candidate: Choice) -> Sample:
        return self._hangs.measure(self._machine, Cell(self._site, self._case, candidate))

    def add(self, key: Cell, sample: Sample) -> None:
        took = time.perf_counter() - self._began
        sample = replace(Sample.of(sample.times, sample.failure, sample.metrics), took=took)
        self.samples[key] = with_another(self.samples[key], sample) if key in self.samples else sample
        self._keep(key, self.samples[key])

    def again(self, timing: Timing, seed: int, over: Callable[[], bool]) -> Iterator[tuple[Cell, Sample]]:
        """Samples that replace those of the first series of launches (`dagc.lab.launches.repeated`); with the metrics
        of the first. What fails when it is timed again has failed: it may fail in the program, too."""
        took = {cell: first.took for cell, first in self.samples.items()}
        failed: dict[Cell, str] = {}

        def series(cell: Cell) -> tuple[float, ...]:
            self._say(f"{in_words(cell)} again")
            began = time.perf_counter()
            sample = self._machine.again(cell.choice)
            took[cell] += time.perf_counter() - began
            if sample.failure:
                failed[cell] = f"{sample.failure} (when it was timed again)"
            return sample.times

        firsts = {cell: first.times for cell, first in self.samples.items() if first.times}
        times = repeated(firsts, series, timing, seed, over)
        for cell, first in self.samples.items():
            if cell in failed:
                yield cell, Sample(failure=failed[cell], took=took[cell])
            elif cell in times:
                yield cell, replace(Sample.of(times[cell], metrics=first.metrics), took=took[cell])


def decisions(graph: Graph, site: Site, choice: Choice) -> Values:
    """A choice at a site in the form of the program's runner: with its names, the variant as a number."""
    program, op = graph.program, op_of(graph, site)
    number = variant_number(program, op_under(program, op, choice))
    return tuple((name, number if own_name(name) == VARIANT else int(value)) for name, value in choice.items())


def sized_program(ready: Prepared, case: Case) -> SizedProgram:
    """The program at a size."""
    from dagc.emit import rows  # loads jinja2

    at, graph = ready.at[case], ready.task.graph_at(case)
    first = Space(graph).first()
    issued = [a for kind, a, _ in rows(first) if kind == Opcode.ISSUE and graph.ops[a].name != "end"]
    library = RunnerLibrary(ready.library_at(case), at.data, ready.task.device_pointers)
    return SizedProgram(library, tuple(rows(first)), tuple(issued), at.repeats)
