"""The measuring service: ranks that obey the commands of `dagc.measure.executor`, libraries opened on them when needed,
and their deaths counted in one place.

One protocol isolates crashes, hangs and wrong results: the ranks end, the next command starts them again, and libraries
are opened again. If the searching process was started alone, it starts the ranks itself and talks to the first over a
socket (`WorkerLink`): a rank that dies takes the others with it, but not the search. If the user started the command on
several ranks, the first rank searches and works with the others (`TeamLink`): a rank that dies ends the command
(dagc.measure.launch reports which, and its signal).
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self

from dagc.base import signals
from dagc.base.errors import MissingTool, RunFailed, UsageError, counted
from dagc.base.resources import IMPORTED_FROM
from dagc.build.mpi import cores, require_mpi
from dagc.build.ranks import rank_among, refuse
from dagc.build.toolchain import VISIBLE, gpus
from dagc.measure.executor import STOP, Executor, asked, obey, serve, share, tell
from dagc.measure.launch import Printed, Started, start
from dagc.measure.runner import world
from dagc.measure.watchdog import FAULT, died, ended, hang_summary

NOTHING_ELSE: Mapping[str, str] = MappingProxyType({})
START_SECONDS = 120.0
STARTS = 3
_LATE_SECONDS = 15.0  # beyond a command's limit, for the ranks' own watchdogs and their starter
_POLITE_SECONDS = 5.0
_PROFILER_SECONDS = 300.0
_MOST_SHOWN = 4 << 20  # characters of what ranks print: a kernel may print in each run


class RanksDied(Exception):
    """The ranks died, or were ended, during a command. The message gives the reason, in one line."""


class HostLost(RanksDied):
    """Not because of what they executed: their host or their job was lost. The next command has other ranks."""


class RankLink(ABC):
    """Commands to the ranks. After a death, libraries must be opened again.

    in_queue   whether they may have to wait until they can be started, for hours
    """

    in_queue: ClassVar[bool] = False

    @abstractmethod
    def ask(self, command: dict[str, Any]) -> dict[str, Any]:
        """Execute a command on the ranks and return its answer. Starts the ranks if they do not run. Raises
        RanksDied."""

    @abstractmethod
    def close(self) -> None:
        """End the ranks. May be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class WorkerLink(RankLink):
    """Ranks that this process starts, at the first command and after each death."""

    def __init__(
        self, ranks: int, profiler: Sequence[str] = (), groups: int = 1, env: Mapping[str, str] = NOTHING_ELSE
    ) -> None:
        """`profiler`: a command that runs the ranks. `close` then waits until its output is written. `groups`: of so
        many ranks that run at the same time. `env`: more variables of the ranks."""
        self._ranks, self._profiler, self._groups, self._env = ranks, profiler, groups, env
        self._worker: _Worker | None = None
        self._printed = Printed()

    def ask(self, command: dict[str, Any]) -> dict[str, Any]:
        """Raises RunFailed if the ranks cannot be started three times in a row, MissingTool without mpi4py."""
        if self._worker is None:
            self._worker = self._start()
        try:
            return self._worker.ask(command)
        except RanksDied:
            self._end()
            raise

    def close(self) -> None:
        self._end()
        self._printed.show()

    def _end(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close(self._printed)

    def _start(self) -> _Worker:
        for attempt in itertools.count(1):
            try:
                return _Worker(self._ranks, self._profiler, self._groups, self._env)
            except RanksDied as death:
                if attempt == STARTS:
                    raise RunFailed(f"the ranks could not be started {STARTS} times in a row: {death}") from None
        raise AssertionError


class _Worker:
    """One start of the ranks."""

    def __init__(self, ranks: int, profiler: Sequence[str], groups: int, env: Mapping[str, str]) -> None:
        """Raises RanksDied, MissingTool."""
        self._numbers = itertools.count()
        self._profiler = profiler
        self._pending = False
        with ExitStack() as stack:
            self._directory = Path(stack.enter_context(_scratch()))
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(self._directory / "socket"))
            listener.listen(1)
            with signals.deferred():
                self._started = self._start(ranks, groups, env)
                stack.callback(self._started.end)
            self._connection = stack.enter_context(self._accept(listener))
            self._started.connected()
            self._lines = stack.enter_context(self._connection.makefile("rw", encoding="utf-8"))
            self._stack = stack.pop_all()

    def _start(self, ranks: int, groups: int, env: Mapping[str, str]) -> Started:
        argv = [*self._profiler, sys.executable, "-m", "dagc.measure.executor", "--ranks", str(ranks)]
        argv += ["--socket", str(self._directory / "socket")]
        path = os.pathsep.join(filter(None, (IMPORTED_FROM, os.environ.get("PYTHONPATH", ""))))
        with self._log_file("stdout").open("w") as stdout, self._log_file("stderr").open("w") as stderr:
            env = {**env, "PYTHONPATH": path}
            return start(argv, ranks, stdout=stdout, stderr=stderr, env=env, together=groups * ranks)

    def _accept(self, listener: socket.socket) -> socket.socket:
        listener.settimeout(0.1)
        give_up = time.monotonic() + START_SECONDS
        while time.monotonic() < give_up:
            with suppress(TimeoutError):
                connection, _ = listener.accept()
                return connection
            code = self._started.wait(0)
            if code == MissingTool.exit_code:
                raise MissingTool(*self._missing())
            if code is not None:
                raise RanksDied(self._why(code))
        raise RanksDied(f"no answer within {START_SECONDS:.0f} s")

    def ask(self, command: dict[str, Any]) -> dict[str, Any]:
        number = next(self._numbers)
        # The ranks enforce the limit themselves, twice if they check before they time; this is for when they cannot.
        self._connection.settimeout(2 * command["limit"] + _LATE_SECONDS)
        try:
            self._pending = True
            self._lines.write(json.dumps({**command, "id": number}) + "\n")
            self._lines.flush()
            for line in self._lines:
                answer: dict[str, Any] = json.loads(line)
                if answer["id"] == number:  # otherwise it answers an interrupted command
                    self._pending = False
                    return answer
        except TimeoutError:
            raise RanksDied(f"hang: no answer after {2 * command['limit'] + _LATE_SECONDS:.0f} s") from None
        except OSError:
            pass
        raise RanksDied(self._why(self._started.wait(_LATE_SECONDS)))

    def close(self, printed: Printed) -> None:
        """End the ranks. What they printed is added to `printed`."""
        if not self._pending:
            with suppress(OSError):
                self._lines.write(json.dumps({"do": "stop"}) + "\n")
                self._lines.flush()
                self._started.wait(_PROFILER_SECONDS if self._profiler else _POLITE_SECONDS)
        if not self._profiler:
            printed.add(self._read("stdout", _MOST_SHOWN))
            printed.add(self._read("stderr", _MOST_SHOWN))
        with suppress(OSError):
            self._stack.close()

    # ---- output of the ranks -----------------------------------------------------------------------

    def _log_file(self, name: str) -> Path:
        return self._directory / name

    def _read(self, name: str, most: int = -1) -> list[str]:
        with suppress(OSError), self._log_file(name).open(errors="replace") as file:
            return file.read(most).splitlines()
        return []

    def _missing(self) -> tuple[str, str]:
        lines = [line for line in self._read("stderr") if line.startswith("dagc: ")]
        helps = [line.removeprefix("dagc: help: ") for line in lines if line.startswith("dagc: help: ")]
        wrong = [line.removeprefix("dagc: ") for line in lines if not line.startswith("dagc: help: ")]
        return (wrong or ["the ranks lack a package or a tool"])[0], (helps or [""])[0]

    def _why(self, code: int | None) -> str:
        files = self._directory.glob(f"{FAULT}*")
        faults = {int(file.name.removeprefix(FAULT)): "\n".join(self._read(file.name)) for file in files}
        return reason(self._read("stderr"), self._read("stdout"), code, died(faults))


def reason(stderr: Iterable[str], stdout: Iterable[str], code: int | None, fault: str = "") -> str:
    """The reason why ranks ended, in one line: `hang: ...`, `out of memory: ...` or `run failed: ...`.

    `code`: of the starter; `fault`: which rank died of what, if known.
    """
    stderr, stdout = list(stderr), list(stdout)
    hang = hang_summary(stderr)
    if hang:
        return f"hang: {hang}"
    signalled = ended(stderr)
    if signalled:
        return f"run failed: {signalled}"
    own = [line.removeprefix("dagc: ") for line in stderr if line.startswith("dagc: ")]
    if own:
        kind = "out of memory" if "out of memory" in own[0].lower() else "run failed"
        return f"{kind}: {own[0]}"
    if fault:
        return f"run failed: {fault}"
    number = signals.reported_signal((*stderr, *stdout)) or (None if code is None else signals.of_code(code))
    if number is not None:
        return f"run failed: a rank was terminated by {signals.named(number)}"
    words = [line.strip() for line in stderr if line.strip(" =-")]
    last = f": {words[-1]}" if words else ""
    return f"run failed: the ranks ended{'' if code is None else f' with exit code {code}'}{last}"


def _scratch() -> tempfile.TemporaryDirectory[str]:
    """A directory of this user, with a name short enough for a socket in it (some 100 characters)."""
    there = None if len(tempfile.gettempdir()) < 70 else "/tmp"
    return tempfile.TemporaryDirectory(prefix="dagc-", dir=there, ignore_cleanup_errors=True)


class TeamLink(RankLink):
    """The ranks of this command, of which this process is the first."""

    def __init__(self, executor: Executor, comm: Any) -> None:
        self._executor, self._comm = executor, comm
        self._closed = False

    def ask(self, command: dict[str, Any]) -> dict[str, Any]:

        with signals.deferred():  # half a command would leave the other ranks waiting
            share(self._comm, command)
            return self._executor.run(command)

    def close(self) -> None:

        if not self._closed:
            self._closed = True
            share(self._comm, STOP)
            self._executor.close()


class GroupLink(RankLink):
    """Another group of the ranks of this command. Its first rank is in `obey` of `dagc.measure.executor`."""

    def __init__(self, comm: Any, leader: int) -> None:
        """`comm`: all ranks of this command."""
        self._comm, self._leader = comm, leader

    def ask(self, command: dict[str, Any]) -> dict[str, Any]:

        return asked(self._comm, self._leader, command)

    def close(self) -> None:

        leader, self._leader = self._leader, 0
        if leader:
            tell(self._comm, leader, STOP)


def require_ranks() -> None:
    """Raises MissingTool if ranks cannot be started or reached: before a long build rather than after it."""
    require_mpi()
    if find_spec("mpi4py") is None:  # the ranks run this Python
        raise MissingTool("mpi4py is not installed, which the ranks that measure need", "pip install 'dagc[mpi]'")


def link_ranks(ranks: int) -> RankLink | None:
    """The link to `ranks` ranks, as `link_groups`."""
    links = link_groups(ranks, 1)
    return links[0] if links else None


def link_groups(ranks: int, groups: int, cuda: bool = False) -> list[RankLink]:
    """The links to so many groups of `ranks` ranks. If this process was started alone, nothing is started yet.

    If it was started as one of all these ranks, the first gets the links; the others work here until theirs is closed,
    and then get none. So call it before anything that may fail on the first rank only. `cuda`: each group of a host has
    GPUs of its own there. Raises UsageError if this command was started on another number of ranks, or if a host
    has fewer GPUs than groups, or, where it starts them itself, fewer cores.
    """
    rank = rank_among(groups * ranks, groups)
    if rank is None:
        shares = (
            [gpus_of(group, groups) for group in range(groups)] if cuda and groups > 1 and gpus() else [{}] * groups
        )
        if shares[0]:
            _require_gpus(shares)
        elif groups > cores():
            here = counted(cores(), "core")
            raise UsageError(
                f"--groups {groups}: this host has {here}, and groups that share one disturb each other",
                "give a smaller number of --groups, or start them on more hosts",
            )
        return [WorkerLink(ranks, groups=groups, env=share) for share in shares]

    comm = everyone = world()
    if groups > 1:
        comm = everyone.Split(rank // ranks, rank)
        if cuda and gpus():
            _share_gpus(everyone, rank // ranks)
    executor = Executor(comm)
    if rank == 0:
        return [TeamLink(executor, comm), *(GroupLink(everyone, group * ranks) for group in range(1, groups))]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first rank ends the search
    if rank % ranks:
        serve(comm, executor)
    else:
        obey(everyone, comm, executor)
    return []


def _share_gpus(everyone: Any, group: int) -> None:
    """Let this rank see those GPUs of its host alone that belong to its group."""
    from mpi4py.MPI import COMM_TYPE_SHARED  # initialises MPI

    on_host = sorted({*everyone.Split_type(COMM_TYPE_SHARED).allgather(group)})
    shares = everyone.allgather(gpus_of(on_host.index(group), len(on_host)))
    _require_gpus(shares)
    os.environ |= shares[everyone.Get_rank()]


def gpus_of(group: int, groups: int) -> dict[str, str]:
    """The variables by which a group sees its share of the GPUs of this host; the list is empty if it has none."""
    visible, here = os.environ.get(VISIBLE), gpus()  # kept: the machine of a group is that of all of them
    every = visible.split(",") if visible else [str(number) for number in range(len(here))]
    each = len(every) // groups
    return {VISIBLE: ",".join(every[group * each : (group + 1) * each])}


def _require_gpus(shares: Sequence[Mapping[str, str]]) -> None:
    if not all(share[VISIBLE] for share in shares):
        refuse(
            UsageError(
                "there are fewer GPUs than groups on a host, and groups that share a GPU disturb each other",
                "give a smaller number of --groups, or start them on more hosts",
            )
        )


# ---- libraries on the ranks ----

OPEN_SECONDS = 300.0  # loading arrays, and connecting GPUs
GIVE_UP = 3  # deaths in one place without a success


@dataclass(frozen=True, slots=True)
class RunnerLibrary:
    """A runner library with its arrays (the directory that `dagc setup` wrote).

    `device_pointers`: the user asserts that this MPI accepts them.
    """

    path: Path
    data: Path
    device_pointers: bool = False

    @property
    def key(self) -> str:
        """Its name among the ranks."""
        return f"{self.path.absolute()} {self.data.absolute()} {self.device_pointers}"


class Deaths:
    """The number of deaths of the ranks in each place, and the places that were given up: each death costs a
    restart."""

    def __init__(self) -> None:
        self._succeeded: set[Hashable] = set()
        self._count: Counter[Hashable] = Counter()
        self._given_up: dict[Hashable, str] = {}

    def success(self, place: Hashable) -> None:
        self._succeeded.add(place)

    def death(self, place: Hashable, failure: str) -> str:
        """Count a death; returns `failure` as reported."""
        self._count[place] += 1
        if place not in self._succeeded and self._count[place] >= GIVE_UP:
            self._given_up[place] = f"{failure} (given up after {GIVE_UP} such failures)"
        return failure

    def given_up(self, place: Hashable) -> str:
        """The reason why a place was given up; "" if it was not."""
        return self._given_up.get(place, "")

    def forget(self) -> None:
        """Forget all places: their names change meaning."""
        self._succeeded.clear()
        self._count.clear()
        self._given_up.clear()


class Service:
    """Libraries on ranks. Commands and answers are those of `dagc.measure.executor`."""

    def __init__(self, link: RankLink, *, watchdog: float = 20.0) -> None:
        """`watchdog`: seconds allowed for opening a library, at least."""
        self._link, self._watchdog = link, watchdog
        self._open: dict[str, RunnerLibrary] = {}
        self.deaths = Deaths()
        self.died = 0  # deaths of the ranks so far; each loses their state
        self.placed: object = None  # the owner of the data from the last run up to an op
        self.on_death: Callable[[str], None] | None = None  # called with the reason of each death

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._link.close()

    def ask(self, library: RunnerLibrary, **command: Any) -> dict[str, Any]:
        """Execute a command with the library open, and return its answer; if their host was lost, on other ranks.
        Raises RanksDied.

        Raises RunFailed if the ranks cannot be started at all, MissingTool without mpi4py.
        """
        try:
            return self._ask(library, command)
        except HostLost:
            return self._ask(library, command)

    def _ask(self, library: RunnerLibrary, command: dict[str, Any]) -> dict[str, Any]:
        answer = self.open(library)
        if "error" in answer:
            return answer
        return self.send({**command, "key": library.key})

    def close(self, library: RunnerLibrary) -> None:
        """Free the library's arrays, if it is open."""
        if library.key in self._open:
            del self._open[library.key]
            self.send({"do": "close", "key": library.key, "limit": OPEN_SECONDS})

    def open(self, library: RunnerLibrary) -> dict[str, Any]:
        """Open a library unless it is open: an answer, which may have an `error`. Raises as `ask`."""
        if library.key in self._open:
            return {}
        command = {
            "do": "open", "key": library.key, "library": str(library.path.absolute()),
            "data": str(library.data.absolute()), "device_pointers": library.device_pointers,
            "limit": max(OPEN_SECONDS, self._watchdog),
        }  # fmt: skip
        alone = not self._open
        try:
            answer = self.send(command)
        except RanksDied:
            if alone:
                raise
            answer = self.send(command)  # memory may have been exhausted by other open libraries
        if "error" not in answer:
            # A library has one set of arrays: these have replaced others.
            self._open = {key: other for key, other in self._open.items() if other.path != library.path}
            self._open[library.key] = library
        return answer

    def insist(self, place: Hashable, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The answer to a command that must succeed before anything else can be measured. It is tried GIVE_UP times if
        the ranks die, but once if they hang, since each hang takes its limit; and not again in a place that was given
        up. The answer then has an `error`."""
        failure = self.deaths.given_up(place)
        for _ in range(0 if failure else GIVE_UP):
            try:
                answer = ask()
            except RanksDied as death:
                failure = self.deaths.death(place, one_line(str(death)).removeprefix("run failed: "))
                if failure.startswith("hang"):
                    break
                continue
            if "error" not in answer:
                self.deaths.success(place)
            return answer
        return {"error": self.deaths.given_up(place) or failure}

    def send(self, command: dict[str, Any]) -> dict[str, Any]:
        """A command that needs no library. Raises RanksDied."""
        try:
            return self._link.ask(command)
        except RanksDied as death:
            self._open.clear()
            self.died += 1
            if self.on_death is not None:
                self.on_death(one_line(str(death)))
            raise


def one_line(text: str) -> str:
    return " ".join(text.split())
