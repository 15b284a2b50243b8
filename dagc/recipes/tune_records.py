"""The tuned file: opened, resumed, and filled with choosers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc.base.errors import UsageError, counted
from dagc.recipes.tune_choosers import Known
from dagc.recipes.tune_gpu import gpu_name

if TYPE_CHECKING:
    from dagc.choice.types import Cell, Point, Settings
    from dagc.ir.program import Program
    from dagc.recipes.options import TuneOptions
    from dagc.recipes.tune_prepare import Plan
    from dagc.store.tuned import Tuned, TuneRecords


# ---- what tuned times depend on besides sizes and settings ----


def fixed_choices(program: Program, names: Collection[str], sizes: Collection[str]) -> dict[str, Any]:
    """What the tuned times hang on besides `sizes` and the settings of `names`: parameters, and the other decisions."""
    from dagc.ir.enums import ElementType

    def kept(value: Any) -> Any:  # as JSON gives it back
        if isinstance(value, ElementType):
            return value.value
        return value if isinstance(value, bool | int | float | str) else str(value)

    params = {p.name: kept(p.value) for p in program.params if p.name not in sizes}
    return {"params": params, "decisions": {d.name: kept(d.chosen) for d in program.decisions if d.name not in names}}


def check_fixed(path: str | Path, kept: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raises UsageError where a tuned file is of other parameters or decisions."""
    for kind in ("params", "decisions"):
        for name in sorted({*kept[kind], *now[kind]}):
            before, here = kept[kind].get(name), now[kind].get(name)
            if before != here:
                raise UsageError(
                    f"{path}: tuned with {name}={before}, this is {name}={here}",
                    f"use -D {name}={before}, or tune again into another file",
                )


FACT = "kernels"
SEARCHED = ("transport", "staging", "streams", "capture")  # known without being declared; no kernel sees them


def fixed_of(program: Program) -> dict[str, Any]:
    """All parameters and decisions, as the file keeps them."""
    return fixed_choices(program, (), ())


def check_resumed(path: str | Path, before: Tuned, program: Program, points: Iterable[Point]) -> None:
    """Raises UsageError where cells of the file were measured with a parameter that is no size of all of them, or a
    decision, other than now."""
    if before.facts.kernels is None:
        return
    every = [*points, *(cell.point for cell in before.cells if cell.op in before_units(before))]
    sizes = set.intersection(*({n for n, _ in p.params} for p in every)) if every else set()
    kept, now = before.facts.kernels, fixed_of(program)
    check_fixed(path, *({**f, "params": {n: v for n, v in f["params"].items() if n not in sizes}} for f in (kept, now)))


def before_units(tuned: Tuned) -> set[str]:
    """The ops of the file's cells, without whole programs."""
    from dagc.choice.types import PROGRAM

    return {cell.op for cell in tuned.cells} - {PROGRAM}


def check_compiled(path: str | Path, tuned: Tuned, program: Program) -> None:
    """Raises UsageError where an element type, a decision at program level, or the implementation of an op that the
    file chooses for, is another than when it was tuned. Decisions that the file itself chooses may differ."""
    from dagc.ir.enums import ElementType

    if tuned.facts.kernels is None:
        return
    types = {p.name for p in program.params if isinstance(p.value, ElementType)}
    whole = tuned.program_chooser
    chosen = {*SEARCHED, *(whole.names if whole is not None else ())}
    variants = {f"{op}.variant" for op in tuned.choosers}

    def seen(fixed: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "params": {n: v for n, v in fixed["params"].items() if n in types},
            "decisions": {
                n: v for n, v in fixed["decisions"].items() if n in variants or ("." not in n and n not in chosen)
            },
        }

    check_fixed(path, seen(tuned.facts.kernels), seen(fixed_of(program)))


# ---- the tuned file ----


def open_records(made: Plan, output: str | Path, options: TuneOptions, flush: int) -> Any:
    from datetime import UTC, datetime

    from dagc.base.version import __version__
    from dagc.measure.machine import machine_facts
    from dagc.recipes.runs import program_record, revision
    from dagc.store.results import Run
    from dagc.store.tuned import TuneRecords

    run = Run(
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=machine_facts(made.chosen.target.value, made.chosen.arch), ranks=made.ranks, seed=options.seed,
        strategy=f"tune {options.method or 'as asked'}", seconds=options.cell, revision=revision(made.path.parent),
        version=__version__, options={"flush": flush, "top": options.top, "sizes": [p.text for p in made.points]},
    )  # fmt: skip
    return TuneRecords.open(
        output, program_record(made.program), run, resume=options.resume, other_machine=options.other_machine
    )


def resumed(
    records: TuneRecords, made: Plan, flush: int
) -> tuple[dict[tuple[str, Point, Settings], Cell], dict[tuple[str, Settings], str]]:
    """Cells of earlier runs that were timed as these will be, and what was checked. Raises UsageError where the file is
    of other parameters."""
    before = records.read()
    check_resumed(records.path, before, made.program, made.points)
    for run in before.runs:
        if run.ranks != made.ranks:
            raise UsageError(
                f"{records.path}: tuned with {counted(run.ranks, 'rank')}, this is with {made.ranks}",
                f"use -n {run.ranks}, or tune into another file with -o",
            )
    timed = zip(before.cells, before.flushes, strict=True)
    return {(c.op, c.point, c.settings): c for c, flushed in timed if flushed == flush}, dict(before.checks)


def keep(records: TuneRecords, known: Known, choosers: Mapping[str, Any], measured: bool) -> None:
    made = known.ready.plan
    records.set_fact("arch", made.chosen.arch)
    records.set_fact("gpu", gpu_name(made, known.hardware, measured))
    records.set_fact("target", made.chosen.target.value)
    for op, samples in known.counted.samples.items():
        records.set_fact(f"counts {op}", samples)
    for op, chooser in choosers.items():
        records.set_chooser(op, _kept(chooser, known))


def _kept(chooser: Any, known: Known) -> dict[str, Any]:
    """A chooser as the file keeps it: what it takes to make it again from the program's text."""
    taken, fits = known.taken(chooser.op), known.counted.fits.get(chooser.op, {})
    return {
        "method": known.asked[chooser.op].method, "hardware": known.hardware.table(), "registers": taken.registers,
        "shared": taken.shared, "instructions": taken.instructions.to_json() if taken.instructions else None,
        "fits": {name: fitted.to_json() for name, fitted in fits.items()},
        "settings": [dict(s) for s in chooser.settings], "data": list(chooser.data),
        "anchors": [{"data": list(a.data), "chosen": a.chosen} for a in chooser.anchors],
        "selector": chooser.selector.to_json() if chooser.selector is not None else None,
    }  # fmt: skip
