"""`dagc tune`, wired: rank by the model, measure the best, make the choosers, keep all of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc.api_tune_build import UNKNOWN, assumed, resources_of
from dagc.api_tune_cells import (
    DEFAULT_FLUSH,
    AtPoint,
    Plan,
    Prepared,
    only,
    plan,
    prepare,
    unbuilt,
)
from dagc.api_tune_checks import choosable, unchecked
from dagc.api_tune_choosers import chooser_of
from dagc.api_tune_fixed import FACT, check_resumed, fixed_of
from dagc.api_tune_gpu import (
    NOT_COUNTED,
    Counted,
    fitted_counts,
    gpu_name,
    hardware_at_hand,
    is_here,
    named_arch,
)
from dagc.api_tune_measure import Checked, Wanted, measure
from dagc.api_tune_selectors import Asked, asked_of, learn
from dagc.errors import UsageError

if TYPE_CHECKING:
    from dagc.run.ptxas import Resources
    from dagc.select.selector import Selector
    from dagc.tune.records import TuneRecords
    from dagc.tune.types import Cell, Point, Settings, Unit


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """Options of `dagc tune`.

    `method`: one of METHODS; "": that of the program's own `select`, else `volume`. `top`: how many of the model's best
    are measured at each size (0: none). `gpu`: a descriptor's name or file (None: by the architecture). `budget`: cells
    at most; `seconds`: time for measuring.
    """

    kernels: tuple[str, ...] = ()
    method: str = ""
    sizes: str = ""
    check_at: str = ""
    top: int = 5
    budget: int | None = None
    seconds: float | None = None
    gpu: str | None = None
    target: str | None = None
    arch: str | None = None
    defines: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    flush: bool = True
    cell: float = 0.25
    resume: bool = False
    other_machine: bool = False


METHODS = {
    "rational": "MWP-CWP over counts fitted to hardware counters (ncu), or read from the text; its best are measured",
    "volume": "model of the data volumes; its best few are measured where there is a GPU",
    "exhaustive": "every legal setting is measured at every size; elsewhere the model may overrule",
    "knn": "every legal setting is measured; elsewhere nearest neighbours, trained on the measured sizes",
    "tree": "every legal setting is measured; elsewhere a decision tree, trained on the measured sizes",
    "forest": "every legal setting is measured; elsewhere a random forest, trained on the measured sizes",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One kernel at one size. Times in seconds, NaN where not measured; `best` is the fastest that was measured."""

    op: str
    point: Point
    default: Settings
    chosen: Settings
    best: Settings | None
    default_seconds: float
    chosen_seconds: float
    best_seconds: float
    why: str


@dataclass(frozen=True, slots=True)
class Tuning:
    """What `dagc tune` found. `seconds`: of checking and timing `cells` settings, all told; `busy`: of these, what the
    checks and timings took themselves, without starting processes and loading data."""

    lines: tuple[Line, ...]
    grade: str
    method: str
    cells: int
    failures: tuple[str, ...]
    notes: tuple[str, ...]
    output: Path | None
    seconds: float = 0.0
    busy: float = 0.0


def tune(
    path: str | Path,
    output: str | Path | None,
    options: TuneOptions,
    progress: Callable[[int, int, str], None] | None = None,
) -> Tuning:
    """Tune a program's launch configurations and write choosers (and cells) to `output`.

    Runs the program's Python code (set-up), and its kernels where something is measured. `progress` is told how many
    cells of how many are done, and the last. Raises UsageError for an unknown method, and as `plan`.
    """
    import tempfile

    from dagc.api_tune_plans import tune_program
    from dagc.api_tune_programs import wants_programs
    from dagc.tune.models import MODELS

    if wants_programs(path, options):
        return tune_program(path, output, options, progress)
    if options.method and options.method not in METHODS:
        raise UsageError(f"there is no method {options.method}", f"one of: {', '.join(METHODS)}")
    made = plan(
        path, kernels=options.kernels, sizes=options.sizes, check_at=options.check_at, defines=options.defines,
        target=options.target, arch=options.arch or named_arch(options.gpu), seed=options.seed,
    )  # fmt: skip
    runs = _can_run(made)
    hardware, notes = hardware_at_hand(made, options.gpu)
    top = options.top if runs else 0
    asked = asked_of(made, options.method, runs)
    with tempfile.TemporaryDirectory(prefix="dagc-tune-") as temporary:
        if top or any(a.method not in MODELS for a in asked.values()):
            ready = prepare(made, Path(temporary))
            made = ready.plan
        else:
            ready = unbuilt(made, Path(temporary))
            made = ready.plan
        resources = resources_of(made, Path(temporary)) if made.chosen.target.value == "cuda" else {}
        notes += assumed(made, resources)
        counting = tuple(op for op, a in asked.items() if a.method == "rational")
        counted = fitted_counts(ready, counting, Path(temporary), options.seed) if counting and top else NOT_COUNTED
        ready.notes += [*notes, *_fixed(made), *counted.notes]
        choosers = {u.op: _chooser(ready, u, hardware, resources, (), asked[u.op].method, counted) for u in made.units}
        wanted = _wanted(ready, choosers, asked, options, top)
        return _measured(ready, asked, counted, wanted, hardware, resources, options, output, progress)


def _fixed(made: Plan) -> list[str]:
    from dagc.launching import stays_fixed
    from dagc.tune.legal import op_of

    ops = {u.op: op_of(made.graph, u) for u in made.units}
    return [
        f"{name}: {tunable} = {dict(op.tunables)[tunable]} stays, since it cannot stay open until the program runs"
        for name, op in ops.items()
        for tunable in stays_fixed(made.program, op)
    ]


def _can_run(made: Plan) -> bool:
    from dagc.plan import Target

    return made.chosen.target is Target.HOST or is_here(made)


def _grade(made: Plan, cells: int, counted: Counted, asked: Mapping[str, Asked]) -> str:
    from dagc.plan import Target
    from dagc.tune.models import MODELS

    if made.chosen.target is Target.HOST:
        return "host target: kernels run on the CPU, times say nothing about a GPU"
    if counted.text:
        return f"with ncu: {counted.text}"
    if not cells:
        return "without measurement: by the model alone"
    ranked = any(a.method in MODELS for a in asked.values())
    what = "the model's best" if ranked else "legal settings"
    return f"with a GPU: {what} were measured"


def _chooser(
    ready: Prepared,
    unit: Unit,
    hardware: Any,
    resources: Mapping[str, Resources],
    anchors: Sequence[tuple[Mapping[str, int], Settings]],
    method: str,
    counted: Counted | None = None,
    selector: Selector | None = None,
) -> Any:
    made, taken = ready.plan, resources.get(unit.op, UNKNOWN)
    return chooser_of(
        made.graph, unit, made.settings[unit.op], hardware, registers=taken.registers, shared=taken.shared,
        anchors=anchors, method=method, fits=counted.fits.get(unit.op) if counted is not None else None,
        selector=selector,
    )  # fmt: skip


def _integers(at: AtPoint) -> dict[str, int]:
    return {n: int(v) for n, v in at.scalars.items() if isinstance(v, int)}


def _wanted(
    ready: Prepared, choosers: Mapping[str, Any], asked: Mapping[str, Asked], options: TuneOptions, top: int
) -> list[Wanted]:
    """The cells that are worth a measurement: the default and the model's best, or all."""
    from dagc.tune.choose import worth_measuring
    from dagc.tune.models import MODELS

    out = []
    left = options.budget if options.budget is not None else 10**9
    for point in ready.plan.points:
        at = ready.at[point]
        for unit in ready.plan.units:
            fits = at.fits[unit.op]
            if asked[unit.op].method in MODELS:
                chooser = choosers[unit.op]
                ranked = [chooser.settings[i] for i in chooser.ranked(_integers(at))]
                few = ranked[: worth_measuring(top, len(fits))]
                fits = tuple(dict.fromkeys(s for s in (*few, unit.default) if s in fits)) if top else ()
            fits = fits[: max(0, left)]
            left -= len(fits)
            if fits:
                out.append(Wanted(unit.op, point, tuple(fits)))
    return out


def _measured(
    ready: Prepared,
    asked: Mapping[str, Asked],
    counted: Counted,
    wanted: Sequence[Wanted],
    hardware: Any,
    resources: Mapping[str, Resources],
    options: TuneOptions,
    output: str | Path | None,
    progress: Callable[[int, int, str], None] | None,
) -> Tuning:
    from contextlib import nullcontext

    from dagc.plan import Target
    from dagc.run.tuning import Timing
    from dagc.tune.types import settings_text

    made = ready.plan
    flush = DEFAULT_FLUSH if options.flush and made.chosen.target is Target.CUDA else 0
    cells: dict[tuple[str, Point, Settings], Cell] = {}
    checks: dict[tuple[str, Settings], str] = {}
    failures, busy = list(ready.failures), 0.0
    with _records(made, output, options, flush) if output is not None else nullcontext() as records:
        if records is not None and options.resume:
            cells, checks = _resumed(records, made, flush)
        if records is not None:
            records.set_fact(FACT, fixed_of(made.program))
        todo = [Wanted(w.op, w.point, tuple(s for s in w.settings if (w.op, w.point, s) not in cells)) for w in wanted]
        check: dict[str, list[Settings]] = {}
        for w in todo:
            check[w.op] = list(dict.fromkeys((*check.get(w.op, []), *w.settings)))
        later = unchecked(made, check, checks) if wanted else {}
        total, done, began = sum(len(w.settings) for w in todo), 0, time.monotonic()
        if total or later:
            timing = Timing(seconds=options.cell, flush=flush)
            for result in measure(ready, todo, timing, check=check, later=later, seconds=options.seconds):
                busy += result.took
                if result.failure:
                    where = "" if isinstance(result, Checked) else f" at {result.point.text}"
                    failures.append(f"{result.op} {settings_text(result.settings)}{where}: {result.failure}")
                if isinstance(result, Checked):
                    checks[result.op, result.settings] = result.failure
                    if records is not None:
                        records.add_check(result.op, result.settings, made.check_at, result.failure)
                    continue
                done += 1
                cells[result.op, result.point, result.settings] = result
                if records is not None:
                    records.add(result, flush)
                if progress is not None:
                    progress(done, total, f"{result.op} {settings_text(result.settings)}")
        seconds = time.monotonic() - began
        fit, notes = choosable(made, checks, cells)
        good = replace(
            ready, plan=replace(made, settings=fit), at={p: only(at, fit) for p, at in ready.at.items()},
        )  # fmt: skip
        right = {key: cell for key, cell in cells.items() if key[2] in fit.get(key[0], ())}
        learned = {u.op: learn(good, u, asked[u.op], right, options.seed) for u in made.units}
        final = {
            u.op: _final(good, u, hardware, resources, right, asked[u.op], counted, learned[u.op].selector)
            for u in made.units
        }
        if records is not None:
            records.set_fact("arch", made.chosen.arch)
            records.set_fact("gpu", gpu_name(made, hardware, bool(cells)))
            records.set_fact("target", made.chosen.target.value)
            for op, samples in counted.samples.items():
                records.set_fact(f"counts {op}", samples)
            for op, chooser in final.items():
                records.set_chooser(op, _kept(chooser, asked[op], counted, resources.get(op, UNKNOWN), hardware))
    lines = tuple(_line(ready, u, p, final[u.op], cells) for u in made.units for p in made.points)
    notes = [*ready.notes, *notes, *(f"{c.op}: {c.note}" for c in final.values() if c.note)]
    notes += [f"{op}: {note}" for op, a in asked.items() for note in (a.note, *learned[op].notes) if note]
    measured = len(cells)
    out = Path(output) if output is not None else None
    return Tuning(
        lines, _grade(made, measured, counted, asked), _methods(asked), measured, tuple(failures), tuple(notes), out,
        seconds, busy,
    )  # fmt: skip


def _resumed(
    records: TuneRecords, made: Plan, flush: int
) -> tuple[dict[tuple[str, Point, Settings], Cell], dict[tuple[str, Settings], str]]:
    """Cells of earlier runs that were timed as these will be, and what was checked. Raises UsageError where the file is
    of other parameters."""
    before = records.read()
    check_resumed(records.path, before, made.program, made.points)
    timed = zip(before.cells, before.flushes, strict=True)
    return {(c.op, c.point, c.settings): c for c, flushed in timed if flushed == flush}, dict(before.checks)


def _records(made: Plan, output: str | Path, options: TuneOptions, flush: int) -> Any:
    from datetime import UTC, datetime

    from dagc import __version__
    from dagc.api_runs import program_record, revision
    from dagc.results import Run
    from dagc.run.machine import machine_facts
    from dagc.tune.records import TuneRecords

    run = Run(
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=machine_facts(made.chosen.target.value, made.chosen.arch), ranks=1, seed=options.seed,
        strategy=f"tune {options.method or 'as asked'}", seconds=options.cell, revision=revision(made.path.parent),
        version=__version__, options={"flush": flush, "top": options.top, "sizes": [p.text for p in made.points]},
    )  # fmt: skip
    return TuneRecords.open(
        output, program_record(made.program), run, resume=options.resume, other_machine=options.other_machine
    )


def _methods(asked: Mapping[str, Asked]) -> str:
    """`volume`, or `knn (fill), volume (gemm)` where kernels differ."""
    ops: dict[str, list[str]] = {}
    for op, a in asked.items():
        ops.setdefault(a.method, []).append(op)
    return next(iter(ops)) if len(ops) == 1 else ", ".join(f"{m} ({' '.join(o)})" for m, o in ops.items())


def _best(cells: Mapping[Any, Cell], op: str, point: Point) -> Cell | None:
    timed = [c for (o, p, _), c in cells.items() if o == op and p == point and c.times and not c.failure]
    return min(timed, key=lambda c: c.seconds, default=None)


def _final(
    ready: Prepared, unit: Unit, hardware: Any, resources: Mapping[str, Resources], cells: Mapping[Any, Cell],
    asked: Asked, counted: Counted, selector: Selector | None,
) -> Any:  # fmt: skip
    """The chooser with what was measured and learned."""
    anchors = []
    for point in ready.plan.points:
        best = _best(cells, unit.op, point)
        if best is not None:
            anchors.append((_integers(ready.at[point]), best.settings))
    return _chooser(ready, unit, hardware, resources, anchors, asked.method, counted, selector)


def _line(ready: Prepared, unit: Unit, point: Point, chooser: Any, cells: Mapping[Any, Cell]) -> Line:
    import math

    sizes = _integers(ready.at[point])
    index = chooser.choose(sizes)
    chosen, best = chooser.settings[index], _best(cells, unit.op, point)

    def seconds(settings: Settings) -> float:
        cell = cells.get((unit.op, point, settings))
        return cell.seconds if cell is not None else math.nan

    guess = chooser.model is None and chooser.selector is None and not chooser.anchors
    return Line(
        unit.op, point, unit.default, chosen, best.settings if best else None, seconds(unit.default), seconds(chosen),
        best.seconds if best else math.nan, "the default" if guess else chooser.why(sizes, index),
    )  # fmt: skip


def _kept(chooser: Any, asked: Asked, counted: Counted, taken: Resources, hardware: Any) -> dict[str, Any]:
    """A chooser as the file keeps it: what it takes to make it again from the program's text."""
    return {
        "method": asked.method, "hardware": hardware.table(), "registers": taken.registers,
        "shared": taken.shared,
        "fits": {name: found.to_json() for name, found in counted.fits.get(chooser.op, {}).items()},
        "settings": [dict(s) for s in chooser.settings], "data": list(chooser.data),
        "anchors": [{"data": list(a.data), "chosen": a.chosen} for a in chooser.anchors],
        "selector": chooser.selector.to_json() if chooser.selector is not None else None,
    }  # fmt: skip
