"""Set-ups of several inputs, run by separate processes: during the measurement of other inputs, or between
measurements.

As many inputs are on disk as were asked for and as fit: those that were requested and not dropped, and the next ones.
A process is `python -m dagc.setup.prefetch FD`, which reads jobs and their directories from a connection until its end;
its answer is "", or the reason of the failure, in one line.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from threading import RLock
from typing import Generic, Self, TypeVar

from dagc.base import signals
from dagc.base.children import Workers
from dagc.base.errors import DagcError
from dagc.base.resources import IMPORTED_FROM
from dagc.ir.program import Program
from dagc.setup.arrays import run_setup

K = TypeVar("K", bound=Hashable)  # an input
AHEAD = 3  # inputs whose data lie on disk, or are written, while nothing is known of their size
MOST_BYTES = 32 << 30
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class Job:
    """A set-up to run: the arguments of `run_setup` except the directory."""

    program: Program
    base_dir: Path
    ranks: int
    seed: int
    references: bool


class Prefetch(Generic[K]):
    """The data of inputs, written by processes in the order of `expect`, and kept until they are dropped.

    A set-up that crashes its process fails alone. Use as a context manager: at the end the processes and the data are
    gone.
    """

    def __init__(
        self,
        directory: Path,
        job: Callable[[K], Job],
        *,
        processes: int = 1,
        ahead: int = AHEAD,
        most_bytes: int = 0,
        between: bool = False,
        threads: int = 1,
    ) -> None:
        """`job` may raise DagcError. `ahead`: the most inputs on disk. `most_bytes`: of data on disk beyond which no
        further set-up begins (0: half of what is free there, at most MOST_BYTES). `between`: the processes are stopped
        when `get` returns, since what is measured then uses the same cores, and go on when one of them is waited for.
        `threads`: of the libraries of a process, see `_Process`."""
        directory.mkdir(parents=True, exist_ok=True)
        self._directory, self._job, self._ahead, self._between = directory, job, max(1, ahead), between
        self._most = most_bytes or min(MOST_BYTES, shutil.disk_usage(directory).free // 2)
        self._pool, self._threads = Workers(max(1, processes)), threads
        self._processes: list[_Process] = []
        self._idle: list[_Process] = []
        self._lock = RLock()  # of all of this, which the threads that wait for the processes change as well
        self._stopped = self._ended = False
        self._next: list[K] = []
        self._running: dict[K, Future[Path]] = {}
        self._bytes: dict[Path, int] = {}  # by directory: an input may be requested again while an earlier run ends
        self._largest = 0  # bytes of an input so far
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._ended = True
            self._next.clear()
        self._pool.stop()
        for process in self._processes:
            process.kill()  # what runs in one fails
        self._pool.shutdown(wait=True)
        for process in self._processes:
            process.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def expect(self, inputs: Sequence[K]) -> None:
        """Announce the inputs that will be requested, in this order."""
        with self._lock:
            self._next = [one for one in inputs if one not in self._running]
            self._start()

    def get(self, one: K, seconds: float | None = None) -> Path:
        """The directory of an input's data; waits for it. Raises DagcError with the message of the set-up, or if it has
        not ended after `seconds`."""
        with self._lock:
            if one not in self._running:
                with suppress(ValueError):
                    self._next.remove(one)
                self._submit(one)
            running = self._running[one]
            if not running.done():
                self._go_on()
            self._start()
        wait([running], seconds)
        if self._between:
            self._stop()
        if not running.done():
            raise DagcError("its set-up has not ended within the time limit")
        return running.result()

    def drop(self, one: K) -> None:
        """Remove the data of an input, now or when its set-up ends."""

        def remove(ended: Future[Path]) -> None:
            if not ended.cancelled() and ended.exception() is None:
                with self._lock:
                    self._bytes.pop(ended.result(), None)
                shutil.rmtree(ended.result(), ignore_errors=True)

        with self._lock:
            running = self._running.pop(one, None)
        if running is not None and not running.cancel():
            running.add_done_callback(remove)
        with self._lock:
            self._start()

    def bytes(self, one: K) -> int:
        """Bytes on disk of an input that was written."""
        running = self._running.get(one)
        if running is None or not running.done() or running.exception() is not None:
            return 0
        return self._bytes.get(running.result(), 0)

    @property
    def roomy(self) -> bool:
        """Whether there is room to write more while the present data stay on disk."""
        return len(self._running) < self._ahead and sum(self._bytes.values()) <= self._most // 2

    def _stop(self) -> None:
        """Stop the processes until the next input is waited for."""
        with self._lock:
            self._stopped = True
            for process in self._processes:
                process.stop()

    def _go_on(self) -> None:
        self._stopped = False
        for process in self._processes:
            process.go_on()

    def _start(self) -> None:
        """Start the next set-ups while there is room for one as large as the largest so far; a few as long as no size
        is known. None while the processes are stopped."""
        ahead = self._ahead if self._largest else min(self._ahead, AHEAD)
        while self._next and len(self._running) < ahead and not self._stopped:
            known = self._bytes.values()
            unknown = len(self._running) - len(known) + 1
            if self._running and sum(known) + unknown * self._largest > self._most:
                return
            self._submit(self._next.pop(0))

    def _submit(self, one: K) -> None:
        self._number += 1
        self._running[one] = self._pool.submit(self._write, one, self._directory / f"input-{self._number}")

    def _write(self, one: K, place: Path) -> Path:
        job = self._job(one)
        process = self._process()
        failure = process.run(job, place)
        if failure:
            shutil.rmtree(place, ignore_errors=True)
        written = 0 if failure else sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
        with self._lock:
            if process.alive:
                self._idle.append(process)
            if not failure:
                self._bytes[place] = written
                self._largest = max(self._largest, written)
                if not self._ended:
                    self._start()  # its size is known
        if failure:
            raise DagcError(failure)
        return place

    def _process(self) -> _Process:
        """A process that waits for a job; a new one is stopped like the others."""
        with self._lock:
            process = self._idle.pop() if self._idle else None
            if process is None:
                process = _Process(self._threads)
                self._processes.append(process)
                if self._stopped:
                    process.stop()
            return process


class _Process:
    """One process that runs set-ups."""

    def __init__(self, threads: int) -> None:
        """`threads`: of OpenMP and of the linear algebra in NumPy and SciPy, unless the environment sets them; without
        a limit, one for every core."""
        self._connection, theirs = Pipe()
        path = os.pathsep.join(filter(None, (IMPORTED_FROM, os.environ.get("PYTHONPATH", ""))))
        with theirs:
            number = theirs.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dagc.setup.prefetch", str(number)], pass_fds=(number,),
                stdin=subprocess.DEVNULL,
                env={**dict.fromkeys(THREADS, str(threads)), **os.environ, "PYTHONPATH": path},
            )  # fmt: skip
        self.alive = True

    def run(self, job: Job, out: Path) -> str:
        """Run a job; returns the reason of its failure, or "". A process that ends by itself is a failure too."""
        try:
            self._connection.send((job, out))
            return str(self._connection.recv())
        except (EOFError, OSError):
            self.alive = False
            code = self._process.wait()
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            return f"the process of its set-up ended with {how}"

    def stop(self) -> None:
        """Stop the process until it goes on."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let the process go on."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process."""
        self.alive = False
        self._process.kill()

    def close(self) -> None:
        """Free the remaining resources of the process."""
        self._process.wait()
        self._connection.close()


# ---- in such a process ----


def main(descriptor: int) -> None:
    """Serve the connection with this file descriptor."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asks ends this one
    signals.end_with_parent()  # also if it dies while this one is stopped
    with Connection(descriptor) as connection:
        while True:
            try:
                job, out = connection.recv()
            except EOFError:
                return
            try:
                run_setup(job.program, job.base_dir, job.ranks, job.seed, out, references=job.references)
                failure = ""
            except DagcError as error:
                failure = " ".join(str(error).split())
            connection.send(failure)


if __name__ == "__main__":
    main(int(sys.argv[1]))
