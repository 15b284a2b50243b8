"""Source text and places in it. Every node of the compiler can say where it came from."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

_LARGEST = 16 << 20  # bytes


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A half-open range of character offsets, [start, end), in one `Source`."""

    start: int
    end: int
    file: str = field(default="", compare=False)

    def __or__(self, other: Span) -> Span:
        return Span(min(self.start, other.start), max(self.end, other.end), self.file)


NOWHERE = Span(0, 0)


@dataclass(frozen=True)
class Source:
    """The text of one `.dag` file. `path` is shown in diagnostics as the user gave it."""

    path: str
    text: str

    @classmethod
    def read(cls, path: str | Path) -> Source:
        """Read a file. Raises OSError (also for one too large to be a program), UnicodeDecodeError if not UTF-8."""
        with open(path, "rb") as file:
            data = file.read(_LARGEST + 1)  # some files have no end: /dev/zero
        if len(data) > _LARGEST:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        return cls(str(path), data.decode("utf-8"))

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        starts = [0]
        for i, c in enumerate(self.text):
            if c == "\n":
                starts.append(i + 1)
        return tuple(starts)

    def line_column(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset, both counted from 1."""
        from bisect import bisect_right

        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def line(self, number: int) -> str:
        """Text of line `number` (from 1), without its end."""
        lines = self.text.split("\n")
        return lines[number - 1].rstrip("\r") if 0 < number <= len(lines) else ""
