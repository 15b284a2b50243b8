"""The tuned file of a run: opened, resumed, asked for another objective, and given its choosers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc.base.errors import UsageError, counted
from dagc.base.objective import Objective
from dagc.base.resources import __version__
from dagc.choice.selector import number as as_json
from dagc.choice.types import Case
from dagc.ir.choice import PROGRAM
from dagc.ir.plan import Target
from dagc.measure.machine import machine_facts
from dagc.measure.metrics import observed, units
from dagc.store.results import Run
from dagc.store.settings import FACT, check_fixed, check_resumed, fixed_choices, values_fixed
from dagc.study.choosers import ChooserInputs
from dagc.study.gpu import gpu_name
from dagc.study.prepare import DEFAULT_FLUSH
from dagc.study.results import NOTHING_MEASURED, Measurements
from dagc.study.runs import program_record, revision
from dagc.study.task import TuningTask

if TYPE_CHECKING:
    from dagc.stages.options import CellOptions, TuneOptions
    from dagc.store.records import Records


def known_before(records: Records | None, task: TuningTask, flush: int, resume: bool) -> Measurements:
    """The measurements of a resumed file that were timed in the same way; empty for a new one. Raises UsageError if the
    file was made with other parameters."""
    if records is None or not resume:
        return NOTHING_MEASURED
    before = records.tuned()
    if task.of_programs:
        if before.facts.program is not None:
            check_fixed(records.path, before.facts.program, conditions(task)[PROGRAM])
        inputs = before.facts.of_programs(task.features[PROGRAM])
    else:
        check_resumed(records.path, before, task.program, task.cases)
        inputs = {one.case: one for one in before.facts.inputs}
    timed = zip(before.samples, before.flushes, strict=True)
    samples = {cell: sample for (cell, sample), flushed in timed if flushed == flush}
    checks = dict(before.checks)
    if task.of_programs:
        samples = {cell: sample for cell, sample in samples.items() if cell.site == PROGRAM and cell.case in inputs}
        checks = {key: failure for key, failure in checks.items() if key[0] == PROGRAM}
    return Measurements(samples, checks, inputs)


def conditions(task: TuningTask) -> dict[str, Any]:
    """The facts of a file that must not differ when it is resumed."""
    if not task.of_programs:
        return {FACT: values_fixed(task.program)}
    fixed = fixed_choices(task.program, task.plans[0], [n for p in task.cases for n, _ in p.params])
    return {PROGRAM: fixed, "arch": task.chosen.arch, "target": task.chosen.target.value}


def flush_of(task: TuningTask, options: CellOptions) -> int:
    """Bytes written before each launch of a kernel on a GPU, so that it finds nothing in the caches."""
    return DEFAULT_FLUSH if options.flush and not task.of_programs and task.chosen.target is Target.CUDA else 0


def asked_sites(task: TuningTask) -> set[tuple[str, Case]]:
    """The sites and cases that a run of the task measures."""
    return {(site.name, case) for site in task.sites for case in set(task.cases).difference(task.earlier)}


def open_records(task: TuningTask, output: str | Path, options: TuneOptions, flush: int) -> Records:
    from datetime import UTC, datetime

    from dagc.store.records import Records  # loads msgspec, sqlite3

    run = Run(
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=machine_facts(task.chosen.target.value, task.chosen.arch), ranks=task.ranks, seed=options.seed,
        strategy=f"tune {options.method or 'as asked'}", seconds=options.cell, revision=revision(task.text.path.parent),
        version=__version__, options={"flush": flush, "top": options.each, "sizes": [p.text for p in task.cases]},
    )  # fmt: skip
    return Records.open(
        output, program_record(task.program), run, resume=options.resume, other_machine=options.other_machine,
        tuning=True,
    )  # fmt: skip


def minimise(
    records: Records | None,
    measured: Measurements,
    objective: Objective,
    again: Collection[tuple[str, Case]] | None,
) -> tuple[Measurements, list[str]]:
    """Prepare the file for the metrics of an objective; returns the measurements without earlier cells that lack them,
    and notes.

    `again`: the ops and cases that this run measures to learn from them; None if it only evaluates, which leaves the
    file its objective. Raises UsageError if the file was tuned for another objective and cells of others lack the
    metrics: its choosers would be replaced by those of fewer inputs.
    """
    names = observed(objective)
    notes: list[str] = []
    lacking = {key for key, c in measured.samples.items() if c.times and not {*names} <= c.metrics.keys()}
    left = {key: sample for key, sample in measured.samples.items() if key not in lacking}
    measured = replace(measured, samples=left)
    if records is None:
        return measured, notes
    if again is not None:
        notes = _changed(records, objective, {(op, case) for op, case, _ in lacking}, again)
        records.set_fact("objective", objective.text)
    for name in names:
        records.metric(name, units()[name])
    return measured, notes


def _changed(
    records: Records, objective: Objective, lacking: set[tuple[str, Case]], again: Collection[tuple[str, Case]]
) -> list[str]:
    """A note on the training inputs of a file that lack the metrics of another objective than its own. Raises
    UsageError if some are not measured `again`."""
    before = records.tuned().facts
    lacking = {key for key in lacking if key[1] not in before.tests}
    if not lacking or before.objective == objective.text:
        return []
    lost = {case for op, case in lacking if (op, case) not in again}
    number = counted(len(lost or {case for _, case in lacking}), "input")
    what = f"objective {objective.text}: {number} of {records.path}, measured for {before.objective}, without"
    what = f"{what} {' and '.join(observed(objective))}"
    if lost:
        raise UsageError(
            f"{what}: the choice would be learned anew from the others alone",
            "name these inputs as well, which measures them again; or drop --objective; or write another file with -o",
        )
    return [f"{what}: measured again"]


def keep(records: Records, inputs: ChooserInputs, choosers: Mapping[str, Any], measured: bool, calls: int = 0) -> None:
    """Store the choosers and the conditions under which they are valid. `calls`: number of calls over which a
    conversion is spread."""
    task = inputs.ready.task
    records.set_fact("arch", task.chosen.arch)
    records.set_fact("calls", calls)
    records.set_fact("constraints", task.constraints)
    records.set_fact("gpu", gpu_name(task, inputs.hardware, measured))
    records.set_fact("target", task.chosen.target.value)
    for op, samples in inputs.counted.samples.items():
        records.set_fact(f"counts {op}", samples)
    for op, chooser in choosers.items():
        records.set_chooser(op, kernel_chooser_record(chooser, inputs))


def kernel_chooser_record(chooser: Any, inputs: ChooserInputs) -> dict[str, Any]:
    """The record of a chooser: everything needed to rebuild it from the program's text."""
    uses, fits = inputs.resources_of(chooser.op), inputs.counted.fits.get(chooser.op, {})
    return {
        "method": inputs.asked[chooser.op].method, "hardware": inputs.hardware.table(), "registers": uses.registers,
        "shared": uses.shared, "instructions": uses.instructions.to_json() if uses.instructions else None,
        "fits": {name: fitted.to_json() for name, fitted in fits.items()},
        "settings": [s.own for s in chooser.settings], "data": list(chooser.data),
        "anchors": [{"data": [as_json(v) for v in a.data], "chosen": a.chosen} for a in chooser.anchors],
        "selector": chooser.selector.to_json() if chooser.selector is not None else None,
    }  # fmt: skip
