"""Tuning, from a task to its choosers: cases are visited and measured, tables of samples are learned from, and choosers
are stored.

A task is studied in one of three ways (`WAYS`): kernels at sizes, kernels over inputs, whole programs. They differ in
how cases are visited, in what is timed there, and in what is learned.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dagc.base.errors import MissingTool, RunFailed, UsageError
from dagc.choice.methods import EXHAUSTIVE, LEARNED
from dagc.choice.types import Case, Cell, Samples
from dagc.ir.choice import PROGRAM, Choice
from dagc.ir.plan import Target, places_together
from dagc.ir.program import HostMemory
from dagc.report import si
from dagc.stages.options import METHODS, Progress, SiteOptions, TuneOptions
from dagc.stages.program import ProgramText
from dagc.study.build import settings_compiled
from dagc.study.cases import has_inputs, single_values
from dagc.study.choosers import (
    Asked,
    ChooserInputs,
    asked_of,
    features_at_sizes,
    final_choosers,
    grade,
    grade_of_plans,
    learn_plans,
    line_of,
    methods,
    plan_chooser_record,
    result_at,
    why_plan,
)
from dagc.study.costs import costs, feature_subsets, risky_defaults
from dagc.study.files import begun, chooser_facts, kernel_chooser_record, load, resumed
from dagc.study.gpu import NOT_COUNTED, achieved, can_run, hardware_at_hand, require_runs
from dagc.study.inputs import Inputs, Visits
from dagc.study.move import borrowed, cases_of_file
from dagc.study.placed import links_given, transfers_here, word
from dagc.study.programs import PlanCases, require_enough
from dagc.study.replay import in_order, quality
from dagc.study.results import KernelResult, Tuning, choosable, doubtful
from dagc.study.sampling import label
from dagc.study.sizes import Sizes, at_sizes, guesses, sureness
from dagc.study.task import METHODS as PLAN_METHODS
from dagc.study.task import TuningTask, another_program, program_select, program_task, tuning_task

ACTIVE_STEPS = 6  # of the quality by samples that an active run prints; each trains twice

if TYPE_CHECKING:
    from dagc.choice.choose import Chooser
    from dagc.report.limits import LimitRow


def task_asked(text: ProgramText, output: str | Path | None, options: TuneOptions) -> TuningTask:
    """What is tuned: whole programs if the text has a `select` at its top and no kernel is named, else kernels; those
    of a file that is resumed count for the choosers, too. Raises UsageError before anything is compiled or measured."""
    if options.links:
        links_given(text.with_defines(single_values(text.defines)).program(), options.links)
    if not options.kernels and program_select(text.with_defines(single_values(text.defines)).program()) is not None:
        if options.ranks > 1:
            raise UsageError(
                "whole programs (a `select` at the top) are tuned on one rank",
                "drop -n, or name a kernel with --kernel",
            )
        return program_task(text, options)
    if options.method and options.method not in METHODS:
        raise UsageError(f"unknown method {options.method}", f"one of: {', '.join(METHODS)}")
    before = resumed(output, options)
    samples = before.samples if before is not None else ()
    earlier = [cell.case for cell, sample in samples if cell.site != PROGRAM and sample.times]
    options = options if before is None else options.continuing(before.forms)
    warm = options.warm_start
    cases = None if warm is None else cases_of_file(load(warm), text.program(), options)
    task = tuning_task(text, options, earlier=earlier, cases=cases)
    return _of_variants(task) if options.variants else task


def _of_variants(task: TuningTask) -> TuningTask:
    """The task with only the ops whose variant is open. Raises UsageError if there is none."""
    kept = tuple(site for site in task.sites if site.variants)
    if not kept:
        raise UsageError(
            f"{task.program.name}: no variant is open",
            "write `select variant with tree(...)` in a kernel of variants",
        )
    return replace(task, sites=kept)


def tune_task(
    task: TuningTask, output: str | Path | None, options: TuneOptions, progress: Progress | None = None
) -> Tuning:
    """Tune what is open in a task, and store the choosers with all samples in `output`.

    A case that its set-up refuses is reported and skipped, and a choice that fails at a case is recorded. Raises
    DagcErrors.
    """
    way = WAYS[way_of(task, options)]
    with way.opened(task, output, options.begun(), progress) as study:  # the file, the ranks, the arrays, the libraries
        way.measured(study)  # engine: strategy <-> machine -> samples
        learned = way.learned(study)  # samples -> tables -> selectors -> choosers
        return stored(study, learned, output)


@dataclass(frozen=True, slots=True)
class Way:
    """How a task is studied. `opened`: ready to be measured; `measured`: its samples; `learned`: from them."""

    opened: Callable[..., AbstractContextManager[Any]]
    measured: Callable[[Any], None]
    learned: Callable[[Any], Chosen]


@dataclass(frozen=True, slots=True)
class Chosen:
    """What was learned: the records of choosers by site, and the facts under which they are valid; the lines of the
    table, and what is printed around it. `cells`: how many samples it was learned from. `whole`: the lower bound of the
    program, if it is known."""

    choosers: Mapping[str, dict[str, Any]]
    lines: Sequence[KernelResult]
    grade: str
    method: str
    cells: int
    notes: Sequence[str]
    facts: Mapping[str, Any] = field(default_factory=dict)
    whole: LimitRow | None = None


def stored(study: Sizes | Visits, learned: Chosen, output: str | Path | None) -> Tuning:
    """Write the choosers to the file."""
    if study.records is not None:
        for key, value in learned.facts.items():
            study.records.set_fact(key, value)
        for site, chooser in learned.choosers.items():
            study.records.set_chooser(site, chooser)
    return Tuning(
        tuple(learned.lines), learned.grade, learned.method, learned.cells, tuple(study.failures),
        (*learned.notes, *study.task.text.changed()), Path(output) if output is not None else None, study.seconds,
        study.busy, study.objective, learned.whole,
    )  # fmt: skip


# ---- which way, and what it needs ------------------------------------------------------------------


def way_of(task: TuningTask, options: TuneOptions) -> str:
    """How a task is studied: input by input for selectors that learn from inputs, or for options that need it."""
    if task.of_programs:
        return "programs"
    if options.variants or options.incremental or options.select_features:
        return "inputs"
    asked = {a.method for a in asked_of(task, options.method, can_run(task)).values()}
    inputs = bool(options.inputs) or has_inputs(task.program, task.text.defines) or options.samples is not None
    return "inputs" if inputs and asked <= {*LEARNED, EXHAUSTIVE} else "sizes"


@contextmanager
def visiting(
    task: TuningTask,
    output: str | Path | None,
    options: TuneOptions,
    progress: Progress | None,
    asked: Mapping[str, Asked] = MappingProxyType({}),
) -> Iterator[Any]:
    """The cases of a task, ready to be visited, with the measurements and checks of a resumed file. `asked`: how each
    site is chosen; without it, the cases are only measured for an evaluation."""
    with begun(task, output, options, progress, bool(asked)) as session:
        visits = PlanCases(session, asked) if task.of_programs else Inputs(session, asked)
        with visits.prefetch:
            visits.begin()
            yield visits


def _over_inputs(
    task: TuningTask, output: str | Path | None, options: TuneOptions, progress: Progress | None
) -> AbstractContextManager[Any]:
    """Raises UsageError if nothing can run here, or if a method does not learn from inputs."""
    require_runs(task, "inputs")
    if task.graphs:
        raise another_program(next(iter(task.graphs)))
    asked = asked_of(task, options.method, True)
    wrong = sorted({a.method for a in asked.values()} - {*LEARNED, EXHAUSTIVE})
    if wrong:
        raise UsageError(f"method {wrong[0]} does not learn from inputs", f"use --method {', '.join(LEARNED)}")
    earlier = set(task.earlier)
    task = replace(
        task, features={op: a.data for op, a in asked.items() if a.method in LEARNED}, earlier=(),
        cases=tuple(dict.fromkeys(p for p in task.cases if p not in earlier)),  # the file has their measurements
    )  # fmt: skip
    return visiting(task, output, options, progress, asked)


def _of_programs(
    task: TuningTask, output: str | Path | None, options: TuneOptions, progress: Progress | None
) -> AbstractContextManager[Any]:
    """Raises UsageError if nothing can run here, or if a method does not choose among programs."""
    require_runs(task, "whole programs")
    method = plan_method(task, options)
    if not options.resume:
        require_enough(method, task, (), options)  # before a file is begun
    return visiting(
        task, output, replace(options, method=method), progress, {PROGRAM: Asked(method, task.features[PROGRAM])}
    )


def plan_method(task: TuningTask, options: SiteOptions) -> str:
    """That of the options, else the program's own."""
    method = options.method or next(s.method for s in task.program.selects if s.owner == "")
    if method not in PLAN_METHODS:
        whose = "" if options.method else f", which the program's `select ... with {method}` requests"
        raise UsageError(
            f"no method {method} for whole programs{whose}",
            f"one of: {', '.join(PLAN_METHODS)}; or tune a kernel with --kernel",
        )
    return method


def _visited(visits: Visits) -> None:
    """Measure all answers at the training cases, or at as few as the options say."""
    began = time.monotonic()
    visits.count_earlier()
    visits.check()
    visits.notes += [*label(visits, visits.asked, visits.options), *visits.remarks]
    visits.seconds = time.monotonic() - began


# ---- what is learned -----------------------------------------------------------------------------


def _of_sizes(study: Sizes) -> Chosen:
    """Choosers of kernels that were measured at sizes; a search tells what it expects where nothing was timed."""
    from dagc.study.limits import with_limits  # loads sympy

    task, search = study.task, study.search
    samples = {cell: sample.priced(study.objective) for cell, sample in study.measured.samples.items()}
    # A learner trained on GPUs does not apply to the CPU, so nothing is chosen there without measurements.
    expected = guesses(search, samples) if samples or task.chosen.target is Target.CUDA else {}
    ended = [f"the search ended: {search.ended}"] if study.ranked and search.ended else []
    notes = [*study.notes, *ended]
    chosen, _ = _of_kernels(study, study.known, samples, samples, task.cases, notes, expected, sureness(search))
    facts = {**chosen.facts, "sizes": features_at_sizes(study.known.ready)}
    lines, whole = with_limits(chosen.lines, study.known, study.options.deadline)
    chosen = replace(chosen, lines=lines, whole=whole, facts=facts)
    return _with_achieved(study, chosen) if samples and task.chosen.target is Target.CUDA and can_run(task) else chosen


def _with_achieved(study: Sizes, chosen: Chosen) -> Chosen:
    """With the occupancy that the hardware counts in a launch of each chosen setting, or a note why not."""
    ready = study.known.ready
    cells = [Cell(line.op, line.case, line.chosen) for line in chosen.lines]
    counted, why = {}, ""
    if ready.task.graphs or ready.task.ranks > 1:
        why = "it is counted for one program on one rank"
    elif study.options.deadline.over:
        why = "the time limit (--time) is over"
    else:
        try:
            fitting = (cell for cell in cells if cell.choice in ready.at[cell.case].fits[cell.site])
            counted = achieved(ready, list(dict.fromkeys(fitting)))
        except (MissingTool, RunFailed) as error:
            why = " ".join(error.message.split())
    both = zip(chosen.lines, cells, strict=True)
    lines = tuple(replace(line, achieved=counted.get(cell, math.nan)) for line, cell in both)
    notes = [f"the achieved occupancy is not known: {why}"] if why else []
    return replace(chosen, lines=lines, notes=[*chosen.notes, *notes])


def _of_inputs(inputs: Inputs) -> Chosen:
    """Choosers of kernels that were measured over inputs: all but the test inputs of the file."""
    options, tests, at, asked = inputs.options, inputs.tests, inputs.ready.at, inputs.asked
    cases = tuple(dict.fromkeys(p for p in (*inputs.task.cases, *inputs.measured.inputs) if p in at and p not in tests))
    task = replace(inputs.task, cases=cases)
    ready = replace(inputs.ready, task=task, at={p: at[p] for p in cases})
    samples = {c: inputs.priced(c, sample) for c, sample in inputs.measured.samples.items() if c.case not in tests}
    hardware, notes = hardware_at_hand(task, options.gpu)
    notes = [*inputs.notes, *notes]
    if options.select_features:
        asked, chosen = feature_subsets(inputs, task, asked, options.seed)
        notes += chosen
    tried = {case for _, case, _ in samples}
    labelled, training = tuple(p for p in cases if p in tried), samples
    if options.warm_start is not None:
        fit, _ = choosable(task, inputs.measured.checks, samples)
        there = load(options.warm_start)
        moved = borrowed(inputs, replace(task, cases=labelled), asked, fit, there, options.seed)
        training = {**moved.samples, **samples}
        every = tuple(dict.fromkeys((*cases, *moved.at)))
        ready = replace(ready, task=replace(task, cases=every), at={**moved.at, **at})
        notes += moved.notes
    facts: dict[str, Any] = {"calls": options.calls}
    if inputs.records is not None and places_together(task.program):
        transfers = transfers_here(
            task.chosen.target.value, task.chosen.arch, task.program.chose(HostMemory.PAGEABLE),
            task.program.devices.gpus, links_given(task.program, options.links),
        )  # fmt: skip
        facts["transfers"] = asdict(transfers)
        ways = {"to the device": transfers.to_device, "to the host": transfers.to_host}
        ways |= {f"from {word(link.source)} to {word(link.target)}": link.time for link in transfers.links}
        notes += [
            f"transfers {way}: {si.seconds(t.latency)} and {t.bandwidth / 1e9:.3g} GB/s" for way, t in ways.items()
        ]
    known = ChooserInputs(ready, asked, NOT_COUNTED, hardware, {}, settings_compiled(ready.task))
    out, choosers = _of_kernels(inputs, known, samples, training, labelled, notes)
    more = [f"{p.text}: a test input of the file: not trained on" for p in inputs.task.cases if p in tests]
    more += [*costs(inputs, task, choosers), *risky_defaults(inputs, task)]
    more += [line for op in choosers for line in _by_samples(inputs, asked[op], op)] if options.active else []
    return replace(out, notes=[*out.notes, *more], facts={**out.facts, **facts})


def _by_samples(inputs: Inputs, asked: Asked, op: str) -> list[str]:
    """Quality against labelled inputs in an active run."""
    cases = [*inputs.task.cases, *inputs.tests]
    table = inputs.table(op, inputs.names({op: asked}, op, cases), cases).usable
    rows = tuple(replace(row, test=row.case in inputs.tests) for row in table.rows)
    curves = in_order(replace(table, rows=rows), asked.method, ACTIVE_STEPS) if asked.method in LEARNED else ()
    return [f"{op}: quality by samples, beside a random order of them", *quality(curves, len(rows))] if curves else []


def _of_kernels(
    study: Sizes | Inputs,
    known: ChooserInputs,
    samples: Samples,
    training: Samples,
    cases: Sequence[Case],
    notes: Sequence[str],
    expected: Mapping[tuple[str, Case], Choice] = MappingProxyType({}),
    sure: Mapping[tuple[str, Case], float] = MappingProxyType({}),
) -> tuple[Chosen, dict[str, Chooser]]:
    """The choosers of the ops of a task, and a line for each at each of `cases`. `samples`: of this task, `training`:
    with those of another machine; `expected`: choices at cases without samples; `sure`: the probability that a choice
    is the best."""
    ready, task, asked = known.ready, known.ready.task, known.asked
    fit, chosen_from = choosable(task, study.measured.checks, samples)
    final, learned = final_choosers(known, fit, training, study.options.seed, expected)
    choosers = {op: sized.chooser for op, sized in final.items()}
    models = (f"{op}: {chooser.note}" for op, chooser in choosers.items() if chooser.note)
    lines = [
        line_of(ready, site, p, final[site.name].at(p), samples, learned[site.name], sure.get((site.name, p), math.nan))
        for site in task.sites
        for p in cases
    ]
    said = [
        *notes, *chosen_from, *(m for m in models if not any(n.startswith(m) for n in notes)),
        *(note for what in learned.values() for note in what.notes), *doubtful(task, samples),
    ]  # fmt: skip
    records = {op: kernel_chooser_record(chooser, known) for op, chooser in choosers.items()}
    number = len(samples)
    return Chosen(
        records, known.with_occupancy(lines), grade(task, number, known.counted, asked), methods(asked), number, said,
        chooser_facts(known, bool(samples)),
    ), choosers  # fmt: skip


def _of_plans(plans: PlanCases) -> Chosen:
    """The chooser among whole programs, and a line for each size of this run that has anything measured."""
    task, samples, data, method = plans.task, plans.samples, plans.data, plans.asked[PROGRAM].method
    learned = learn_plans(plans.right, method, samples, data)
    selector, default = learned.selector, task.plans[0]
    chosen = {p: default if selector is None else learned.choices[selector.choose(data[p])] for p in data}
    why = why_plan(method, selector)
    return Chosen(
        {PROGRAM: plan_chooser_record(task, method, learned)} if selector is not None else {},
        [result_at(PROGRAM, p, (default, chosen[p]), samples, why, learned) for p in task.cases if p in data],
        f"{grade_of_plans(task)}; {len(task.plans)} programs", method, len(samples), [*plans.notes, *learned.notes],
    )  # fmt: skip


WAYS = {
    "sizes": Way(at_sizes, Sizes.measure, _of_sizes),
    "inputs": Way(_over_inputs, _visited, _of_inputs),
    "programs": Way(_of_programs, _visited, _of_plans),
}
