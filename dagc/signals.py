"""Signals that end programs, by their names."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable

_SAID = re.compile(r"\bsignal:? (\d+)", re.IGNORECASE)
# What the C library calls a signal, as Python's faulthandler writes it -> its name.
_CALLED = {(signal.strsignal(s) or "").replace("-", " ").lower(): s.name for s in signal.Signals}


def named(number: int) -> str:
    """`SIGSEGV (Segmentation fault)`; `signal 99` where there is none of that number."""
    try:
        found = signal.Signals(number)
    except ValueError:
        return f"signal {number}"
    what = signal.strsignal(number)
    why = "; the system sends it where memory runs out" if found is signal.SIGKILL else ""
    return f"{found.name} ({what}{why})" if what else found.name


def name_of(called: str) -> str:
    """`SIGSEGV` of `Segmentation fault`, "" where none is called so."""
    return _CALLED.get(called.strip().replace("-", " ").lower(), "")


def told(lines: Iterable[str]) -> int | None:
    """The number of the signal that a starter says one of its ranks was ended by: `... (signal 9)`, `on signal 11`."""
    found = (_SAID.search(line) for line in lines)
    return next((int(match[1]) for match in found if match), None)


def of_code(code: int) -> int | None:
    """The signal that an exit code stands for: minus its number (subprocess), or 128 more (shells)."""
    number = -code if code < 0 else code - 128
    return number if number in signal.Signals.__members__.values() else None
