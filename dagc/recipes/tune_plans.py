"""`dagc tune` for a program-level `select`, wired: compile every setting, check and time each at every size, learn."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc.base.errors import DagcError, UsageError
from dagc.choice.types import PROGRAM
from dagc.recipes.artifacts import build_artifact, compile_traversal
from dagc.recipes.program import load, load_graph
from dagc.recipes.tune_learned import kept, learn, tuning
from dagc.recipes.tune_programs import ProgramPlan, check_fixed, fixed_choices, program_plan

if TYPE_CHECKING:
    from dagc.choice.types import Cell, Point, Settings
    from dagc.measure.cells import ProgramCell
    from dagc.recipes.options import TuneOptions
    from dagc.recipes.tune_found import Tuning

Progress = Callable[[int, int, str], None]


# ---- tuned ----------------------------------------------------------------------------------


def tune_program(
    path: str | Path, output: str | Path | None, options: TuneOptions, progress: Progress | None = None
) -> Tuning:
    """Tune a program with a `select` at its top. Runs its set-up and references, and each setting at each size.

    The method is that of the options, else the program's own. Raises UsageError, as `program_plan`.
    """
    from contextlib import nullcontext

    from dagc.base.files import scratch_directory
    from dagc.recipes.tune_gpu import can_run
    from dagc.recipes.tune_records import open_records

    made = program_plan(path, options)
    method = _method(made, options)
    options = replace(options, method=method)
    like = _as_unit_plan(made)
    if not can_run(like):
        raise UsageError(
            f"whole programs are measured, and nothing can run here: {made.chosen.reason}",
            "use --target host, or run it on a machine with a GPU",
        )
    if not options.resume:
        _enough(method, made, {})  # before a file is begun
    failures: list[str] = []
    with (
        scratch_directory("dagc-tune-") as folder,
        open_records(like, output, options, 0) if output is not None else nullcontext() as records,
    ):
        cells, data = _before(made, records, options)
        _enough(method, made, data)
        for cell in _cells(made, cells, data, folder, options, records, progress, failures):
            cells[cell.point, cell.settings] = cell
            if cell.failure:
                failures.append(f"{_text(cell.settings)} at {cell.point.text or 'as given'}: {cell.failure}")
        learned = learn(made, method, cells, data)
        if records is not None and learned.selector is not None:
            records.set_chooser(PROGRAM, kept(made, learned))
    return tuning(made, learned, cells, data, failures, output)


def _text(settings: Settings) -> str:
    from dagc.choice.types import settings_text

    return settings_text(settings)


def _method(made: ProgramPlan, options: TuneOptions) -> str:
    from dagc.lab.plans import METHODS

    method = options.method or made.select.method
    if method not in METHODS:
        whose = "" if options.method else f", which the program's `select ... with {method}` asks for"
        raise UsageError(
            f"no method {method} for whole programs{whose}",
            f"one of: {', '.join(METHODS)}; or tune a kernel with --kernel",
        )
    return method


def _as_unit_plan(made: ProgramPlan) -> Any:
    """As the tuning of kernels has it: what the record of a run is made from."""
    from dagc.passes import build_graph
    from dagc.recipes.tune_cells import Plan

    graph = build_graph(made.program)
    return Plan(made.path, made.defines, made.chosen, graph, (), made.points, {}, made.points[0], made.seed)


def _before(
    made: ProgramPlan, records: Any, options: TuneOptions
) -> tuple[dict[tuple[Point, Settings], Cell], dict[Point, tuple[int, ...]]]:
    """Cells of a resumed file, and the selector's data at their points. Notes in the file what must not differ."""
    from dagc.choice.types import Point

    now = fixed_choices(made.program, made.select.names, [n for p in made.points for n, _ in p.params])
    cells: dict[tuple[Point, Settings], Cell] = {}
    data: dict[Point, tuple[int, ...]] = {}
    if records is None:
        return cells, data
    if options.resume:
        before = records.read()
        fixed = before.facts.program
        if fixed is not None:
            check_fixed(records.path, fixed, now)
        data = {Point.of(dict(p)): tuple(v) for p, v in before.facts.program_data}
        cells = {(c.point, c.settings): c for c in before.cells if c.op == PROGRAM and c.point in data}
    records.set_fact(PROGRAM, now)
    records.set_fact("arch", made.chosen.arch)
    records.set_fact("target", made.chosen.target.value)
    return cells, data


def _enough(method: str, made: ProgramPlan, data: Mapping[Point, Any]) -> None:
    from dagc.choice.selector import FEWEST

    sizes = len({*made.points, *data})
    if method != "exhaustive" and sizes < FEWEST:
        raise UsageError(
            f"method {method} learns from {FEWEST} sizes or more, not from {sizes}",
            'name more with --sizes "size=1000,4500,20000", or use --method exhaustive',
        )


# ---- measured -------------------------------------------------------------------------------


def _cells(
    made: ProgramPlan,
    known: Mapping[tuple[Point, Settings], Cell],
    data: dict[Point, tuple[int, ...]],
    folder: Path,
    options: TuneOptions,
    records: Any,
    progress: Progress | None,
    failures: list[str],
) -> Iterator[Cell]:
    """Every cell that is not known yet, kept as it comes: sizes in random order, settings in random order at each.
    A size that the set-up does not take is added to `failures`.

    The data of one size lie on disk at a time.
    """
    import shutil

    from dagc.choice.types import Cell
    from dagc.measure.cells import Timing, measure_programs

    order = random.Random(f"{made.seed} order")
    points = list(made.points)
    order.shuffle(points)
    todo: list[tuple[Point, list[Settings]]] = []
    left = options.budget if options.budget is not None else 10**9
    for point in points:
        wanted = [s for s in made.settings if (point, s) not in known]
        order.shuffle(wanted)
        if wanted[:left]:
            todo.append((point, wanted[:left]))
        left -= len(wanted[:left])
    needed = [s for s in made.settings if any(s in wanted for _, wanted in todo)]
    built, refused = build_programs(made, needed, folder, progress)
    end = None if options.seconds is None else time.monotonic() + options.seconds
    total, done = sum(len(wanted) for _, wanted in todo), 0
    timing = Timing(seconds=options.cell)
    for number, (point, wanted) in enumerate(todo):
        place = folder / f"data-{number}"
        try:
            data[point] = _write_data(made, point, place)
        except DagcError as error:
            failures.append(f"{point.text or 'as given'}: left out: {' '.join(str(error).split())}")
            shutil.rmtree(place, ignore_errors=True)
            continue
        if records is not None:
            records.set_fact("program data", [[list(p.params), list(v)] for p, v in data.items()])
        good = [s for s in wanted if s in built]
        results = [Cell(PROGRAM, point, s, (), refused[s]) for s in wanted if s in refused]
        cells = [replace(built[s], number=i) for i, s in enumerate(good)]
        measured = (
            Cell(PROGRAM, point, good[d.number], d.times, d.failure, d.took)
            for d in measure_programs(cells, place, timing)
        )
        for cell in chain(results, measured):
            if records is not None:
                records.add(cell, 0)
            yield cell
            done += 1
            if progress is not None:
                progress(done, total, f"{point.text} {_text(cell.settings)}")
            if end is not None and time.monotonic() > end:
                return
        shutil.rmtree(place, ignore_errors=True)


def _write_data(made: ProgramPlan, point: Point, place: Path) -> tuple[int, ...]:
    """The arrays and references of one size, and the selector's data there."""
    from dagc.setup import read_scalars, run_setup

    program = load(made.path, {**made.defines, **dict(point.params), **dict(made.default)})
    run_setup(program, made.path.parent, 1, made.seed, place)
    scalars = read_scalars(program, place)
    return tuple(int(scalars[name]) for name in made.select.data)


def build_programs(
    made: ProgramPlan, settings: Sequence[Settings], folder: Path, progress: Progress | None = None
) -> tuple[dict[Settings, ProgramCell], dict[Settings, str]]:
    """The runner library of each setting, compiled side by side; and in one line why some have none."""
    from dagc.build.builder import jobs
    from dagc.emit import rows
    from dagc.lab.plans import plan_label
    from dagc.measure.cells import ProgramCell
    from dagc.space import Space

    def make(setting: Settings) -> ProgramCell:
        graph = load_graph(made.path, {**made.defines, **dict(setting)})
        first = Space(graph).first()
        directory = folder / plan_label(setting)
        done = compile_traversal(graph, first, made.chosen, directory, build=False, force=True)
        return ProgramCell(0, build_artifact(directory, done.plan, "runner"), tuple(rows(first)))

    built: dict[Settings, ProgramCell] = {}
    refused: dict[Settings, str] = {}
    with ThreadPoolExecutor(max_workers=jobs()) as pool:
        made_of = {pool.submit(make, s): s for s in settings}
        for job in as_completed(made_of):
            setting = made_of[job]
            try:
                built[setting] = job.result()
            except DagcError as error:
                refused[setting] = f"not compiled: {error.message.splitlines()[0]}"
            if progress is not None:
                progress(len(built) + len(refused), len(settings), f"compiled {plan_label(setting)}")
    return built, refused
