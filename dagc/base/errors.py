"""Diagnostics and the exceptions that carry them. All errors of a stage are collected, then raised at once."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from heapq import nlargest
from os.path import commonprefix
from typing import Any, TypeAlias

from dagc.base.source import Source, Span


class Severity(Enum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


Finding: TypeAlias = tuple[str, str, int, int]  # a code, and a file with start and end


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One error, warning or note, with its place in a text.

    `code` is a stable kebab-case name (`unknown-name`, `unordered-hazard`, ...; listed in
    docs/reference/diagnostics.md), `message` says what is wrong, `help` what to write instead (a phrase, no full stop),
    `related` further places, each with a short label ("first declared here").
    """

    code: str
    message: str
    span: Span
    help: str = ""
    severity: Severity = Severity.ERROR
    related: tuple[tuple[Span, str], ...] = ()

    @property
    def key(self) -> Finding:
        """Its code and its own place: equal for one mistake that several iterations or values bring."""
        return self.code, self.span.file, self.span.start, self.span.end

    @property
    def places(self) -> tuple[tuple[str, int, int], ...]:
        """(file, start, end) of its own place, then of the related places."""
        return tuple((s.file, s.start, s.end) for s in (self.span, *(span for span, _ in self.related)))

    def render(self, sources: dict[str, Source]) -> str:
        """The text for the user: `file:line:column: error: message [code]`, the line, a caret under the words, and the
        help."""
        source = sources[self.span.file]
        line, column = source.line_column(self.span.start)
        out = [f"{source.path}:{line}:{column}: {self.severity.value}: {self.message} [{self.code}]"]
        out += _excerpt(source, self.span)
        for span, label in self.related:
            other = sources[span.file]
            at_line, at_column = other.line_column(span.start)
            out.append(f"  {other.path}:{at_line}:{at_column}: {label}")
        if self.help:
            out.append(f"  help: {self.help}")
        return printable("\n".join(out))


_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


MOST_SHOWN = 1000  # findings


def rendered(diagnostics: Sequence[Diagnostic], sources: dict[str, Source]) -> str:
    """The text of all diagnostics, in order. Beyond MOST_SHOWN, errors come before warnings and notes, and the rest is
    only counted."""
    shown = diagnostics
    if len(diagnostics) > MOST_SHOWN:
        errors_first = sorted(range(len(diagnostics)), key=lambda i: diagnostics[i].severity is not Severity.ERROR)
        shown = [diagnostics[i] for i in sorted(errors_first[:MOST_SHOWN])]
    lines = [d.render(sources) for d in shown]
    if len(shown) < len(diagnostics):
        lines.append(f"{counted(len(diagnostics) - len(shown), 'more finding')} not shown")
    return "\n".join(lines)


_WIDEST = 4000  # characters of a line of a message


def printable(text: str) -> str:
    """`text` made safe for a terminal: a message may quote a file, with control codes and very long lines."""
    text = without_controls(text)
    if len(text) <= _WIDEST:
        return text
    return "\n".join(line if len(line) <= _WIDEST else _shortened(line) for line in text.split("\n"))


def without_controls(text: str) -> str:
    """Replace each control code, and each character that changes the direction of writing, by U+FFFD."""
    return _CONTROLS.sub("\ufffd", text)


def _shortened(line: str) -> str:
    return f"{line[:1000]} ... ({len(line) - 2000} characters) ... {line[-1000:]}"


_Listener = Callable[[Iterable[Diagnostic], Mapping[str, Source]], None]
_LISTENER: ContextVar[_Listener | None] = ContextVar("_LISTENER", default=None)


@contextmanager
def notes_to(write: Callable[[str], object]) -> Iterator[None]:
    """Within the block, `write` gets the text of each note of a graph as soon as the graph is built.

    A command builds many graphs of one program (transports, variants, sizes); each note is written once.
    """
    written: set[tuple[object, ...]] = set()

    def listener(notes: Iterable[Diagnostic], sources: Mapping[str, Source]) -> None:
        for note in notes:
            key = (note.code, *note.places)
            if key not in written:
                written.add(key)
                write(note.render(dict(sources)))

    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def report_notes(diagnostics: Iterable[Diagnostic], sources: Mapping[str, Source]) -> None:
    """Pass the notes among the diagnostics to the `notes_to` block around the call; without one, do nothing."""
    listener = _LISTENER.get()
    if listener is not None:
        listener((d for d in diagnostics if d.severity is Severity.NOTE), sources)


def counted(number: int | str, singular: str, plural: str = "") -> str:
    """A number with its noun: `1 rank`, `2 ranks`. `plural`: if it is not `singular` + s. A `number` given as text may
    be symbolic."""
    return f"{number} {singular if str(number) == '1' else plural or singular + 's'}"


class Spelling:
    """Suggests words, for the first 50 that are unknown, each compared with at most 100: a generated program may have
    thousands of both, and to compare two of them takes 0.1 ms."""

    def __init__(self) -> None:
        self._left = 50
        self._asked: dict[tuple[str, str], str] = {}

    def near(self, word: str, known: Iterable[str], kind: str = "") -> str:
        """The nearest of the known words; "" if none is near. The same word of the same kind is looked up once."""
        if (word, kind) not in self._asked:
            if not self._left or len(word) > 200:
                return ""
            self._left -= 1
            self._asked[word, kind] = _nearest(word, set(known))
        return self._asked[word, kind]


def _nearest(word: str, known: set[str]) -> str:
    from difflib import get_close_matches  # only needed after an error

    likely = [k for k in known if 2 * len(k) <= 5 * len(word) and 2 * len(word) <= 5 * len(k)]
    if len(likely) > 100:
        likely = nlargest(100, likely, key=lambda k: (_shared(word, k), k))
    near = get_close_matches(word, sorted(likely), n=1, cutoff=0.6)
    return near[0] if near else ""


def _shared(a: str, b: str) -> int:
    """How many characters two words have in common at their beginnings and ends."""
    return len(commonprefix((a, b))) + len(commonprefix((a[::-1], b[::-1])))  # noqa: RUF071 (of words, not paths)


_MARGIN = 100


def _excerpt(source: Source, span: Span) -> list[str]:
    line, column = source.line_column(span.start)
    text = source.line(line)
    first = max(0, column - 1 - _MARGIN)  # of a very long line, only the surroundings
    text, column = text[first : first + 2 * _MARGIN], column - first
    if not text.strip():
        return []
    text = "".join(c if c == "\t" or c.isprintable() else "\ufffd" for c in text)  # no control codes to a terminal
    width = max(1, min(span.end - span.start, len(text) - column + 1))
    # Tabs are kept in the caret line, so that the caret is under its word for any width of tabs.
    pad = "".join("\t" if c == "\t" else " " for c in text[: column - 1])
    return [f"  | {text}", f"  | {pad}{'^' * width}"]


class DagcError(Exception):
    """Any failure that is not a bug of dagc. `exit_code` is that of the process (1 to 5, 130)."""

    exit_code = 2

    def __init__(self, message: str, help: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.help = help
        self.first = next(iter(message.splitlines()), "")  # one line that says why

    def render(self) -> str:
        return printable(f"dagc: error: {self.message}" + (f"\n  help: {self.help}" if self.help else ""))


class ProgramError(DagcError):
    """A `.dag` text is wrong. Carries every diagnostic found (exit code 2)."""

    def __init__(self, diagnostics: Iterable[Diagnostic], sources: dict[str, Source]) -> None:
        self.diagnostics = tuple(diagnostics)
        self.sources = sources
        super().__init__(rendered(self.diagnostics, sources))

    def render(self) -> str:
        count = sum(d.severity is Severity.ERROR for d in self.diagnostics)
        return f"{self.message}\n{counted(count, 'error')}"


class UsageError(DagcError):
    """A bad argument (exit code 2)."""


LOOK = "check the kernels and the reference, and look for a missing edge"


class NotWritten(DagcError):
    """Output cannot be written though its path is right: the disk is full, for example (exit code 5)."""

    exit_code = 5


# None: NumPy has written a part of an array.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, None)
PLACE_HELP = "name another place, or free some space there and check its permissions"


def is_full(error: OSError) -> bool:
    """Whether the disk, or the user's share of it, is full, or fails."""
    return error.errno in _FULL


def not_written(path: object, error: OSError) -> DagcError:
    """The error for output that cannot be written: NotWritten for a full disk, else UsageError."""
    return (NotWritten if is_full(error) else UsageError)(
        f"{path} cannot be written: {error.strerror or os.strerror(errno.ENOSPC)}", PLACE_HELP
    )


class WrongResult(DagcError):
    """A program ran, and its result does not agree with the reference (exit code 1)."""

    exit_code = 1


class MissingTool(DagcError):
    """A compiler, an MPI, a GPU or a package is missing (exit code 3)."""

    exit_code = 3


class BuildFailed(DagcError):
    """A compiler refused emitted code (exit code 4). `first`: the line of its first error."""

    exit_code = 4

    def __init__(self, message: str, help: str = "", first: str = "") -> None:
        super().__init__(message, help)
        if first:
            self.first = first


class RunFailed(DagcError):
    """A program that was started failed (exit code 5)."""

    exit_code = 5


def parsed_json(text: str | bytes, path: object, help: str) -> Any:
    """The value of a text in JSON. Raises UsageError with the place in the file at `path`, and `help`."""
    import json

    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        if isinstance(error, json.JSONDecodeError):
            why = f"{error.msg[:1].lower()}{error.msg[1:]}"
            raise UsageError(f"{path}:{error.lineno}:{error.colno}: not JSON: {why}", help) from None
        raise UsageError(f"{path}: not JSON", help) from None
