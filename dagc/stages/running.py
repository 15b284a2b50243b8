"""Runs of a compiled program: by processes that are started here, or as one of several ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dagc.base.errors import RunFailed, UsageError, WrongResult
from dagc.build.ranks import rank_among
from dagc.emit.layout import promises
from dagc.ir.program import Program
from dagc.lang.code import where_to_look
from dagc.report.display import Display
from dagc.space import Space
from dagc.stages.artifacts import Compiled, build_artifact
from dagc.stages.options import CompileOptions
from dagc.stages.program import write_arrays

if TYPE_CHECKING:
    from dagc.measure.bench import BenchResult


@dataclass(frozen=True, slots=True)
class Running:
    """How to run a compiled program, and on how many ranks."""

    ranks: int
    options: CompileOptions
    display: Display

    def data(self, compiled: Compiled) -> Path:
        """The directory of its arrays."""
        return compiled.directory / f"data-{self.ranks}"

    def arrays(self, program: Program, directory: Path) -> None:
        """Write the arrays of the set-up and the references of each rank. Runs the user's Python code."""
        folder = Path(program.path).parent
        write_arrays(program, folder, directory / f"data-{self.ranks}", self.ranks, self.options.seed, self.display)

    def time(self, compiled: Compiled) -> BenchResult:
        """Check the results and time them. Raises like `dagc.measure.bench.run_bench`."""
        from dagc.measure.bench import run_bench  # loads numpy

        assert compiled.binary is not None
        o = self.options
        with self.display.phase("checking the results, timing"):
            return run_bench(
                compiled.binary, self.data(compiled), self.ranks, o.seconds, o.repeats, o.mpi_takes_device_pointers,
                o.watchdog,
            )  # fmt: skip


def rank_of(how: Running, form: str) -> int | None:
    """The rank of this process, None if it starts all ranks. Raises UsageError for options that cannot run."""
    if form not in ("program", "driver"):
        raise UsageError(f"--run needs a standalone program, not a {form}", "drop --run, or drop --as")
    if form == "driver" and how.options.bind:
        raise UsageError("--bind is for programs in C++, and a driver places no ranks", "drop --bind, or drop --as")
    return rank_among(how.ranks)


def checked(done: Compiled, how: Running) -> Compiled:
    """Check and time it. If its results are wrong, or a kernel failed on the GPU, search for the op."""
    from dagc.measure.bench import fails_in_a_kernel  # loads numpy

    if promises(done.plan.graph) or any(op.is_promised for op in done.plan.program.kernel_ops):
        _audit(done, how)
    try:
        return replace(done, result=how.time(done))
    except (WrongResult, RunFailed) as error:
        wrong = isinstance(error, WrongResult)
        if wrong or fails_in_a_kernel(error):
            _audit(done, how)  # may know which op it is
        if not wrong:
            raise
        audited = "" if done.plan.open else "run one by one, all ops change only what their headers declare; "
        raise WrongResult(error.message, audited + where_to_look(done.plan.program)) from None


def _audit(done: Compiled, how: Running) -> None:
    """Raises WrongResult with the name of the op if an op changes an array that its header does not declare as written.

    Runs the order of the plan and the one most different from the text, so that overlapping parts are detected in one
    of them.
    """
    from dagc.emit import table_line  # loads jinja2
    from dagc.measure.bench import run_audit  # loads numpy

    if done.plan.open:
        return  # its launch parameters are chosen when the program runs
    with how.display.phase("compiling the runner, checking what each op changes"):
        runner = build_artifact(done.directory, done.plan, "audit")
        tables = [table_line(t) for t in (done.plan.traversal, Space(done.plan.graph).last())]
        direct, watchdog = how.options.mpi_takes_device_pointers, how.options.watchdog
        with _saying_where_to_look(done):
            run_audit(runner, how.data(done), how.ranks, tables, direct, watchdog)


@contextmanager
def _saying_where_to_look(done: Compiled) -> Iterator[None]:
    """Gives wrong results their help."""
    try:
        yield
    except WrongResult as error:
        raise WrongResult(error.message, error.help or where_to_look(done.plan.program)) from None


def run_as_rank(compile_here: Callable[[], Compiled], how: Running) -> Compiled:
    """Run as one of several ranks: rank 0 compiles, all run."""
    from dagc.emit import rows  # loads jinja2
    from dagc.measure.bench import Team  # loads numpy

    team = Team()

    def prepare() -> tuple[Compiled, Path, Path]:
        done = compile_here()
        return done, how.data(done).absolute(), build_artifact(done.directory, done.plan, "runner")

    done, data, library = team.first(prepare)
    o = how.options
    table = rows(done.plan.traversal)
    with _saying_where_to_look(done):
        result = team.measure(library, data, table, o.seconds, o.repeats, o.mpi_takes_device_pointers, o.watchdog)
    return replace(done, result=result if team.rank == 0 else None)
