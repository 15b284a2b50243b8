"""Child processes, and pools of threads that wait for them: both end at once when the command is interrupted.

A signal raises an exception in the main thread only. A pool that is left by an exception therefore cancels its queued
jobs and kills the children of those that run, with all their descendants: a compiler's driver starts further programs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from dagc.base.signals import deferred

T = TypeVar("T")


class Stopped(BaseException):
    """The pool of this thread is ending. No `except Exception` catches it."""


class _Jobs:
    """The children of a pool's threads, including those of pools within."""

    def __init__(self, outer: _Jobs | None) -> None:
        self.outer, self.stopped = outer, False
        self.children: set[subprocess.Popen[str]] = set()

    @property
    def chain(self) -> Iterator[_Jobs]:
        jobs: _Jobs | None = self
        while jobs is not None:
            yield jobs
            jobs = jobs.outer


_THREAD = threading.local()  # `jobs`: those of the pool that this thread belongs to
_LOCK = threading.RLock()  # of all sets of children


def _jobs() -> _Jobs | None:
    return getattr(_THREAD, "jobs", None)


def check() -> None:
    """Raises Stopped in a thread of a pool that is ending: for what waits longer than a moment."""
    jobs = _jobs()
    if jobs is not None and any(one.stopped for one in jobs.chain):
        raise Stopped


@contextmanager
def forking() -> Iterator[None]:
    """For a fork beside threads that start children: it would keep a pipe open that the start of a child waits for."""
    with _LOCK:
        yield


class Workers(ThreadPoolExecutor):
    """Threads whose jobs end with the block: with its normal end when all have run, with an exception at once."""

    def __init__(self, workers: int) -> None:
        self._jobs = _Jobs(_jobs())
        super().__init__(workers, initializer=setattr, initargs=(_THREAD, "jobs", self._jobs))

    def stop(self) -> None:
        """Cancel what is queued, and kill the children of what runs; does not wait."""
        self.shutdown(wait=False, cancel_futures=True)
        with _LOCK:
            self._jobs.stopped = True
            for child in self._jobs.children:
                _kill(child)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.stop()
        self.shutdown(wait=True)


def within(seconds: float | None, work: Callable[[], T]) -> T | None:
    """What `work` gives, in a thread; None if it takes longer, which then ends with its children."""
    with Workers(1) as pool:
        job = pool.submit(work)
        if not wait([job], seconds).done:
            pool.stop()
    try:
        return job.result()
    except (CancelledError, Stopped):
        return None


def run(
    command: Sequence[str | Path],
    *,
    seconds: float | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    text: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run a command, with `text` as its input, and return its output. `env` is added to the environment.

    No process that it started is left, however this ends. Raises OSError, and TimeoutExpired after `seconds`.
    """
    with _started(command, cwd, env) as child:
        out, err = child.communicate(text, seconds)
    check()  # it was killed
    return subprocess.CompletedProcess(command, child.returncode, out, err)


@contextmanager
def _started(
    command: Sequence[str | Path], cwd: Path | None, env: Mapping[str, str] | None
) -> Iterator[subprocess.Popen[str]]:
    jobs = _jobs()
    owners = [] if jobs is None else list(jobs.chain)
    with deferred(), _LOCK:
        check()
        child = subprocess.Popen(
            [os.fspath(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, errors="replace", cwd=cwd, env={**os.environ, **(env or {})},
            process_group=0,
        )  # fmt: skip
        for owner in owners:
            owner.children.add(child)
    try:
        yield child
    finally:
        with _LOCK:
            _kill(child)
            for owner in owners:
                owner.children.discard(child)
        for stream in (child.stdin, child.stdout, child.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        child.wait()


def _kill(child: subprocess.Popen[str]) -> None:
    """Kill a child that was not waited for, and its process group; later its number may be another process's."""
    if child.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
