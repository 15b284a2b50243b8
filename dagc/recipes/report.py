"""`dagc report`: a results file, or a tuned file -> a page."""

from __future__ import annotations

from pathlib import Path

from dagc.base.errors import UsageError
from dagc.base.files import refuse_to_replace, write_text_atomic
from dagc.base.resources import __version__
from dagc.report.html import as_html
from dagc.store.results import ranking, timed
from dagc.store.settings import fixed_of, fixed_text
from dagc.study.explanation import Subject
from dagc.study.loaded import Loaded, learn
from dagc.study.original import beside_original


def report(path: str | Path, out: str | Path, objective: str | None = None, original: str | None = None) -> None:
    """Write a results file, or a tuned file, as one HTML page. `original`: a file with the order of an application,
    which the best is compared with. Raises UsageError, OSError."""
    from dagc.store.tuned import was_tuned  # loads msgspec, sqlite3

    refuse_to_replace(out, b"<!DOCTYPE html>", "a page")
    if was_tuned(path):
        from dagc.study.report import tuned_page  # loads all that learns

        if original is not None:
            raise UsageError(f"{path} is a tuned file: --original is for results of dagc explore", "drop --original")
        write_text_atomic(out, tuned_page(path, __version__))
        return
    loaded = Loaded(path, objective)
    beside = _beside(loaded, original)  # first, so that a bad file is told at once
    learned = learn(loaded, halves=True) if len(loaded.results.measured()) > 1 else None
    best = ranking(loaded.results)[:1]
    fixed = fixed_text(fixed_of(loaded.results.runs, best[0].configuration)) if best else ()
    limits = loaded.limits(best[0]) if best and not loaded.doubts else ()
    page = as_html(
        loaded.results, loaded.graphs, learned, file=Path(path).name, version=__version__, fixed=fixed,
        doubts=loaded.doubts, limits=limits, beside=beside,
    )  # fmt: skip
    write_text_atomic(out, page)


def _beside(loaded: Loaded, original: str | None) -> tuple[str, ...]:
    if original is None:
        return ()
    subject = Subject(loaded)
    one = subject.original(original)
    value = next(e.value for i, e in timed(loaded.results) if i.id == subject.ranked[0].id)
    return beside_original(one, subject.domain, loaded.results, subject.best, value)
