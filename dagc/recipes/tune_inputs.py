"""Tuning over inputs: the data of a few lie on disk at a time, one compiled program serves all.

For each input: its set-up runs beside the measurement of another one, its features are computed, every answer that is
allowed there is compared with the default and timed. What fails at an input is recorded there, and the rest goes on.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc.base.errors import DagcError, RunFailed, UsageError
from dagc.base.files import scratch_directory
from dagc.base.objective import TIME, Objective
from dagc.build.mpi import cores
from dagc.choice.feature import offered, values_of
from dagc.choice.inputs import bytes_of
from dagc.choice.legal import op_of
from dagc.choice.types import Cell, settings_text
from dagc.ir.plan import Target, selects_device
from dagc.lab.launches import Timing
from dagc.measure.link import WorkerLink
from dagc.measure.metrics import objective_for, observed, of_results
from dagc.measure.service import Service
from dagc.recipes.tune_measure import CheckedSettings, Lost, Measuring, Wanted, features_at
from dagc.recipes.tune_prepare import (
    DEFAULT_FLUSH,
    AtPoint,
    Prepared,
    TuningTask,
    another_program,
    build_what_compiles,
    computed_of,
    fitting,
    read_point,
    same_at,
)
from dagc.recipes.tune_records import minimise, open_records, resumed
from dagc.recipes.tune_results import Measurements, paid
from dagc.setup.arrays import elements
from dagc.setup.prefetch import AHEAD, Job, Prefetch
from dagc.store.fixed import FACT, fixed_of

if TYPE_CHECKING:
    from dagc.choice.types import Point, Settings
    from dagc.ir.program import Program
    from dagc.ir.sym import Number
    from dagc.recipes.options import Progress, TuneOptions
    from dagc.store.records import Records
    from dagc.store.tuned import InputFacts

ROUNDS = 3  # series of launches of an answer, at most, where the cores are used
CLEAR = 1.25  # times the best so far at an input: what is slower is timed a few times only
PROCESSES = max(1, min(3, cores() - 1))  # that run set-ups beside measurements on a GPU
BETWEEN = min(16, cores())  # that run set-ups between measurements which use the cores
FAILED_CHECKS = 3  # inputs at which the program does not run: then it runs nowhere
MANY = 10_000  # inputs on disk in incremental tuning, where bytes bound them


# ---- what is known of inputs ----------------------------------------------------------------


@dataclass(slots=True)
class Known:
    """What was measured of inputs so far, and what is known of each besides its times."""

    measured: Measurements
    inputs: dict[Point, InputFacts] = field(default_factory=dict)

    def complete(self, point: Point, fits: Mapping[str, Sequence[Settings]]) -> bool:
        """Whether every answer that is allowed at a point was tried."""
        return all((op, point, s) in self.measured.cells for op, settings in fits.items() for s in settings)


def known_before(records: Records | None, task: TuningTask, flush: int, resume: bool) -> Known:
    """Of a file that is continued; nothing of a new one."""
    if records is None or not resume:
        return Known(Measurements({}, {}, []))
    cells, checks = resumed(records, task, flush)
    return Known(Measurements(cells, checks, []), {one.point: one for one in records.tuned().facts.inputs})


def elements_of(data: Path) -> int:
    """The number of elements of the largest array of the first rank."""
    return max((elements(file) for file in (data / "rank-0000").glob("*.npy")), default=0)


def candidates(points: Iterable[Point], check_at: Point, program: Program, given: bool) -> tuple[Point, ...]:
    """The points where results may be compared with the reference, in turn: the smaller ones first, after `check_at`,
    which alone is taken if the user has given it."""
    others = () if given else sorted((p for p in points if p != check_at), key=lambda p: bytes_of(p, program))
    return (check_at, *others)


def check_at_first(
    points: Iterable[Point], check: Callable[[Point], None], refuse: Callable[[Point, DagcError], None]
) -> None:
    """Check at the first of the points that serves for it; those before are refused. A program that does not run at
    FAILED_CHECKS of them runs at none. Raises UsageError where none serves."""
    errors: list[DagcError] = []
    for point in points:
        try:
            check(point)
            return
        except DagcError as error:
            errors.append(error)
            refuse(point, error)
        if sum(isinstance(e, RunFailed) for e in errors) == FAILED_CHECKS:
            break
    raise UsageError(
        f"{point.text or 'as given'}, where results are compared with the reference: {errors[-1].message}",
        "name another input with --check-at",
    )


# ---- one input after the other --------------------------------------------------------------


class Inputs:
    """A task whose inputs come one after the other.

    `ready` has the points that were visited or are known from an earlier run, and their features; the arrays of a point
    are there only while it is visited.
    """

    def __init__(
        self,
        ready: Prepared,
        prefetch: Prefetch[Point],
        service: Service,
        options: TuneOptions,
        flush: int,
        known: Known,
        records: Records | None,
        progress: Progress | None,
        objective: Objective = TIME,
        references: list[Point] | None = None,
    ) -> None:
        """`references`: the point whose data get them, which changes with the input of the checks."""
        self.references = references if references is not None else []
        self.refused: set[Point] = set()
        self.objective = objective
        self.ready, self.task, self.prefetch, self.known = ready, ready.task, prefetch, known
        self.records, self.progress, self.flush = records, progress, flush
        self.calls, self.sampled = options.calls, options.samples is not None
        self.left = options.budget if options.budget is not None else 10**9
        self.done, self.total = 0, 0
        self.wrong = {key for key, failure in known.measured.checks.items() if failure}
        self.codes = [f.name for f in computed_of(self.task)]
        self.service = service
        service.on_death = self.say  # what hangs is tried again: not all of that in silence
        end = None if options.seconds is None else time.monotonic() + options.seconds
        rounds = ROUNDS if uses_cores(self.task) else 1
        timing = Timing(seconds=options.cell, flush=flush, clear=CLEAR, objective=objective, rounds=rounds)
        before = list(known.measured.cells.values())
        self.run = Measuring(ready, service, timing, self.keep, before, end, time.monotonic)
        for facts in known.inputs.values():
            ready.at[facts.point] = at_before(self.task, facts, self.codes)

    @property
    def over(self) -> bool:
        """Whether the time or the budget is spent."""
        return self.left <= 0 or self.run.over()

    def priced(self, cell: Cell) -> Cell:
        """A cell whose times are values of the objective, the share of its conversion included in a time."""
        return paid(cell, self.known.inputs.get(cell.point), self.calls, self.objective)

    # ---- results as they come -----------------------------------------------------------------

    def keep(self, result: Cell | CheckedSettings | Lost) -> None:
        """Store a result."""
        measured = self.known.measured
        if isinstance(result, Lost):
            measured.failures.append(f"{result.point.text}: skipped: {result.failure}")
            return
        measured.busy += result.took
        where = result.point if isinstance(result, Cell) else self.task.check_at
        what = f"{result.op} {settings_text(result.settings)} at {where.text or 'as given'}"
        if result.failure:
            measured.failures.append(f"{what}: {result.failure}")
        if isinstance(result, Cell):
            self.done, self.left = self.done + 1, self.left - 1
            measured.cells[result.op, result.point, result.settings] = result
            if self.records is not None:
                self.records.add_cell(result, self.flush)
        else:
            measured.checks[result.op, result.settings] = result.failure
            if self.records is not None:
                self.records.add_check(result.op, result.settings, where, result.failure)
        self.say(what)

    def say(self, what: str) -> None:
        """Report progress."""
        if self.progress is not None:
            self.progress(self.done, max(self.total, self.done), what)

    def note_input(self, facts: InputFacts) -> None:
        """Keep what is known of an input."""
        from dagc.store.tuned import input_key, input_to_json  # loads msgspec, numpy, sqlite3, sympy

        self.known.inputs[facts.point] = facts
        if self.records is not None:
            self.records.set_fact(input_key(list(self.known.inputs).index(facts.point)), input_to_json(facts))

    # ---- visits -------------------------------------------------------------------------------

    def check(self, given: bool) -> None:
        """Compare with the reference, at the input of the checks, every answer that was not compared yet. An input that
        does not serve for it is reported, and the next one is taken, unless the user has `given` it.

        Raises UsageError where none serves.
        """
        checks = self.known.measured.checks
        todo = {op: [s for s in legal if (op, s) not in checks] for op, legal in self.task.settings.items()}
        todo = {op: settings for op, settings in todo.items() if settings}
        if todo:
            points = candidates(self.task.points, self.task.check_at, self.task.program, given)
            check_at_first(points, lambda point: self._check_at(point, todo), self._refuse)

    def _check_at(self, point: Point, todo: Mapping[str, Sequence[Settings]]) -> None:
        """Check at this input from now on: its data get references. Raises DagcError where that cannot be done."""
        self.say(f"checking at {point.text or 'as given'}")
        if point != self.task.check_at:
            self.prefetch.drop(point)  # it was set up without references
        self.task = self.ready.task = self.run.task = replace(self.task, check_at=point)
        self.references[:] = [point]
        self._read(point)
        self.wrong |= self.run.check(todo)
        self.run.close(point)
        if point not in self.task.points:
            self.prefetch.drop(point)

    def _refuse(self, point: Point, error: DagcError) -> None:
        self.known.measured.failures.append(f"{point.text or 'as given'}: skipped: {_line(error)}")
        self.ready.at.pop(point, None)
        self.refused.add(point)
        self.prefetch.drop(point)

    def visit(
        self, point: Point, label: bool = True, test: bool = False, then: Callable[[AtPoint], str] | None = None
    ) -> bool:
        """Compute the features of an input and, with `label`, time every answer that is allowed there. Whether that is
        known now: the set-up may refuse the input, and the program may fail on it.

        `then`: what else is done while its arrays are loaded; "" or why that failed.
        """
        if point in self.refused:
            return False
        at, facts = self.ready.at.get(point), self.known.inputs.get(point)
        if then is None and at is not None and facts is not None and (not label or self.known.complete(point, at.fits)):
            return True
        self.say(point.text)
        try:
            at = self._read(point, test)
        except DagcError as error:
            self._refuse(point, error)
            return False
        failure = ""
        if label:
            failure = self.run.time_at(point, self._wanted(at), self.wrong) or (then(at) if then else "")
            if failure:
                self.known.measured.failures.append(f"{point.text or 'as given'}: skipped: {failure}")
            else:
                self._note_conversions(point)
        self.run.close(point)
        if label or not self.prefetch.roomy:
            self.prefetch.drop(point)
        return not failure

    def _note_conversions(self, point: Point) -> None:
        """What `prepare` took; that of an earlier start of the ranks counts too."""
        facts = self.known.inputs[point]
        conversions = {op: dict(of) for op, of in facts.conversions.items()}
        for op, of in self.run.conversions(point).items():
            conversions[op] = conversions.get(op, {}) | of
        if conversions != facts.conversions:
            self.note_input(replace(facts, conversions=conversions))

    def _wanted(self, at: AtPoint) -> list[Wanted]:
        out = []
        left = self.left
        for unit in self.task.units:
            known = [s for s in at.fits[unit.op] if (unit.op, at.point, s) in self.known.measured.cells]
            new = [s for s in at.fits[unit.op] if s not in known][: max(0, left)]
            left -= len(new)
            if new:
                out.append(Wanted(unit.op, at.point, (*known, *new)))
        return out

    def _read(self, point: Point, test: bool = False) -> AtPoint:
        """The program with the arrays of an input, whose features are known then. Raises DagcError."""
        if self.sampled and not same_at(self.task.text, self.task.graph, point):
            raise another_program(point)
        place = self.prefetch.get(point)
        self.run.programs.pop(point, None)  # its arrays were elsewhere
        at = read_point(self.task, point, place)
        before = self.known.inputs.get(point)
        self.ready.at[point] = at
        if before is None:
            values, seconds = features_at(self.service, self.ready, point, self.codes)
            at = replace(at, computed=dict.fromkeys(self.codes, math.nan) | values)
        else:
            at, seconds = replace(at, computed=computed_before(before, self.codes)), dict(before.seconds)
        at = with_allowed(self.task, at)
        if self.task.units and not any(at.fits.values()):
            raise DagcError("no op has anything to launch there")
        self.ready.at[point] = at
        facts = self._facts(at, seconds, elements_of(place), before.test if before is not None else test)
        if before is None:
            self._note_undefined(facts)
        self.note_input(replace(facts, conversions=before.conversions) if before is not None else facts)
        return at

    def _note_undefined(self, facts: InputFacts) -> None:
        """A note of the features that are not finite at an input: nothing is learned from it."""
        for op, names in self.task.features.items():
            undefined = [n for n in names if n not in facts.features.get(op, {})]
            if undefined and not facts.test:
                what = f"{', '.join(undefined)} not finite: not learned from"
                self.ready.notes.append(f"{op} at {facts.point.text or 'as given'}: {what}")

    def _facts(self, at: AtPoint, seconds: Mapping[str, float], elements: int, test: bool) -> InputFacts:
        from dagc.store.tuned import InputFacts  # loads msgspec, numpy, sqlite3, sympy

        features: dict[str, dict[str, float]] = {}
        for unit in self.task.units:
            known = offered(self.task.program, op_of(self.task.graph, unit))
            computed = values_of(known, at.values, at.constants)
            wanted = self.task.features.get(unit.op) or computed
            features[unit.op] = {n: v for n, v in computed.items() if n in wanted and math.isfinite(v)}
        values = {n: _plain(v) for n, v in {**at.scalars, **at.computed}.items() if math.isfinite(_plain(v))}
        return InputFacts(dict(at.point.params), test, values, features, dict(seconds), elements)


def computed_before(facts: InputFacts, codes: Collection[str]) -> dict[str, float]:
    """What was computed of an input in an earlier run; NaN where it was not."""
    return {name: float(facts.values.get(name, math.nan)) for name in codes}


def with_allowed(task: TuningTask, at: AtPoint, memory: int | None = None) -> AtPoint:
    """With the answers that are allowed there; none of an op whose default has nothing to launch. `memory`: of the
    device, None: of this machine."""
    fits = fitting(task, at, memory)
    default = {u.op: u.default for u in task.units if u.default in task.settings[u.op]}
    empty = {op for op, setting in default.items() if setting not in fits[op]}
    return replace(at, fits={op: () if op in empty else of for op, of in fits.items()})


def at_before(task: TuningTask, facts: InputFacts, codes: Collection[str], memory: int | None = None) -> AtPoint:
    """An input of an earlier run: all but its arrays."""
    scalars: dict[str, Number] = {n: v for n, v in facts.values.items() if n not in codes}
    return with_allowed(task, AtPoint(facts.point, Path(), scalars, 1, {}, {}, computed_before(facts, codes)), memory)


def _plain(value: Any) -> int | float | bool:
    return value if isinstance(value, bool | int) else float(value)


def _line(error: DagcError) -> str:
    return " ".join(str(error).split())


# ---- opened -----------------------------------------------------------------------------------


@contextmanager
def opened(
    task: TuningTask,
    output: str | Path | None,
    options: TuneOptions,
    order: Sequence[Point],
    progress: Progress | None,
    ahead: int = AHEAD,
    references: bool = True,
) -> Iterator[Inputs]:
    """The inputs of a task, ready to be visited in this order. The set-ups of the first run while it is compiled.

    `ahead`: inputs whose data may lie on disk; `references`: whether results are compared with the reference.
    """
    flush = DEFAULT_FLUSH if options.flush and task.chosen.target is Target.CUDA else 0
    at_check = [task.check_at] if references else []
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_directory("dagc-tune-"))
        records = stack.enter_context(
            open_records(task, output, options, flush) if output is not None else nullcontext()
        )
        before = records.tuned().facts.objective if records is not None and options.resume else "time"
        objective = objective_for(options.objective or before, task.chosen.target.value, task.program)
        task = replace(task, compared=bool(of_results(observed(objective))))
        prefetch = stack.enter_context(
            Prefetch(folder / "inputs", partial(_job, task, at_check), **_processes(task, ahead))
        )
        known = known_before(records, task, flush, options.resume)
        minimise(records, known.measured, objective)
        prefetch.expect([p for p in order if p not in known.inputs])
        if progress is not None:
            progress(0, 0, "setting up the first inputs, compiling")
        library, task, failures = build_what_compiles(task, folder)
        known.measured.failures += failures
        ready = Prepared(task, library, notes=[records.note] if records is not None and records.note else [])
        service = stack.enter_context(Service(WorkerLink(task.ranks)))
        if records is not None:
            records.set_fact(FACT, fixed_of(task.program))
        yield Inputs(ready, prefetch, service, options, flush, known, records, progress, objective, at_check)


def _processes(task: TuningTask, ahead: int) -> dict[str, Any]:
    """How set-ups run: beside the measurement, or between measurements."""
    if not uses_cores(task):
        return {"processes": PROCESSES, "ahead": ahead}
    return {"processes": BETWEEN, "ahead": max(ahead, 4 * BETWEEN), "between": True}


def uses_cores(task: TuningTask) -> bool:
    """Whether answers of an op run on all cores. A thread of OpenMP that loses its core to something else keeps all
    others waiting, for milliseconds: nothing may run beside the measurement then, and what does is to be noticed."""
    return any(selects_device(task.graph.program, op_of(task.graph, unit)) for unit in task.units)


def _job(task: TuningTask, references: Collection[Point], point: Point) -> Job:
    program = task.text.program(dict(point.params))
    return Job(program, task.text.path.parent, task.ranks, task.seed, task.compared or point in references)


def order_of(task: TuningTask) -> list[Point]:
    """The input of the checks first, the others in random order, so that a time limit leaves a random part of them."""
    others = [p for p in task.points if p != task.check_at]
    random.Random(f"{task.seed} order").shuffle(others)
    return [task.check_at, *others]
