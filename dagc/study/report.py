"""`dagc report` of a tuned file: the quality of its choosers, computed from the file alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from dagc.base.errors import UsageError, counted
from dagc.base.sample import Objective
from dagc.choice.selector import Selector, scales_of
from dagc.report import si
from dagc.report.variants import LOOKS, Axis, LearningCurve, Mark, Mistake, ShareBar, VariantView, as_page
from dagc.study.held_out import LearnedSite, choice_at, extent_of, sites_in, taken
from dagc.study.judge import Figures, Judged, JudgedCase, importance, judged_at
from dagc.study.replay import QualityCurve, in_order
from dagc.study.results import minimised
from dagc.study.train import TrainingTable, answers_left_out

if TYPE_CHECKING:
    from dagc.store.tuned import Tuned


MOST_STEPS = 12  # of a learning curve
MOST_MISTAKES = 10


def tuned_page(path: str | Path, version: str) -> str:
    """The page of a tuned file. Raises UsageError if it would show nothing."""
    from dagc.store.tuned import load_tuned  # loads msgspec, sqlite3

    tuned = load_tuned(path)
    if not _shown(tuned):
        raise UsageError(
            f"{path}: nothing was learned from the features of sizes or inputs, which a page shows",
            "tune by a learned --method, or `dagc export` its settings",
        )
    return variants_page(tuned, version)


def _shown(tuned: Tuned) -> list[LearnedSite]:
    """The sites of a page: those of variants, and those with features."""
    return [site for site in sites_in(tuned) if site.table.rows or site.choices[0].variant]


def variants_page(tuned: Tuned, version: str) -> str:
    """The page, a section for each site."""
    views = [site_view(site, minimised(tuned)) for site in _shown(tuned)]
    on_host = tuned.facts.target == "host"  # then the GPU is that of the model which ranks settings
    where = "target host: times do not apply to a GPU" if on_host else tuned.facts.gpu or "GPU unknown"
    subtitle = f"{where}; {counted(len({c.case for c, _ in tuned.samples}), 'input')} measured"
    return as_page(views, title=tuned.program.name, subtitle=subtitle, file=tuned.path.name, version=version)


# ---- what is chosen ----


@dataclass(frozen=True, slots=True)
class AnswersAtInputs:
    """Answers at some inputs, the reason of each, and a sentence on how they were obtained."""

    inputs: TrainingTable
    answers: tuple[int, ...]
    reasons: tuple[str, ...]
    how: str


def chosen_at(site: LearnedSite, selector: Selector) -> AnswersAtInputs:
    """The answers at the test inputs if there are any, else at the training inputs by cross-validation."""
    tests, kept = site.table.part(True), site.table.part(False)
    if tests.rows:
        extent, avoided = extent_of(kept), kept.merged.avoided
        reasoned = [choice_at(selector, avoided, extent, x, site.fallback) for x in tests.features]
        how = f"Evaluated at {counted(len(tests.rows), 'test input')} that were not used for training."
        return AnswersAtInputs(tests, tuple(a for a, _ in reasoned), tuple(r for _, r in reasoned), how)
    answers = dict(zip(kept.merged.features, answers_left_out(site.method, kept), strict=False))
    if not answers:
        return AnswersAtInputs(tests, (), (), "Too few inputs to leave any out.")
    reasoned = [taken(answers[x], selector, 1.0, site.fallback) for x in kept.features]
    how = (
        "Evaluated by cross-validation: each input with a selector trained without it and about a fifth of the others."
    )
    return AnswersAtInputs(kept, tuple(a for a, _ in reasoned), tuple(r for _, r in reasoned), how)


# ---- views ----


def site_view(site: LearnedSite, objective: Objective) -> VariantView:
    """The view of a site on the page."""
    selector, inputs = site.selector, site.table
    texts = [s.in_words for s in site.choices]
    best = [min(at, key=lambda a: (at[a], a)) for at in inputs.times]
    drawn = _Drawn(inputs, texts, _looks(best), best, objective)
    if selector is None:
        return _view(site.name, drawn, "No selector was learned", "")
    chosen = chosen_at(site, selector)
    lost = dict(zip(inputs.names, importance(selector.order, inputs.features, inputs.times), strict=False))
    learned = f"{selector.text}, by {', '.join(inputs.names)}"
    judged = judged_at(chosen.inputs, chosen.answers, 0, inputs.tolerance, chosen.reasons) if chosen.answers else None
    view = _view(site.name, drawn, learned[0].upper() + learned[1:], chosen.how, lost, judged)
    view = replace(view, curves=tuple(map(_drawn_curve, in_order(inputs, site.method, MOST_STEPS))))
    if judged is None:
        return view
    return replace(
        view, tiles=_tiles(judged, texts), bars=_bars(judged, texts, drawn.looks), figures=_figures(judged),
        mistakes=_mistakes(judged, inputs, texts),
    )  # fmt: skip


def _drawn_curve(curve: QualityCurve) -> LearningCurve:
    steps = ((s.samples, s.share, f"PPP, PoIS, accuracy {s.text}") for s in curve.steps)
    return LearningCurve(curve.strategy, tuple(steps))


def _view(
    op: str,
    drawn: _Drawn,
    learned: str,
    how: str,
    lost: Mapping[str, float] = MappingProxyType({}),
    judged: Judged | None = None,
) -> VariantView:
    """The part of a view that does not depend on what is chosen. `lost`: the importance of the features."""
    order = sorted(drawn.inputs.names, key=lambda name: -lost.get(name, 0.0))
    axes, marks = _marks(drawn, judged, order[:2])
    return VariantView(
        op, learned, how, (), axes, marks, _legend(drawn), tuple((name, lost[name]) for name in order if name in lost),
        (), (), (), (),
    )  # fmt: skip


def _looks(best: Sequence[int]) -> dict[int, int]:
    """The style of each answer that is best somewhere, the most frequent first; the last style is shared."""
    wins = {a: best.count(a) for a in best}
    return {a: min(k, LOOKS - 1) for k, a in enumerate(sorted(wins, key=lambda a: (-wins[a], a)))}


@dataclass(frozen=True, slots=True)
class _Drawn:
    """The data of marks: `texts` of the answers, the style of each (`looks`), and the fastest answer of each input."""

    inputs: TrainingTable
    texts: Sequence[str]
    looks: Mapping[int, int]
    best: Sequence[int]
    objective: Objective


def _legend(drawn: _Drawn) -> tuple[tuple[int, str, int], ...]:
    out = []
    for look in sorted(set(drawn.looks.values())):
        of = [a for a, k in drawn.looks.items() if k == look]
        name = drawn.texts[of[0]] if len(of) == 1 else f"{len(of)} others"
        out.append((look, name, sum(drawn.best.count(a) for a in of)))
    return tuple(out)


def _marks(drawn: _Drawn, judged: Judged | None, two: Sequence[str]) -> tuple[tuple[Axis, Axis], tuple[Mark, ...]]:
    """The axes are two features; with a single feature, the second axis is the gain of the best over the default."""
    wrong = {verdict.name: verdict for verdict in (*judged.failed, *judged.wrong)} if judged is not None else {}
    titles = [*two, *["t_default / t_best"] * (2 - len(two))]
    places, marks = [], []
    for row, best in zip(drawn.inputs.rows, drawn.best, strict=True):
        by_name, at, name = dict(zip(drawn.inputs.names, row.features, strict=True)), row.times, row.case.text
        gain = min(at.get(0, math.inf), 1e3 * at[best]) / at[best]
        x, y = [by_name[n] for n in two] + [gain] * (2 - len(two))
        verdict = wrong.get(name)
        tip = _tip(name, by_name, at, verdict, drawn.texts, drawn.objective)
        places.append((x, y))
        marks.append(Mark(name, x, y, drawn.looks[best], row.test, verdict is not None, tip))
    logs = [s.kind == "log" and s.low > 0 for s in scales_of(places)] if places else [False, False]
    for k in range(2):
        logs[k] = logs[k] and all(place[k] > 0 for place in places)
    return (Axis(titles[0], logs[0]), Axis(titles[1], logs[1])), tuple(marks)


def _tip(
    name: str,
    features: Mapping[str, float],
    at: Mapping[int, float],
    verdict: JudgedCase | None,
    texts: Sequence[str],
    objective: Objective,
) -> str:
    best = sorted((value, a) for a, value in at.items() if value < math.inf)[:4]
    lines = [name, ", ".join(f"{n} {si.significant(v)}" for n, v in features.items())]
    lines += [f"{texts[a]}: {si.seconds(value) if objective.is_time else objective.scaled(value)}" for value, a in best]
    if verdict is not None:
        how = "failed" if verdict.failed else f"{verdict.ratio:.2f} times the best"
        lines.append(f"chosen: {texts[verdict.taken]}, {how}")
    return "\n".join(lines)


def _tiles(judged: Judged, texts: Sequence[str]) -> tuple[tuple[str, str, str], ...]:
    f, decisive = judged.all, judged.decisive
    failed = [("failed", str(f.failed), f"inputs; the figures are over the other {f.inputs}")] if f.failed else []
    if not f.inputs:
        return tuple(failed)
    single, share = f.single
    return (
        *failed,
        (
            "percent of exhaustive",
            _percent(f.percent),
            f"{_percent(decisive.percent)} where the best is beyond the noise",
        ),
        ("accuracy", _percent(f.accuracy), f"balanced {_percent(f.balanced)}"),
        ("geometric mean", f"{f.geometric:.3f}", "times the best"),
        ("where it is wrong", f"{f.lost:.3f}", f"times the best, at {counted(len(judged.wrong), 'input')}"),
        ("unsure", _percent(judged.share("unsure")), f"outside {_percent(judged.share('outside'))}"),
        ("best single variant", _percent(share), texts[single]),
    )


def _bars(judged: Judged, texts: Sequence[str], looks: Mapping[int, int]) -> tuple[ShareBar, ...]:
    singles = [ShareBar(f"always {texts[a]}", share, looks.get(a, LOOKS - 1)) for a, share in judged.all.singles[:15]]
    return (ShareBar("selector", judged.all.percent), *singles, ShareBar("a random variant", judged.all.random))


def _figures(judged: Judged) -> tuple[tuple[str, ...], ...]:
    def row(name: str, f: Figures) -> tuple[str, ...]:
        shares = (f.percent, f.accuracy, f.balanced, f.regret, f.singles[0][1] if f.singles else math.nan, f.default)
        return name, str(f.inputs), str(f.failed), *map(_percent, shares), str(f.poor)

    head = (
        "",
        "inputs",
        "failed",
        "% of exhaustive",
        "accuracy",
        "balanced",
        "mean regret",
        "best single",
        "default",
        "under 70 %",
    )
    parts = [("all", judged.all), ("best beyond the noise", judged.decisive), *judged.bands]
    return (head, *(row(name, f) for name, f in parts if f.inputs or f.failed))


def _mistakes(judged: Judged, inputs: TrainingTable, texts: Sequence[str]) -> tuple[Mistake, ...]:
    vectors = {row.case.text: row.features for row in inputs.rows}
    return tuple(
        Mistake(
            verdict.name, texts[verdict.taken], texts[verdict.best],
            "failed" if verdict.failed else f"{verdict.ratio:.2f}",
            verdict.failure or verdict.reason,
            ", ".join(f"{n} {si.significant(v)}" for n, v in zip(inputs.names, vectors[verdict.name], strict=True)),
        )
        for verdict in (*judged.failed, *judged.wrong)[:MOST_MISTAKES]
    )  # fmt: skip


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.1f} %"
