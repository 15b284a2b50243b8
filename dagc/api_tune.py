"""`dagc tune`, wired: what is tuned, the program whose launch parameters are open, its data, the measured cells."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc import api
from dagc.errors import UsageError

if TYPE_CHECKING:
    from dagc.graph import Graph
    from dagc.ir import Program
    from dagc.run.target import Choice
    from dagc.run.tuning import Timing
    from dagc.sym import Number
    from dagc.tune.types import Cell, Point, Settings, Unit

RESULTS_AGREE = 1e-3  # largest difference between two settings of one op, over the largest value
DEFAULT_FLUSH = 128 << 20  # bytes: more than twice the L2 cache of any GPU so far


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be tuned of one program.

    `settings` holds the legal ones of each unit, the default first; `check_at` is where results are compared with the
    reference.
    """

    path: Path
    defines: Mapping[str, Any]
    chosen: Choice
    graph: Graph
    units: tuple[Unit, ...]
    points: tuple[Point, ...]
    settings: Mapping[str, tuple[Settings, ...]]
    check_at: Point
    seed: int = 0

    @property
    def program(self) -> Program:
        return self.graph.program


@dataclass(frozen=True, slots=True)
class AtPoint:
    """The program at one size: its data, the values of its scalars, how often it repeats."""

    point: Point
    data: Path
    scalars: Mapping[str, Number]
    repeats: int
    fits: Mapping[str, tuple[Settings, ...]]


@dataclass(slots=True)
class Prepared:
    """Ready to be measured: the runner library and the data of every size."""

    plan: Plan
    library: Path
    at: dict[Point, AtPoint] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


# ---- what is to be tuned --------------------------------------------------------------------


def plan(
    path: str | Path,
    *,
    kernels: Iterable[str] = (),
    sizes: str = "",
    check_at: str = "",
    defines: Mapping[str, Any] | None = None,
    target: str | None = None,
    arch: str | None = None,
    seed: int = 0,
    hardware: Mapping[str, int] | None = None,
) -> Plan:
    """Text -> Plan. `sizes` and `check_at` are texts of `dagc.tune.sizes`; without them the values after `over`.

    Raises ProgramError and UsageError.
    """
    from dagc.run.target import choose_target
    from dagc.tune.legal import legal_settings, units

    chosen = choose_target(target, arch)
    graph = api.load_graph(path, defines)
    found = units(graph, kernels)
    points = _points(graph.program, sizes)
    limits = dict(hardware or {"max_threads_per_block": 1024, "shared_per_block": 49152, "warp_size": 32})
    settings = {u.op: legal_settings(graph, u, limits) for u in found}
    for unit in found:
        if not settings[unit.op]:
            raise UsageError(f"op `{unit.op}`: no value of its tunables is legal", "look at its `require`s")
    check = _points(graph.program, check_at)[0] if check_at else min(points, key=_volume)
    return Plan(Path(path), dict(defines or {}), chosen, graph, found, points, settings, check, seed)


def _volume(point: Point) -> tuple[float, str]:
    product = 1.0
    for _, value in point.params:
        product *= value
    return product, point.text


def _points(program: Program, sizes: str) -> tuple[Point, ...]:
    """Those of the text; without one, the values after `over`, first with first and so on; else the defaults."""
    from dagc.tune.sizes import parse_sizes
    from dagc.tune.types import Point

    if sizes:
        return parse_sizes(sizes, program)
    trained = {p.name: p.over for p in program.params if p.over and all(type(v) is int for v in p.over)}
    if not trained:
        return (Point(()),)
    longest = max(len(v) for v in trained.values())
    return tuple(
        dict.fromkeys(Point.of({n: int(v[min(i, len(v) - 1)]) for n, v in trained.items()}) for i in range(longest))
    )


# ---- made ready -----------------------------------------------------------------------------


def build(made: Plan, folder: Path) -> Path:
    """The runner library with the launch parameters of all units open."""
    from dagc.space import Space

    directory = folder / "program"
    opened = tuple(t for u in made.units for t in u.tunables)
    done = api.compile_traversal(
        made.graph, Space(made.graph).first(), made.chosen, directory, build=False, force=True, open=opened
    )
    return api._build(directory, done.plan, "runner")


def prepare(made: Plan, folder: Path, jobs: int | None = None) -> Prepared:
    """Build the library and write the data of each size, side by side. Runs the program's Python code."""
    every = list(dict.fromkeys((made.check_at, *made.points)))
    with ThreadPoolExecutor(max_workers=jobs or max(1, (os.cpu_count() or 2) // 2)) as pool:
        library = pool.submit(build, made, folder)
        at = list(pool.map(lambda p: at_point(made, p, folder), every))
        out = Prepared(made, library.result(), {a.point: a for a in at})
    for a in at:
        for unit in made.units:
            if not a.fits[unit.op]:
                out.notes.append(f"{unit.op} at {a.point.text}: nothing to launch, left out")
    return out


def at_point(made: Plan, point: Point, folder: Path) -> AtPoint:
    """Write the data of one size (the references only where results are checked), and read its scalars."""
    from dagc.setup import run_setup
    from dagc.tune.legal import fits

    program = api.load(made.path, {**made.defines, **dict(point.params)})
    data = folder / ("data-" + "-".join(f"{n}{v}" for n, v in point.params))
    run_setup(program, made.path.parent, 1, made.seed, data, references=point == made.check_at)
    scalars = read_scalars(program, data)
    return AtPoint(
        point, data, scalars, repeats_of(program, scalars),
        {u.op: tuple(s for s in made.settings[u.op] if fits(made.graph, u, s, scalars)) for u in made.units},
    )  # fmt: skip


def read_scalars(program: Program, data: Path) -> dict[str, Number]:
    """Values of rank 0's scalars, `rank` and `ranks` included."""
    import numpy as np

    from dagc.setup import file_name

    found: dict[str, Number] = {"rank": 0, "ranks": 1}
    for scalar in program.scalars:
        found[scalar.name] = np.load(data / "rank-0000" / f"{file_name(scalar.name)}.npy").item()
    return found


def repeats_of(program: Program, scalars: Mapping[str, Number]) -> int:
    """How often the dag runs: 1 where it has no `repeat`."""
    from dagc.sym import evaluate

    return max(1, int(evaluate(program.repeat, scalars))) if program.repeat is not None else 1


# ---- measured -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wanted:
    """Cells to measure: settings of a unit at a point."""

    op: str
    point: Point
    settings: tuple[Settings, ...]


@dataclass(frozen=True, slots=True)
class Checked:
    """Whether the whole program is right under settings of one unit; `failure` is "" or what is wrong."""

    op: str
    settings: Settings
    failure: str


def measure(
    ready: Prepared,
    wanted: Sequence[Wanted],
    timing: Timing,
    *,
    check: Mapping[str, Sequence[Settings]] | None = None,
    seconds: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Cell | Checked]:
    """Check, then time; each result as it comes. Within an op and a size the order is random, by the plan's seed.

    `check` names settings by op that are compared with the reference first; those that fail are not timed.
    `seconds` ends it between two cells.
    """
    wrong: set[tuple[str, Settings]] = set()
    end = None if seconds is None else clock() + seconds
    if check:
        for result in _check(ready, check, timing):
            if result.failure:
                wrong.add((result.op, result.settings))
            yield result
            if end is not None and clock() > end:
                return
    order = random.Random(f"{ready.plan.seed} order")
    by_point: dict[Point, list[Wanted]] = {}
    for item in wanted:
        by_point.setdefault(item.point, []).append(item)
    points = list(by_point)
    order.shuffle(points)
    for cell in _time(ready, [(p, by_point[p]) for p in points], wrong, timing, order):
        yield cell
        if end is not None and clock() > end:
            return


def _decisions(unit: Unit, settings: Settings) -> tuple[tuple[str, int], ...]:
    return tuple((f"{unit.op}.{name}", value) for name, value in settings)


def _planned(ready: Prepared, point: Point, iterations: int) -> Any:
    from dagc.emit import rows
    from dagc.run.tuning import PlannedPoint
    from dagc.space import Space

    at, graph = ready.at[point], ready.plan.graph
    first = Space(graph).first()
    issued = [a for kind, a, _ in rows(first) if kind == 0 and graph.ops[a].name != "end"]
    return PlannedPoint(at.data, tuple(rows(first)), tuple(issued), at.repeats, iterations)


def _all_defaults(made: Plan) -> list[tuple[str, int]]:
    return [pair for u in made.units for pair in _decisions(u, u.default)]


def _check(ready: Prepared, check: Mapping[str, Sequence[Settings]], timing: Timing) -> Iterator[Checked]:
    from dagc.run.tuning import PlannedCell, PlannedUnit, measure

    made = ready.plan
    keys: list[tuple[str, Settings]] = []
    units: list[PlannedUnit] = []
    for unit in made.units:
        cells = []
        for settings in check.get(unit.op, ()):
            if settings not in ready.at[made.check_at].fits[unit.op]:
                continue
            cells.append(PlannedCell(len(keys), _decisions(unit, settings)))
            keys.append((unit.op, settings))
        if cells:
            units.append(PlannedUnit(unit.index, tuple(cells)))
    if not units:
        return
    point = replace(_planned(ready, made.check_at, 0), repeats=1, check=tuple(units))  # as `verify` wants it
    for done in measure(ready.library, [point], _all_defaults(made), timing, RESULTS_AGREE):
        yield Checked(*keys[done.number], done.failure)


def _time(
    ready: Prepared,
    items: Sequence[tuple[Point, list[Wanted]]],
    wrong: set[tuple[str, Settings]],
    timing: Timing,
    order: random.Random,
) -> Iterator[Cell]:
    from dagc.run.tuning import PlannedCell, PlannedUnit, measure
    from dagc.tune.types import Cell

    made = ready.plan
    units = {u.op: u for u in made.units}
    keys: list[tuple[str, Point, Settings]] = []
    points = []
    for point, wanted in items:
        at = ready.at[point]
        planned: list[PlannedUnit] = []
        for item in wanted:
            fitting = [s for s in item.settings if s in at.fits[item.op] and (item.op, s) not in wrong]
            order.shuffle(fitting)
            cells = []
            for settings in fitting:
                cells.append(PlannedCell(len(keys), _decisions(units[item.op], settings)))
                keys.append((item.op, point, settings))
            if cells:
                planned.append(PlannedUnit(units[item.op].index, tuple(cells)))
        if planned:
            # In the middle of a program that repeats: there its kernels do what they do on average.
            points.append(replace(_planned(ready, point, (at.repeats - 1) // 2), time=tuple(planned)))
    if not points:
        return
    for done in measure(ready.library, points, _all_defaults(made), timing, RESULTS_AGREE):
        op, point, settings = keys[done.number]
        yield Cell(op, point, settings, done.times, done.failure)


# ---- tuned ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """Options of `dagc tune`.

    `top`: how many of the model's best are measured at each size (0: none). `gpu`: a descriptor's name or file (None:
    that of the target's architecture). `budget`: cells at most; `seconds`: time for measuring.
    """

    kernels: tuple[str, ...] = ()
    method: str = "volume"
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
    "volume": "model of the data volumes; its best few are measured where there is a GPU",
    "exhaustive": "every legal setting is measured at every size; elsewhere the model may overrule",
    "knn": "every legal setting is measured; elsewhere the best of the nearest measured size",
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
    """What `dagc tune` found."""

    lines: tuple[Line, ...]
    grade: str
    method: str
    cells: int
    failures: tuple[str, ...]
    notes: tuple[str, ...]
    output: Path | None


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

    from dagc.rational.hardware import load_hardware

    if options.method not in METHODS:
        raise UsageError(f"there is no method {options.method}", f"one of: {', '.join(METHODS)}")
    made = plan(
        path, kernels=options.kernels, sizes=options.sizes, check_at=options.check_at, defines=options.defines,
        target=options.target, arch=options.arch, seed=options.seed,
    )  # fmt: skip
    hardware = load_hardware(options.gpu or made.chosen.arch)
    runs = _can_run(made)
    top = options.top if runs else 0
    if options.method != "volume" and not runs:
        raise UsageError(
            f"method {options.method} measures, and nothing can run here: {made.chosen.reason}",
            "use --method volume, or run it on a machine with a GPU",
        )
    with tempfile.TemporaryDirectory(prefix="dagc-tune-") as temporary:
        if top or options.method != "volume":
            ready = prepare(made, Path(temporary))
        else:
            ready = Prepared(made, Path(), {p: at_point(made, p, Path(temporary)) for p in made.points})
        registers = _registers(ready.library) if made.chosen.target.value == "cuda" and top else {}
        choosers = {u.op: _chooser(ready, u, hardware, registers, (), True) for u in made.units}
        wanted = _wanted(ready, choosers, options, top)
        return _measured(ready, choosers, wanted, hardware, registers, options, output, progress)


def _can_run(made: Plan) -> bool:
    from dagc.devices import gpus
    from dagc.plan import Target

    return made.chosen.target is Target.HOST or bool(gpus())


def _grade(made: Plan, cells: int) -> str:
    from dagc.plan import Target

    if made.chosen.target is Target.HOST:
        return "host target: kernels run on the CPU, times say nothing about a GPU"
    return "with a GPU: the model's best were measured" if cells else "without measurement: by the model alone"


def _registers(library: Path) -> dict[str, int]:
    """Registers of a thread by kernel function, as cuobjdump says; empty where it is not there."""
    import re
    import shutil
    import subprocess

    from dagc.toolchain import find_nvcc

    nvcc = find_nvcc()
    tool = shutil.which("cuobjdump") or (str(Path(nvcc.path).with_name("cuobjdump")) if nvcc else None)
    if tool is None or not Path(tool).exists():
        return {}
    done = subprocess.run([tool, "-res-usage", str(library)], capture_output=True, text=True, check=False, timeout=60)
    found = re.findall(r"Function (\w+):\s*\n\s*REG:(\d+)", done.stdout)
    return {name: int(number) for name, number in found}


def _chooser(
    ready: Prepared,
    unit: Unit,
    hardware: Any,
    registers: Mapping[str, int],
    anchors: Sequence[tuple[Mapping[str, int], Settings]],
    use_model: bool,
) -> Any:
    from dagc.tune.choose import DEFAULT_REGISTERS, unit_chooser

    made = ready.plan
    return unit_chooser(
        made.graph, unit, made.settings[unit.op], hardware, registers=registers.get(unit.kernel, DEFAULT_REGISTERS),
        anchors=anchors, use_model=use_model,
    )  # fmt: skip


def _integers(at: AtPoint) -> dict[str, int]:
    return {n: int(v) for n, v in at.scalars.items() if isinstance(v, int)}


def _wanted(ready: Prepared, choosers: Mapping[str, Any], options: TuneOptions, top: int) -> list[Wanted]:
    """The cells that are worth a measurement: the default and the model's best, or all."""
    out = []
    left = options.budget if options.budget is not None else 10**9
    for point in ready.plan.points:
        at = ready.at[point]
        for unit in ready.plan.units:
            fits = at.fits[unit.op]
            if options.method == "volume":
                chooser = choosers[unit.op]
                ranked = [chooser.settings[i] for i in chooser.ranked(_integers(at))]
                fits = tuple(dict.fromkeys(s for s in (*ranked[:top], unit.default) if s in fits)) if top else ()
            fits = fits[: max(0, left)]
            left -= len(fits)
            if fits:
                out.append(Wanted(unit.op, point, tuple(fits)))
    return out


def _measured(
    ready: Prepared,
    choosers: Mapping[str, Any],
    wanted: Sequence[Wanted],
    hardware: Any,
    registers: Mapping[str, int],
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
    failures: list[str] = []
    with _records(made, output, options, flush) if output is not None else nullcontext() as records:
        if records is not None and options.resume:
            before = records.read()
            for cell, flushed in zip(before.cells, before.flushes, strict=True):
                if flushed == flush:
                    cells[cell.op, cell.point, cell.settings] = cell
        todo = [Wanted(w.op, w.point, tuple(s for s in w.settings if (w.op, w.point, s) not in cells)) for w in wanted]
        check: dict[str, list[Settings]] = {}
        for w in todo:
            check[w.op] = list(dict.fromkeys((*check.get(w.op, []), *w.settings)))
        total, done = sum(len(w.settings) for w in todo), 0
        if total:
            timing = Timing(seconds=options.cell, flush=flush)
            for result in measure(ready, todo, timing, check=check, seconds=options.seconds):
                if result.failure:
                    where = "" if isinstance(result, Checked) else f" at {result.point.text}"
                    failures.append(f"{result.op} {settings_text(result.settings)}{where}: {result.failure}")
                if isinstance(result, Checked):
                    if records is not None:
                        records.add_check(result.op, result.settings, made.check_at, result.failure)
                    continue
                done += 1
                cells[result.op, result.point, result.settings] = result
                if records is not None:
                    records.add(result, flush)
                if progress is not None:
                    progress(done, total, f"{result.op} {settings_text(result.settings)}")
        final = {u.op: _final(ready, u, hardware, registers, cells, options) for u in made.units}
        if records is not None:
            records.set_fact("arch", made.chosen.arch)
            records.set_fact("gpu", hardware.name)
            records.set_fact("target", made.chosen.target.value)
            for unit in made.units:
                records.set_chooser(unit.op, _kept(final[unit.op], options, registers.get(unit.kernel), hardware))
    lines = tuple(_line(ready, u, p, final[u.op], cells) for u in made.units for p in made.points)
    notes = list(ready.notes) + [f"{c.op}: {c.note}" for c in final.values() if c.note]
    measured = len(cells)
    out = Path(output) if output is not None else None
    return Tuning(lines, _grade(made, measured), options.method, measured, tuple(failures), tuple(notes), out)


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
        strategy=f"tune {options.method}", seconds=options.cell, revision=revision(made.path.parent),
        version=__version__, options={"flush": flush, "top": options.top, "sizes": [p.text for p in made.points]},
    )  # fmt: skip
    return TuneRecords.open(
        output, program_record(made.program), run, resume=options.resume, other_machine=options.other_machine
    )


def _best(cells: Mapping[Any, Cell], op: str, point: Point) -> Cell | None:
    timed = [c for (o, p, _), c in cells.items() if o == op and p == point and c.times and not c.failure]
    return min(timed, key=lambda c: c.seconds, default=None)


def _final(
    ready: Prepared, unit: Unit, hardware: Any, registers: Mapping[str, int], cells: Mapping[Any, Cell],
    options: TuneOptions,
) -> Any:  # fmt: skip
    """The chooser with what was measured."""
    anchors = []
    for point in ready.plan.points:
        best = _best(cells, unit.op, point)
        if best is not None:
            anchors.append((_integers(ready.at[point]), best.settings))
    return _chooser(ready, unit, hardware, registers, anchors, options.method != "knn")


def _line(ready: Prepared, unit: Unit, point: Point, chooser: Any, cells: Mapping[Any, Cell]) -> Line:
    import math

    sizes = _integers(ready.at[point])
    index = chooser.choose(sizes)
    chosen, best = chooser.settings[index], _best(cells, unit.op, point)

    def seconds(settings: Settings) -> float:
        cell = cells.get((unit.op, point, settings))
        return cell.seconds if cell is not None else math.nan

    return Line(
        unit.op, point, unit.default, chosen, best.settings if best else None, seconds(unit.default), seconds(chosen),
        best.seconds if best else math.nan, chooser.why(sizes, index),
    )  # fmt: skip


def _kept(chooser: Any, options: TuneOptions, registers: int | None, hardware: Any) -> dict[str, Any]:
    """A chooser as the file keeps it: what it takes to make it again from the program's text."""
    from dagc.tune.choose import DEFAULT_REGISTERS

    return {
        "method": options.method, "gpu": options.gpu or hardware.arch, "registers": registers or DEFAULT_REGISTERS,
        "settings": [dict(s) for s in chooser.settings], "data": list(chooser.data),
        "anchors": [{"data": list(a.data), "chosen": a.chosen} for a in chooser.anchors],
    }  # fmt: skip


# ---- used -----------------------------------------------------------------------------------


def choosers_of(graph: Graph, tuned_path: str | Path, arch: str | None = None) -> tuple[Any, ...]:
    """The choosers of a tuned file, for a program's graph. `arch`: what is compiled for (None: do not compare).

    Raises UsageError where the file was tuned for another text of the program or another GPU.
    """
    from dagc.api_runs import program_record
    from dagc.rational.hardware import load_hardware
    from dagc.tune.choose import unit_chooser
    from dagc.tune.legal import units
    from dagc.tune.records import load_tuned

    tuned = load_tuned(tuned_path)
    now = program_record(graph.program)
    if sorted(text for _, text in tuned.program.sources) != sorted(text for _, text in now.sources):
        raise UsageError(f"{tuned_path}: tuned for another text of {tuned.program.name}", "tune the program again")
    if arch is not None and tuned.facts.get("target") == "cuda" and tuned.facts.get("arch") != arch:
        raise UsageError(
            f"{tuned_path}: tuned for {tuned.facts.get('arch')}, this is compiled for {arch}",
            "tune on this GPU, or compile with --arch " + str(tuned.facts.get("arch")),
        )
    if not tuned.choosers:
        raise UsageError(f"{tuned_path}: no chooser in it: tuning did not end", "tune again with --resume")
    out = []
    for unit in units(graph, tuple(tuned.choosers)):
        kept = tuned.choosers[unit.op]
        settings = [tuple(s.items()) for s in kept["settings"]]
        anchors = [(dict(zip(kept["data"], a["data"], strict=True)), settings[a["chosen"]]) for a in kept["anchors"]]
        out.append(
            unit_chooser(
                graph,
                unit,
                settings,
                load_hardware(kept["gpu"]),
                registers=kept["registers"],
                anchors=anchors,
                use_model=kept["method"] != "knn",
            )
        )
    return tuple(out)


def launch_of(graph: Graph, launch: str, arch: str | None) -> tuple[Any, Any]:
    """(open tunables, chooser) of `--launch`: nothing for `fixed`, else those of a tuned file."""
    from dagc.launching import open_tunables
    from dagc.tune.choose import compiled_chooser

    if launch == "fixed":
        return (), None
    choosers = choosers_of(graph, launch, arch)
    return open_tunables(graph.program, [c.op for c in choosers]), compiled_chooser(choosers)


def show(path: str | Path, kernel: str, format: str = "text", gpu: str = "h200", defines: Any = None) -> str:
    """The rational program of a kernel's launch time, or of the occupancy (`kernel` is "occupancy").

    As `text`, `latex` or `c`; as a flow chart in `dot` or `svg`. Raises UsageError, NotUnderstood.
    """
    from dagc.rational.cprint import HELPERS, to_c
    from dagc.rational.flow import to_flow, to_flow_svg
    from dagc.rational.occupancy import occupancy_program
    from dagc.rational.text import to_latex, to_text
    from dagc.rational.volume import volume_program
    from dagc.tune.legal import op_of, units

    printers: dict[str, Callable[[Any], str]] = {
        "text": to_text, "latex": to_latex, "dot": to_flow, "svg": to_flow_svg,
        "c": lambda program: HELPERS + to_c(program, "dagc_occupancy"),
    }  # fmt: skip
    if format not in printers:
        raise UsageError(f"there is no format {format}", f"one of: {', '.join(printers)}")
    if kernel == "occupancy":
        return printers[format](occupancy_program(plain=True))
    graph = api.load_graph(path, defines)
    unit = units(graph, (kernel,))[0]
    if format == "c":
        from dagc.rational.hardware import load_hardware
        from dagc.tune.choose import compiled_chooser, unit_chooser
        from dagc.tune.legal import legal_settings

        settings = legal_settings(graph, unit, {"max_threads_per_block": 1024})
        return compiled_chooser([unit_chooser(graph, unit, settings, load_hardware(gpu))]).source
    return printers[format](volume_program(graph.program, op_of(graph, unit)))
