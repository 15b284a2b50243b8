"""Visits of the cases of a task of whole programs: each plan is compiled once, checked and timed as a program at one
case after the other."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from dagc.base.errors import DagcError, UsageError
from dagc.base.sample import CHECK, Sample
from dagc.choice.feature import offered
from dagc.choice.methods import EXHAUSTIVE
from dagc.choice.selector import FEWEST
from dagc.choice.types import Case, Cell, Samples, Site
from dagc.ir.choice import PROGRAM, Choice
from dagc.lab.engine import SearchOptions
from dagc.lab.launches import Programs
from dagc.lab.settings import LaunchSettings
from dagc.lab.strategy import find
from dagc.measure.metrics import observed, of_results
from dagc.measure.service import RunnerLibrary
from dagc.setup import read_scalars
from dagc.stages.options import TuneOptions
from dagc.study.build import BuiltProgram, build_plans
from dagc.study.choosers import Asked
from dagc.study.files import Session
from dagc.study.inputs import Loaded, Visits, job, to_visit
from dagc.study.measure import SiteTimings, in_words
from dagc.study.task import TuningTask


class PlanCases(Visits):
    """The cases of a task of whole programs: each setting is compiled once, for all of them."""

    def __init__(self, session: Session, asked: Mapping[str, Asked]) -> None:
        """Raises UsageError for an objective that needs one reference for all settings, if their references differ."""
        task = session.task
        self.groups = task.references()
        self.together = len(self.groups) == 1
        super().__init__(session, asked, partial(job, replace(task, compared=self.together), ()))
        if of_results(observed(self.objective)) and not self.together:
            what = f"objective {self.objective.text}: the settings of {task.program.name} have different references"
            raise UsageError(what, "use another --objective")
        self.built: dict[Choice, BuiltProgram] = {}

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
        if self.asked:
            require_enough(self.asked[PROGRAM].method, self.task, self.measured.inputs, self.options)
        todo = [p for p in to_visit(self.task) if not self.complete(p)]
        self.expect(todo)
        samples = self.measured.samples
        needed = [s for s in self.task.plans if any((PROGRAM, p, s) not in samples for p in todo)]
        self.built, refused = build_plans(self.task, needed, self.folder, self.progress)
        if needed and not self.built:
            raise refused[needed[0]]
        for choice, error in refused.items():
            self.wrong.add((PROGRAM, choice))
            self.keep(self._checked(choice), Sample(failure=f"does not compile: {error.first}", purpose=CHECK))
        self.limit_time()

    def _unchecked(self) -> dict[str, list[Choice]]:
        """If references differ, each setting is compared with its own; else it is compared at every case."""
        unchecked = super()._unchecked()
        return {} if self.together else {op: [s for s in of if s in self.built] for op, of in unchecked.items()}

    def _check_at(self, case: Case, todo: Mapping[str, Sequence[Choice]]) -> None:
        for first, members in self.groups.items():
            for choice in (s for s in members if s in todo[PROGRAM]):
                self.say(f"checking {in_words(Cell(PROGRAM, case, choice))}")
                place = self.prefetch.get((case, first))
                failure = self._programs(place, [choice]).verify(choice)
                self.wrong |= {(PROGRAM, choice)} if failure else set()
                self.check_at = case
                self.keep(self._checked(choice), Sample(failure=failure, purpose=CHECK))
            self.prefetch.drop((case, first))

    def _checked(self, choice: Choice) -> Cell:
        return Cell(PROGRAM, self.check_at, choice)

    def _drop(self, case: Case) -> None:
        for plan in (None, *self.groups):
            self.prefetch.drop((case, plan))

    def _load(self, case: Case, place: Path) -> Loaded:
        """Raises DagcError if a feature is not finite."""
        scalars = read_scalars(self.task.program, place)
        known = offered(self.task.program, None)
        features = {name: known[name].value(scalars) for name in self.task.features[PROGRAM]}
        undefined = [name for name, value in features.items() if not math.isfinite(value)]
        if undefined:
            raise DagcError(f"`{undefined[0]}` is not a finite number there")
        values: dict[str, Any] = {n: v for n, v in scalars.items() if isinstance(v, int | float) and math.isfinite(v)}
        return values, {PROGRAM: features}, {}

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

    def _programs(self, place: Path, choices: Iterable[Choice]) -> Programs:
        here = {s: (RunnerLibrary(self.built[s].library, place), self.built[s].rows) for s in choices}
        until = self.task.program.until is not None
        return Programs(self.service, here, self.timing, until=until, checked=self.together)


def require_enough(method: str, task: TuningTask, known: Iterable[Case], options: TuneOptions) -> None:
    """Raises UsageError if a method learns from more sizes than the task and a file (`known`) have."""
    sizes = max(len({*task.cases, *known}), (options.samples or 0) if options.active else 0)
    if method != EXHAUSTIVE and sizes < FEWEST:
        raise UsageError(
            f"method {method} learns from {FEWEST} sizes or more, not from {sizes}",
            'name more with --sizes "size=1000,4500,20000", or use --method exhaustive',
        )
