"""Ends a rank that hangs, after reporting in which op.

All ranks begin a piece of work together, so all of them detect a hang together; each writes its line before any of
them ends the others:

    dagc: hang: rank 2 in `wait_recv` (entry 5 of 14)
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from dagc.base import signals
from dagc.ir.enums import Opcode

# Between the line and the end, so that the other ranks can write theirs, and the starter read them.
_GRACE_SECONDS = 0.5
EXIT_CODE = 5
# A rank whose number follows this name writes its fault (Python's faulthandler) into a file of this name.
FAULT = "fault-"


class Watchdog:
    """A thread that ends this process when a piece of work takes longer than its limit.

    The work may be inside C, if it released the interpreter's lock (as calls through ctypes do).
    """

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._changed = threading.Condition()
        self._deadline: float | None = None
        self._where: Callable[[], str] = str
        threading.Thread(target=self._run, name="watchdog", daemon=True).start()

    @contextmanager
    def watch(self, limit: float, where: Callable[[], str]) -> Iterator[None]:
        """Limit the block to `limit` seconds. `where` describes the current work; it is called from another thread."""
        self._set(time.monotonic() + limit, where)
        try:
            yield
        finally:
            self._set(None, str)

    def _set(self, deadline: float | None, where: Callable[[], str]) -> None:
        with self._changed:
            self._deadline, self._where = deadline, where
            if deadline is not None:  # a thread waiting for an earlier deadline sees it when it wakes
                self._changed.notify()

    def _run(self) -> None:
        with self._changed:
            while True:
                if self._deadline is None:
                    self._changed.wait()
                    continue
                left = self._deadline - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            where = self._where()
        os.write(2, f"dagc: hang: rank {self._rank} in {where}\n".encode())
        time.sleep(_GRACE_SECONDS)
        os._exit(EXIT_CODE)


def place(rows: Sequence[Sequence[int]], position: int, op_name: Callable[[int], str]) -> str:
    """The entry at `position` of a runner's table in words (-1: no entry is running).

    For the CPU's or a stream's wait for an event, the op before its record is named too.
    """
    if not 0 <= position < len(rows):
        return "no entry: before, between or after the iterations"
    kind, a, b = rows[position]
    names: dict[int, Callable[[], str]] = {
        Opcode.ISSUE: lambda: f"`{op_name(a)}`",
        Opcode.RECORD: lambda: f"`record(e{a})@s{b}`",
        Opcode.WAIT: lambda: f"`wait(e{a})@s{b}`{_waits_for(rows, position, op_name)}",
        Opcode.LOOP: lambda: "the repetition on the device",
        Opcode.SYNC: lambda: f"`sync(e{a})`{_waits_for(rows, position, op_name)}",
    }
    name = names.get(kind, lambda: "a capture region")()
    return f"{name} (entry {position + 1} of {len(rows)})"


def _waits_for(rows: Sequence[Sequence[int]], position: int, op_name: Callable[[int], str]) -> str:
    """The last op before the record of the event that the row at `position` waits for."""
    event = rows[position][1]
    records = [i for i in range(position) if rows[i][0] == Opcode.RECORD and rows[i][1] == event]
    if not records:
        return ""
    stream = rows[records[-1]][2]
    before = [row for row in rows[: records[-1]] if row[0] == Opcode.ISSUE and row[2] == stream]
    return f", which waits for `{op_name(before[-1][1])}`" if before else ""


def died(faults: Mapping[int, str]) -> str:
    """The faults of ranks that died, "" if there are none. `faults`: the text of each rank's faulthandler.

    For example `rank 1: Segmentation fault (SIGSEGV)`.
    """
    ranks = _by_text((rank, match[1]) for rank, text in faults.items() if (match := _FAULT.match(text)))
    return "; ".join(f"{_named(of)}: {_with_name(what)}" for what, of in ranks.items())


def ended(stderr: Iterable[str]) -> str:
    """Signals and exit codes that ended ranks, and in which op, as reported by the ranks
    (templates/runtime/dagc/fault.hpp); "" if none.

    For example "ranks 0, 1: terminated by SIGSEGV (a bad address) in op `y` (kernel `add`)".
    """
    ranks = _by_text((int(rank), what.rstrip()) for line in stderr for rank, what in _ENDED.findall(line))
    return "; ".join(f"{_named(of)}: {what}" for what, of in ranks.items())


def _by_text(reports: Iterable[tuple[int, str]]) -> dict[str, set[int]]:
    """The ranks by what each reported: texts of lower ranks first, those of one rank as they were reported."""
    ranks: dict[str, set[int]] = {}
    for rank, text in sorted(reports, key=lambda report: report[0]):
        ranks.setdefault(text, set()).add(rank)
    return ranks


def _with_name(what: str) -> str:
    name = signals.name_of(what)
    return f"{what} ({name})" if name else what


_FAULT = re.compile(r"Fatal Python error: (.*)")
_ENDED = re.compile(r"dagc: rank (\d+): ((?:terminated by|ended with exit code) .*)")
_LINE = re.compile(r"dagc: hang: rank (\d+) in (.*)")
_ENTRY = re.compile(r"\(entry (\d+) of \d+\)$")


def hang_summary(stderr: Iterable[str]) -> str:
    """Summary of the hang reports of all ranks, "" if none hangs.

    Ranks in the same place are grouped, with those furthest behind first: the others wait for them.
    """
    ranks = _by_text((int(rank), where.rstrip()) for line in stderr for rank, where in _LINE.findall(line))

    def behind(where: str) -> tuple[int, str]:
        entry = _ENTRY.search(where)
        return (int(entry[1]) if entry else 1 << 30, where)

    return "; ".join(f"{_named(ranks[where])} in {where}" for where in sorted(ranks, key=behind))


def _named(ranks: set[int]) -> str:
    numbers = ", ".join(map(str, sorted(ranks)))
    return f"rank {numbers}" if len(ranks) == 1 else f"ranks {numbers}"
