"""`dagc tune` of a program-level `select`: each setting is compiled, checked and timed as a program."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from dagc.base.errors import DagcError, ProgramError, Severity, UsageError, counted
from dagc.base.files import scratch_directory
from dagc.build.mpi import cores
from dagc.build.target import TargetChoice, choose_target
from dagc.choice.labels import corrected_labels, observed_labels
from dagc.choice.selector import FEWEST, Selector
from dagc.choice.selector import number as as_json
from dagc.choice.types import PROGRAM, Cell, Point, Settings
from dagc.ir.plan import Target
from dagc.lab.configurations import open_decisions
from dagc.lab.engine import SearchOptions, explore
from dagc.lab.launches import Programs, Row, Timing
from dagc.lab.plans import METHODS, ProgramSelect, measured, plan_label, program_select
from dagc.lab.settings import LaunchSettings
from dagc.lab.strategy import find
from dagc.measure.link import WorkerLink
from dagc.measure.service import RunnerLibrary, Service
from dagc.passes import build_graph
from dagc.recipes.artifacts import build_artifact, compile_traversal
from dagc.recipes.plans import plan_chooser
from dagc.recipes.program import ProgramText
from dagc.recipes.tune_gpu import can_run
from dagc.recipes.tune_inputs import CLEAR, ITERATIONS, candidates, check_at_first, elements_of, open_records
from dagc.recipes.tune_measure import CellStore, CheckedSettings, Recording
from dagc.recipes.tune_prepare import (
    TuningTask,
    another_program,
    check_point,
    compiled_part,
    points_asked,
    single_values,
)
from dagc.recipes.tune_results import Evaluated, Evaluation, KernelResult, Measurements, Tuning
from dagc.recipes.tune_variants import nothing_evaluated, untrained
from dagc.setup import read_scalars
from dagc.setup.prefetch import Job, Prefetch
from dagc.space import Space
from dagc.store.settings import check_fixed, fixed_choices

if TYPE_CHECKING:
    from dagc.ir.program import Program, Value
    from dagc.recipes.options import Progress, TuneOptions
    from dagc.store.records import Records
    from dagc.store.tuned import InputFacts, Tuned


# ---- what is measured: each plan, compiled once, at one input (or size) after the other ------------


Arrays: TypeAlias = "tuple[Point, Settings | None]"  # of a point; with the references of a setting


@dataclass(frozen=True, slots=True)
class ProgramTask:
    """What is to be tuned: `settings` are the legal ones, the program's own first. `defines` fix the rest.

    `check_at`: where results are compared with the reference if that differs between settings; else they are at every
    point.
    """

    text: ProgramText
    chosen: TargetChoice
    program: Program
    select: ProgramSelect
    settings: tuple[Settings, ...]
    points: tuple[Point, ...]
    check_at: Point
    seed: int

    @property
    def default(self) -> Settings:
        return self.settings[0]

    def program_at(self, point: Point, settings: Settings | None = None) -> Program:
        """The program at a point under a setting, None: under the default."""
        return self.text.program({**dict(point.params), **dict(self.default if settings is None else settings)})

    def references(self) -> dict[Settings, list[Settings]]:
        """The settings by the first one that has the same references."""
        out: dict[Settings, list[Settings]] = {}
        seen: dict[Any, Settings] = {}
        for s in self.settings:
            program = self.program_at(self.check_at, s)
            out.setdefault(seen.setdefault((program.setup, program.verifies), s), []).append(s)
        return out


class PlanPoints(Recording):
    """The points of a task, visited one after the other. `cells`, `data` (features), `facts` and `wrong` (settings with
    wrong results) grow."""

    def __init__(
        self,
        task: ProgramTask,
        service: Service,
        folder: Path,
        options: TuneOptions,
        cells: dict[tuple[Point, Settings], Cell],
        data: dict[Point, tuple[float, ...]],
        facts: dict[Point, InputFacts],
        records: Records | None,
        progress: Progress | None,
    ) -> None:
        self.task, self.service, self.folder, self.options = task, service, folder, options
        self.cells, self.data, self.facts = cells, data, facts
        super().__init__(Measurements({}, {}, []), records, progress, 0, task.check_at, options.budget)
        self.failures = self.measured.failures
        self.wrong: set[Settings] = set()
        self.groups = task.references()
        self.together = len(self.groups) == 1
        self.built: dict[Settings, BuiltProgram] = {}
        self.refused: dict[Settings, str] = {}
        self.refused_points: set[Point] = set()
        self.end: float | None = None
        self.prefetch: Prefetch[Arrays] = Prefetch(folder / "inputs", partial(_job, task, self.together))

    @property
    def over(self) -> bool:
        """Whether the time or the budget is spent."""
        return self.left <= 0 or (self.end is not None and time.monotonic() > self.end)

    @property
    def right(self) -> ProgramTask:
        """The task without the settings whose results are wrong; as it is, if that is all of them."""
        kept = tuple(s for s in self.task.settings if s not in self.wrong)
        return replace(self.task, settings=kept) if kept else self.task

    def begin(self, points: Sequence[Point]) -> None:
        """Compile the plans, while the set-ups of the first points run."""
        todo = [p for p in points if not self.complete(p)]
        self.prefetch.expect([(p, None) for p in todo])
        needed = [s for s in self.task.settings if any((p, s) not in self.cells for p in todo)]
        self.built, self.refused = build_programs(self.task, needed, self.folder, self.progress)
        if self.options.seconds is not None:
            self.end = time.monotonic() + self.options.seconds
        self.total = sum((p, s) not in self.cells for p in todo for s in self.task.settings)

    def complete(self, point: Point) -> bool:
        """Whether every setting was tried at a point."""
        return all((point, s) in self.cells for s in self.task.settings if s not in self.wrong)

    def check(self, before: Mapping[tuple[str, Settings], str]) -> None:
        """Compare each plan with its own reference where references differ. `before`: what was compared already.

        A point that its set-up refuses is reported, and the next one is taken, unless the user has named it. Raises
        UsageError where none is left.
        """
        self.wrong |= {s for (op, s), failure in before.items() if op == PROGRAM and failure}
        todo = [s for s in self.task.settings if (PROGRAM, s) not in before and s in self.built]
        if self.together or not todo:
            return
        points = candidates(self.task.points, self.task.check_at, self.task.program, bool(self.options.check_at))
        check_at_first(points, lambda point: self._check_at(point, todo), self._refuse)

    def _check_at(self, point: Point, todo: Sequence[Settings]) -> None:
        """Raises DagcError where the set-up refuses the point."""
        for first, members in self.groups.items():
            for settings in (s for s in members if s in todo):
                place = self.prefetch.get((point, first))
                failure = self._programs(place, [settings]).verify(settings)
                self.wrong |= {settings} if failure else set()
                self.check_at = point
                self.keep(CheckedSettings(PROGRAM, settings, failure))
            self.prefetch.drop((point, first))

    def _refuse(self, point: Point, error: DagcError) -> None:
        self.failures.append(f"{point.text or 'as given'}: skipped: {' '.join(str(error).split())}")
        self.refused_points.add(point)
        for arrays in [(point, None), *((point, first) for first in self.groups)]:
            self.prefetch.drop(arrays)

    def visit(self, point: Point, label: bool = True, test: bool = False) -> bool:
        """Read the features of a point and, with `label`, measure every plan there. Whether that is known now."""
        if point in self.refused_points:
            return False
        if point in self.data and (not label or self.complete(point)):
            return True
        try:
            place = self.prefetch.get((point, None))
            self._note(point, place, test)
        except DagcError as error:
            self._refuse(point, error)
            return False
        if label:
            self._measure(point, place)
        self.prefetch.drop((point, None))
        return True

    def _note(self, point: Point, place: Path, test: bool) -> None:
        """Keep the features of a point. Raises DagcError where one of them is not finite."""
        from dagc.store.tuned import InputFacts, input_to_json  # loads msgspec, numpy, sqlite3, sympy

        scalars = read_scalars(self.task.program, place)
        features = {f.name: f.value(scalars) for f in self.task.select.features}
        undefined = [name for name, value in features.items() if not math.isfinite(value)]
        if undefined:
            raise DagcError(f"`{undefined[0]}` is not a finite number there")
        self.data[point] = tuple(features.values())
        values: dict[str, Any] = {n: v for n, v in scalars.items() if isinstance(v, int | float) and math.isfinite(v)}
        before = self.facts.get(point)
        self.facts[point] = InputFacts(
            dict(point.params), before.test if before is not None else test, values, {PROGRAM: features}, {},
            elements_of(place),
        )  # fmt: skip
        if self.records is not None:
            kept = [[list(p.params), [as_json(x) for x in v]] for p, v in self.data.items()]
            self.records.set_fact("program data", kept)
            self.records.set_fact("inputs", [input_to_json(one) for one in self.facts.values()])

    def _measure(self, point: Point, place: Path) -> None:
        wanted = [s for s in self.task.settings if (point, s) not in self.cells and s not in self.wrong]
        random.Random(f"{self.task.seed} {point.text}").shuffle(wanted)
        wanted = wanted[: max(0, self.left)]
        for s in wanted:
            if s in self.refused:
                self._keep(Cell(PROGRAM, point, s, (), self.refused[s]))
        here = [s for s in wanted if s in self.built]
        left = None if self.end is None else self.end - time.monotonic()
        store = CellStore(PROGRAM, point, self._keep)
        domain, options = LaunchSettings(here), SearchOptions(time=left, confirm=0, seed=self.task.seed)
        if explore(domain, find("exhaustive")(domain, 0), self._programs(place, here), store, options).interrupted:
            raise KeyboardInterrupt

    def _programs(self, place: Path, settings: Iterable[Settings]) -> Programs:
        here = {s: (RunnerLibrary(self.built[s].library, place), self.built[s].rows) for s in settings}
        until = self.task.program.until is not None
        return Programs(
            self.service, here, Timing(seconds=self.options.cell, clear=CLEAR), until=until, checked=self.together
        )  # fmt: skip

    def _keep(self, cell: Cell) -> None:
        self.cells[cell.point, cell.settings] = cell
        self.keep(cell)

    def times_at(self, point: Point) -> dict[int, float]:
        """Seconds of each setting at a point, by number; missing where it failed."""
        cells = ((i, self.cells.get((point, s))) for i, s in enumerate(self.task.settings))
        return {i: c.value for i, c in cells if c is not None and c.times and not c.failure}


def _job(task: ProgramTask, together: bool, arrays: Arrays) -> Job:
    point, settings = arrays
    program = task.program_at(point, settings)
    return Job(program, task.text.path.parent, 1, task.seed, together or settings is not None)


def order_of(task: ProgramTask) -> list[Point]:
    """The points in random order."""
    points = list(task.points)
    random.Random(f"{task.seed} order").shuffle(points)
    return points


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
        jobs = {pool.submit(make, s): s for s in settings}
        for job in as_completed(jobs):
            setting = jobs[job]
            try:
                built[setting] = job.result()
            except DagcError as error:
                refused[setting] = f"not compiled: {error.message.splitlines()[0]}"
            if progress is not None:
                progress(len(built) + len(refused), len(settings), f"compiled {plan_label(setting)}")
    return built, refused


# ---- what is tuned ---------------------------------------------------------------------------------


# ---- what is tuned ----


def program_task(text: ProgramText, options: TuneOptions, test: bool = False) -> ProgramTask:
    """Text -> ProgramTask. `-D m=4,8` leaves some values of a decision that the program selects.

    Raises ProgramError and UsageError.
    """
    chosen = choose_target(options.target, options.arch)
    text, _ = text.on(chosen.target)
    plain = single_values(options.defines)
    plain_text = text.with_defines(plain)
    program = plain_text.program()
    select = program_select(program)
    assert select is not None
    several = {n: str(v) for n, v in options.defines.items() if n not in plain}
    for name, words in several.items():
        if name not in select.names:
            raise UsageError(
                f"-D {name}={words}: give one value", f"only these take several: {', '.join(select.names)}"
            )
    values = _values(program, select, several)
    settings = _legal(plain_text.program, values)
    default = tuple((n, program.decision(n)) for n in select.names)
    points = points_asked(plain_text, program, options.sizes, options.inputs, options.samples, options.seed, test)
    fixed = {n: v for n, v in plain.items() if n not in select.names}
    for point in points:
        _same_at(program, plain_text.program(dict(point.params)), point)
    ordered = tuple(sorted(settings, key=lambda s: s != default))
    check = check_point(program, points, options.check_at)
    return ProgramTask(text.with_defines(fixed), chosen, program, select, ordered, points, check, options.seed)


def _values(program: Program, select: ProgramSelect, several: Mapping[str, str]) -> dict[str, tuple[Value, ...]]:
    opened = [f"{n}={several[n]}" if n in several else n for n in select.names]
    decisions = open_decisions(program, opened, ())
    return {n: decisions[n] for n in select.names}


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
        raise UsageError(f"no setting of {', '.join(values)} is legal: {reason}", "check its `require`s")
    return tuple(out)


def _same_at(program: Program, other: Program, point: Point) -> None:
    """One compiled program must serve all sizes."""
    if compiled_part(program) != compiled_part(other):
        raise another_program(point)


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
    tolerance: float = 0.0


def learn(task: ProgramTask, method: str, cells: Cells, data: Data) -> LearnedPlans:
    """Few plans, by rule, that are within the noise of the best at each size, the one that is best on average, and the
    selector trained on what these are worth."""
    from dagc.choice.learners.knn import nearest  # loads msgspec
    from dagc.choice.methods import fit  # loads msgspec
    from dagc.choice.train import best_on_average, leave_one_out, merged, shares_of  # loads msgspec

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
    shares = [shares_of(at) for at in times]
    answers = sorted({*labels, *(() if exhaustive else best_on_average(shares)[:1])})
    numbers = [answers.index(label) for label in labels]
    settings = tuple(complete.settings[i] for i in answers)
    if exhaustive:
        return LearnedPlans(method, nearest(names, sizes, numbers), settings, "nearest measured size", tuple(notes))
    try:
        worth, seconds = ([_of(answers, at) for at in table] for table in (shares, times))
        selector = fit(method, names, sizes, numbers, task.seed, worth, seconds)
    except UsageError as error:
        return LearnedPlans(method, None, (), "", (*notes, f"no chooser: {error.message}"))
    default = [complete.settings.index(task.default)] * len(sizes) if task.default in complete.settings else None
    out = leave_one_out(method, names, training, task.seed, {"default": default} if default else {})
    line = out.text if out is not None else f"leave one out: takes {FEWEST + 1} sizes or more"
    notes.append(f"{selector.text}, by {', '.join(names)}; {line}")
    regrets = dict(zip(out.sizes, out.regrets, strict=True)) if out is not None else {}
    left_out = {p: regrets.get(row, math.nan) for p, row in zip(complete.points, complete.data, strict=True)}
    return LearnedPlans(method, selector, settings, selector.text, tuple(notes), left_out, training.tolerance)


def _of(answers: Sequence[int], at: Mapping[int, float]) -> dict[int, float]:
    """What is known of some answers, by their place."""
    return {place: at[answer] for place, answer in enumerate(answers) if answer in at}


def learned_from(merged: Tuned, first: Tuned, text: ProgramText) -> dict[str, Any]:
    """The chooser's record from what merged files hold, by the method of the `first`; runs nothing. Raises UsageError
    where too little was measured."""
    stored = first.program_chooser
    assert stored is not None
    program = text.program()
    select = program_select(program)
    if select is None or select.names != stored.names:
        raise UsageError(
            f"{first.path}: chooses {', '.join(stored.names)}, which its text does not select", "tune again"
        )
    wrong = {settings for (op, settings), failure in merged.checks.items() if op == PROGRAM and failure}
    cells = {
        (c.point, c.settings): c
        for c in merged.cells
        if c.op == PROGRAM and c.point not in merged.facts.tests and c.settings not in wrong
    }
    tried, default = {settings for _, settings in cells}, tuple((n, program.decision(n)) for n in select.names)
    settings = sorted((s for s in _legal(text.program, _values(program, select, {})) if s in tried), key=default.__ne__)
    points = tuple(sorted({point for point, _ in cells}))
    chosen = choose_target(merged.facts.target or None, merged.facts.arch or None)
    seed = first.runs[0].seed
    task = ProgramTask(text, chosen, program, select, tuple(settings), points, points[0], seed)
    data = {Point.of(dict(point)): tuple(vector) for point, vector in merged.facts.program_data}
    learned = learn(task, stored.method, cells, data)
    if learned.selector is None:
        raise UsageError(f"nothing was learned from the merged inputs: {'; '.join(learned.notes)}", "tune with more")
    return chooser_record(task, learned)


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
    lines = tuple(_line(task, learned, p, cells, data[p]) for p in task.points if p in data)
    out = Path(output) if output is not None else None
    return Tuning(
        lines,
        f"{_grade(task)}; {len(task.settings)} programs",
        learned.method,
        len(cells),
        tuple(failures),
        (*learned.notes, *task.text.changed()),
        out,
    )


def _grade(task: ProgramTask) -> str:
    host = task.chosen.target is Target.HOST
    return "host target: programs run on the CPU, and their times do not apply to a GPU" if host else "with a GPU"


def _line(
    task: ProgramTask, learned: LearnedPlans, point: Point, cells: Cells, data: tuple[float, ...]
) -> KernelResult:
    chosen = task.default
    if learned.selector is not None:
        chosen = learned.settings[learned.selector.choose(data)]
    timed = [c for (p, _), c in cells.items() if p == point and c.times and not c.failure]
    best = min(timed, key=lambda c: c.value, default=None)

    def seconds(settings: Settings) -> float:
        cell = cells.get((point, settings))
        return cell.value if cell is not None else math.nan

    return KernelResult(
        PROGRAM, point, task.default, chosen, best.settings if best else None, seconds(task.default), seconds(chosen),
        best.value if best else math.nan, learned.why or "the default",
        point in learned.left_out, learned.left_out.get(point, math.nan),
    )  # fmt: skip


# ---- tuned ----------------------------------------------------------------------------------


def tune_program(
    text: ProgramText, output: str | Path | None, options: TuneOptions, progress: Progress | None = None
) -> Tuning:
    """Tune a program with a `select` at its top. Runs its set-up and references, and each setting at each point.

    The method is that of the options, else the program's own. Raises UsageError, as `program_task`.
    """
    if options.active:
        raise UsageError(
            "--active draws inputs of kernels, and whole programs (a `select` at the top) are tuned here",
            "use --samples alone, or name a kernel with --kernel",
        )
    if options.objective not in (None, "time"):
        raise UsageError("whole programs are tuned for the time", "drop --objective, or name a kernel with --kernel")
    if options.ranks > 1:
        raise UsageError(
            "whole programs (a `select` at the top) are tuned on one rank",
            "drop -n, or name a kernel with --kernel",
        )
    task = program_task(text, options)
    method = _method(task, options)
    options = replace(options, method=method)
    if not can_run(_as_unit_plan(task)):
        raise UsageError(
            f"whole programs are measured, and nothing can run here: {task.chosen.reason}",
            "use --target host, or run it on a machine with a GPU",
        )
    if not options.resume:
        _enough(method, task, {})  # before a file is begun
    with _opened(task, output, options, progress) as (plans, before):
        _enough(method, task, plans.data)
        plans.begin(order_of(task))
        plans.check(before)
        notes = _incremental(plans, method, options) if options.incremental else _all(plans)
        learned = learn(plans.right, method, training_cells(plans), plans.data)
        if plans.records is not None:
            learned = replace(learned, notes=(*filter(None, [plans.records.note]), *notes, *learned.notes))
            if learned.selector is not None:
                plans.records.set_chooser(PROGRAM, chooser_record(task, learned))
    return tuning(task, learned, training_cells(plans), plans.data, plans.failures, output)


@contextmanager
def _opened(
    task: ProgramTask, output: str | Path | None, options: TuneOptions, progress: Progress | None
) -> Iterator[tuple[PlanPoints, Mapping[tuple[str, Settings], str]]]:
    """The points of a task, with what a resumed file has of them and what it has checked."""
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_directory("dagc-tune-"))
        records = None
        if output is not None:
            records = stack.enter_context(open_records(_as_unit_plan(task), output, options, 0))
        service = stack.enter_context(Service(WorkerLink(1)))
        cells, data = _before(task, records, options)
        known = records.tuned() if records is not None and options.resume else None
        facts = {one.point: one for one in known.facts.inputs} if known is not None else {}
        plans = PlanPoints(task, service, folder, options, cells, data, facts, records, progress)
        stack.enter_context(plans.prefetch)
        yield plans, known.checks if known is not None else {}


def training_cells(plans: PlanPoints) -> dict[tuple[Point, Settings], Cell]:
    """All but those of test inputs and of settings whose results are wrong."""
    tests = {point for point, facts in plans.facts.items() if facts.test}
    return {k: c for k, c in plans.cells.items() if k[0] not in tests and k[1] not in plans.wrong}


def _all(plans: PlanPoints) -> list[str]:
    order = order_of(plans.task)
    for number, point in enumerate(order):
        if plans.over:
            return [f"stopped by --time or --budget: {counted(len(order) - number, 'point')} left; use --resume"]
        plans.visit(point)
    return []


def _incremental(plans: PlanPoints, method: str, options: TuneOptions) -> list[str]:
    """Features of all inputs first; then measure one after the other, that which teaches most, until enough."""
    from dagc.choice.active import next_input  # loads msgspec

    points = [p for p in order_of(plans.task) if plans.visit(p, label=False)]
    labelled = {p for p in points if plans.complete(p)}
    most = options.iterations or (len(points) if options.accuracy is not None else ITERATIONS)
    while len(labelled) < most and not plans.over:
        table = {i: plans.times_at(p) for i, p in enumerate(points) if p in labelled}
        vectors = [plans.data[p] for p in points]
        chosen = next_input(plans.task.select.data, vectors, table, method, options.seed, options.next)
        if chosen is None:
            break
        plans.visit(points[chosen])
        labelled.add(points[chosen])
        if options.accuracy is not None and len(labelled) > FEWEST:
            learned = learn(plans.right, method, training_cells(plans), plans.data)
            regrets = [r for r in learned.left_out.values() if not math.isnan(r)]
            if regrets and sum(r <= learned.tolerance for r in regrets) >= options.accuracy * len(regrets):
                break
    return [f"incremental: {counted(len(labelled), 'input')} measured of {len(points)}, chosen by {options.next}"]


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


# ---- evaluated ------------------------------------------------------------------------------


def evaluate_program(
    text: ProgramText, tuned: Tuned, options: TuneOptions, progress: Progress | None = None
) -> Evaluation:
    """Measure every plan at test inputs, and judge what the chooser of a tuned file answers there. The measurements are
    kept in the file, and nothing is learned from them. Raises UsageError as `tune_program`."""
    from dagc.choice.judge import judge  # only to evaluate
    from dagc.choice.train import noise_of_best  # loads msgspec

    task = program_task(text, options, test=True)
    chooser = plan_chooser(task.program, tuned)
    points, _, notes = untrained(task.points, tuned, programs=True)
    task, began = replace(task, points=points), time.monotonic()
    with _opened(task, tuned.path, replace(options, resume=True), progress) as (plans, _):
        plans.begin(order_of(task))
        done = sorted(p for p in order_of(task) if not plans.over and plans.visit(p, test=True))
        if not done:
            raise nothing_evaluated(plans.failures)
        times = [plans.times_at(p) for p in done]
        chosen = [task.settings.index(chooser.settings[chooser.choose(plans.facts[p].values)]) for p in done]
        cells = {p: [c for (q, _), c in plans.cells.items() if q == p and c.times and not c.failure] for p in done}
        noises = [noise_of_best((c.interval[0], c.value, c.interval[1]) for c in cells[p]) for p in done]
        judged = judge(
            [p.text for p in done], times, chosen, 0, noises,
            sizes=[plans.facts[p].elements for p in done],
        )  # fmt: skip
        return Evaluation(
            (Evaluated(PROGRAM, judged, task.settings),), _grade(task), len(done), tuple(plans.failures),
            (*notes, *task.text.changed()), time.monotonic() - began,
        )  # fmt: skip
