"""Offsets in a text, and an editor's positions: lines and code units, both counted from 0.

The protocol ends lines at \\n, \\r\\n and \\r, and nowhere else. Columns are UTF-16 code units unless client and server
have agreed on another encoding.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from itertools import accumulate
from typing import TypeAlias

Position: TypeAlias = tuple[int, int]

_UNITS: dict[str, Callable[[str], int]] = {
    "utf-8": lambda text: len(text.encode("utf-8", "surrogatepass")),
    "utf-16": lambda text: len(text.encode("utf-16-le", "surrogatepass")) // 2,
    "utf-32": len,
}


@dataclass(frozen=True)
class Lines:
    """The lines of a text. `encoding`: utf-8, utf-16 or utf-32."""

    text: str
    encoding: str = "utf-16"

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer(r"\r\n|\n|\r", self.text))]

    def position(self, offset: int) -> Position:
        """Line and column of a character; the end of the text for what lies beyond it."""
        offset = min(max(offset, 0), len(self.text))
        line = bisect_right(self._starts, offset) - 1
        before = self.text[self._starts[line] : offset]
        return line, len(before) if before.isascii() else _UNITS[self.encoding](before)

    def offset(self, line: int, column: int) -> int:
        """The character at a position: the end of the line for a column beyond it, of the text for a line beyond it.

        Within a character of several code units: that character.
        """
        if line < 0 or line >= len(self._starts):
            return 0 if line < 0 else len(self.text)
        start = self._starts[line]
        stop = self._starts[line + 1] if line + 1 < len(self._starts) else len(self.text)
        while stop > start and self.text[stop - 1] in "\r\n":
            stop -= 1
        if self.text.isascii():
            return min(start + max(column, 0), stop)
        count = _UNITS[self.encoding]
        at, units = start, 0
        while at < stop:
            units += count(self.text[at])
            if units > column:
                break
            at += 1
        return at


@dataclass(frozen=True, slots=True)
class TextEdit:
    """One replacement that turns an older text into a newer one: old[start:old_end] became new[start:new_end]."""

    start: int
    old_end: int
    new_end: int


def edit_between(old: str, new: str) -> TextEdit:
    """The smallest single replacement: all between the common beginning and the common end."""
    if old == new:
        return TextEdit(len(old), len(old), len(new))
    start = _common(old, new, min(len(old), len(new)))
    end = _common(old[::-1], new[::-1], min(len(old), len(new)) - start)
    return TextEdit(start, len(old) - end, len(new) - end)


@dataclass(frozen=True, slots=True)
class TextMap:
    """Where the characters of an older text are in a newer one. `kept`: (old start, new start, length), ascending."""

    kept: tuple[tuple[int, int, int], ...]

    def to_old(self, offset: int) -> int:
        """The old offset of a character of the newer text; for a new character, the end of the old text before it."""
        return self._moved(offset, 1, 0)

    def to_new(self, offset: int) -> int:
        """The new offset of a character of the older text; for a removed character, the end of the new text before
        it."""
        return self._moved(offset, 0, 1)

    def _moved(self, offset: int, given: int, wanted: int) -> int:
        place = bisect_right(self.kept, offset, key=lambda block: block[given]) - 1
        if place < 0:
            return 0
        block = self.kept[place]
        return block[wanted] + min(offset - block[given], block[2])


_MOST_LINES = 2000  # between the first and the last change, that are compared with each other


def moves_between(old: str, new: str) -> TextMap:
    """The map by common lines. A change in a single place keeps all characters around it."""
    edit = edit_between(old, new)
    kept = [(0, 0, edit.start)]
    middles = [re.split("(?<=\n)", text) for text in (old[edit.start : edit.old_end], new[edit.start : edit.new_end])]
    if all(1 < len(lines) <= _MOST_LINES for lines in middles):
        starts = [[edit.start, *(edit.start + end for end in accumulate(map(len, lines)))] for lines in middles]
        for i, j, count in SequenceMatcher(None, middles[0], middles[1], autojunk=False).get_matching_blocks():
            kept.append((starts[0][i], starts[1][j], starts[0][i + count] - starts[0][i]))
    kept.append((edit.old_end, edit.new_end, len(old) - edit.old_end))
    return TextMap(tuple(block for block in kept if block[2] or block[:2] == (0, 0)))


def _common(a: str, b: str, most: int) -> int:
    """Length of the common beginning, at most `most`; by bisection, since slices compare fast."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
