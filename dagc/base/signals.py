"""Signals that end programs, by their names."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

_SAID = re.compile(r"\bsignal:? (\d+)", re.IGNORECASE)
# What the C library calls a signal, as Python's faulthandler writes it -> its name.
_CALLED = {(signal.strsignal(s) or "").replace("-", " ").lower(): s.name for s in signal.Signals}


def named(number: int) -> str:
    """`SIGSEGV (Segmentation fault)`; `signal 99` where there is none of that number."""
    try:
        sent = signal.Signals(number)
    except ValueError:
        return f"signal {number}"
    what = signal.strsignal(number)
    why = "; the system sends it where memory runs out" if sent is signal.SIGKILL else ""
    return f"{sent.name} ({what}{why})" if what else sent.name


def name_of(called: str) -> str:
    """`SIGSEGV` of `Segmentation fault`, "" where none is called so."""
    return _CALLED.get(called.strip().replace("-", " ").lower(), "")


def reported_signal(lines: Iterable[str]) -> int | None:
    """The number of the signal that a starter says one of its ranks was ended by: `... (signal 9)`, `on signal 11`."""
    matches = (_SAID.search(line) for line in lines)
    return next((int(match[1]) for match in matches if match), None)


def of_code(code: int) -> int | None:
    """The signal that an exit code stands for: minus its number (subprocess), or 128 more (shells)."""
    number = -code if code < 0 else code - 128
    return number if number in signal.Signals.__members__.values() else None


class Ended(BaseException):
    """The process received a signal to end. Unwinds the stack; no `except Exception` stops it."""

    def __init__(self, number: int) -> None:
        super().__init__(named(number))
        self.number = number


@contextmanager
def unwinding() -> Iterator[None]:
    """Within the block SIGTERM and SIGHUP end the process as they do elsewhere, but after all blocks were left.

    So temporary folders, ranks and what was drawn go with it. A second signal ends it at once.
    """
    ways = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    ways = {number: way for number, way in ways.items() if way is signal.SIG_DFL}  # nohup ignores SIGHUP

    def end(number: int, _: FrameType | None) -> None:
        for way in ways:
            signal.signal(way, signal.SIG_DFL)
        raise Ended(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    for number in ways:
        signal.signal(number, end)
    try:
        yield
    except Ended as ended:
        os.kill(os.getpid(), ended.number)
        raise
    finally:
        for number in ways:
            signal.signal(number, signal.SIG_DFL)
