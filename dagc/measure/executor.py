"""Execution of the measuring service's commands on a rank. All ranks execute every command together.

A command is a JSON-compatible dict; `do` names it, `limit` is its time limit in seconds. Commands and answers:

    hello                                               -> {}
    describe target arch                                -> machines: a MachineRecord of each host
    open     key library data device_pointers           -> {}
    close    key                                        -> {}
    audit    key tables [settings]                      -> wrong, or {}
    measure  key rows check recheck seconds guess [metrics] [settings]
                                                        -> wrong, or seconds, iterations, metrics by name
    trace    key rows [settings]                        -> spans: rank, position, begin, end, gpu_begin, gpu_end
    features key                                        -> values and seconds of rank 0
    preparations key                                    -> seconds by "OP VARIANT", of the slowest rank

`settings` and `base` give open launch parameters as (decision, value); those that are not given stay as they are. For
libraries with open launch parameters:

    verify   key rows base settings runs                -> wrong, or {}
    place    key rows base ops op iterations            -> wrong, or times: of the op, once
    launch   key op settings tolerance timing           -> wrong, or times
    observe  key op settings metrics seconds [rows]     -> wrong, or metrics by name
    count    key op settings                            -> wrong, or {}

`verify` compares whole runs of the program with its references. `place` runs the program `iterations` times, then its
`ops` up to `op`, so that `op` finds the data of a real run; `launch` times single launches of `op` from there, whose
results must agree with those under `base` (no `tolerance`: not compared again); `observe` observes metrics of a launch
of at least `seconds`, and with `rows` those of the results of a run, after which the data of `place` are lost; `count`
runs one launch under a profiler.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import hashlib
import json
import math
import os
import platform
import signal
import socket
import sys
import time
import traceback
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from dagc.base.errors import DagcError, MissingTool, RunFailed, counted
from dagc.base.python import processors
from dagc.measure.metrics import Amount, least_seconds, metric, of_results
from dagc.measure.runner import Runner, Table, sleep_until, world
from dagc.measure.watchdog import FAULT, Watchdog, place

if TYPE_CHECKING:
    from mpi4py.MPI import Comm

Command = dict[str, Any]
Answer = dict[str, Any]
STOP: Command = {"do": "stop"}
# Number of tables kept prepared in each library. The drift reference stays among them, being used again and again.
_TABLES = 32
_TAG, _GROUP_TAG = 7771, 7772


class Executor:
    """Executes commands on this rank; all ranks of `comm` must execute the same ones, in the same order."""

    def __init__(self, comm: Comm) -> None:
        self._comm = comm
        self._watchdog = Watchdog(comm.Get_rank())
        self._open: dict[str, _Opened] = {}
        self._do: dict[str, Callable[[Command], Answer]] = {
            "hello": lambda _: {},
            "describe": self._describe,
            "open": self._open_library,
            "close": self._close_library,
            "audit": self._audit,
            "measure": self._measure,
            "solve": self._solve,
            "trace": self._trace,
            "features": self._features,
            "preparations": self._preparations,
            "verify": self._verify,
            "place": self._place,
            "launch": self._launch,
            "observe": self._observe_launches,
            "count": self._count,
        }

    def run(self, command: Command) -> Answer:
        """Execute a command. A DagcError on any rank is an answer on every rank: {"error": its message}."""
        try:
            return self._do[command["do"]](command)
        except DagcError as error:
            return {"error": error.message}

    def close(self) -> None:
        """Close all libraries."""
        for opened in self._open.values():
            opened.runner.close()
        self._open.clear()

    # ---- commands -----------------------------------------------------------------------------

    def _describe(self, command: Command) -> Answer:
        from mpi4py import MPI

        here, known = platform.node(), None
        ranks = self._comm.allgather((here, processors()))
        if [host for host, _ in ranks].index(here) == self._comm.Get_rank():  # the others would find the same
            from dagc.measure.machine import machine_facts  # only on one rank of a host: 40 % of the imports

            library = MPI.Get_library_version().split("\n")[0].strip(" \0")
            facts = machine_facts(command["target"], command["arch"], [here], library)
            # Of all ranks, each of which may be bound to cores of its own.
            bound = len(frozenset().union(*(cores for host, cores in ranks if host == here)))
            known = asdict(replace(facts, cores=bound))
        return {"machines": [one for one in self._comm.allgather(known) if one is not None]}

    def _open_library(self, command: Command) -> Answer:
        if command["key"] in self._open:  # an earlier request was interrupted before its answer
            return {}
        # A library has one set of arrays: with other arrays it has another key, and replaces the first.
        for key in [key for key, opened in self._open.items() if opened.library == command["library"]]:
            self._open.pop(key).runner.close()
        with self._watchdog.watch(command["limit"], lambda: f"the set-up of {command['library']}"):
            error, runner = "", None
            try:
                runner = Runner(
                    Path(command["library"]), Path(command["data"]), self._comm,
                    mpi_takes_device_pointers=command["device_pointers"],
                )  # fmt: skip
            except DagcError as raised:
                error = raised.message
            self._agree(error)
            assert runner is not None
            self._open[command["key"]] = _Opened(runner, command["key"], command["library"])
        return {}

    def _close_library(self, command: Command) -> Answer:
        opened = self._open.pop(command["key"])
        with self._watchdog.watch(command["limit"], lambda: "the end of a library"):
            opened.runner.close()
        return {}

    def _audit(self, command: Command) -> Answer:
        for rows in command["tables"]:
            with self._in_runs(command, rows) as (runner, table):
                wrong = runner.audit(table)
            if wrong:
                return {"wrong": wrong}
        return {}

    def _measure(self, command: Command) -> Answer:
        with self._in_runs(command, command["rows"]) as (runner, table):
            wrong = runner.check(table) if command["check"] else ""
        if wrong:
            return {"wrong": wrong}
        with self._in_runs(command, command["rows"]) as (runner, table):
            seconds, iterations = runner.measure(table, command["seconds"], command["guess"])
            metrics = self._observe(runner, table, iterations, seconds, command.get("metrics", ()))
            wrong = runner.check(table, poison=1, runs=0) if command["recheck"] else ""
        if wrong:
            return {"wrong": wrong}
        return {"seconds": seconds, "iterations": iterations, "metrics": metrics}

    def _observe(
        self, runner: Runner, table: Table, iterations: int, seconds: float, names: Sequence[str]
    ) -> dict[str, float]:
        """Metrics of an iteration by name, equal on all ranks. They are observed over a separate repetition, since
        reading counters would take time in a timed one."""
        metrics = self._of_results(runner, table, of_results(names))
        names = [name for name in names if name not in metrics]
        if not names:
            return metrics
        observers = self._observers(names)
        amounts: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        batch = runner.longest() or iterations
        if batch < iterations and batch * seconds < least_seconds(names):
            raise RunFailed(
                f"{' and '.join(names)} take {least_seconds(names)} s of repetition, and the data of this program are"
                f" reset after {counted(batch, 'iteration')}"
            )
        for done in range(0, iterations, batch):
            runner.reset()
            self._comm.Barrier()
            for observer in observers.values():
                observer.start()
            runner.execute(table, min(batch, iterations - done))
            self._comm.Barrier()
            for name, observer in observers.items():
                amounts[name].append(observer.stop())
        return metrics | {name: self._of_one(name, amounts[name], iterations) for name in names}

    def _of_results(self, runner: Runner, table: Table, names: Sequence[str]) -> dict[str, float]:
        """Metrics of the results of one run, by name. Raises RunFailed where these are wrong."""
        if not names:
            return {}
        runner.error()  # those of the arrays compared before
        self._agree(runner.check(table))
        return {name: self._combined(name, metric(name).of_results(runner)) for name in names}

    def _observers(self, names: Sequence[str]) -> dict[str, Any]:
        observers: dict[str, Any] = {}
        error = ""
        try:
            observers = {name: metric(name).Observer() for name in names}
        except DagcError as raised:
            error = raised.message
        self._agree(error)
        return observers

    def _of_one(self, name: str, parts: Sequence[Mapping[str, float]], iterations: int) -> float:
        """The metric of one iteration or launch, from what was observed in the parts of a repetition."""
        amount: Amount = getattr(metric(name), "AMOUNT", Amount.SUM)
        return amount.of_one(self._combined(name, amount.joined(parts)), iterations)

    def _combined(self, name: str, amounts: Mapping[str, float]) -> float:
        """The amounts of all ranks combined, each measured device once."""
        parts: dict[str, float] = {}
        for of_rank in self._comm.allgather(dict(amounts)):
            parts |= {what: max(amount, parts.get(what, 0.0)) for what, amount in of_rank.items()}
        return float(metric(name).combine(parts.values()))

    def _solve(self, command: Command) -> Answer:
        with self._in_runs(command, command["rows"]) as (runner, table):
            seconds, runs, ended = runner.solve(table)
        if not ended:
            return {"wrong": f"the end of the repetition was not reached in {counted(runs, 'run')}"}
        return {"seconds": seconds, "iterations": runs}

    def _trace(self, command: Command) -> Answer:
        with self._in_runs(command, command["rows"]) as (runner, table):
            mine = runner.trace(table)
            spans = [
                [rank, position, *times]
                for rank, of_rank in enumerate(self._comm.allgather(mine))
                for position, times in enumerate(of_rank)
            ]
        return {"spans": spans}

    def _features(self, command: Command) -> Answer:
        opened = self._opened(command)
        with self._watchdog.watch(command["limit"], opened.runner.feature_now):
            values, seconds = opened.runner.features()
            return dict(zip(("values", "seconds"), self._comm.bcast((values, seconds)), strict=True))

    def _preparations(self, command: Command) -> Answer:
        every = self._comm.allgather(self._opened(command).runner.preparations())
        return {"seconds": {name: max(of_rank[name] for of_rank in every) for name in every[0]}}

    # ---- open launch parameters ---------------------------------------------------------------

    def _verify(self, command: Command) -> Answer:
        with self._in_runs(command, command["rows"]) as (runner, table):
            runs = command["runs"]
            wrong = runner.check(table, 0, runs) or runner.check(table, 1, runs)
            return self._slowest(wrong and (runner.audit(table) or wrong))

    def _place(self, command: Command) -> Answer:
        opened, rows, op, ops = self._opened(command), command["rows"], command["op"], command["ops"]
        runner, placed = opened.runner, opened.placed
        start = (command["base"], rows, command["iterations"])
        opened.placed = None
        with self._watchdog.watch(command["limit"], partial(self._where, opened, rows)):
            opened.use(command["base"])
            if placed is not None and placed.start == start and placed.op in ops[: ops.index(op)]:
                runner.again(placed.op, 0.0)  # as in the program, for the ops that follow
                before = ops[ops.index(placed.op) + 1 : ops.index(op)]
            else:
                runner.reset()
                runner.execute(self._table(opened, rows), command["iterations"])
                before = ops[: ops.index(op)]
            for other in before:
                runner.issue(other)
            began = time.perf_counter()
            wrong = runner.keep(op)
            opened.placed = _Placed(start, op)
            return self._slowest(wrong, [time.perf_counter() - began])

    def _launch(self, command: Command) -> Answer:
        tolerance = command["tolerance"]  # relative, absolute
        with self._at(command) as runner:
            wrong = ""
            if tolerance is not None:
                rtol, atol = tolerance
                wrong = runner.again(command["op"], rtol, atol, command["criteria"])
            times = [] if wrong else runner.time(command["op"], **command["timing"])
            return self._slowest(wrong, times)

    def _observe_launches(self, command: Command) -> Answer:
        """Metrics of a launch, observed over as many consecutive launches as they need, and of the results of a run."""
        opened, metrics = self._opened(command), {}
        results = of_results(command["metrics"])
        names = [name for name in command["metrics"] if name not in results]
        if names:
            metrics = self._of_launches(command, names)
        if results:
            with self._at(command) as runner:
                opened.placed = None
                metrics |= self._of_results(runner, self._table(opened, command["rows"]), results)
        return {"metrics": metrics}

    def _of_launches(self, command: Command, names: Sequence[str]) -> dict[str, float]:
        observers = self._observers(names)
        seconds = max(least_seconds(names), 0.01)
        number = max(5, math.ceil(seconds / max(command["seconds"], 1e-6)))
        with self._at(command) as runner:
            self._comm.Barrier()
            for observer in observers.values():
                observer.start()
            wrong = runner.issue(command["op"], number)
            amounts = {name: [observer.stop()] for name, observer in observers.items()}
            self._agree(wrong)
        return {name: self._of_one(name, amounts[name], number) for name in names}

    def _count(self, command: Command) -> Answer:
        with self._at(command) as runner:
            runner.restore(command["op"])
            driver = ctypes.CDLL("libcuda.so.1")
            driver.cuProfilerStart()
            try:
                return self._slowest(runner.issue(command["op"]))
            finally:
                driver.cuProfilerStop()

    @contextmanager
    def _in_runs(self, command: Command, rows: list[list[int]]) -> Iterator[tuple[Runner, Table]]:
        """The runner and the table for whole runs, under the settings of a command and within its limit. The data of
        `place` are lost."""
        opened = self._opened(command)
        opened.placed = None
        with self._watchdog.watch(command["limit"], partial(self._where, opened, rows)):
            opened.use(command.get("base", ()), command.get("settings", ()))
            yield opened.runner, self._table(opened, rows)

    @contextmanager
    def _at(self, command: Command) -> Iterator[Runner]:
        """The runner in the state after `place`, under the settings of a command."""
        opened, op = self._opened(command), command["op"]
        if opened.placed is None or opened.placed.op != op:
            raise RunFailed("the program is not at this op")
        with self._watchdog.watch(command["limit"], lambda: f"op `{opened.runner.op_name(op)}`"):
            opened.use(opened.placed.base, command["settings"])
            yield opened.runner

    def _slowest(self, wrong: str, times: Sequence[float] = ()) -> Answer:
        """The error of the first rank with an error, else the times of the slowest rank."""
        every: list[tuple[str, list[float]]] = self._comm.allgather((" ".join(wrong.split()), list(times)))
        failed = [(rank, text) for rank, (text, _) in enumerate(every) if text]
        if failed:
            rank, text = failed[0]
            alike = len({text for text, _ in every}) == 1  # also for checks of all ranks together
            return {"wrong": text if alike else f"rank {rank}: {text}"}
        return {"times": max((of_rank for _, of_rank in every), key=lambda t: median(t) if t else 0.0)}

    @staticmethod
    def _where(opened: _Opened, rows: list[list[int]]) -> str:
        return place(rows, opened.runner.position(), opened.runner.op_name)

    # ---- tables, and errors of all ranks ------------------------------------------------------

    def _opened(self, command: Command) -> _Opened:
        if command["key"] not in self._open:
            raise RunFailed("its library is not open")
        return self._open[command["key"]]

    def _table(self, opened: _Opened, rows: list[list[int]]) -> Table:
        """The prepared table, after all ranks have confirmed that they execute the same one.

        Captured regions hold the launch parameters that they were captured with: other ones are another table.
        """
        content = array("i", chain.from_iterable(rows)).tobytes() + repr(sorted(opened.settings.items())).encode()
        self._same(int.from_bytes(hashlib.blake2b(content, digest_size=7, key=opened.name).digest()))
        table = opened.tables.pop(content, None)
        if table is None:
            error = ""
            try:
                table = opened.runner.prepare([(kind, a, b) for kind, a, b in rows])
            except DagcError as raised:
                error = raised.message
            self._agree(error)
            assert table is not None
            if len(opened.tables) >= _TABLES:
                unused = next(iter(opened.tables))  # least recently used
                opened.runner.release(opened.tables.pop(unused))
        opened.tables[content] = table
        return table

    def _same(self, number: int) -> None:
        """Raises RunFailed on every rank unless all ranks have the same number."""
        from mpi4py import MPI

        mine, most = array("q", (number, -number)), array("q", (0, 0))
        self._comm.Allreduce(mine, most, op=MPI.MAX)
        if most[0] != -most[1]:
            raise RunFailed("the ranks were about to execute different traversals")

    def _agree(self, error: str) -> None:
        """Raises RunFailed on every rank if any rank has an error."""
        errors = self._comm.allgather(error)
        for rank, message in enumerate(errors):
            if message:
                raise RunFailed(message if all(e == message for e in errors) else f"rank {rank}: {message}")


@dataclass(frozen=True, slots=True)
class _Placed:
    """The op before which the program stopped. `start`: base settings, table and iterations up to there."""

    start: tuple[Any, ...]
    op: int

    @property
    def base(self) -> Any:
        return self.start[0]


class _Opened:
    def __init__(self, runner: Runner, key: str, library: str) -> None:
        self.library = library
        self.placed: _Placed | None = None
        self.runner, self.name = runner, hashlib.sha256(os.fsencode(key)).digest()
        self.tables: dict[bytes, Table] = {}  # least recently used first
        self.settings: dict[str, int] = {}  # open launch parameters that were set

    def use(self, *settings: Sequence[tuple[str, int]]) -> None:
        """Set open launch parameters; if a parameter is given several times, the last value is used."""
        for name, value in chain(*settings):
            if self.settings.get(name) != value:
                self.runner.set(name, value)
                self.settings[name] = value


# ---- forwarding commands to the other ranks --------------------------------------------------------


def share(comm: Comm, command: Command) -> None:
    """Send a command from rank 0 to all others, which are in `serve`."""
    for rank in range(1, comm.Get_size()):
        comm.send(command, rank, _TAG)


def serve(comm: Comm, executor: Executor) -> None:
    """Run by all ranks but the first: execute commands until STOP, then close.

    Between commands they yield their cores.
    """
    while True:
        sleep_until(lambda: comm.iprobe(source=0, tag=_TAG))
        command = comm.recv(source=0, tag=_TAG)
        if command["do"] == STOP["do"]:
            return executor.close()
        executor.run(command)


# ---- groups of the ranks of one command ----


def tell(comm: Comm, rank: int, message: dict[str, Any]) -> None:
    """Send a message to a rank of another group, or its answer to the first rank of all."""
    comm.send(message, rank, _GROUP_TAG)


def heard(comm: Comm, rank: int) -> dict[str, Any]:
    """The next message of this rank."""
    sleep_until(lambda: comm.iprobe(source=rank, tag=_GROUP_TAG))
    message: dict[str, Any] = comm.recv(source=rank, tag=_GROUP_TAG)
    return message


def asked(comm: Comm, leader: int, command: Command) -> Answer:
    """The answer of the group of this leader to a command."""
    tell(comm, leader, command)
    return heard(comm, leader)


def obey(everyone: Comm, comm: Comm, executor: Executor) -> None:
    """Run by the first rank of every group but the first: execute the commands of the first rank of all."""
    while (command := heard(everyone, 0))["do"] != STOP["do"]:
        share(comm, command)
        tell(everyone, 0, executor.run(command))
    share(comm, STOP)
    executor.close()


# ---- a rank of the service ----
# `python -m dagc.measure.executor --socket PATH --ranks N`, started by dagc.measure.service. Rank 0 takes commands from
# the Unix socket of the searching process, one JSON object a line, and answers each with one. When that process ends,
# for any reason, the ranks end too.


def main() -> int:
    """Serve until the stop command."""
    parser = argparse.ArgumentParser(prog="dagc.measure.executor")
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    args = parser.parse_args()
    # Ctrl-C is handled by the searching process: it stops the ranks.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        comm = _world(args.ranks)
    except DagcError as error:
        print(f"dagc: {error.message}\ndagc: help: {error.help}", file=sys.stderr)
        return error.exit_code
    # Record which rank died of what, for dagc.measure.service: starters name the signal of the first rank they notice,
    # which may be one that they ended themselves.
    with _fault_file(args.socket.parent, comm.Get_rank()) as faults:
        faulthandler.enable(faults, all_threads=False)
        try:
            _serve(comm, args.socket)
        except Exception:
            _abort(comm)
        faulthandler.disable()
    return 0


def _fault_file(folder: Path, rank: int) -> AbstractContextManager[TextIO]:
    """On another host than the first rank's, where there is no such directory, faults go to the standard error."""
    return (folder / f"{FAULT}{rank}").open("w") if folder.is_dir() else nullcontext(sys.stderr)


def _world(ranks: int) -> Comm:
    comm = world()
    if comm.Get_size() != ranks:
        raise MissingTool(
            f"mpi4py sees {counted(comm.Get_size(), 'rank')} where {ranks} were started:"
            " it uses another MPI than mpiexec",
            "install mpi4py for this MPI, or name the other one's mpicxx in DAGC_MPICXX",
        )
    return comm


def _serve(comm: Comm, path: Path) -> None:
    executor = Executor(comm)
    if comm.Get_rank() == 0:
        _commands(comm, executor, path)
        share(comm, STOP)
        executor.close()
    else:
        serve(comm, executor)


def _commands(comm: Comm, executor: Executor, path: Path) -> None:
    """Execute commands until the stop command, or until the other end is closed."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        with suppress(ConnectionError), connection.makefile("rw", encoding="utf-8") as lines:
            if _obey(comm, executor, lines):
                return
    # No process is left to clean up.
    for name in path.parent.glob("*"):
        name.unlink(missing_ok=True)
    with suppress(OSError):
        path.parent.rmdir()


def _obey(comm: Comm, executor: Executor, lines: TextIO) -> bool:
    """Execute one command; returns whether it was the stop command. Raises ConnectionError if no process reads the
    answer."""
    for line in lines:
        command = json.loads(line)
        if command["do"] == STOP["do"]:
            return True
        share(comm, command)
        answer = executor.run(command)
        lines.write(json.dumps({**answer, "id": command["id"]}) + "\n")
        lines.flush()
    return False


def _abort(comm: Comm) -> NoReturn:
    """An unexpected exception on one rank ends all of them: the others may wait for it."""
    traceback.print_exc()
    sys.stderr.flush()
    comm.Abort(5)
    raise SystemExit(5)


if __name__ == "__main__":
    sys.exit(main())
