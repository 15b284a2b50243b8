"""`dagc explain`: results -> rules -> edits of the fastest (or decisions of another one) -> timed pairs -> text."""

from __future__ import annotations

from pathlib import Path

from dagc.base.errors import UsageError
from dagc.build.ranks import bind_ranks
from dagc.learn.bundles import BundlesView
from dagc.learn.explain import Explanation, render
from dagc.learn.text import FORMATS
from dagc.measure.service import link_ranks
from dagc.report.display import Display
from dagc.stages.options import ExplainOptions
from dagc.study.explanation import READING, measured, ranks_of, replayed
from dagc.study.loaded import Loaded

MOST_PAIRS = 1000  # pairs of an edit: computing the interval takes time quadratic in their number


def explain(path: str | Path, options: ExplainOptions, form: str = "text") -> tuple[str, int]:
    """For each rule of the fastest implementation: the cost of breaking it alone, measured in interleaved pairs.

    With `rank`: why the rank-th after the fastest is slower than it, in bundles of decisions that act together.

    Measures on this machine and stores the measurements in the file, or with `replay` takes times from a results file.
    Returns the text to print and the exit code, 130 if the user interrupted. The text is "" on all ranks but the first
    if the user started several. Raises DagcErrors.
    """
    if form not in FORMATS:
        raise UsageError(f"unknown format `{form}`", f"one of: {', '.join(FORMATS)}")
    if options.pairs > MOST_PAIRS:
        raise UsageError(f"{options.pairs} pairs are more than {MOST_PAIRS}", "30 are usually enough; try 100")
    loaded = Loaded(path, options.objective)
    if not loaded.results.measured():
        raise UsageError(f"{path} has no measurements", "run `dagc explore` first, or continue with --resume")
    if options.replay is not None:
        with Display(quiet=options.quiet).phase(READING.format(path)):
            explanation, interrupted = replayed(loaded, options, options.replay)
        return _rendered(explanation, form, options.everything), 130 if interrupted else 0

    bind_ranks(options.bind)
    link = link_ranks(ranks_of(loaded))
    if link is None:
        return "", 0
    with link:
        explanation, interrupted = measured(loaded, options, link)
    return _rendered(explanation, form, options.everything), 130 if interrupted else 0


def _rendered(explanation: Explanation | BundlesView, form: str, everything: bool) -> str:
    if isinstance(explanation, BundlesView):
        return explanation.render(form, everything)
    return render(explanation, form, everything)
