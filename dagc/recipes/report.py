"""`dagc report`: a results file, or a tuned file -> a page."""

from __future__ import annotations

from pathlib import Path

from dagc.base.files import write_text_atomic
from dagc.base.resources import __version__
from dagc.report.html import as_html
from dagc.store.results import ranking
from dagc.store.settings import fixed_of, fixed_text
from dagc.study.loaded import Loaded, learn
from dagc.study.report import variants_in, variants_page


def report(path: str | Path, out: str | Path, objective: str | None = None) -> None:
    """Write a results file, or a tuned file, as one HTML page. Raises UsageError, OSError."""
    tuned = variants_in(path)
    if tuned is not None:
        write_text_atomic(out, variants_page(tuned, __version__))
        return
    loaded = Loaded(path, objective)
    learned = learn(loaded, halves=True) if len(loaded.results.measured()) > 1 else None
    best = ranking(loaded.results)[:1]
    fixed = fixed_text(fixed_of(loaded.results.runs, best[0].configuration)) if best else ()
    limits = loaded.limits(best[0]) if best and not loaded.doubts else ()
    page = as_html(
        loaded.results, loaded.graphs, learned, file=Path(path).name, version=__version__, fixed=fixed,
        doubts=loaded.doubts, limits=limits,
    )  # fmt: skip
    write_text_atomic(out, page)
