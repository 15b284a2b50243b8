"""`dagc tune` of a program-level `select`: each setting is compiled, checked and timed as a program."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from dagc.base.errors import DagcError, UsageError, counted
from dagc.base.sample import CHECK, Sample
from dagc.choice.feature import offered
from dagc.choice.methods import EXHAUSTIVE
from dagc.choice.selector import FEWEST, Selector
from dagc.choice.types import Case, Cell, Samples, Site
from dagc.ir.choice import PROGRAM, Choice
from dagc.ir.plan import Target
from dagc.lab.engine import SearchOptions
from dagc.lab.launches import Programs, Timing
from dagc.lab.plans import METHODS
from dagc.lab.settings import LaunchSettings
from dagc.lab.strategy import find
from dagc.measure.metrics import observed, of_results
from dagc.measure.service import RunnerLibrary
from dagc.setup import read_scalars
from dagc.setup.prefetch import Job, Prefetch
from dagc.stages.program import ProgramText
from dagc.study.build import BuiltProgram, build_plans
from dagc.study.choosers import Asked, result_at
from dagc.study.gpu import require_runs
from dagc.study.inputs import CLEAR, ROUNDS, Session, Visits, begun, elements_of, processes, to_visit
from dagc.study.measure import SiteTimings, in_words
from dagc.study.results import KernelResult, Tuning
from dagc.study.sampling import label
from dagc.study.task import TuningTask, program_task
from dagc.study.train import Learned, TrainingTable, left_out, tabulated, train_few

if TYPE_CHECKING:
    from dagc.stages.options import Progress, SiteOptions, TuneOptions


# ---- measuring: each plan, compiled once, at one input (or size) after the other ------------


Arrays: TypeAlias = "tuple[Case, Choice | None]"  # the data of a case; with the references of a setting


class PlanCases(Visits):
    """The cases of a task of whole programs: each setting is compiled once, for all of them."""

    def __init__(self, session: Session) -> None:
        """Raises UsageError for an objective that needs one reference for all settings, if their references differ."""
        super().__init__(session)
        task, folder = session.task, session.folder
        self.folder = folder
        self.groups = task.references()
        self.together = len(self.groups) == 1
        if of_results(observed(self.objective)) and not self.together:
            what = f"objective {self.objective.text}: the settings of {task.program.name} have different references"
            raise UsageError(what, "use another --objective")
        self.built: dict[Choice, BuiltProgram] = {}
        self.prefetch = Prefetch(folder / "inputs", partial(_job, task, self.together), **processes(cores_used=True))
        self.timing = Timing(
            seconds=self.options.cell, clear=CLEAR, objective=self.objective, rounds=ROUNDS,
            watchdog=self.options.watchdog,
        )  # fmt: skip

    @property
    def answers(self) -> Mapping[str, Sequence[Choice]]:
        return self.task.choices

    def fits(self, case: Case) -> Mapping[str, Sequence[Choice]]:
        return self.answers

    def choosable(self) -> Mapping[str, Sequence[Choice]]:
        return self.right.choices

    @property
    def right(self) -> TuningTask:
        """The task without the settings whose results are wrong; unchanged if all are wrong."""
        kept = tuple(s for s in self.task.plans if (PROGRAM, s) not in self.wrong)
        return replace(self.task, sites=(Site(PROGRAM, kept),)) if kept else self.task

    def values(self, case: Case) -> Mapping[str, Any]:
        return self.measured.inputs[case].values

    @property
    def data(self) -> dict[Case, tuple[float, ...]]:
        """The features of each case."""
        names = self.task.features[PROGRAM]
        return {p: tuple(one.features[PROGRAM][n] for n in names) for p, one in self.measured.inputs.items()}

    @property
    def samples(self) -> Samples:
        """The training samples, in values of the objective: all except test inputs and settings with wrong results."""
        samples, inputs = self.measured.samples, self.measured.inputs
        right = {c: sample for c, sample in samples.items() if (c.site, c.choice) not in self.wrong}
        return {c: self.priced(c, sample) for c, sample in right.items() if not inputs[c.case].test}

    def begin(self) -> None:
        """Compile the plans while the set-ups of the first cases run. Raises BuildFailed if none compiles."""
        todo = [p for p in to_visit(self.task) if not self.complete(p)]
        self.expect(todo)
        samples = self.measured.samples
        needed = [s for s in self.task.plans if any((PROGRAM, p, s) not in samples for p in todo)]
        self.built, refused = build_plans(self.task, needed, self.folder, self.progress)
        if needed and not self.built:
            raise refused[needed[0]]
        for settings, error in refused.items():
            self.wrong.add((PROGRAM, settings))
            self.keep(self._checked(settings), Sample(failure=f"does not compile: {error.first}", purpose=CHECK))
        self.limit_time()

    def expect(self, cases: Sequence[Case]) -> None:
        self.prefetch.expect([(p, None) for p in cases])

    def _unchecked(self) -> dict[str, list[Choice]]:
        """If references differ, each setting is compared with its own; else it is compared at every case."""
        unchecked = super()._unchecked()
        return {} if self.together else {op: [s for s in of if s in self.built] for op, of in unchecked.items()}

    def _check_at(self, case: Case, todo: Mapping[str, Sequence[Choice]]) -> None:
        for first, members in self.groups.items():
            for settings in (s for s in members if s in todo[PROGRAM]):
                self.say(f"checking {in_words(Cell(PROGRAM, case, settings))}")
                place = self.prefetch.get((case, first))
                failure = self._programs(place, [settings]).verify(settings)
                self.wrong |= {(PROGRAM, settings)} if failure else set()
                self.check_at = case
                self.keep(self._checked(settings), Sample(failure=failure, purpose=CHECK))
            self.prefetch.drop((case, first))

    def _checked(self, settings: Choice) -> Cell:
        return Cell(PROGRAM, self.check_at, settings)

    def _drop(self, case: Case) -> None:
        for arrays in [(case, None), *((case, first) for first in self.groups)]:
            self.prefetch.drop(arrays)

    def _read(self, case: Case, test: bool = False, wait: float | None = None) -> None:
        """Raises DagcError if a feature is not finite, or if the program differs at the case."""
        from dagc.store.tuned import InputFacts  # loads msgspec, sqlite3

        self.task.require_same_at(case)
        place = self.prefetch.get((case, None), wait)
        scalars = read_scalars(self.task.program, place)
        known = offered(self.task.program, None)
        features = {name: known[name].value(scalars) for name in self.task.features[PROGRAM]}
        undefined = [name for name, value in features.items() if not math.isfinite(value)]
        if undefined:
            raise DagcError(f"`{undefined[0]}` is not a finite number there")
        values: dict[str, Any] = {n: v for n, v in scalars.items() if isinstance(v, int | float) and math.isfinite(v)}
        before = self.measured.inputs.get(case)
        test = before.test if before is not None else test
        self.note_input(InputFacts(dict(case.params), test, values, {PROGRAM: features}, {}, elements_of(place)))

    def _late(self) -> bool:
        """Whether the time limit is reached. What is timed again takes nothing of the budget."""
        return self.end.over

    def _label(self, case: Case, then: Any) -> str:
        """Measure every plan. A failure is a result of the plan."""
        known, wrong = self.measured.samples, self.wrong
        wanted = [s for s in self.task.plans if (PROGRAM, case, s) not in known and (PROGRAM, s) not in wrong]
        random.Random(f"{self.task.seed} {case.text}").shuffle(wanted)
        wanted = wanted[: max(0, self.left)]
        here = [s for s in wanted if s in self.built]
        place = self.prefetch.get((case, None), self.end.timeout)
        machine, domain = self._programs(place, here), LaunchSettings(here)
        timings = SiteTimings(PROGRAM, case, machine, self.hangs, self.keep, self.say)
        options = SearchOptions(time=self.end.timeout, confirm=0, seed=self.task.seed)
        timings.search(domain, find("exhaustive")(domain, 0), options)
        for cell, sample in timings.again(self.timing, self.task.seed, self._late):
            self.keep(cell, sample)
        return ""

    def _programs(self, place: Path, settings: Iterable[Choice]) -> Programs:
        here = {s: (RunnerLibrary(self.built[s].library, place), self.built[s].rows) for s in settings}
        until = self.task.program.until is not None
        return Programs(self.service, here, self.timing, until=until, checked=self.together)


def _job(task: TuningTask, together: bool, arrays: Arrays) -> Job:
    case, settings = arrays
    program = task.program_at(case, settings)
    return Job(program, task.text.path.parent, 1, task.seed, together or settings is not None)


# ---- what is tuned ---------------------------------------------------------------------------------


# ---- what is learned ----


Data = Mapping["Case", tuple[float, ...]]


def learn(task: TuningTask, method: str, samples: Samples, data: Data) -> Learned:
    """Select few plans, by rule, that are within the noise of the best at each size, and the one that is best on
    average; train the selector on their gains."""
    table, settings, notes = plan_table(task, samples, data)
    count, fewest = len(table.merged.rows), 1 if method == EXHAUSTIVE else FEWEST
    if count < fewest:
        why = f"no chooser yet: measured in full: {counted(count, 'size')} of {fewest}; use --resume"
        return Learned(notes=(*notes, why))
    try:
        selector, few = train_few(method, table, task.seed)
    except UsageError as error:
        return Learned(notes=(*notes, f"no chooser: {error.message}"))
    choices = tuple(settings[i] for i in few)
    if method == EXHAUSTIVE:
        return Learned(selector, tuple(notes), choices=choices)
    default = {"default": [settings.index(task.plans[0])] * count} if task.plans[0] in settings else {}
    note, regrets = left_out(selector, table, task.seed, default)
    return Learned(selector, (*notes, note), regrets(table), choices)


def plan_table(task: TuningTask, samples: Samples, data: Data) -> tuple[TrainingTable, tuple[Choice, ...], list[str]]:
    """The table of the plans with correct results at every size, these plans, and notes on what was skipped: cases at
    which not every legal plan was tried, or all failed. A plan that failed at any other size is excluded, so that it is
    never chosen; one that failed at an input has no time there. `data`: the features of the selector, by case."""
    at: dict[Case, dict[Choice, Sample]] = {}
    for cell, sample in samples.items():
        at.setdefault(cell.case, {})[cell.choice] = sample
    legal, notes = task.plans, []
    complete: dict[Case, dict[Choice, Sample]] = {}
    for case in sorted(at, key=lambda p: (data[p], p)):
        tried, name = sum(s in at[case] for s in legal), case.text or "as given"
        if tried < len(legal):
            notes.append(f"{name}: {tried} of {len(legal)} settings tried, skipped until --resume completes it")
        elif all(c.failure for c in at[case].values()):
            notes.append(f"{name}: no setting runs, skipped")
        else:
            complete[case] = at[case]
    every = dict.fromkeys((*legal, *(s for here in complete.values() for s in here)))
    failed = {s for p, here in complete.items() for s, c in here.items() if c.failure and not p.is_input}
    settings = tuple(s for s in every if s not in failed)
    if complete and not all(any(s in settings for s in here) for here in complete.values()):
        notes.append("no setting has correct results at every size: nothing is learned")
        complete = {}
    names = task.features[PROGRAM]
    features = {case: dict(zip(names, data[case], strict=True)) for case in complete}
    return tabulated(names, settings, complete, samples.items(), features), settings, notes


def _why(method: str, selector: Selector | None) -> str:
    """How a plan is chosen at a size."""
    if selector is None:
        return "the default"
    return "nearest measured size" if method == EXHAUSTIVE else selector.text


def chooser_record(task: TuningTask, method: str, learned: Learned) -> dict[str, Any]:
    """The record of a selector in a tuned file."""
    assert learned.selector is not None
    return {
        "method": method, "why": _why(method, learned.selector), "names": list(task.plans[0]),
        "data": list(task.features[PROGRAM]), "settings": [s.own for s in learned.choices],
        "selector": learned.selector.to_json(),
    }  # fmt: skip


def _results(
    plans: PlanCases, method: str, learned: Learned, notes: Sequence[str], output: str | Path | None, seconds: float
) -> Tuning:
    """A line for each size of this run that has anything measured."""
    task, samples = plans.task, plans.samples
    data = plans.data
    return Tuning(
        tuple(_line(task, method, learned, p, samples, data[p]) for p in task.cases if p in data),
        f"{grade_of_plans(task)}; {len(task.plans)} programs",
        method,
        len(samples),
        tuple(plans.failures),
        (*notes, *learned.notes, *task.text.changed()),
        Path(output) if output is not None else None,
        seconds,
        plans.busy,
        plans.objective,
    )


def grade_of_plans(task: TuningTask) -> str:
    host = task.chosen.target is Target.HOST
    return "host target: programs run on the CPU, and their times do not apply to a GPU" if host else "with a GPU"


def _line(
    task: TuningTask, method: str, learned: Learned, case: Case, samples: Samples, data: tuple[float, ...]
) -> KernelResult:
    selector = learned.selector
    chosen = task.plans[0] if selector is None else learned.choices[selector.choose(data)]
    return result_at(PROGRAM, case, (task.plans[0], chosen), samples, _why(method, selector), learned)


# ---- tuned ----------------------------------------------------------------------------------


def tune_program(
    text: ProgramText, output: str | Path | None, options: TuneOptions, progress: Progress | None = None
) -> Tuning:
    """Tune a program with a `select` at its top. Runs its set-up and references, and each setting at each case.

    The method is that of the options, else the program's own. Raises UsageError, like `program_task`.
    """
    task = _tunable(text, options)
    method = _method(task, options)
    options = replace(options, method=method)
    if not options.resume:
        _enough(method, task, (), options)  # before a file is begun
    with opened_plans(task, output, options, progress) as plans:
        _enough(method, task, plans.measured.inputs, options)
        plans.count_earlier()
        plans.begin()
        began = time.monotonic()
        plans.check()
        notes = [*plans.notes, *label(plans, {PROGRAM: Asked(method, task.features[PROGRAM])}, options), *plans.remarks]
        seconds = time.monotonic() - began
        learned = learn(plans.right, method, plans.samples, plans.data)
        if plans.records is not None and learned.selector is not None:
            plans.records.set_chooser(PROGRAM, chooser_record(task, method, learned))
        return _results(plans, method, learned, notes, output, seconds)


def _tunable(text: ProgramText, options: TuneOptions) -> TuningTask:
    """The task. Raises UsageError for several ranks, and if nothing can run here."""
    if options.ranks > 1:
        raise UsageError(
            "whole programs (a `select` at the top) are tuned on one rank",
            "drop -n, or name a kernel with --kernel",
        )
    task = program_task(text, options)
    require_runs(task, "whole programs")
    return task


@contextmanager
def opened_plans(
    task: TuningTask,
    output: str | Path | None,
    options: TuneOptions,
    progress: Progress | None,
    training: bool = True,
) -> Iterator[PlanCases]:
    """The cases of a task, with the measurements and checks of a resumed file. `training`: else it only evaluates."""
    with begun(task, output, options, progress, training) as session:
        plans = PlanCases(session)
        with plans.prefetch:
            yield plans


def _method(task: TuningTask, options: SiteOptions) -> str:
    method = options.method or next(s.method for s in task.program.selects if s.owner == "")
    if method not in METHODS:
        whose = "" if options.method else f", which the program's `select ... with {method}` requests"
        raise UsageError(
            f"no method {method} for whole programs{whose}",
            f"one of: {', '.join(METHODS)}; or tune a kernel with --kernel",
        )
    return method


def _enough(method: str, task: TuningTask, known: Iterable[Case], options: TuneOptions) -> None:
    sizes = max(len({*task.cases, *known}), (options.samples or 0) if options.active else 0)
    if method != EXHAUSTIVE and sizes < FEWEST:
        raise UsageError(
            f"method {method} learns from {FEWEST} sizes or more, not from {sizes}",
            'name more with --sizes "size=1000,4500,20000", or use --method exhaustive',
        )
