"""Runs an emitted `bench` on its ranks, which `mpiexec` or `srun` may have started already, and statistics of
measurements as measure.hpp computes them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dagc.base.errors import DagcError, MissingTool, RunFailed, UsageError, WrongResult, counted
from dagc.base.signals import HANGS
from dagc.base.statistics import median_interval
from dagc.build.ranks import numbers, wanted_binding
from dagc.ir.traversal import Row
from dagc.measure.launch import Finished, Printed, launch
from dagc.measure.runner import Runner, sleep_until, world
from dagc.measure.watchdog import Watchdog, ended, hang_summary, place

# ---- bench ----


# Texts of cudaGetErrorString for errors that kernels cause while they run; none is recoverable.
_KERNEL_ERRORS = (
    "illegal memory access", "misaligned address", "unspecified launch failure", "illegal instruction",
    "invalid program counter", "not supported on global/shared address space", "hardware stack error",
    "device-side assert",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BenchResult:
    """One run. Times in seconds per iteration, maximum over ranks; `record` is the complete JSON from bench."""

    ranks: int
    median: float
    low: float
    high: float
    minimum: float
    maximum: float
    variation: float
    repeats: int
    record: dict[str, Any]
    warnings: tuple[str, ...] = ()  # printed by the program

    @property
    def seats(self) -> tuple[Seat, ...]:
        """Where each rank ran."""
        return tuple(Seat.of(line) for line in self.record.get("environment", {}).get("placement", ()))

    @property
    def chosen(self) -> tuple[str, ...]:
        """The choices of the program, with the number of ranks for each reason: `y: ell (chosen 2)`."""
        return tuple(
            f"{c['op']}: {c['answer']} ({', '.join(f'{reason} {n}' for reason, n in c['counts'].items() if n)})"
            for c in self.record.get("choices", ())
        )

    def table(self) -> list[str]:
        """Two lines: names and values, in microseconds."""
        names = ("ranks", "median us", "95% interval", "min", "max", "variation", "measurements")
        cells = (
            str(self.ranks), f"{self.median * 1e6:.2f}", f"{self.low * 1e6:.2f} .. {self.high * 1e6:.2f}",
            f"{self.minimum * 1e6:.2f}", f"{self.maximum * 1e6:.2f}", f"{self.variation:.1%}", str(self.repeats),
        )  # fmt: skip
        widths = [max(len(a), len(b)) for a, b in zip(names, cells, strict=True)]
        rows = ["  ".join(f"{c:>{w}}" for c, w in zip(row, widths, strict=True)) for row in (names, cells)]
        where = placement(self.seats) if wanted_binding() else misplaced(self.seats)
        return [
            "results agree with the reference; time per iteration, maximum over ranks:", *rows, *self._solve(), *where,
        ]  # fmt: skip

    def _solve(self) -> list[str]:
        """The lines for a program with CUDA graphs, what is in each; with `until`, how its repetition ended; and for
        one that chose during its runs: the time of all runs, and when it switched."""
        record = self.record
        out = [
            f"graph of {counted(g['nodes'], 'node')}, {counted(g['programmatic'], 'programmatic edge')}"
            for g in record.get("graphs", ())
        ]
        if "converged" in record:
            end = "until its end" if record["converged"] else "not converged:"
            out.append(f"repetition {end} {record['runs']} runs, {record['solve_seconds']:.4g} s")
        if "beside" in record:
            out.append(f"all runs in {record['solve_seconds']:.4g} s; beside the first: {record['beside']}")
        return out


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a rank runs: the number of its GPU (-1: none) and the NUMA node of that (-1: not known), the cores that its
    threads may use, the nodes of these and the first threads of each, as `0-3,8`. Measured where it is placed badly,
    else 0: `copies`, bytes a second from page-locked memory to the GPU, `copies_near` from the node of the GPU; and
    `beside`, how many times as long work takes while the other ranks of the host work as alone."""

    host: str
    gpu: int
    gpu_node: int
    cores: str
    nodes: str
    threads: str = ""
    copies: float = 0.0
    copies_near: float = 0.0
    beside: float = 0.0

    @classmethod
    def of(cls, line: str) -> Seat:
        host, gpu, gpu_node, cores, nodes, threads, *cost = line.split("\t")
        return cls(host, int(gpu), int(gpu_node), cores, nodes, threads, *map(float, cost))

    @property
    def text(self) -> str:
        near = f" (node {self.gpu_node})" if self.gpu_node >= 0 else ""
        gpu = f"GPU {self.gpu}{near}, " if self.gpu >= 0 else ""
        return f"{self.host}: {gpu}cores {self.cores}" + (f" (node {self.nodes})" if self.nodes else "")


MOST_SEATS = 16  # that are printed


def placement(seats: Sequence[Seat]) -> list[str]:
    """A line for each rank, and notes on those that are placed badly."""
    lines = [f"rank {rank} on {seat.text}" for rank, seat in enumerate(seats[:MOST_SEATS])]
    if len(seats) > MOST_SEATS:
        lines.append(f"and {counted(len(seats) - MOST_SEATS, 'other rank')}")
    for host in dict.fromkeys(seat.host for seat in seats):
        lines += _crowded(host, {rank: seat for rank, seat in enumerate(seats) if seat.host == host})
    return [*lines, *misplaced(seats)]


def _crowded(host: str, seats: Mapping[int, Seat]) -> list[str]:
    """Notes if there are fewer cores than ranks, or ranks on different threads of one core, with what that costs."""
    cores = {rank: numbers(seat.cores) for rank, seat in seats.items()}
    threads = {rank: numbers(seat.threads) for rank, seat in seats.items()}
    slowest = max(seat.beside for seat in seats.values())
    cost = f": work takes up to {slowest:.2f} times as long as alone (measured)" if slowest else ""
    if (number := len(set().union(*cores.values()))) < len(seats):
        return [f"note: {counted(len(seats), 'rank')} of {host} share {counted(number, 'core')}{cost}"]
    pairs = ((a, b) for a, b in combinations(seats, 2) if not cores[a] & cores[b] and threads[a] & threads[b])
    if (pair := next(pairs, None)) is None:
        return []
    return [f"note: ranks {pair[0]} and {pair[1]} of {host} have different threads of the same cores{cost}"]


def misplaced(seats: Sequence[Seat]) -> list[str]:
    """A note if ranks run on cores of another NUMA node than that of their GPU."""
    far = [rank for rank, seat in enumerate(seats) if seat.gpu_node >= 0 and seat.gpu_node not in numbers(seat.nodes)]
    if not far:
        return []
    first = seats[far[0]]
    others = f", as {counted(len(far) - 1, 'other rank')}" if len(far) > 1 else ""
    where = f"rank {far[0]} has cores of node {first.nodes} and GPU {first.gpu} of node {first.gpu_node}"
    cost = ""
    if first.copies and first.copies_near:
        here, near = (f"{value / 1e9:.1f}" for value in (first.copies, first.copies_near))
        cost = f": copies to the GPU by {here} GB/s, from cores of node {first.gpu_node} by {near} (measured)"
    return [f"note: {where}{others}{cost}; --bind near gives each rank cores of the node of its GPU"]


def run_bench(
    binary: Path,
    data: Path,
    ranks: int,
    seconds: float,
    repeats: int,
    mpi_takes_device_pointers: bool = False,
    watchdog: float = HANGS,
) -> BenchResult:
    """Run `binary` on `ranks` ranks with the arrays of `data`. An iteration longer than `watchdog` seconds is a hang,
    and ends the run.

    Raises WrongResult, MissingTool (too few GPUs, an MPI that does not take device pointers) or RunFailed, each with
    the line that the program printed.
    """
    with tempfile.TemporaryDirectory(prefix="dagc-run-") as scratch:
        record = Path(scratch) / "bench.json"
        argv = [str(binary.absolute()), "--data", str(data.absolute()), "--seconds", repr(seconds)]
        argv += ["--repeats", str(repeats), "--watchdog", repr(watchdog)]
        done, record_json = _launched(argv, ranks, record, mpi_takes_device_pointers)
        if done.returncode:
            raise _failure(done)
    messages = (line.partition("warning: ") for line in done.stderr.splitlines())
    warnings = tuple(text for head, mark, text in messages if mark and not head)
    return replace(_result(record_json, ranks), warnings=warnings)


HANG_HELP = (
    "the ranks named first wait forever: a message without a counterpart, or an endless loop; "
    "if an iteration takes this long, increase --watchdog"
)


def fails_in_a_kernel(error: DagcError) -> bool:
    """Whether the GPU reported an error of a kernel: CUDA reports it at a later call, which does not name the op."""
    return isinstance(error, RunFailed) and any(text in error.message for text in _KERNEL_ERRORS)


def run_audit(
    runner: Path,
    data: Path,
    ranks: int,
    tables: Sequence[str],
    mpi_takes_device_pointers: bool = False,
    watchdog: float = HANGS,
) -> None:
    """Run each of these traversals (`dagc.emit.table_line`) op by op, and check the changes of each op.

    `runner` is the runner as a program. Raises as `run_bench`.
    """
    with tempfile.TemporaryDirectory(prefix="dagc-run-") as scratch:
        file = Path(scratch) / "tables.txt"
        file.write_text("".join(f"{table}\n" for table in tables))
        argv = [str(runner.absolute()), "--data", str(data.absolute()), "--tables", str(file), "--audit"]
        argv += ["--watchdog", repr(watchdog)]
        done, record = _launched(argv, ranks, Path(scratch) / "audit.json", mpi_takes_device_pointers)
    if done.returncode not in (0, WrongResult.exit_code) or not record:
        raise _failure(done)
    for result in record["results"]:
        if not result["good"]:
            raise WrongResult(result["wrong"])


def _launched(
    argv: Sequence[str], ranks: int, record: Path, mpi_takes_device_pointers: bool
) -> tuple[Finished, dict[str, Any]]:
    """Run an emitted program that writes its results to the file `record`; {} if it ended before. What it prints is not
    read, but passed on."""
    options = ["--json", str(record), "--quiet"]
    if mpi_takes_device_pointers:
        options.append("--mpi-takes-device-pointers")
    done = launch([*argv, *options], ranks)
    printed = Printed()
    printed.add(done.stdout.splitlines())
    printed.add(done.stderr.splitlines())
    printed.show()
    try:
        content: dict[str, Any] = json.loads(record.read_text()) if record.exists() else {}
    except (OSError, ValueError) as error:
        raise RunFailed(f"{argv[0]} wrote no record: {error}") from None
    if done.returncode == 0 and not content:
        raise RunFailed(f"{argv[0]} wrote no record")
    return done, content


def _result(record: dict[str, Any], ranks: int) -> BenchResult:
    time = record["time"]
    stats = time["statistics"]
    return BenchResult(
        ranks, stats["median"], stats["median_low"], stats["median_high"], stats["min"], stats["max"],
        stats["variation"], len(time["seconds"]), record,
    )  # fmt: skip


def _failure(done: Finished) -> DagcError:
    """The program's own failure message; else the way it ended, and the end of its output."""
    output = (done.stderr or done.stdout).splitlines()
    hang = hang_summary(output)
    if hang:
        return RunFailed(f"hang: {hang}", HANG_HELP)
    signalled = ended(output)
    if signalled:
        return RunFailed(signalled)
    lines = [line.removeprefix("dagc: ") for line in output if line.startswith("dagc:")][:4]
    kinds: dict[int, type[DagcError]] = {1: WrongResult, 2: UsageError, 3: MissingTool}
    kind = kinds.get(done.returncode, RunFailed)
    if not lines:
        lines = output[-5:] if output and kind is not RunFailed else [f"the program {done.why()}", *output[-5:]]
    return kind("\n".join(lines))


# ---- statistics, as in templates/runtime/dagc/measure.hpp ----


def describe(seconds: Sequence[float], ranks: int) -> BenchResult:
    """Statistics of measurements in seconds per iteration, in the order taken."""
    values = np.sort(np.asarray(seconds, dtype=float))
    low, high = median_interval(len(values))
    spread = float(values.std(ddof=1) / values.mean()) if len(values) > 1 else 0.0
    return BenchResult(
        ranks, float(np.median(values)), float(values[low]), float(values[high]), float(values[0]),
        float(values[-1]), spread, len(values), {"time": {"unit": "s", "seconds": list(seconds)}},
    )  # fmt: skip


# ---- commands that mpiexec or srun started as ranks ------------------------------------------------


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
        sleep_until(self.comm.Ibarrier().Test)
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
            where = {"placement": runner.placement(self.size)}
        result = describe(times, self.size)
        return replace(result, record={**result.record, "environment": where})

    def _require_right(self, wrong: str) -> None:
        if wrong:
            raise WrongResult(wrong) if self.rank == 0 else Elsewhere(wrong, WrongResult.exit_code)


class Elsewhere(RunFailed):
    """Another rank failed and reports it; this rank exits silently with the same exit code."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code

    def render(self) -> str:
        return ""
