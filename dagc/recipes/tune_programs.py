"""`dagc tune` of a program-level `select`: each setting is compiled, checked and timed as a program."""

from __future__ import annotations

import math
import random
import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc.base.errors import DagcError, ProgramError, Severity, UsageError, counted
from dagc.base.files import scratch_directory
from dagc.build.mpi import cores
from dagc.build.target import choose_target
from dagc.choice.labels import corrected_labels, observed_labels
from dagc.choice.selector import FEWEST
from dagc.choice.selector import number as as_json
from dagc.choice.types import PROGRAM, Cell, Point, settings_text
from dagc.ir.plan import Target
from dagc.lab.configurations import open_decisions
from dagc.lab.engine import Options, explore
from dagc.lab.launches import Programs, Row, Timing
from dagc.lab.plans import METHODS, measured, plan_label, program_select
from dagc.lab.settings import LaunchSettings
from dagc.lab.strategy import find
from dagc.measure.link import WorkerLink
from dagc.measure.service import Library, Service
from dagc.passes import build_graph
from dagc.recipes.artifacts import build_artifact, compile_traversal
from dagc.recipes.program import ProgramText
from dagc.recipes.tune_gpu import can_run
from dagc.recipes.tune_measure import CellStore
from dagc.recipes.tune_prepare import TuningTask, points_of
from dagc.recipes.tune_records import open_records
from dagc.recipes.tune_results import Line, Tuning
from dagc.setup import read_scalars, run_setup
from dagc.space import Space
from dagc.store.fixed import check_fixed, fixed_choices

if TYPE_CHECKING:
    from dagc.build.target import TargetChoice
    from dagc.choice.selector import Selector
    from dagc.choice.types import Settings
    from dagc.ir.program import Program, Value
    from dagc.lab.plans import ProgramSelect
    from dagc.recipes.options import TuneOptions


# ---- what is tuned ----


@dataclass(frozen=True, slots=True)
class ProgramTask:
    """What is to be tuned: `settings` are the legal ones, the program's own first. `defines` fix the rest."""

    text: ProgramText
    chosen: TargetChoice
    program: Program
    select: ProgramSelect
    settings: tuple[Settings, ...]
    points: tuple[Point, ...]
    seed: int

    @property
    def default(self) -> Settings:
        return self.settings[0]


def wants_programs(text: ProgramText, options: TuneOptions) -> bool:
    """Is the program itself what `dagc tune` tunes? It has a `select` at its top, and no kernel is named."""
    if options.kernels:
        return False
    return program_select(text.with_defines(_single(text.defines)).program()) is not None


def _single(defines: Mapping[str, Any]) -> dict[str, Any]:
    """Without the choices among several values (`-D m=4,8`)."""
    return {n: v for n, v in defines.items() if "," not in str(v)}


def program_task(text: ProgramText, options: TuneOptions) -> ProgramTask:
    """Text -> ProgramTask. `-D m=4,8` leaves some values of a decision that the program selects.

    Raises ProgramError and UsageError.
    """
    chosen = choose_target(options.target, options.arch)
    text, _ = text.on(chosen.target)
    plain = _single(options.defines)
    plain_text = text.with_defines(plain)
    program = plain_text.program()
    select = program_select(program)
    assert select is not None
    several = {n: str(v) for n, v in options.defines.items() if n not in plain}
    for name, words in several.items():
        if name not in select.names:
            raise UsageError(f"-D {name}={words}: one value", f"several: {', '.join(select.names)} only")
    values = _values(program, select, several)
    settings = _legal(plain_text.program, values)
    default = tuple((n, program.decision(n)) for n in select.names)
    points = points_of(program, options.sizes, options.inputs)
    fixed = {n: v for n, v in plain.items() if n not in select.names}
    for point in points:
        _same_at(program, plain_text.program(dict(point.params)), point)
    ordered = tuple(sorted(settings, key=lambda s: s != default))
    return ProgramTask(text.with_defines(fixed), chosen, program, select, ordered, points, options.seed)


def _values(program: Program, select: ProgramSelect, several: Mapping[str, str]) -> dict[str, tuple[Value, ...]]:
    opened = [f"{n}={several[n]}" if n in several else n for n in select.names]
    found = open_decisions(program, opened, ())
    return {n: found[n] for n in select.names}


def _legal(build: Callable[[dict[str, Value]], Program], values: Mapping[str, Sequence[Value]]) -> tuple[Settings, ...]:
    """Combinations that every `require` known now allows, in the order of the program."""
    out: list[Any] = []
    reason = ""
    for combination in product(*values.values()):
        choice = dict(zip(values, combination, strict=True))
        try:
            build(choice)
        except ProgramError as error:
            reason = next(d.message for d in error.diagnostics if d.severity is Severity.ERROR)
        else:
            out.append(tuple(choice.items()))
    if not out:
        raise UsageError(f"no setting of {', '.join(values)} is legal: {reason}", "look at its `require`s")
    return tuple(out)


def _same_at(program: Program, other: Program, point: Point) -> None:
    """One compiled program must serve all sizes."""

    def rest(p: Program) -> Program:
        return replace(p, params=(), setup=None, verifies=())

    if rest(program) != rest(other):
        raise UsageError(
            f"at {point.text} the program is compiled differently, so that no plan serves all sizes",
            "make sizes per-rank scalars (`scalar n : i64`) that the set-up sets from the parameter",
        )


# ---- what is learned ----


Cells = Mapping[tuple["Point", "Settings"], "Cell"]
Data = Mapping["Point", tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class LearnedPlans:
    """`selector` answers with indices of `settings`, all of which it may answer; None: too little was measured.
    `left_out`: the regret at each training size of what was learned without it, NaN where that is not known."""

    method: str
    selector: Selector | None
    settings: tuple[Settings, ...]
    why: str
    notes: tuple[str, ...]
    left_out: Mapping[Point, float] = field(default_factory=dict)


def learn(task: ProgramTask, method: str, cells: Cells, data: Data) -> LearnedPlans:
    """Labels by rule, within the noise of the best at each size, and the selector trained on them."""
    from dagc.choice.learners.knn import nearest  # loads msgspec
    from dagc.choice.methods import fit  # loads msgspec
    from dagc.choice.train import leave_one_out, merged  # loads msgspec

    complete = measured(cells.values(), task.settings, data)
    notes, names = list(complete.notes), task.select.data
    training = merged(complete.data, complete.times, complete.intervals)
    sizes, times = training.sizes, training.times
    fewest = 1 if method == "exhaustive" else FEWEST
    if len(sizes) < fewest:
        notes.append(f"no chooser yet: measured in full: {counted(len(sizes), 'size')} of {fewest}; use --resume")
        return LearnedPlans(method, None, (), "", tuple(notes))
    exhaustive = method == "exhaustive"
    labels = observed_labels(times) if exhaustive else corrected_labels(sizes, times, training.tolerance)
    answers = sorted(set(labels))
    numbers = [answers.index(label) for label in labels]
    settings = tuple(complete.settings[i] for i in answers)
    if exhaustive:
        return LearnedPlans(method, nearest(names, sizes, numbers), settings, "nearest measured size", tuple(notes))
    try:
        selector = fit(method, names, sizes, numbers, task.seed)
    except UsageError as error:
        return LearnedPlans(method, None, (), "", (*notes, f"no chooser: {error.message}"))
    default = [complete.settings.index(task.default)] * len(sizes) if task.default in complete.settings else None
    out = leave_one_out(method, names, training, task.seed, {"default": default} if default else {})
    line = out.text if out is not None else f"leave one out: takes {FEWEST + 1} sizes or more"
    notes.append(f"{selector.text}, by {', '.join(names)}; {line}")
    regrets = dict(zip(out.sizes, out.regrets, strict=True)) if out is not None else {}
    left_out = {p: regrets.get(row, math.nan) for p, row in zip(complete.points, complete.data, strict=True)}
    return LearnedPlans(method, selector, settings, selector.text, tuple(notes), left_out)


def chooser_record(task: ProgramTask, learned: LearnedPlans) -> dict[str, Any]:
    """A selector as the tuned file keeps it."""
    assert learned.selector is not None
    return {
        "method": learned.method, "why": learned.why, "names": list(task.select.names), "data": list(task.select.data),
        "settings": [dict(s) for s in learned.settings], "selector": learned.selector.to_json(),
    }  # fmt: skip


def tuning(
    task: ProgramTask,
    learned: LearnedPlans,
    cells: Cells,
    data: Data,
    failures: Sequence[str],
    output: str | Path | None,
) -> Tuning:
    """The table: a line for each size of this run that has anything measured."""
    host = task.chosen.target is Target.HOST
    grade = "host target: programs run on the CPU, times say nothing about a GPU" if host else "with a GPU"
    lines = tuple(_line(task, learned, p, cells, data[p]) for p in task.points if p in data)
    out = Path(output) if output is not None else None
    return Tuning(
        lines,
        f"{grade}; {len(task.settings)} programs",
        learned.method,
        len(cells),
        tuple(failures),
        (*learned.notes, *task.text.changed()),
        out,
    )


def _line(task: ProgramTask, learned: LearnedPlans, point: Point, cells: Cells, data: tuple[float, ...]) -> Line:
    chosen = task.default
    if learned.selector is not None:
        chosen = learned.settings[learned.selector.choose(data)]
    timed = [c for (p, _), c in cells.items() if p == point and c.times and not c.failure]
    best = min(timed, key=lambda c: c.seconds, default=None)

    def seconds(settings: Settings) -> float:
        cell = cells.get((point, settings))
        return cell.seconds if cell is not None else math.nan

    return Line(
        PROGRAM, point, task.default, chosen, best.settings if best else None, seconds(task.default), seconds(chosen),
        best.seconds if best else math.nan, learned.why or "the default",
        point in learned.left_out, learned.left_out.get(point, math.nan),
    )  # fmt: skip


# ---- the recipe ----


Progress = Callable[[int, int, str], None]


# ---- tuned ----------------------------------------------------------------------------------


def tune_program(
    text: ProgramText, output: str | Path | None, options: TuneOptions, progress: Progress | None = None
) -> Tuning:
    """Tune a program with a `select` at its top. Runs its set-up and references, and each setting at each size.

    The method is that of the options, else the program's own. Raises UsageError, as `program_task`.
    """
    from contextlib import nullcontext

    task = program_task(text, options)
    method = _method(task, options)
    options = replace(options, method=method)
    like = _as_unit_plan(task)
    if not can_run(like):
        raise UsageError(
            f"whole programs are measured, and nothing can run here: {task.chosen.reason}",
            "use --target host, or run it on a machine with a GPU",
        )
    if not options.resume:
        _enough(method, task, {})  # before a file is begun
    failures: list[str] = []
    with (
        scratch_directory("dagc-tune-") as folder,
        open_records(like, output, options, 0) if output is not None else nullcontext() as records,
        Service(WorkerLink(1)) as service,
    ):
        cells, data = _before(task, records, options)
        _enough(method, task, data)

        def keep(cell: Cell) -> None:
            if records is not None:
                records.add_cell(cell, 0)
            cells[cell.point, cell.settings] = cell
            if cell.failure:
                failures.append(f"{_text(cell.settings)} at {cell.point.text or 'as given'}: {cell.failure}")

        _measure(task, service, dict(cells), data, folder, options, records, progress, failures, keep)
        learned = learn(task, method, cells, data)
        if records is not None:
            learned = replace(learned, notes=(*filter(None, [records.note]), *learned.notes))
            if learned.selector is not None:
                records.set_chooser(PROGRAM, chooser_record(task, learned))
    return tuning(task, learned, cells, data, failures, output)


def _text(settings: Settings) -> str:
    return settings_text(settings)


def _method(task: ProgramTask, options: TuneOptions) -> str:
    method = options.method or task.select.method
    if method not in METHODS:
        whose = "" if options.method else f", which the program's `select ... with {method}` asks for"
        raise UsageError(
            f"no method {method} for whole programs{whose}",
            f"one of: {', '.join(METHODS)}; or tune a kernel with --kernel",
        )
    return method


def _as_unit_plan(task: ProgramTask) -> Any:
    """As the tuning of kernels has it: what the record of a run is made from."""
    graph = build_graph(task.program)
    return TuningTask(task.text, task.chosen, graph, (), task.points, {}, task.points[0], task.seed)


def _before(
    task: ProgramTask, records: Any, options: TuneOptions
) -> tuple[dict[tuple[Point, Settings], Cell], dict[Point, tuple[float, ...]]]:
    """Cells of a resumed file, and the selector's data at their points. Notes in the file what must not differ."""
    now = fixed_choices(task.program, task.select.names, [n for p in task.points for n, _ in p.params])
    cells: dict[tuple[Point, Settings], Cell] = {}
    data: dict[Point, tuple[float, ...]] = {}
    if records is None:
        return cells, data
    if options.resume:
        before = records.tuned()
        fixed = before.facts.program
        if fixed is not None:
            check_fixed(records.path, fixed, now)
        data = {Point.of(dict(p)): tuple(v) for p, v in before.facts.program_data}
        cells = {(c.point, c.settings): c for c in before.cells if c.op == PROGRAM and c.point in data}
    records.set_fact(PROGRAM, now)
    records.set_fact("arch", task.chosen.arch)
    records.set_fact("target", task.chosen.target.value)
    return cells, data


def _enough(method: str, task: ProgramTask, data: Mapping[Point, Any]) -> None:
    sizes = len({*task.points, *data})
    if method != "exhaustive" and sizes < FEWEST:
        raise UsageError(
            f"method {method} learns from {FEWEST} sizes or more, not from {sizes}",
            'name more with --sizes "size=1000,4500,20000", or use --method exhaustive',
        )


# ---- measured -------------------------------------------------------------------------------


def _measure(
    task: ProgramTask,
    service: Service,
    known: Mapping[tuple[Point, Settings], Cell],
    data: dict[Point, tuple[float, ...]],
    folder: Path,
    options: TuneOptions,
    records: Any,
    progress: Progress | None,
    failures: list[str],
    keep: Callable[[Cell], None],
) -> None:
    """Measure every cell that is not known yet; `keep` gets each as it comes. A size that the set-up does not take is
    added to `failures`.

    The data of one size lie on disk at a time.
    """
    todo = _wanted(task, known, options.budget)
    needed = [s for s in task.settings if any(s in wanted for _, wanted in todo)]
    built, refused = build_programs(task, needed, folder, progress)
    end = None if options.seconds is None else time.monotonic() + options.seconds
    total, done = sum(len(wanted) for _, wanted in todo), 0

    def kept(cell: Cell) -> None:
        nonlocal done
        keep(cell)
        done += 1
        if progress is not None:
            progress(done, total, f"{cell.point.text} {_text(cell.settings)}")

    for number, (point, wanted) in enumerate(todo):
        place = folder / f"data-{number}"
        try:
            data[point] = _write_data(task, point, place)
        except DagcError as error:
            failures.append(f"{point.text or 'as given'}: skipped: {' '.join(str(error).split())}")
            shutil.rmtree(place, ignore_errors=True)
            continue
        if records is not None:
            records.set_fact("program data", [[list(p.params), [as_json(x) for x in v]] for p, v in data.items()])
        for s in wanted:
            if s in refused:
                kept(Cell(PROGRAM, point, s, (), refused[s]))
        here = {s: (Library(built[s].library, place), built[s].rows) for s in wanted if s in built}
        machine = Programs(service, here, Timing(seconds=options.cell))
        left = None if end is None else end - time.monotonic()
        _search(machine, list(here), CellStore(PROGRAM, point, kept), left, task.seed + number)
        if end is not None and time.monotonic() > end:
            return
        shutil.rmtree(place, ignore_errors=True)


def _search(machine: Programs, settings: Sequence[Settings], store: CellStore, left: float | None, seed: int) -> None:
    """Measure the settings in random order, for at most `left` seconds."""
    domain = LaunchSettings(settings)
    options = Options(time=left, confirm=0, seed=seed)
    if explore(domain, find("exhaustive")(domain, seed), machine, store, options).interrupted:
        raise KeyboardInterrupt


def _wanted(task: ProgramTask, known: Collection[Any], budget: int | None) -> list[tuple[Point, list[Settings]]]:
    """What is not known yet, at most `budget` cells: sizes in random order, settings in random order at each."""
    order = random.Random(f"{task.seed} order")
    points = list(task.points)
    order.shuffle(points)
    todo: list[tuple[Point, list[Settings]]] = []
    left = budget if budget is not None else 10**9
    for point in points:
        wanted = [s for s in task.settings if (point, s) not in known]
        order.shuffle(wanted)
        if wanted[:left]:
            todo.append((point, wanted[:left]))
        left -= len(wanted[:left])
    return todo


def _write_data(task: ProgramTask, point: Point, place: Path) -> tuple[float, ...]:
    """The arrays and references of one size, and the selector's data there. Raises DagcError where one of them is not
    finite."""
    program = task.text.program({**dict(point.params), **dict(task.default)})
    run_setup(program, task.text.path.parent, 1, task.seed, place)
    scalars = read_scalars(program, place)
    found = {f.name: f.value(scalars) for f in task.select.features}
    undefined = [name for name, value in found.items() if not math.isfinite(value)]
    if undefined:
        raise DagcError(f"`{undefined[0]}` is not a finite number there")
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class BuiltProgram:
    """A runner library, and the traversal that it is to run."""

    library: Path
    rows: tuple[Row, ...]


def build_programs(
    task: ProgramTask, settings: Sequence[Settings], folder: Path, progress: Progress | None = None
) -> tuple[dict[Settings, BuiltProgram], dict[Settings, str]]:
    """The runner library of each setting, compiled side by side; and in one line why some have none."""
    from dagc.emit import rows  # loads jinja2

    def make(setting: Settings) -> BuiltProgram:
        graph = task.text.graph(dict(setting))
        first = Space(graph).first()
        directory = folder / plan_label(setting)
        done = compile_traversal(graph, first, task.chosen, directory, build=False, force=True)
        return BuiltProgram(build_artifact(directory, done.plan, "runner"), tuple(rows(first)))

    built: dict[Settings, BuiltProgram] = {}
    refused: dict[Settings, str] = {}
    with ThreadPoolExecutor(max_workers=cores()) as pool:
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
