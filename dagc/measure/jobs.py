"""Groups of ranks in jobs of Slurm, which a process on a login node submits as one array and commands over TCP.

Each job runs `dagc.measure.job`, which starts the ranks within its job, and passes commands on to them. A file that its
user alone can read tells it where this process listens, and a key: each end proves to the other that it knows the key.
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import secrets
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any

from dagc.base import children
from dagc.base.errors import MissingTool, RunFailed, UsageError
from dagc.base.resources import IMPORTED_FROM
from dagc.base.signals import Clock
from dagc.base.source import read_file
from dagc.build.ranks import joined, refuse
from dagc.measure.job import JOB, KEY, STOP, keep_alive
from dagc.measure.service import HostLost, RankLink, RanksDied

POLL_SECONDS = 5.0  # between two questions to Slurm
CONNECT_SECONDS = 120.0  # from the start of a job to its connection
_HANDSHAKE_SECONDS = 20  # for each message of a process that connects
_MOST_HANDSHAKES = 64  # at the same time; others wait in the queue of the system
_LEAVE_SECONDS = 10.0  # for the ranks of a job to end
_RETRY_SECONDS = 0.1
_COMMAND_SECONDS = 60.0
_SCRIPT = '#!/bin/sh\nexec "$@"\n'
_ENDED = "", "COMPLETING", "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"


class JobArray:
    """An array of `number` jobs of `ranks` ranks each. It is submitted at the first command to one of them, and what is
    left of it is cancelled when the links to all are closed.

    `script`: a batch script of the user, which runs its arguments. `folder`: where all nodes can read; the array has a
    directory of its own there until it ends. `waited`: seconds for which nothing but the first start was waited for.
    """

    def __init__(self, number: int, ranks: int, script: str | None) -> None:
        """Raises MissingTool without a Slurm that answers, UsageError for a script that does not run its arguments,
        or if this command is itself one of several ranks."""
        if joined() is not None:
            help = "start it alone, on a login node; or give --groups in place of --jobs"
            refuse(UsageError("--jobs submits jobs, but this command runs as one of several ranks", help))
        for tool in ("sbatch", "squeue", "scancel"):
            if shutil.which(tool) is None:
                raise MissingTool(f"--jobs: there is no {tool}", "run it on a machine that submits jobs of Slurm")
        self._script = _SCRIPT if script is None else _checked(Path(script))
        _ask()
        self._number, self._ranks, self._open = number, ranks, number
        self.folder = Path()
        self.id, self.waited = "", 0.0
        self._lock, self._key = threading.Lock(), secrets.token_bytes(32)
        self._arrived: queue.SimpleQueue[tuple[int, Connection]] = queue.SimpleQueue()
        self._expected = set(range(number))  # have not connected
        self._handshakes = threading.Semaphore(_MOST_HANDSHAKES)
        self._taken: set[int] = set()  # by a link
        self.connected = 0  # links with a job

    def links(self) -> list[JobLink]:
        return [JobLink(self) for _ in range(self._number)]

    def clock(self, clock: Clock) -> Clock:
        """`clock` without the time in which the first job was waited for."""
        return lambda: clock() - self.waited

    def submit(self) -> None:
        """Unless it was submitted. Raises RunFailed."""
        with self._lock:
            if self.id:
                return
            self.folder.mkdir(parents=True, exist_ok=True)
            self._own = Path(tempfile.mkdtemp(prefix="jobs-", dir=self.folder.absolute()))
            self._listener = socket.create_server(("", 0), backlog=self._number)
            place = {"hosts": _names_here(), "port": self._listener.getsockname()[1], KEY: self._key.hex()}
            (self._own / "place.json").write_text(json.dumps(place))
            (self._own / "job.sh").write_text(self._script, encoding="utf-8", newline="")
            threading.Thread(target=self._accept, daemon=True).start()
            words = ["--parsable", f"--array=0-{self._number - 1}", f"--ntasks={self._ranks}", "--job-name=dagc"]
            words += ["--open-mode=append", f"--output={self._own}/%a.txt", str(self._own / "job.sh")]
            words += [sys.executable, "-m", "dagc.measure.job", str(self._own / "place.json"), str(self._ranks)]
            path = os.pathsep.join(filter(None, (IMPORTED_FROM, os.environ.get("PYTHONPATH", ""))))
            try:
                done = children.run(["sbatch", *words], seconds=_COMMAND_SECONDS, env={"PYTHONPATH": path})
            except subprocess.TimeoutExpired:
                raise RunFailed(f"sbatch did not answer within {_COMMAND_SECONDS:.0f} s") from None
            if done.returncode:
                help = "options of a site belong into the #SBATCH lines of --job-script, or into variables (SBATCH_...)"
                raise RunFailed(" ".join(done.stderr.split()) or "sbatch failed", help)
            self.id = done.stdout.strip().partition(";")[0]

    @property
    def text(self) -> str:
        return f"jobs {self.id}_0 to {self.id}_{self._number - 1}" if self._number > 1 else f"job {self.id}_0"

    def name(self, index: int) -> str:
        return f"job {self.id}_{index}"

    def states(self) -> dict[int, str] | None:
        """Of the jobs that have not ended, as Slurm names them: PENDING, RUNNING. None if it does not answer: its
        controller may be starting again."""
        try:
            done = children.run(["squeue", "-h", "-r", "-j", self.id, "-o", "%K %T"], seconds=_COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            return None
        if done.returncode and "Invalid job id" not in done.stderr:
            return None
        words = (line.split() for line in done.stdout.splitlines() if line.strip())
        return {int(index): state for index, state in words if state not in _ENDED}

    def take(self) -> tuple[int, Connection]:
        """A job that has connected. Raises queue.Empty if there is none for a while."""
        index, connection = self._arrived.get(timeout=POLL_SECONDS)
        self._taken.add(index)
        self.connected += 1
        return index, connection

    def waiting(self) -> dict[int, str] | None:
        """The states of those that have not connected, and have not ended; None if Slurm does not answer."""
        known = self.states()
        return None if known is None else {index: state for index, state in known.items() if index not in self._taken}

    def said(self) -> str:
        """The last line of the output of a job that has not connected, after a colon; "" if there is none."""
        for index in set(range(self._number)) - self._taken:
            with suppress(OSError):
                lines = (self._own / f"{index}.txt").read_text(errors="replace").splitlines()
                said = next((line.strip() for line in reversed(lines) if line.strip()), "")
                if said:
                    return f": {said}"
        return ""

    def leave(self, index: int) -> None:
        """Cancel a job that was taken, if it has not ended: Slurm would start a lost one again, for nobody."""
        self.connected -= 1
        self._cancel(self.name(index).split()[1])

    def close(self) -> None:
        """Called for each link; the last one cancels what is left."""
        with self._lock:
            self._open -= 1
            if self._open or not self.id:
                return
        self._cancel(self.id)
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # an `accept` under way would keep it open
        self._listener.close()
        shutil.rmtree(self._own, ignore_errors=True)

    def _cancel(self, what: str) -> None:
        with suppress(subprocess.TimeoutExpired, OSError):
            children.run(["scancel", what], seconds=_COMMAND_SECONDS)

    # ---- connections of the jobs -------------------------------------------------------------------

    def _accept(self) -> None:
        while self._open:
            self._handshakes.acquire()
            try:
                connection = Connection(self._listener.accept()[0].detach())
            except OSError:  # the listener was closed, or the peer has gone, or this process has too many files open
                self._handshakes.release()
                time.sleep(_RETRY_SECONDS)
                continue
            threading.Thread(target=self._admit, args=(connection,), daemon=True).start()

    def _admit(self, connection: Connection) -> None:
        """Another process than a job may connect, and say anything, or nothing."""
        try:
            keep_alive(connection)
            _limit(connection, _HANDSHAKE_SECONDS)
            deliver_challenge(connection, self._key)
            answer_challenge(connection, self._key)
            index = json.loads(connection.recv_bytes(1000))[JOB]
            _limit(connection, 0)
            if type(index) is not int:
                raise TypeError
            self._expected.remove(index)  # raises KeyError; no other thread comes in between
            self._arrived.put((index, connection))
        except Exception:  # whatever it has sent: this is the end of a connection, not of the search
            connection.close()
        finally:
            self._handshakes.release()


def _limit(connection: Connection, seconds: int) -> None:
    """Let a read or a write that waits for so long raise OSError; 0: wait for ever."""
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            same.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", seconds, 0))


def _ask() -> None:
    """Whether Slurm answers, before programs are compiled for it. Raises MissingTool."""
    try:
        done = children.run(["squeue", "-h", "-u", str(os.getuid())], seconds=_COMMAND_SECONDS)
        why = (" ".join(done.stderr.split()) or "squeue failed") if done.returncode else ""
    except subprocess.TimeoutExpired:
        why = f"squeue took more than {_COMMAND_SECONDS:.0f} s"
    except OSError as error:
        why = f"squeue cannot be started: {error.strerror}"
    if why:
        raise MissingTool(f"--jobs: Slurm does not answer: {why}", "try `squeue`; on this machine it has to list jobs")


def _checked(script: Path) -> str:
    try:
        text = read_file(script).decode()
    except OSError as error:
        raise UsageError(f"--job-script: {script} cannot be read: {error.strerror}", "give a batch script") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UsageError(f"--job-script {script}:{line}: it is not UTF-8", "save the script as UTF-8") from None
    if not any('"$@"' in line for line in text.splitlines() if not line.lstrip().startswith("#")):
        help = f'end it with the line "$@": dagc gives {script.name} a command as its arguments'
        raise UsageError(f"--job-script {script}: it does not run its arguments", help)
    return text


def _names_here() -> list[str]:
    """By which other hosts may reach this one."""
    names = [socket.gethostname(), socket.getfqdn()]
    with suppress(OSError):
        names += [str(address[4][0]) for address in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
    return list(dict.fromkeys(names))


class JobLink(RankLink):
    """The ranks of a job of an array, whichever connects first. The first command waits in the queue, too."""

    in_queue = True

    def __init__(self, array: JobArray) -> None:
        self._array = array
        self._job: tuple[int, Connection] | None = None
        self._lost = ""  # the job before
        self._numbers = itertools.count()
        self._closed = threading.Event()

    @property
    def job(self) -> int | None:
        """Its index in the array; None if it has not started."""
        return None if self._job is None else self._job[0]

    def ask(self, command: dict[str, Any]) -> dict[str, Any]:
        """Raises HostLost if the job has ended meanwhile. The next command takes another one, if one has connected, or
        nothing else runs; otherwise it raises RunFailed."""
        if self._job is None:
            self._job = self._await()
        try:
            answer = self._answer(*self._job, {**command, "id": next(self._numbers)})
        except (OSError, EOFError):
            (index, connection), self._job = self._job, None
            connection.close()
            self._array.leave(index)
            self._lost = f"{self._array.name(index)} was lost"
            raise HostLost(f"run failed: {self._lost}") from None
        if "died" in answer:
            raise RanksDied(answer["died"])
        if "failed" in answer:
            raise RunFailed(*answer["failed"])
        return answer

    def _answer(self, index: int, connection: Connection, command: dict[str, Any]) -> dict[str, Any]:
        """Raises OSError, EOFError if the connection or the job was lost."""
        connection.send_bytes(json.dumps(command).encode())
        while True:
            while not connection.poll(POLL_SECONDS):
                states = self._array.states()
                if states is not None and index not in states:
                    raise EOFError
            answer: dict[str, Any] = json.loads(connection.recv_bytes())
            if answer["id"] == command["id"]:  # otherwise it answers an interrupted command
                return answer

    def _await(self) -> tuple[int, Connection]:
        """A job that has started. Raises RunFailed."""
        self._array.submit()
        array, began, running = self._array, time.monotonic(), None
        while not self._closed.is_set():
            states = array.waiting()
            with suppress(queue.Empty):
                job = array.take()
                array.waited = array.waited or time.monotonic() - began
                return job
            if self._lost and array.connected:
                raise RunFailed(self._lost)
            if states == {}:
                raise RunFailed(f"{self._lost or array.text}: no job is left{array.said()}")
            runs = "RUNNING" in (states or {}).values()
            running = (running or time.monotonic()) if runs else None
            if running is not None and time.monotonic() > running + CONNECT_SECONDS:
                why = f"a job runs, but has not connected to this host in {CONNECT_SECONDS:.0f} s"
                raise RunFailed(why + array.said(), "nodes have to reach the host that submits the jobs")
        raise RunFailed("its job has not started")

    def close(self) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        if self._job is not None:
            (index, connection), self._job = self._job, None
            with suppress(OSError):
                connection.send_bytes(json.dumps(STOP).encode())
                connection.poll(_LEAVE_SECONDS)  # it is closed at the other end
            connection.close()
            self._array.leave(index)
        self._array.close()
