"""Kernels at sizes: all sizes are set up and compiled, a model gives the expected times of the settings of each op at
each size, and the best are measured."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc.base.children import Workers
from dagc.base.errors import BuildFailed, DagcError, MissingTool
from dagc.base.files import scratch_directory
from dagc.base.python import np
from dagc.base.sample import OCCUPANCY, Objective
from dagc.base.signals import Deadline
from dagc.choice.choose import worth_measuring
from dagc.choice.legal import op_of
from dagc.choice.methods import LEARNED
from dagc.choice.types import MODELS, RANKED, Case, Cell, Site
from dagc.cuda.ptx import Resources
from dagc.ir.choice import Choice
from dagc.ir.plan import Target, stays_fixed
from dagc.lab.across import AcrossSizes, OpTimes
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
from dagc.study.cases import volume
from dagc.study.choosers import Asked, AtSizes, ChooserInputs, asked_of, first_choosers
from dagc.study.files import Session, begun, resumed
from dagc.study.gpu import NOT_COUNTED, NOTHING_RAN, can_run, fitted_counts, hardware_at_hand, points_of, unmeasured
from dagc.study.measure import Measuring, Recording, Searching, Wanted, computed_features
from dagc.study.prepare import Prepared, only, prepare, unbuilt
from dagc.study.results import Measurements, failures_before, unchecked
from dagc.study.task import TuningTask

if TYPE_CHECKING:
    from dagc.choice.residual import Learner
    from dagc.choice.types import Samples
    from dagc.ir.program import Value


MOST_CODES = 6  # most compiled versions of a kernel under its forms whose instructions are distinguished
MOST_ROWS = 800  # most cells of an op in the search: its covariances grow with the square


def search_of(inputs: ChooserInputs, options: LimitOptions, top: int) -> tuple[AcrossSizes, list[str]]:
    """The search over all ops that a model ranks, without observations, and notes. `top`: settings measured at each
    size in addition to the default, if neither budget nor time nor accuracy is given."""
    sites = [site for site in inputs.ready.task.sites if inputs.asked[site.name].method in MODELS and not site.variants]
    if not sites:
        return AcrossSizes([], 0, options.until), []
    learner, notes = learner_for(inputs)
    searches = []
    for site in sites:
        times, doubts = expected_times(
            inputs, site, learner if inputs.asked[site.name].method == "volume" else _plain(learner)
        )
        searches += [times] if times is not None else []
        notes += [f"{site.name}: {note}" for note in doubts]
    open_ended = options.seconds is not None or options.until is not None
    budget = options.budget if options.budget is not None or open_ended else _budget(searches, top)
    return AcrossSizes(searches, budget, options.until), notes


def _plain(learner: Learner) -> Learner:
    """The learner without trees, which predict the error of the volume model only."""
    return replace(learner, trees=None)


def _budget(searches: list[OpTimes], top: int) -> int:
    """`top` for each op and size, at most half of the legal settings, and the default."""
    return sum(worth_measuring(top, len(o.of[p])) + 1 for o in searches for p in o.cases if o.of[p])


def learner_for(inputs: ChooserInputs) -> tuple[Learner, list[str]]:
    """The pre-trained learner, and a note if it cannot be used, or if it was trained on GPUs of other architectures."""
    from dagc.choice import residual  # loads numpy

    try:
        learner = residual.load_learner(residual.FILE)
    except (OSError, ValueError) as error:
        return residual.UNTRAINED, [f"the model alone ranks, without a pre-trained learner: {error}"]
    arch = inputs.hardware.arch
    if learner.archs and arch not in learner.archs:
        wider = replace(learner, deviation=1.5 * learner.deviation, blind=1.5 * learner.blind)
        return wider, [
            f"the pre-trained learner knows {', '.join(learner.archs)}, not {arch}: its predictions have less weight"
        ]
    return learner, []


@dataclass(slots=True)
class _Rows:
    """The cells of an op as arrays of a surface."""

    cells: list[tuple[Case, Choice]]
    means: list[Any]
    deviations: list[Any]
    responses: list[Any]
    places: list[Any]
    size_of: list[int]


# Error of a prediction, relative to others: of a kernel whose iterations are known, have a loaded bound, or end in
# another way, such as a search. The last leaves the default until measurements say more.
GUESSED = (1.0, 2.0, 12.0)


def expected_times(inputs: ChooserInputs, site: Site, learner: Learner) -> tuple[OpTimes | None, list[str]]:
    """The prior of the model and the learner for an op at each measured size; None if nothing fits."""
    from dagc.choice.models import guessed_iterations  # loads numpy, sympy
    from dagc.choice.residual import (  # loads numpy
        coordinates,
        responses,  # loads numpy, sympy
        size_coordinates,
    )
    from dagc.choice.surface import Rows, TimeSurface  # loads numpy

    ready, notes = inputs.ready, []
    cases = [p for p in ready.task.cases if p not in ready.task.earlier and ready.at[p].fits[site.name]]
    random.Random(f"{ready.task.seed} order").shuffle(cases)
    if ready.task.chosen.target is Target.HOST:
        cases.sort(key=volume)  # large ones may take too long there
    if not cases:
        return None, []
    choices = site.choices
    place, tables = coordinates(site, choices), _Tables(inputs, site)
    doubt = GUESSED[guessed_iterations(ready.task.graph, site)]
    rows, most = _Rows([], [], [], [], [], []), max(2, MOST_ROWS // len(cases))
    for number, case in enumerate(cases):
        table = tables.at(case)
        mean, deviation = learner.predict(table, choices)
        deviation = doubt * deviation
        answers = responses(table)
        index = {s: i for i, s in enumerate(choices)}
        fits = [index[s] for s in ready.at[case].fits[site.name]]
        if len(fits) > most:
            notes.append(f"{case.text or 'as given'}: the {most} most promising of {len(fits)} settings are searched")
            fits = sorted(sorted(fits, key=lambda i: (choices[i] != site.default, mean[i]))[:most])
        rows.cells += [(case, choices[i]) for i in fits]
        rows.means += [mean[i] - mean[fits].mean() for i in fits]
        rows.deviations += [deviation[i] for i in fits]
        rows.responses += [answers[i] for i in fits]
        rows.places += [place[i] for i in fits]
        rows.size_of += [number] * len(fits)
    predicted = Rows(
        np.array(rows.means), np.array(rows.deviations), np.array(rows.responses), np.array(rows.places),
        size_coordinates(cases), np.array(rows.size_of),
    )  # fmt: skip
    surface = TimeSurface(learner.kernel, predicted)
    if tables.note:
        notes.append(tables.note)
    return OpTimes(site.name, site.default, tuple(cases), tuple(rows.cells), surface, tables.known), notes


class _Tables:
    """The terms of an op's settings at each size. `note`: where they are unknown."""

    def __init__(self, inputs: ChooserInputs, site: Site) -> None:
        self.inputs, self.site, self.note = inputs, site, ""
        self.known = False  # whether the model could be evaluated anywhere
        self._terms: dict[int, Any] = {}

    def at(self, case: Case) -> Any:
        """(settings, TERMS), all NaN if the model cannot be evaluated; settings are then known only by their
        coordinates."""
        from dagc.choice.residual import TERMS, launch_terms  # loads numpy, sympy

        inputs, task = self.inputs, self.inputs.ready.task
        choices, values = self.site.choices, inputs.ready.at[case].values
        graph = task.graph_at(case)
        try:
            if id(graph) not in self._terms:
                each = inputs.each.get(self.site.name, [inputs.resources_of(self.site.name)] * len(choices))
                each = alike(choices, each)
                self._terms[id(graph)] = launch_terms(graph, self.site, choices, inputs.hardware, resources=each)
            terms = self._terms[id(graph)]
            if terms.note.startswith("no model"):
                self.note = f"{terms.note}; the search uses only the launch and the compiled code"
            table = terms.at(values)
        except (ArithmeticError, DagcError, KeyError, TypeError, ValueError) as error:
            self.note = f"no model at {case.text or 'this size'}: {error}; the search starts without one"
            table = np.full((len(choices), len(TERMS)), np.nan)
        if inputs.asked[self.site.name].method == "rational":
            table = table.copy()
            table[:, 0] = self._of_method(case)
        self.known |= bool(np.isfinite(table[:, 0]).any())
        return table

    def _of_method(self, case: Case) -> Any:
        """Times by the model of `--method rational`, in any unit."""
        from dagc.study.choosers import first_choosers  # only with --method rational

        chooser = first_choosers(self.inputs)[self.site.name].at(case)
        choices = self.site.choices
        return (
            np.array(chooser.times(self.inputs.ready.at[case].values))
            if chooser.model
            else np.full(len(choices), np.nan)
        )


def alike(choices: Sequence[Choice], each: Sequence[Resources]) -> list[Resources]:
    """What settings take; those with the same forms have the instructions of their first if more than MOST_CODES
    differ, since a model is made for each."""
    forms = [tuple((name, choice[name]) for name in choice.formed) for choice in choices]
    under: dict[tuple[tuple[str, Value], ...], list[Resources]] = {}
    for of, taken in zip(forms, each, strict=True):
        under.setdefault(of, []).append(taken)
    many = {of for of, some in under.items() if len({(r.shared, r.instructions) for r in some}) > MOST_CODES}
    return [
        replace(r, instructions=under[of][0].instructions) if of in many else r
        for of, r in zip(forms, each, strict=True)
    ]


SHARE = 0.02  # gain of another setting that the column `sure` of the table refers to


def guesses(search: AcrossSizes, samples: Samples) -> dict[tuple[str, Case], Choice]:
    """The search's choices at sizes without timings."""
    timed = {(op, case) for (op, case, _), sample in samples.items() if sample.good}
    ops = [o for o in search.ops.values() if o.modelled or any(op == o.op for op, _ in timed)]
    return {(o.op, p): search.choice(o.op, p) for o in ops for p in o.cases if (o.op, p) not in timed}


def sureness(search: AcrossSizes) -> dict[tuple[str, Case], float]:
    """The probability that no other setting is faster than the chosen one by more than SHARE, by op and size; empty if
    the model was given up."""
    if not search.guided:
        return {}
    return {(o.op, p): 1 - search.doubt_at(o.op, p, SHARE) for o in search.ops.values() for p in o.cases}


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
