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
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any

from dagc.base import children
from dagc.base.deadline import Clock
from dagc.base.errors import MissingTool, RunFailed, UsageError
from dagc.base.resources import IMPORTED_FROM
from dagc.base.source import read_file
from dagc.build.ranks import joined, refuse
from dagc.measure.job import JOB, KEY, STOP, keep_alive
from dagc.measure.service import RankLink, RanksDied

POLL_SECONDS = 5.0  # between two questions to Slurm
CONNECT_SECONDS = 120.0  # from the start of a job to its connection
_LEAVE_SECONDS = 10.0  # for the ranks of a job to end
_COMMAND_SECONDS = 60.0
_SCRIPT = '#!/bin/sh\nexec "$@"\n'
_UNKNOWN = "UNKNOWN"  # Slurm did not answer: its controller may be starting again
_ENDED = "", "COMPLETING", "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"


class JobArray:
    """An array of `number` jobs of `ranks` ranks each. It is submitted at the first command to one of them, and what is
    left of it is cancelled when the links to all are closed.

    `script`: a batch script of the user, which runs its arguments. `folder`: where all nodes can read; the array has a
    directory of its own there until it ends. `waited`: seconds for which nothing but the first start was waited for.
    """

    def __init__(self, number: int, ranks: int, script: str | None) -> None:
        """Raises MissingTool without Slurm, UsageError for a script that does not run its arguments, or if this command
        is itself one of several ranks."""
        if joined() is not None:
            help = "start it alone, on a login node; or give --groups in place of --jobs"
            refuse(UsageError("--jobs submits jobs, but this command runs as one of several ranks", help))
        for tool in ("sbatch", "squeue", "scancel"):
            if shutil.which(tool) is None:
                raise MissingTool(f"--jobs: there is no {tool}", "run it on a machine that submits jobs of Slurm")
        self._script = _SCRIPT if script is None else _checked(Path(script))
        self._number, self._ranks, self._open = number, ranks, number
        self.folder = Path()
        self.id, self.waited = "", 0.0
        self._lock, self._key = threading.Lock(), secrets.token_bytes(32)
        self._arrived = [queue.SimpleQueue[Connection]() for _ in range(number)]

    def links(self) -> list[RankLink]:
        return [JobLink(self, index) for index in range(self._number)]

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
            self._listener = Listener(("", 0), family="AF_INET", backlog=self._number)
            place = {"hosts": _names_here(), "port": self._listener.address[1], KEY: self._key.hex()}
            (self._own / "place.json").write_text(json.dumps(place))
            (self._own / "job.sh").write_text(self._script)
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

    def arrival(self, index: int) -> Connection:
        """Raises queue.Empty if the job does not connect for a while."""
        return self._arrived[index].get(timeout=POLL_SECONDS)

    def state(self, index: int) -> str:
        """As Slurm names it: PENDING, RUNNING; "" if the job has ended."""
        try:
            done = children.run(["squeue", "-h", "-j", f"{self.id}_{index}", "-o", "%T"], seconds=_COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            return _UNKNOWN
        if done.returncode and "Invalid job id" not in done.stderr:
            return _UNKNOWN
        state = done.stdout.strip()
        return "" if state in _ENDED else state

    def said(self, index: int) -> str:
        """The last line of the job's output."""
        try:
            lines = (self._own / f"{index}.txt").read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def leave(self, index: int) -> None:
        """Cancel a job, if it has not ended; the last one closes the array."""
        if not self.id:
            return
        with suppress(subprocess.TimeoutExpired, OSError):
            children.run(["scancel", f"{self.id}_{index}"], seconds=_COMMAND_SECONDS)
        with self._lock:
            self._open -= 1
            if self._open:
                return
        self._listener.close()
        shutil.rmtree(self._own, ignore_errors=True)

    # ---- connections of the jobs -------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:  # it was closed
                return
            threading.Thread(target=self._admit, args=(connection,), daemon=True).start()

    def _admit(self, connection: Connection) -> None:
        """Another process than a job may connect, and say nothing."""
        try:
            keep_alive(connection)
            deliver_challenge(connection, self._key)
            answer_challenge(connection, self._key)
            self._arrived[json.loads(connection.recv_bytes(1000))[JOB]].put(connection)
        except (AuthenticationError, OSError, EOFError, ValueError, LookupError, TypeError):
            connection.close()


def _checked(script: Path) -> str:
    text = read_file(script).decode(errors="replace")
    if '"$@"' not in text:
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
    """The ranks of a job of an array. They may wait in a queue: the first command waits, too."""

    in_queue = True

    def __init__(self, array: JobArray, index: int) -> None:
        self._array, self._index = array, index
        self._connection: Connection | None = None
        self._numbers = itertools.count()
        self._closed = threading.Event()

    def ask(self, command: dict[str, Any]) -> dict[str, Any]:
        """Raises RunFailed if the job has ended, and Slurm does not start it again."""
        if self._connection is None:
            self._connection = self._await()
        try:
            answer = self._answer(self._connection, {**command, "id": next(self._numbers)})
        except (OSError, EOFError):
            self._connection.close()
            self._connection = None
            raise RanksDied(f"run failed: {self._array.name(self._index)} was lost, or its node") from None
        if "died" in answer:
            raise RanksDied(answer["died"])
        if "failed" in answer:
            raise RunFailed(*answer["failed"])
        return answer

    def _answer(self, connection: Connection, command: dict[str, Any]) -> dict[str, Any]:
        """Raises OSError, EOFError if the connection or the job was lost."""
        connection.send_bytes(json.dumps(command).encode())
        while True:
            while not connection.poll(POLL_SECONDS):
                if not self._array.state(self._index):
                    raise EOFError
            answer: dict[str, Any] = json.loads(connection.recv_bytes())
            if answer["id"] == command["id"]:  # otherwise it answers an interrupted command
                return answer

    def _await(self) -> Connection:
        """The connection of the job, when it has started. Raises RunFailed."""
        self._array.submit()
        array, index = self._array, self._index
        began, running = time.monotonic(), None
        while not self._closed.is_set():
            state = array.state(index)
            with suppress(queue.Empty):
                connection = array.arrival(index)
                if index == 0 and not array.waited:
                    array.waited = time.monotonic() - began
                return connection
            if not state:
                raise RunFailed(f"{array.name(index)} has ended{_after(array.said(index))}")
            running = (running or time.monotonic()) if state == "RUNNING" else None
            if running is not None and time.monotonic() > running + CONNECT_SECONDS:
                why = f"{array.name(index)} runs, but has not connected to this host in {CONNECT_SECONDS:.0f} s"
                raise RunFailed(why + _after(array.said(index)), "nodes have to reach the host that submits the jobs")
        raise RunFailed(f"{array.name(index)} has not started")

    def close(self) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(OSError):
                connection.send_bytes(json.dumps(STOP).encode())
                connection.poll(_LEAVE_SECONDS)  # it is closed at the other end
            connection.close()
        self._array.leave(self._index)


def _after(said: str) -> str:
    return f": {said}" if said else ""
