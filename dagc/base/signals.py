"""What ends commands and programs: the deadline of a command with a time limit; signals, and their names."""

from __future__ import annotations

import math
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

Clock = Callable[[], float]  # seconds
HANGS = 20.0  # seconds after which a measurement counts as hung, unless the user gives another number


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a command ends: `seconds` after it began. All its stages get this one, and ask how much is left."""

    seconds: float
    end: float
    clock: Clock = time.monotonic

    @classmethod
    def after(cls, seconds: float | None, clock: Clock = time.monotonic) -> Deadline:
        """From now on; None: without an end."""
        limit = math.inf if seconds is None else seconds
        return cls(limit, clock() + limit, clock)

    @property
    def left(self) -> float:
        """Seconds, at least 0."""
        return max(0.0, self.end - self.clock())

    @property
    def timeout(self) -> float | None:
        """The same for what takes None for no limit."""
        return None if math.isinf(self.end) else self.left

    @property
    def over(self) -> bool:
        """Whether nothing is left."""
        return self.left == 0

    @property
    def passed(self) -> float:
        """Seconds since it began."""
        return self.clock() - (self.end - self.seconds)

    def part(self, share: float) -> Deadline:
        """The end of a stage that may take until this fraction of the whole has passed."""
        if math.isinf(self.seconds):
            return self
        return Deadline(share * self.seconds, self.end - (1 - share) * self.seconds, self.clock)

    def part_of_rest(self, stages: int) -> Deadline:
        """The end of the next of this many stages, which share what is left equally."""
        return Deadline.after(None if math.isinf(self.end) else self.left / stages, self.clock)

    def limit(self, share: float, most: float = math.inf) -> float:
        """Seconds for a stage: this fraction of what is left, at most `most`."""
        return min(most, share * self.left)


ENDLESS = Deadline.after(None)


# Of MPICH, Open MPI and Intel MPI.
_SIGNAL = re.compile(r"(?:EXIT STRING: .*\(|exited on |killed by:? )signal:? (\d+)", re.IGNORECASE)
# The C library's description of a signal, as Python's faulthandler writes it -> its name.
_CALLED = {(signal.strsignal(s) or "").replace("-", " ").lower(): s.name for s in signal.Signals}


def named(number: int) -> str:
    """`SIGSEGV (Segmentation fault)`; `signal 99` for an unknown number."""
    try:
        sent = signal.Signals(number)
    except ValueError:
        return f"signal {number}"
    what = signal.strsignal(number)
    why = "; the system sends it when memory runs out" if sent is signal.SIGKILL else ""
    return f"{sent.name} ({what}{why})" if what else sent.name


def name_of(called: str) -> str:
    """`SIGSEGV` for `Segmentation fault`, "" for an unknown description."""
    return _CALLED.get(called.strip().replace("-", " ").lower(), "")


def reported_signal(lines: Iterable[str]) -> int | None:
    """The signal number that a starter reports for a rank that was killed: `... (signal 9)`, `on signal 11`."""
    matches = (_SIGNAL.search(line) for line in lines)
    return next((int(match[1]) for match in matches if match), None)


def of_code(code: int) -> int | None:
    """The signal that an exit code encodes: minus its number (subprocess), or its number plus 128 (shells)."""
    number = -code if code < 0 else code - 128
    return number if number in signal.Signals.__members__.values() else None


_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """From now on, the system kills this process when its parent ends, also while it is stopped. Linux only."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


_ISOLATES = threading.Event()


def isolate() -> None:
    """From now on, Python code of a program runs in forked processes: a crash in it is an error of the program.

    For a command that was started alone, where there is no MPI, no GPU in use, and no thread of another library.
    """
    if sys.platform == "linux":
        _ISOLATES.set()


def isolates() -> bool:
    """Whether `isolate` was called."""
    return _ISOLATES.is_set()


@contextmanager
def deferred() -> Iterator[None]:
    """Signals that raise an exception raise it at the end of the block, for what must not be done by half."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    ways = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    ways = {number: way for number, way in ways.items() if callable(way)}
    for number in ways:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, way in ways.items():
            signal.signal(number, way)
        for first in came[:1]:
            signal.raise_signal(first)


class Ended(BaseException):
    """The process received a terminating signal. Unwinds the stack; no `except Exception` catches it."""

    def __init__(self, number: int) -> None:
        super().__init__(named(number))
        self.number = number


_REMINDED_AFTER = 0.5  # seconds


def _is_ending() -> bool:
    """Whether an `Ended` is being handled in this thread: blocks are being left."""
    error = sys.exc_info()[1]
    while error is not None and not isinstance(error, Ended):
        error = error.__context__
    return error is not None


class _Ending:
    """The handler of signals that unwind the stack. An exception may be lost where code catches everything, as some
    packages do while they are imported: then it is raised again."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self.numbers = tuple(numbers)
        self.came = self.reminded = self.over = False

    def __call__(self, number: int, _: FrameType | None) -> None:
        if self.came and not self.reminded:  # a second signal of the user
            self.reset()
            signal.raise_signal(number)
        self.came, self.reminded = True, False
        timer = threading.Timer(_REMINDED_AFTER, self._remind, (number,))
        timer.daemon = True
        timer.start()
        if not _is_ending():
            raise Ended(number)

    def _remind(self, number: int) -> None:
        if not self.over:
            self.reminded = True
            os.kill(os.getpid(), number)

    def reset(self) -> None:
        """The signals end the process from now on."""
        self.over = True
        for number in self.numbers:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def unwinding() -> Iterator[None]:
    """Within the block, SIGTERM and SIGHUP end the process only after all blocks were left.

    Temporary directories, ranks and progress displays are cleaned up on the way. A second signal ends it at once.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ways = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    end = _Ending(number for number, way in ways.items() if way is signal.SIG_DFL)  # nohup ignores SIGHUP
    for number in end.numbers:
        signal.signal(number, end)
    try:
        yield
    except Ended as ended:
        end.reset()
        os.kill(os.getpid(), ended.number)
        raise
    finally:
        end.reset()
