"""Commands that mpiexec or srun started as ranks: rank 0 compiles, all of them run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from dagc.base.errors import DagcError, RunFailed, WrongResult
from dagc.measure.bench import BenchResult, describe
from dagc.measure.runner import Row, Runner, world
from dagc.measure.watchdog import Watchdog, place

T = TypeVar("T")


class Team:
    """The ranks that this command belongs to. Creating it initialises MPI. Raises MissingTool without mpi4py."""

    def __init__(self) -> None:
        self.comm = world()
        self.rank: int = self.comm.Get_rank()
        self.size: int = self.comm.Get_size()

    def first(self, work: Callable[[], T]) -> T:
        """Rank 0 executes `work`; every rank gets its result, or raises its DagcError."""
        result: T | None = None
        error: DagcError | None = None
        if self.rank == 0:
            try:
                result = work()
            except DagcError as raised:
                error = raised
        message = self.comm.bcast(None if error is None else (error.render(), error.exit_code))
        if message is not None:
            if error is not None:
                raise error
            raise Elsewhere(*message)
        shared: T = self.comm.bcast(result)
        return shared

    def measure(
        self,
        library: Path,
        data: Path,
        rows: Sequence[Row],
        seconds: float,
        repeats: int,
        device_pointers: bool,
        watchdog: float,
    ) -> BenchResult:
        """Check one run, then time it as `bench` does, through the runner. Work longer than `watchdog` seconds is a
        hang, and ends the ranks.

        Raises WrongResult on rank 0 and Elsewhere on the others, so that it is reported once.
        """
        with Runner(library, data, self.comm, mpi_takes_device_pointers=device_pointers) as runner:
            table = runner.prepare(rows)
            dog, limit = Watchdog(self.rank), max(watchdog, 100 * seconds)

            def watched(work: Callable[[], T]) -> T:
                with dog.watch(limit, lambda: place(rows, runner.position(), runner.op_name)):
                    return work()

            for check in (runner.audit, runner.check, partial(runner.check, poison=1)):
                self._require_right(watched(partial(check, table)))
            guess, _ = watched(lambda: runner.measure(table, seconds))  # warm-up
            times = [watched(lambda: runner.measure(table, seconds, guess)[0]) for _ in range(repeats)]
            self._require_right(watched(lambda: runner.check(table, poison=1, runs=0)))
        return describe(times, self.size)

    def _require_right(self, wrong: str) -> None:
        if wrong:
            raise WrongResult(wrong) if self.rank == 0 else Elsewhere(wrong, WrongResult.exit_code)


class Elsewhere(RunFailed):
    """Another rank failed and reports it; this one exits silently with the same exit code."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code

    def render(self) -> str:
        return ""
