"""The tuned file: opened, resumed, and filled with choosers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc.base.resources import __version__
from dagc.choice.selector import number
from dagc.measure.machine import machine_facts
from dagc.measure.metrics import observed, units
from dagc.recipes.runs import program_record, revision
from dagc.recipes.tune_choosers import ChooserInputs
from dagc.recipes.tune_gpu import gpu_name
from dagc.store.fixed import check_resumed
from dagc.store.results import Run

if TYPE_CHECKING:
    from dagc.base.objective import Objective
    from dagc.choice.types import Cell, Point, Settings
    from dagc.recipes.options import TuneOptions
    from dagc.recipes.tune_prepare import TuningTask
    from dagc.recipes.tune_results import Measurements
    from dagc.store.records import Records


def open_records(task: TuningTask, output: str | Path, options: TuneOptions, flush: int) -> Any:
    from datetime import UTC, datetime

    from dagc.store.records import Records  # loads msgspec, sqlite3

    run = Run(
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=machine_facts(task.chosen.target.value, task.chosen.arch), ranks=task.ranks, seed=options.seed,
        strategy=f"tune {options.method or 'as asked'}", seconds=options.cell, revision=revision(task.text.path.parent),
        version=__version__, options={"flush": flush, "top": options.each, "sizes": [p.text for p in task.points]},
    )  # fmt: skip
    return Records.open(
        output, program_record(task.program), run, resume=options.resume, other_machine=options.other_machine,
        tuning=True,
    )  # fmt: skip


def resumed(
    records: Records, task: TuningTask, flush: int
) -> tuple[dict[tuple[str, Point, Settings], Cell], dict[tuple[str, Settings], str]]:
    """Cells of earlier runs that were timed as these will be, and what was checked. Raises UsageError where the file is
    of other parameters."""
    before = records.tuned()
    check_resumed(records.path, before, task.program, task.points)
    timed = zip(before.cells, before.flushes, strict=True)
    return {(c.op, c.point, c.settings): c for c, flushed in timed if flushed == flush}, dict(before.checks)


def minimise(records: Records | None, measured: Measurements, objective: Objective) -> None:
    """Prepare the file for the metrics of an objective; forget earlier cells that lack them."""
    names = observed(objective)
    for key in [key for key, c in measured.cells.items() if c.times and not {*names} <= dict(c.metrics).keys()]:
        del measured.cells[key]
    if records is not None:
        for name in names:
            records.metric(name, units()[name])
        records.set_fact("objective", objective.text)


def keep(records: Records, inputs: ChooserInputs, choosers: Mapping[str, Any], measured: bool, calls: int = 0) -> None:
    """The choosers, and what they hold for. `calls`: over how many a conversion is paid."""
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
    """A chooser as the file keeps it: what it takes to make it again from the program's text."""
    uses, fits = inputs.resources_of(chooser.op), inputs.counted.fits.get(chooser.op, {})
    return {
        "method": inputs.asked[chooser.op].method, "hardware": inputs.hardware.table(), "registers": uses.registers,
        "shared": uses.shared, "instructions": uses.instructions.to_json() if uses.instructions else None,
        "fits": {name: fitted.to_json() for name, fitted in fits.items()},
        "settings": [dict(s) for s in chooser.settings], "data": list(chooser.data),
        "anchors": [{"data": [number(v) for v in a.data], "chosen": a.chosen} for a in chooser.anchors],
        "selector": chooser.selector.to_json() if chooser.selector is not None else None,
    }  # fmt: skip
