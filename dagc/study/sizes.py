"""Tuning of kernels at sizes: rank by the model, measure the best, make the choosers, store everything."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dagc.base.children import Workers
from dagc.base.deadline import Deadline
from dagc.base.errors import BuildFailed, MissingTool
from dagc.base.files import scratch_directory
from dagc.base.objective import Objective
from dagc.choice.legal import op_of
from dagc.choice.methods import LEARNED
from dagc.choice.types import MODELS, Case, Cell, Samples, Site
from dagc.cuda.ptx import Resources
from dagc.ir.choice import Choice
from dagc.ir.plan import Target, stays_fixed
from dagc.lab.across import AcrossSizes
from dagc.lab.launches import Timing
from dagc.measure.metrics import objective_for, observed, of_results
from dagc.measure.service import Service, WorkerLink
from dagc.stages.options import LimitOptions, Progress, TuneOptions, searching
from dagc.study.across import guesses, search_of, sureness
from dagc.study.build import assumed, build_what_compiles, compiled_resources, computed_of, most_of, of_settings
from dagc.study.choosers import (
    Asked,
    AtSizes,
    ChooserInputs,
    asked_of,
    final_choosers,
    first_choosers,
    grade,
    line_of,
    methods,
)
from dagc.study.files import asked_sites, conditions, flush_of, keep, known_before, minimise, open_records
from dagc.study.gpu import NOT_COUNTED, NOTHING_RAN, Counted, can_run, fitted_counts, hardware_at_hand, unmeasured
from dagc.study.measure import Measuring, Recording, Searching, Wanted, computed_features
from dagc.study.prepare import Prepared, prepare, unbuilt
from dagc.study.results import KernelResult, Measurements, Tuning, choosable, doubtful, failures_before, unchecked
from dagc.study.task import TuningTask
from dagc.study.train import Learned

# Of measurements on the CPU: in all, where the user gives no limit; and of a launch, where a size is skipped.
HOST_SECONDS, HOST_LAUNCH = 60.0, 2.0


@dataclass(frozen=True, slots=True)
class TuneRequest:
    """The arguments of tuning at sizes. `asked`: how each op is chosen; `top`: settings of each op that are measured, 0
    if nothing can run here."""

    task: TuningTask
    asked: Mapping[str, Asked]
    options: TuneOptions
    objective: Objective
    output: str | Path | None
    progress: Progress | None
    top: int

    def say(self, what: str) -> None:
        """Report progress before the first measurement."""
        if self.progress is not None:
            self.progress(0, 0, what)


def tune_task(
    task: TuningTask, output: str | Path | None, options: TuneOptions, progress: Progress | None = None
) -> Tuning:
    """`tune` of a task. Without `output` nothing is chosen for other sizes, so only timed settings are checked.

    Raises DagcErrors of the set-up, the compiler and the ranks, but not for a setting that fails.
    """
    if options.seconds is None and task.chosen.target is Target.HOST:
        options = replace(options, seconds=None, deadline=Deadline.after(HOST_SECONDS))
    options = options.begun()
    request = _requested(task, output, options, progress)
    with scratch_directory("dagc-tune-") as folder:
        known = _prepared(request, folder)
        request.say("ranking the settings by the model")
        wanted = _wanted(known, options)
        search, notes = search_of(known, _left(options, wanted), request.top)
        known = replace(known, ready=known.ready.noting(notes))
        with _recording(request, known) as recording:
            seconds = _run(known, wanted, search if request.top and search.ops else None, recording, options)
            return _learned(request, known, search, recording, seconds)


def _requested(
    task: TuningTask, output: str | Path | None, options: TuneOptions, progress: Progress | None
) -> TuneRequest:
    """The request, whose task has the features that its selectors need."""
    runs = can_run(task)
    objective = objective_for(options.objective or "time", task.chosen.target.value, task.program)
    task = replace(task, compared=bool(of_results(observed(objective))))
    asked = asked_of(task, options.method, runs, objective)
    by_features = {u.name for u in task.sites if u.variants or asked[u.name].method in LEARNED}
    task = replace(task, features={op: asked[op].data for op in asked if op in by_features})
    return TuneRequest(task, asked, options, objective, output, progress, options.each if runs else 0)


def _prepared(request: TuneRequest, folder: Path) -> ChooserInputs:
    """The arrays of all sizes, with the compiled program, its features, and the inputs of models."""
    task = request.task
    hardware, notes = hardware_at_hand(task, request.options.gpu)
    notes += unmeasured(task, hardware)
    cuda = task.chosen.target is Target.CUDA
    builds = request.top or any(a.method not in MODELS for a in request.asked.values())
    request.say(f"setting up the arrays of all sizes{', compiling' if builds else ''}")
    with Workers(1) as pool:
        compiling = pool.submit(compiled_resources, task, folder) if cuda else None  # in addition to the program
        ready = prepare(task, folder) if builds else unbuilt(task, folder)
        computed = [f.name for f in computed_of(ready.task)]
        if computed and ready.library.name:
            request.say("computing the features of all sizes")
            ready = computed_features(ready, computed)
        request.say("reading the resource use of the kernels")
        ready, compiled = _resources(ready, folder, compiling) if compiling is not None else (ready, {})
    task = ready.task
    resources = most_of(task, compiled)
    counted = _counted(request, ready, folder)
    ready = ready.noting([*notes, *assumed(task, resources), *_fixed(task), *counted.notes])
    each = of_settings(task, compiled)
    return ChooserInputs(ready, request.asked, counted, hardware, resources, each, request.objective)


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


def _counted(request: TuneRequest, ready: Prepared, folder: Path) -> Counted:
    """The counted instructions of ops whose model needs them."""
    ops = tuple(op for op, a in request.asked.items() if a.method == "rational")
    if not ops:
        return NOT_COUNTED
    request.say("counting the instructions of the kernels")
    return fitted_counts(ready, ops, folder, request.options.seed) if request.top else NOTHING_RAN


def _left(options: TuneOptions, wanted: Sequence[Wanted]) -> TuneOptions:
    """The search with the budget that the cells of other methods leave."""
    if options.budget is None:
        return options
    return replace(options, budget=max(0, options.budget - sum(w.number for w in wanted)))


def _fixed(task: TuningTask) -> list[str]:
    ops = {u.name: op_of(task.graph, u) for u in task.sites if not u.variants}  # whose `select` determines what is open
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
            if asked[site.name].method in MODELS:
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
    times = dict(zip(chooser.settings, chooser.times(sizes), strict=True))
    return tuple(times[s] for s in fits)


@contextmanager
def _recording(request: TuneRequest, known: ChooserInputs) -> Iterator[Recording]:
    """Keeps what is measured, with the measurements of earlier runs if these are resumed."""
    ready, task, options = known.ready, known.ready.task, request.options
    flush, output = flush_of(task, options), request.output
    with open_records(task, output, options, flush) if output is not None else nullcontext() as records:
        measured = known_before(records, task, flush, options.resume)
        earlier = {cell: sample for cell, sample in measured.samples.items() if cell.site in task.choices}
        if records is not None:
            for key, value in conditions(task).items():
                records.set_fact(key, value)
        measured, notes = minimise(records, measured, known.objective, asked_sites(task))
        recording = Recording(measured, records, request.progress, flush, task.check_at)
        recording.failures += [*ready.failures, *failures_before(earlier)]
        recording.notes += [*ready.notes, *notes]
        yield recording


def _learned(
    request: TuneRequest, known: ChooserInputs, search: AcrossSizes, recording: Recording, seconds: float
) -> Tuning:
    """The choosers of all ops, made from the measurements and stored in the file; and the table."""
    ready, task, measured = known.ready, known.ready.task, recording.measured
    samples = {cell: sample.priced(known.objective) for cell, sample in measured.samples.items()}
    fit, notes = choosable(task, measured.checks, samples)
    # A learner trained on GPUs does not apply to the CPU, so nothing is chosen there without measurements.
    known_there = samples or task.chosen.target is Target.CUDA
    guessed = guesses(search, samples) if known_there else {}
    final, learned = final_choosers(known, fit, samples, request.options.seed, guessed)
    if recording.records is not None:
        keep(recording.records, known, {op: sized.chooser for op, sized in final.items()}, bool(samples))
    models = (f"{op}: {c.chooser.note}" for op, c in final.items() if c.chooser.note)
    before = recording.notes
    notes = [*before, *notes, *(m for m in models if not any(note.startswith(m) for note in before))]
    notes += [note for what in learned.values() for note in what.notes]
    notes += [f"the search ended: {search.ended}"] if request.top and search.ended else []
    notes += [*doubtful(task, samples), *task.text.changed()]
    number = len(samples)
    return Tuning(
        known.with_occupancy(_lines(ready, final, learned, samples, sureness(search))),
        grade(task, number, known.counted, known.asked), methods(known.asked), number,
        tuple(recording.failures), tuple(notes), Path(request.output) if request.output is not None else None,
        seconds, recording.busy, known.objective,
    )  # fmt: skip


def _lines(
    ready: Prepared,
    final: Mapping[str, AtSizes],
    learned: Mapping[str, Learned],
    samples: Samples,
    sure: Mapping[tuple[str, Case], float],
) -> tuple[KernelResult, ...]:
    """The results of all ops at all sizes."""
    return tuple(
        line_of(ready, u, p, final[u.name].at(p), samples, learned[u.name], sure.get((u.name, p), math.nan))
        for u in ready.task.sites
        for p in ready.task.cases
    )


def _number(search: AcrossSizes | None, wanted: Sequence[Wanted], before: Collection[Cell]) -> int:
    """The most cells to measure, in addition to earlier ones."""
    number = sum(w.number - sum((w.op, w.case, s) in before for s in w.settings) for w in wanted)
    if search is None:
        return number
    cells = sum(len(o.rows) for o in search.ops.values())
    every = cells if search.budget is None else min(cells, search.budget)
    return number + max(0, every - sum(map(search.has, before)))


def _to_check(wanted: Sequence[Wanted], measured: Measurements) -> dict[str, list[Choice]]:
    """The settings of each op that are requested and not measured yet."""
    check: dict[str, list[Choice]] = {}
    for w in wanted:
        new = [s for s in w.settings if (w.op, w.case, s) not in measured.samples]
        check[w.op] = list(dict.fromkeys((*check.get(w.op, []), *new)))
    return check


def _run(
    known: ChooserInputs,
    wanted: Sequence[Wanted],
    search: AcrossSizes | None,
    recording: Recording,
    options: TuneOptions,
) -> float:
    """Measure the cells that are wanted and not known yet, and what `search` proposes; check what is timed before, and
    every other legal setting that was not checked in the end. Returns how many seconds that took."""
    ready, task, measured = known.ready, known.ready.task, recording.measured
    todo = [w for w in wanted if any((w.op, w.case, s) not in measured.samples for s in w.settings)]
    check = _to_check(todo, measured)
    later = unchecked(task, check, measured.checks) if (wanted or search) and recording.records is not None else {}
    before = dict(measured.samples)
    recording.total = _number(search, todo, before)
    if not (recording.total > 0 or later):
        return 0.0
    began = time.monotonic()
    with Service(WorkerLink(task.ranks), watchdog=options.watchdog) as service:
        host = task.chosen.target is Target.HOST
        timing = Timing(
            seconds=options.cell, flush=recording.flush, objective=known.objective, watchdog=options.watchdog,
            longest=HOST_LAUNCH if host else math.inf,
        )  # fmt: skip
        run = Measuring(ready, service, timing, recording, before, options.deadline, at_least=1)
        run.require_short()
        run.time(todo, run.check(check))
        if search is not None:
            Searching(run, search, dict(measured.checks)).run()
        run.verify(later)
    recording.notes += run.hangs.notes
    if run.over():
        recording.notes.append(f"measuring ended at the time limit of {options.deadline.seconds:g} s (--time)")
    return time.monotonic() - began
