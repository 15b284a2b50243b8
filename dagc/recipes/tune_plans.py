"""What tuning of whole programs measures: each plan, compiled once, at one input (or size) after the other."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from dagc.base.errors import DagcError
from dagc.build.mpi import cores
from dagc.choice.selector import number as as_json
from dagc.choice.types import PROGRAM, Cell, Point, settings_text
from dagc.lab.engine import SearchOptions, explore
from dagc.lab.launches import Programs, Row, Timing
from dagc.lab.plans import plan_label
from dagc.lab.settings import LaunchSettings
from dagc.lab.strategy import find
from dagc.measure.service import RunnerLibrary
from dagc.recipes.artifacts import build_artifact, compile_traversal
from dagc.recipes.tune_inputs import CLEAR, candidates, check_at_first, elements_of
from dagc.recipes.tune_measure import CellStore
from dagc.setup import read_scalars
from dagc.setup.prefetch import Job, Prefetch
from dagc.space import Space

if TYPE_CHECKING:
    from dagc.build.target import TargetChoice
    from dagc.choice.types import Settings
    from dagc.ir.program import Program
    from dagc.lab.plans import ProgramSelect
    from dagc.measure.service import Service
    from dagc.recipes.options import Progress, TuneOptions
    from dagc.recipes.program import ProgramText
    from dagc.store.records import Records
    from dagc.store.tuned import InputFacts

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


class PlanPoints:
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
        self.records, self.progress = records, progress
        self.failures: list[str] = []
        self.wrong: set[Settings] = set()
        self.groups = task.references()
        self.together = len(self.groups) == 1
        self.built: dict[Settings, BuiltProgram] = {}
        self.refused: dict[Settings, str] = {}
        self.refused_points: set[Point] = set()
        self.left = options.budget if options.budget is not None else 10**9
        self.end: float | None = None
        self.done, self.total = 0, 0
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
                if failure:
                    self.wrong.add(settings)
                    self.failures.append(f"{settings_text(settings)} at {point.text or 'as given'}: {failure}")
                if self.records is not None:
                    self.records.add_check(PROGRAM, settings, point, failure)
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
        if self.records is not None:
            self.records.add_cell(cell, 0)
        self.cells[cell.point, cell.settings] = cell
        self.done, self.left = self.done + 1, self.left - 1
        what = settings_text(cell.settings)
        if cell.failure:
            self.failures.append(f"{what} at {cell.point.text or 'as given'}: {cell.failure}")
        if self.progress is not None:
            self.progress(self.done, max(self.total, self.done), f"{cell.point.text} {what}")

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
