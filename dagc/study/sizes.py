"""Kernels at sizes: all sizes are set up and compiled, a model ranks the settings, and the best are measured."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from dagc.base.children import Workers
from dagc.base.deadline import Deadline
from dagc.base.errors import BuildFailed, MissingTool
from dagc.base.files import scratch_directory
from dagc.base.objective import OCCUPANCY, Objective
from dagc.choice.legal import op_of
from dagc.choice.methods import LEARNED
from dagc.choice.types import RANKED, Case, Cell, Site
from dagc.cuda.ptx import Resources
from dagc.ir.choice import Choice
from dagc.ir.plan import Target, stays_fixed
from dagc.lab.across import AcrossSizes
from dagc.lab.launches import Timing
from dagc.measure.metrics import objective_for, observed, of_results
from dagc.stages.options import LimitOptions, Progress, TuneOptions, searching
from dagc.study.build import (
    assumed,
    build_what_compiles,
    compiled_resources,
    computed_of,
    most_of,
    of_settings,
    without_spills,
)
from dagc.study.choosers import Asked, AtSizes, ChooserInputs, asked_of, first_choosers
from dagc.study.files import Session, begun, resumed
from dagc.study.gpu import NOT_COUNTED, NOTHING_RAN, can_run, fitted_counts, hardware_at_hand, unmeasured
from dagc.study.measure import Measuring, Recording, Searching, Wanted, computed_features
from dagc.study.points import points_of
from dagc.study.prepare import Prepared, only, prepare, unbuilt
from dagc.study.priors import search_of
from dagc.study.results import Measurements, failures_before, unchecked
from dagc.study.task import TuningTask

# Of measurements on the CPU: in all, where the user gives no limit; and of a launch, where a size is skipped.
HOST_SECONDS, HOST_LAUNCH = 60.0, 2.0


class Sizes(Recording):
    """A task of kernels at its sizes: all are set up and compiled first. `known`: the inputs of choosers; `wanted`: the
    cells of methods that measure, and `search` proposes those of ops that a model ranks."""

    def __init__(
        self, session: Session, known: ChooserInputs, wanted: Sequence[Wanted], search: AcrossSizes, ranked: bool
    ) -> None:
        """`ranked`: whether anything that `search` proposes is measured."""
        self.task, self.options = session.task, session.options
        super().__init__(
            session.measured, session.records, session.progress, session.flush, self.task.check_at
        )  # fmt: skip
        self.known, self.wanted, self.search, self.ranked = known, wanted, search, ranked
        self.service, self.objective = session.service, session.objective
        earlier = {cell: sample for cell, sample in self.measured.samples.items() if cell.site in self.task.choices}
        self.failures += [*known.ready.failures, *failures_before(earlier)]
        self.notes += [*known.ready.notes, *session.notes]

    def measure(self) -> None:
        """Measure the cells that are wanted and not known yet, and what the search proposes; check what is timed
        before, and every other legal setting that was not checked in the end."""
        ready, task, measured, options = self.known.ready, self.task, self.measured, self.options
        search = self.search if self.ranked and self.search.ops else None
        todo = [w for w in self.wanted if any((w.op, w.case, s) not in measured.samples for s in w.choices)]
        check = _to_check(todo, measured)
        kept = (self.wanted or search) and self.records is not None
        later = unchecked(task, check, measured.checks) if kept else {}
        before = dict(measured.samples)
        self.total = _number(search, todo, before)
        if not (self.total > 0 or later):
            return
        began = time.monotonic()
        timing = Timing(
            seconds=options.cell, flush=self.flush, objective=self.objective, watchdog=options.watchdog,
            longest=HOST_LAUNCH if task.chosen.target is Target.HOST else math.inf,
        )  # fmt: skip
        run = Measuring(ready, self.service, timing, self, before, options.deadline, at_least=1)
        run.require_short()
        run.time(todo, run.check(check))
        if search is not None and (why := Searching(run, search, dict(measured.checks)).run()):
            self.notes.append(f"the model was given up: {why}; the search went on without it")
        run.verify(later)
        self.notes += run.hangs.notes
        if run.over():
            self.notes.append(f"measuring ended at the time limit of {options.deadline.seconds:g} s (--time)")
        self.seconds = time.monotonic() - began


@contextmanager
def at_sizes(
    task: TuningTask, output: str | Path | None, options: TuneOptions, progress: Progress | None
) -> Iterator[Sizes]:
    """A task, set up and compiled at all its sizes. Without `output` nothing is chosen for other sizes, so only timed
    settings are checked.

    Raises DagcErrors of the set-up, the compiler and the ranks, but not for a setting that fails.
    """
    if options.seconds is None and task.chosen.target is Target.HOST:
        options = replace(options, deadline=Deadline.after(HOST_SECONDS))
    before = resumed(output, options)
    runs = can_run(task)
    least = options.objective or (before.facts.objective if before is not None else "time")
    objective = objective_for(least, task.chosen.target.value, task.program, computed=True)
    task = replace(task, compared=bool(of_results(observed(objective))))
    asked = asked_of(task, options.method, runs, objective)
    by_features = {site.name for site in task.sites if site.variants or asked[site.name].method in LEARNED}
    task = replace(task, features={op: asked[op].data for op in asked if op in by_features})
    top = options.each if runs and objective is not OCCUPANCY else 0

    def say(what: str) -> None:
        if progress is not None:
            progress(0, 0, what)

    with scratch_directory("dagc-tune-") as folder:
        known = _prepared(task, asked, objective, options, folder, top, say)
        say("ranking the settings by the model")
        wanted = _wanted(known, options)
        search, notes = search_of(known, _left(options, wanted), top)
        known = replace(known, ready=known.ready.noting(notes))
        with begun(known.ready.task, output, options, progress, computed=True) as session:
            yield Sizes(session, known, wanted, search, top > 0)


def _prepared(
    task: TuningTask,
    asked: Mapping[str, Asked],
    objective: Objective,
    options: TuneOptions,
    folder: Path,
    top: int,
    say: Callable[[str], None],
) -> ChooserInputs:
    """The arrays of all sizes, with the compiled program, its features, and the inputs of models. `top`: settings of
    each op that are measured, 0 if nothing can run here."""
    ops = tuple(op for op, a in asked.items() if a.method == "rational")
    points = points_of(task, ops, options.points) if ops else None
    hardware, notes = hardware_at_hand(task, options.gpu)
    notes += unmeasured(task, hardware)
    cuda = task.chosen.target is Target.CUDA
    builds = top or any(a.method not in RANKED for a in asked.values())
    say(f"setting up the arrays of all sizes{', compiling' if builds else ''}")
    with Workers(1) as pool:
        compiling = pool.submit(compiled_resources, task, folder) if cuda else None  # in addition to the program
        ready = prepare(task, folder) if builds else unbuilt(task, folder)
        computed = [f.name for f in computed_of(ready.task)]
        if computed and ready.library.name:
            say("computing the features of all sizes")
            ready = computed_features(ready, computed)
        say("reading the resource use of the kernels")
        ready, compiled = _resources(ready, folder, compiling) if compiling is not None else (ready, {})
    task, spilling = without_spills(ready.task, compiled)
    if spilling:
        at = {case: only(one, task.choices) for case, one in ready.at.items()}
        ready = replace(ready, task=task, at=at, failures=(*ready.failures, *spilling))
    resources = most_of(task, compiled)
    counted = NOT_COUNTED
    if points is not None:
        say("counting the instructions of the kernels")
        counted = fitted_counts(ready, points, folder, options.seed) if top else NOTHING_RAN
    ready = ready.noting([*notes, *assumed(task, resources), *_fixed(task), *counted.notes])
    return ChooserInputs(ready, asked, counted, hardware, resources, of_settings(task, compiled), objective)


def _resources(
    ready: Prepared, folder: Path, compiling: Future[dict[str, Resources]]
) -> tuple[Prepared, dict[str, Resources]]:
    """nvcc's report on the kernels, of the settings that compile. Raises BuildFailed if none does."""
    try:
        if not ready.failures:
            return ready, compiling.result()
    except BuildFailed as refused:
        if ready.library.name:
            return ready, {}  # it compiles as a program
        try:
            _, task, failures = build_what_compiles(ready.task, folder)
        except MissingTool:
            raise refused from None
        ready = replace(ready, task=task, failures=failures)
    try:
        return ready, compiled_resources(ready.task, folder)
    except BuildFailed:
        return ready, {}


def _left(options: TuneOptions, wanted: Sequence[Wanted]) -> TuneOptions:
    """The search with the budget that the cells of other methods leave."""
    if options.budget is None:
        return options
    return replace(options, budget=max(0, options.budget - sum(w.number for w in wanted)))


def _fixed(task: TuningTask) -> list[str]:
    ops = {s.name: op_of(task.graph, s) for s in task.sites if not s.variants}  # whose `select` determines what is open
    return [
        f"{name}: {tunable} = {dict(op.tunables)[tunable]} is fixed: it cannot be chosen when the program runs"
        for name, op in ops.items()
        for tunable in stays_fixed(task.program, op)
    ]


def _wanted(known: ChooserInputs, options: LimitOptions) -> list[Wanted]:
    """The cells to measure of ops that no model ranks: the proposals of a strategy, or all."""
    ready, asked, out = known.ready, known.asked, []
    strategies = set(searching())
    choosers = first_choosers(known) if any(a.method in strategies for a in asked.values()) else {}
    left = options.budget if options.budget is not None else 10**9
    for case in ready.task.cases:
        if case in ready.task.earlier:
            continue
        at = ready.at[case]
        for site in ready.task.sites:
            fits = at.fits[site.name]
            if asked[site.name].method in RANKED:
                continue
            if asked[site.name].method in strategies and not site.variants:
                budget = min(len(fits), options.each + 1, max(0, left))  # the default, and its proposals
                left -= budget
                if budget:
                    prior = _prior(choosers, site, case, at.values, fits) if choosers else ()
                    out.append(
                        Wanted(site.name, case, fits, asked[site.name].method, budget, (site.default,)[:budget], prior)
                    )
                continue
            fits = fits[: max(0, left)]
            left -= len(fits)
            if fits:
                out.append(Wanted(site.name, case, tuple(fits)))
    return out


def _prior(
    choosers: Mapping[str, AtSizes], site: Site, case: Case, sizes: Mapping[str, Any], fits: Sequence[Choice]
) -> tuple[float, ...]:
    """The model's time of each setting; empty without a model."""
    chooser = choosers[site.name].at(case)
    if chooser.model is None:
        return ()
    times = dict(zip(chooser.choices, chooser.times(sizes), strict=True))
    return tuple(times[s] for s in fits)


def _number(search: AcrossSizes | None, wanted: Sequence[Wanted], before: Collection[Cell]) -> int:
    """The most cells to measure, in addition to earlier ones."""
    number = sum(w.number - sum((w.op, w.case, s) in before for s in w.choices) for w in wanted)
    if search is None:
        return number
    cells = sum(len(o.rows) for o in search.ops.values())
    every = cells if search.budget is None else min(cells, search.budget)
    return number + max(0, every - sum(map(search.has, before)))


def _to_check(wanted: Sequence[Wanted], measured: Measurements) -> dict[str, list[Choice]]:
    """The settings of each op that are requested and not measured yet."""
    check: dict[str, list[Choice]] = {}
    for w in wanted:
        new = [s for s in w.choices if (w.op, w.case, s) not in measured.samples]
        check[w.op] = list(dict.fromkeys((*check.get(w.op, []), *new)))
    return check
