"""Start a program on several ranks with the installed MPI, and end it reliably.

    done = launch([binary, "--data", "out"], ranks=4, timeout=60)

Works with Open MPI and MPICH, from the system or a wheel, as root, in a container, and with more ranks than cores.
If this process is itself a rank (started by the user under mpiexec or srun), nothing is started: the program runs
once, as this rank.
"""

from __future__ import annotations

import itertools
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from dagc.base import signals
from dagc.base.errors import MissingTool, RunFailed, UsageError, counted
from dagc.build.mpi import MPI, NO_MPI_HELP, MPIKind, rank_environment, require_mpi, starter_options
from dagc.build.ranks import joined

__all__ = ["Finished", "Printed", "Started", "joined", "launch", "launch_command", "start"]

_MARK = "DAGC_LAUNCH"
_GRACE_SECONDS = 3.0
TIMED_OUT = 124
_MOST_LINES = 40
_WIDEST = 1000  # characters of a line that is shown: a kernel may print no end of line
_REPORT = re.compile("=+|-+|.*mpi(exec|run).* noticed.*")  # the first line of it
# Messages of the runtime, which dagc reports itself, and what an MPI says when a program ends itself.
_OWN = re.compile(r"dagc: |warning: |.*\bMPI_ABORT was invoked|.*\bapplication called MPI_Abort|Abort\(\d+\) on node")
_SHARED = re.compile(r"/dev/shm/(?:mpich_shm_|vader_segment|sm_segment|nccl-)[^/\s]*")


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that ended. `stdout` and `stderr` are of all ranks together, empty if they were not captured.

    `returncode` is the starter's: that of the failing rank, if the MPI passes it on. After a timeout it is 124 and
    `timed_out` is set; after a signal, 128 plus its number.
    """

    command: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool = False

    def why(self) -> str:
        """How it failed: `was terminated by SIGSEGV (Segmentation fault)`, or its exit code."""
        number = signals.reported_signal((*self.stderr.splitlines(), *self.stdout.splitlines()))
        if number is None:
            number = signals.of_code(self.returncode)
        return f"was terminated by {signals.named(number)}" if number else f"failed with exit code {self.returncode}"

    def check(self) -> Finished:
        """Itself, or RunFailed with the end of the ranks' output."""
        if self.returncode == 0:
            return self
        what = "timed out" if self.timed_out else self.why()
        output = "\n".join((self.stderr or self.stdout).rstrip().splitlines()[-20:])
        raise RunFailed(f"{shlex.join(self.command)} {what}" + (f":\n{output}" if output else ""))


class Printed:
    """What a program prints beside its results, which is its user's. Equal lines are counted: a kernel may print one in
    each run."""

    def __init__(self) -> None:
        self._lines: Counter[str] = Counter()

    def add(self, output: Iterable[str]) -> None:
        """Count lines of one stream, up to the report of a starter on ranks that failed."""
        lines = itertools.takewhile(lambda line: not _REPORT.fullmatch(line), output)
        self._lines.update(line for line in lines if line.strip() and not _OWN.match(line))

    def show(self) -> None:
        """Print it to standard error, and forget it."""
        lines, self._lines = self._lines, Counter()
        if not lines:
            return
        print("the program printed:", file=sys.stderr)
        for line, count in list(lines.items())[:_MOST_LINES]:
            shown = line if len(line) <= _WIDEST else f"{line[:_WIDEST]}... ({len(line)} characters)"
            print(f"  {shown}" + (f"  ({count} times)" if count > 1 else ""), file=sys.stderr)
        if len(lines) > _MOST_LINES:
            print(f"  and {counted(len(lines) - _MOST_LINES, 'other line')}", file=sys.stderr)
        sys.stderr.flush()


def launch(
    argv: Sequence[str | os.PathLike[str]],
    ranks: int,
    *,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    cwd: str | os.PathLike[str] | None = None,
    mpi: MPI | None = None,
    capture: bool = True,
) -> Finished:
    """Run `argv` on `ranks` ranks and wait until it ends.

    `env` is added to this process's environment, for every rank. All ranks are ended after `timeout` seconds, or if
    this process is interrupted. With `capture=False` the ranks write to this process's output. Raises MissingTool (no
    MPI), UsageError (this process is one of a different number of ranks), RunFailed (the program cannot be started). A
    failing program is not an exception here: see `Finished.check`.
    """
    if ranks < 1:
        raise UsageError(f"{ranks} ranks cannot be started", "use -n 1 or more")
    place = joined()
    if place is not None and place[1] != ranks:
        raise UsageError(
            f"{counted(ranks, 'rank is', 'ranks are')} needed, but this command runs as one of {place[1]}",
            f"start it with {counted(ranks, 'rank')}, or alone: it then starts the ranks itself",
        )
    mpi = mpi or require_mpi()
    if place is None:
        command, environment = _started_by(mpi, argv, ranks, env)
    else:
        command = tuple(os.fspath(word) for word in argv)
        environment = {**os.environ, **rank_environment(mpi, ranks), **(env or {})}
    return _run(command, environment, timeout, cwd, capture, own_group=place is None)


def _started_by(
    mpi: MPI, argv: Sequence[str | os.PathLike[str]], ranks: int, env: Mapping[str, str] | None, together: int = 0
) -> tuple[tuple[str, ...], dict[str, str]]:
    """The starter's command and its environment, which marks the ranks as belonging to this launch. `together`: ranks
    that run at the same time, with those of other launches."""
    command = launch_command(mpi, tuple(os.fspath(word) for word in argv), ranks, forward=tuple(env or ()))
    more = rank_environment(mpi, max(ranks, together))
    return command, {**os.environ, **more, **(env or {}), _MARK: uuid.uuid4().hex}


def run_command(command: Sequence[str], *, env: Mapping[str, str], timeout: float) -> Finished:
    """Run a command that starts ranks by itself, `mpiexec -n 2 ./app`, and wait until it ends; else as `launch`.

    `env` is added to this process's environment. Raises RunFailed (it cannot be started).
    """
    environment = {**os.environ, **env, _MARK: uuid.uuid4().hex}
    return _run(tuple(command), environment, timeout, None, True, own_group=True)


class Started:
    """A program running on its ranks. `end` it, or `wait` until it ends."""

    def __init__(self, process: subprocess.Popen[str], mark: str) -> None:
        self._process, self._mark = process, mark
        self._shared: set[Path] = set()

    def connected(self) -> None:
        """To be called when MPI is initialised: files in shared memory are known even if the ranks die."""
        self._shared = _shared_memory(_marked(self._mark))

    def wait(self, timeout: float) -> int | None:
        """The starter's exit code; None if the program still runs after `timeout` seconds (0: do not wait)."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def end(self) -> None:
        """End all ranks, with SIGTERM and then SIGKILL."""
        _end(self._process, self._mark, own_group=True)
        _remove(self._shared)


def start(
    argv: Sequence[str | os.PathLike[str]],
    ranks: int,
    *,
    stdout: IO[str],
    stderr: IO[str],
    env: Mapping[str, str] | None = None,
    mpi: MPI | None = None,
    together: int = 0,
) -> Started:
    """Run `argv` on `ranks` ranks in parallel to this process, with output to files. One rank needs no starter.
    `together`: ranks that run at the same time, with those of other launches.

    Raises MissingTool (no MPI), RunFailed (the program cannot be started).
    """
    if ranks > 1:
        command, environment = _started_by(mpi or require_mpi(), argv, ranks, env, together)
    else:
        command = tuple(os.fspath(word) for word in argv)
        environment = {**os.environ, **rank_environment(None, ranks), **(env or {}), _MARK: uuid.uuid4().hex}
    return Started(_popen(command, environment, True, stdout=stdout, stderr=stderr), environment[_MARK])


def _popen(
    command: tuple[str, ...], environment: Mapping[str, str], own_group: bool, **more: Any
) -> subprocess.Popen[str]:
    """Raises RunFailed."""
    try:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, text=True, errors="replace", env=dict(environment),
            start_new_session=own_group, close_fds=own_group,  # a rank talks to its starter through PMI_FD, inherited
            **more,
        )  # fmt: skip
    except OSError as error:
        raise RunFailed(f"{command[0]} cannot be started: {error.strerror or error}") from error


def launch_command(mpi: MPI, argv: Sequence[str], ranks: int, forward: Sequence[str] = ()) -> tuple[str, ...]:
    """The whole command; `forward` names variables that ranks on other machines also get."""
    if mpi.mpiexec is None:
        raise MissingTool(f"{mpi.describe()} has no mpiexec in the directory of its compiler wrapper", NO_MPI_HELP)
    options = list(starter_options(mpi))
    if mpi.kind is MPIKind.OPEN_MPI and not mpi.by_slurm:  # srun passes all variables on
        options += [word for name in forward for word in ("-x", name)]
    return (str(mpi.mpiexec), *options, "-n", str(ranks), *argv)


def _run(
    command: tuple[str, ...],
    environment: Mapping[str, str],
    timeout: float | None,
    cwd: str | os.PathLike[str] | None,
    capture: bool,
    own_group: bool,
) -> Finished:
    pipe = subprocess.PIPE if capture else None
    start = time.monotonic()
    process = _popen(command, environment, own_group, stdout=pipe, stderr=pipe, cwd=cwd)
    timed_out = False
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        timed_out = True
        stdout, stderr = _end(process, environment.get(_MARK, ""), own_group)
    except BaseException:
        _end(process, environment.get(_MARK, ""), own_group)
        raise
    code = TIMED_OUT if timed_out else process.returncode
    code = 128 - code if code < 0 else code
    return Finished(command, code, stdout or "", stderr or "", time.monotonic() - start, timed_out)


def _end(process: subprocess.Popen[str], mark: str, own_group: bool) -> tuple[str, str]:
    """End the starter and all ranks, with SIGTERM and then SIGKILL; returns their output so far."""
    shared = _shared_memory(_marked(mark))
    _signal(process, signal.SIGTERM, own_group)
    try:
        stdout, stderr = process.communicate(timeout=_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        stdout, stderr = "", ""
    # Starters put ranks into separate process groups; the mark in their environment still finds them.
    for pid in _marked(mark):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    _signal(process, signal.SIGKILL, own_group)
    if process.returncode is None:
        stdout, stderr = process.communicate()
    _remove(shared)
    return stdout or "", stderr or ""


def _shared_memory(processes: Iterable[int]) -> set[Path]:
    """The files that MPI and NCCL share between these processes, and remove when they are finalised."""
    found: set[Path] = set()
    for pid in processes:
        with suppress(OSError):
            found |= {Path(name) for name in _SHARED.findall(Path(f"/proc/{pid}/maps").read_text(errors="replace"))}
    return found


def _remove(files: Iterable[Path]) -> None:
    for file in files:
        with suppress(OSError):
            file.unlink()


def _signal(process: subprocess.Popen[str], number: signal.Signals, own_group: bool) -> None:
    try:
        if own_group:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
    except (ProcessLookupError, PermissionError):
        return


def _marked(mark: str) -> list[int]:
    """Processes of this launch; empty without /proc."""
    if not mark:
        return []
    wanted = f"{_MARK}={mark}".encode()
    lines = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                lines.append(int(entry.name))
        except OSError:
            continue
    return lines


# ---- a rank that the user's own mpiexec or srun started ----
# The starters name a signal, but not the rank, or a wrong one, since they end all others at once. So the process that
# they started stays as the parent of the working process, reports the signal that ended it, and ends alike:
#
#     dagc: rank 1: terminated by SIGKILL (Killed; the system sends it when memory runs out)

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_READ_SECONDS = 0.1  # the starter reads ranks' output and exit codes from different places


def work_in_child(rank: int) -> None:
    """Returns in a child of this process; this process waits for it, and ends alike.

    Must be called before MPI is initialised and before there are threads. Does nothing outside of Linux, where a child
    could outlive its parent.
    """
    if sys.platform != "linux":
        return
    parent = os.getpid()
    # Block signals until they can be passed on.
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    child = os.fork()
    if child:
        _keep(child, rank)
    os.setpgid(0, 0)  # signals come through the parent, once
    signals.end_with_parent()
    if os.getppid() != parent:  # it has ended already
        os._exit(1)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)


def _keep(child: int, rank: int) -> None:
    """Does not return."""
    passed: set[int] = set()

    def pass_on(number: int, _: object) -> None:
        passed.add(number)
        with suppress(ProcessLookupError):
            os.kill(child, number)

    for number in _PASSED_ON:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        os._exit(os.WEXITSTATUS(status))
    by = os.WTERMSIG(status)
    if by not in passed:
        os.write(2, f"dagc: rank {rank}: terminated by {signals.named(by)}\n".encode())
        time.sleep(_READ_SECONDS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the child's is the one of interest
    if by != signal.SIGKILL:
        signal.signal(by, signal.SIG_DFL)
    os.kill(os.getpid(), by)
    os._exit(128 + by)
