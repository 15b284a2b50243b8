"""Collecting diagnostics: lowering goes on after an error, so that one run reports all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from dagc.errors import Diagnostic, Severity
from dagc.source import Span


class Skip(Exception):
    """The current item is given up; what is wrong with it has been reported."""


class Stop(Exception):
    """Lowering as a whole is given up; the reason has been reported."""


class Report:
    """Diagnostics in the order found, each (code, place) once: a loop repeats its mistake in every turn."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, int, int], Diagnostic] = {}
        self._errors = 0  # with repeated ones

    def add(self, diagnostic: Diagnostic) -> None:
        self._errors += diagnostic.severity is Severity.ERROR
        span = diagnostic.span
        self._found.setdefault((diagnostic.code, span.file, span.start, span.end), diagnostic)

    def error(
        self, code: str, message: str, span: Span, help: str = "", related: tuple[tuple[Span, str], ...] = ()
    ) -> None:
        self.add(Diagnostic(code, message, span, help, Severity.ERROR, related))

    def fail(
        self, code: str, message: str, span: Span, help: str = "", related: tuple[tuple[Span, str], ...] = ()
    ) -> NoReturn:
        """Report an error and give up the current item."""
        self.error(code, message, span, help, related)
        raise Skip

    def warning(
        self, code: str, message: str, span: Span, help: str = "", related: tuple[tuple[Span, str], ...] = ()
    ) -> None:
        self.add(Diagnostic(code, message, span, help, Severity.WARNING, related))

    def note(self, code: str, message: str, span: Span, help: str = "") -> None:
        self.add(Diagnostic(code, message, span, help, Severity.NOTE))

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Go on after the block when it was given up."""
        with suppress(Skip):
            yield

    @property
    def errors(self) -> int:
        return self._errors

    @property
    def failed(self) -> bool:
        return self._errors > 0

    def sorted(self, files: Iterable[str]) -> tuple[Diagnostic, ...]:
        """By file in the order given, then by place."""
        order = {name: i for i, name in enumerate(files)}
        return tuple(sorted(self._found.values(), key=lambda d: (order.get(d.span.file, -1), d.span.start, d.span.end)))


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """A help that names the nearest known word, else `otherwise`."""
    from difflib import get_close_matches  # needed only when something is wrong already

    near = get_close_matches(name, sorted(set(known)), n=1, cutoff=0.6)
    return f"did you mean `{near[0]}`?" if near else otherwise


def listing(words: Iterable[str], limit: int = 8) -> str:
    """`a, b, c` for a message, cut where long."""
    all_words = list(words)
    shown = ", ".join(all_words[:limit])
    return shown + (f", ... ({len(all_words)} in all)" if len(all_words) > limit else "")
