"""Tuning over inputs: label inputs by measurement, all or as few as needed, and train a chooser of each op."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from dagc.base.errors import UsageError, counted
from dagc.choice.feature import offered
from dagc.choice.legal import op_of
from dagc.choice.methods import EXHAUSTIVE, LEARNED
from dagc.choice.types import Samples, Site
from dagc.ir.plan import needed_features, places_together, variants_of
from dagc.ir.program import HostMemory
from dagc.report import si
from dagc.setup.prefetch import AHEAD
from dagc.stages.options import CaseOptions, Progress, SiteOptions, TuneOptions
from dagc.study.build import settings_compiled
from dagc.study.choosers import Asked, ChooserInputs, asked_of, final_choosers, grade, line_of, methods
from dagc.study.files import keep
from dagc.study.gpu import NOT_COUNTED, hardware_at_hand, require_runs
from dagc.study.inputs import MANY, Inputs, opened, order_of
from dagc.study.judge import Worst, pays_after, worst_cases
from dagc.study.move import borrowed
from dagc.study.placed import transfers_here
from dagc.study.prepare import Prepared
from dagc.study.results import Tuning, choosable, doubtful
from dagc.study.sampling import label
from dagc.study.task import TuningTask, another_program
from dagc.study.train import select_features

if TYPE_CHECKING:
    from dagc.choice.choose import Chooser
    from dagc.store.records import Records
    from dagc.store.tuned import Tuned


# ---- training -------------------------------------------------------------------------------


def tune_inputs(
    task: TuningTask, output: str | Path | None, options: TuneOptions, progress: Progress | None = None
) -> Tuning:
    """Label the inputs by measurement, and learn a chooser for each op.

    An input that its set-up refuses is reported and skipped; a setting that fails at an input is recorded, and counts
    as infinitely slow there. Raises UsageError if nothing can run, or if the input of the checks is refused.
    """
    task, asked = _learnable(task, options)
    began = time.monotonic()
    with opened(task, output, options, order_of(task), progress, MANY if options.incremental else AHEAD) as inputs:
        inputs.count_earlier()
        inputs.check()
        notes = [*label(inputs, asked, options), *inputs.remarks]
        return _learned(inputs, asked, options, output, notes, time.monotonic() - began)


def _learnable(task: TuningTask, options: SiteOptions) -> tuple[TuningTask, dict[str, Asked]]:
    """The task with the features that its selectors need, and how each op is chosen. Raises UsageError if nothing can
    run here, or if a method does not learn from inputs."""
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
    return task, asked


# ---- what was learned -----------------------------------------------------------------------


def _learned(
    inputs: Inputs, asked: Mapping[str, Asked], options: TuneOptions, output: str | Path | None, notes: list[str],
    seconds: float,
) -> Tuning:  # fmt: skip
    """The choosers of all ops, trained on the labelled inputs and stored in the file; and the table."""
    ready, samples = _training(inputs)
    task = ready.task
    hardware, more = hardware_at_hand(task, options.gpu)
    if options.select_features:
        asked, chosen = _subsets(inputs, task, asked, options)
        notes = [*notes, *chosen]
    fit, chosen_from = choosable(task, inputs.measured.checks, samples)
    tried = {case for _, case, _ in samples}
    labelled = tuple(p for p in task.cases if p in tried)
    training = samples
    if options.warm_start is not None:
        moved = borrowed(inputs, replace(task, cases=labelled), asked, fit, _other(options), options.seed)
        training = {**moved.samples, **samples}
        every = tuple(dict.fromkeys((*task.cases, *moved.at)))
        ready = replace(ready, task=replace(task, cases=every), at={**moved.at, **ready.at})
        notes = [*notes, *moved.notes]
    known = ChooserInputs(ready, asked, NOT_COUNTED, hardware, {}, settings_compiled(ready.task))
    final, learned = final_choosers(known, fit, training, options.seed)
    choosers = {op: sized.chooser for op, sized in final.items()}
    if inputs.records is not None:
        notes = [*notes, *_keep_transfers(inputs.records, task)]
        keep(inputs.records, known, choosers, bool(samples), options.calls)
    lines = tuple(
        line_of(ready, u, p, final[u.name].at(p), samples, learned[u.name]) for u in task.sites for p in labelled
    )
    notes = [*inputs.notes, *more, *notes, *chosen_from, *(n for what in learned.values() for n in what.notes)]
    notes += _notes(inputs, task, choosers, samples)
    return Tuning(
        known.with_occupancy(lines), grade(task, len(samples), NOT_COUNTED, asked), methods(asked), len(samples),
        tuple(inputs.failures), tuple(notes), Path(output) if output is not None else None, seconds, inputs.busy,
        inputs.objective,
    )  # fmt: skip


def _training(inputs: Inputs) -> tuple[Prepared, Samples]:
    """The inputs to learn from and their samples, as values of the objective: all but test inputs."""
    measured, tests = inputs.measured, inputs.tests
    cases = (p for p in (*inputs.task.cases, *inputs.measured.inputs) if p in inputs.ready.at and p not in tests)
    task = replace(inputs.task, cases=tuple(dict.fromkeys(cases)))
    samples = {c: inputs.priced(c, sample) for c, sample in measured.samples.items() if c.case not in tests}
    ready = replace(inputs.ready, task=task, at={p: inputs.ready.at[p] for p in task.cases})
    return ready, samples


def _notes(inputs: Inputs, task: TuningTask, choosers: Mapping[str, Chooser], samples: Samples) -> list[str]:
    """Notes on choosers, test inputs, costs of features, defaults and doubtful measurements."""
    return [
        *(f"{op}: {chooser.note}" for op, chooser in choosers.items() if chooser.note),
        *(f"{p.text}: a test input of the file: not trained on" for p in inputs.task.cases if p in inputs.tests),
        *costs(inputs, task, choosers),
        *risky_defaults(inputs, task),
        *doubtful(task, samples),
        *task.text.changed(),
    ]


def _other(options: CaseOptions) -> Tuned:
    from dagc.store.tuned import load_tuned  # loads msgspec, sqlite3

    assert options.warm_start is not None
    return load_tuned(options.warm_start)


def _keep_transfers(records: Records, task: TuningTask) -> list[str]:
    """Measure the transfers between host and device if ops are placed together by their times; returns a note."""
    if not places_together(task.program):
        return []
    pageable = task.program.chose(HostMemory.PAGEABLE)
    transfers = transfers_here(task.chosen.target.value, task.chosen.arch, pageable)
    records.set_fact("transfers", asdict(transfers))
    ways = (("to the device", transfers.to_device), ("to the host", transfers.to_host))
    return [f"transfers {way}: {si.seconds(t.latency)} and {t.bandwidth / 1e9:.3g} GB/s" for way, t in ways]


def _subsets(
    inputs: Inputs, task: TuningTask, asked: Mapping[str, Asked], options: TuneOptions
) -> tuple[dict[str, Asked], list[str]]:
    """The features of each op that its selector needs, and a note on dropped ones."""
    out, notes = dict(asked), []
    for site in task.sites:
        names = inputs.names(asked, site.name, task.cases)
        table = inputs.table(site.name, names, task.cases).usable.with_noise(inputs.noise(site.name))
        subset = select_features(asked[site.name].method, table, feature_costs(inputs, task, site), options.seed)
        out[site.name] = replace(asked[site.name], data=subset.names)
        dropped = [n for n in names if n not in subset.names]
        loss = f"{subset.loss:.3f} times the best by cross-validation, {subset.all_loss:.3f} by all {len(names)}"
        kept = f"chosen by {', '.join(subset.names)} ({loss})" if dropped else "no feature was dropped"
        notes.append(f"{site.name}: {kept}")
    return out, notes


def feature_costs(inputs: Inputs, task: TuningTask, site: Site) -> dict[str, float]:
    """Median seconds to compute each feature of an op, by name; expressions of scalars cost nothing."""
    known = offered(task.program, op_of(task.graph, site))
    seconds = [facts.seconds for facts in inputs.measured.inputs.values() if facts.seconds]
    return {
        name: sum(median(at.get(code.name, 0.0) for at in seconds) for code in feature.code) if seconds else 0.0
        for name, feature in known.items()
    }


def costs(inputs: Inputs, task: TuningTask, choosers: Mapping[str, Any]) -> list[str]:
    """The costs of features and conversions, in calls of the default, and the number of calls after which they pay if
    the fastest answer (or the converted variant) replaces the default; medians over the inputs. Only features count
    that a program computes at an input: those of its chooser, and those of the variants whose constraints it tests."""
    out = []
    for site in task.sites:
        shares, calls = [], []
        converted: dict[str, list[tuple[float, float]]] = {}
        kernel = task.program.kernel(op_of(task.graph, site).kernel)
        prepared = {impl.name for impl in kernel.impls if impl.prepare is not None}
        cases = [p for p in task.cases if p in inputs.measured.inputs and p in inputs.ready.at]  # others were refused
        for row in inputs.table(site.name, (), cases, priced=False).rows:
            facts, times = inputs.measured.inputs[row.case], row.times
            if not math.isfinite(times.get(0, math.inf)):
                continue
            wanted = computed_at(choosers[site.name], site, task, inputs.values(row.case), times)
            own = sum(facts.seconds.get(name, 0.0) for name in wanted)
            if own:
                shares.append(own / times[0])
                calls.append(_pays(own, times[0], min(times.values())))
            for variant, seconds in facts.conversions.get(site.name, {}).items():
                if variant not in prepared:
                    continue  # only its scratch was allocated
                fast = [t for i, t in times.items() if site.choices[i].variant == variant]
                pays = _pays(seconds, times[0], min(fast, default=math.inf))
                converted.setdefault(variant, []).append((seconds, pays))
        if shares:
            out.append(
                f"{site.name}: features cost as much as {median(shares):.2g} calls of the default; {_worth(calls)}"
            )
        for variant, of in converted.items():
            took = si.seconds(median(s for s, _ in of))
            out.append(f"{site.name} {variant}: conversion {took}; {_worth([pays for _, pays in of])}")
    return out


def risky_defaults(inputs: Inputs, task: TuningTask) -> list[str]:
    """Of each op whose default fails at more inputs than another answer, or is more than twice as bad at its worst:
    both. The default is taken where a selector is unsure, and outside of the trained range."""

    out = []
    for site in task.sites:
        worst = worst_cases(inputs.table(site.name, (), task.cases).times)
        least = min(worst, key=lambda i: worst[i], default=0)
        default, other = (site.choices[i].in_words for i in (0, least))
        mine, best = (worst.get(i, Worst(0, 1.0)) for i in (0, least))
        advice = f"the default is taken for inputs unlike these: make it {other}"
        if mine.failed > best.failed:
            where = f"at {best.failed}" if best.failed else "at none"
            out.append(
                f"{site.name}: the default, {default}, does not work at {counted(mine.failed, 'input')}, {other}"
                f" {where}; {advice}"
            )
        elif mine.ratio > 2 * best.ratio:
            out.append(
                f"{site.name}: the default, {default}, is up to {mine.ratio:.3g} times the best answer, {other} at most"
                f" {best.ratio:.2f} times; {advice}"
            )
    return out


def computed_at(
    chooser: Any, site: Site, task: TuningTask, values: Mapping[str, Any], times: Mapping[int, float]
) -> frozenset[str]:
    """The code features that a program computes at an input with these values to evaluate its chooser. `times`: by
    number of the task's settings, infinite if a constraint does not hold."""
    op, settings = op_of(task.graph, site), site.choices
    needed = {one.answer: {f.name for f in needed_features(task.program, one)} for one in variants_of(task.program, op)}
    out = {code.name for feature in chooser.features for code in feature.code}
    for answer in chooser.order(values):
        out |= needed.get(chooser.settings[answer].variant or op.answer, set())
        if times.get(settings.index(chooser.settings[answer])) != math.inf:
            break
    return frozenset(out)


def _pays(seconds: float, default: float, other: float) -> float:
    return pays_after(seconds, default, other)


def _worth(calls: Sequence[float]) -> str:
    """`pays after 14 calls at 31 of 54 inputs, at the others never` (the median over the inputs where it pays)."""
    paid = [c for c in calls if c < math.inf]
    if not paid:
        return "never pays"
    where = "" if len(paid) == len(calls) else f" at {len(paid)} of {counted(len(calls), 'input')}, never at the others"
    return f"pays after {counted(int(median(paid)), 'call')}{where}"
