"""`dagc report` of a tuned file with variants: the quality of its choosers, computed from the file alone; also on
held-out training inputs (`dagc tune --evaluate --folds`, `--hold-out`)."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dagc.base.errors import UsageError, counted
from dagc.base.objective import TIME, Objective
from dagc.choice.selector import FEWEST, Answer, Extent, Selector, compile_together, scales_of
from dagc.choice.types import Case
from dagc.ir.plan import FAR
from dagc.report import si
from dagc.report.variants import LOOKS, Axis, Mark, Mistake, ShareBar, VariantView, as_page
from dagc.study.judge import Figures, Judged, JudgedCase, Times, importance, judge
from dagc.study.results import Evaluated, Evaluation, minimised, paid
from dagc.study.tuned import check_tuned

if TYPE_CHECKING:
    from dagc.choice.avoid import Avoided
    from dagc.stages.options import TuneOptions
    from dagc.stages.program import ProgramText
    from dagc.store.tuned import KernelChooser, Tuned
    from dagc.study.train import Training


MOST_STEPS = 12  # cases of a learning curve
MOST_MISTAKES = 10
LEFT_AFTER = 5  # least test inputs of a learning curve


def variants_in(path: str | Path) -> Tuned | None:
    """The tuned file, if it has choosers of variants, or of settings that were tuned over inputs; None for a file of
    `dagc explore`. Raises UsageError for any other file."""
    from dagc.store.tuned import load_tuned, was_tuned  # loads msgspec, sqlite3

    if not was_tuned(path):
        return None
    tuned = load_tuned(path)
    if not _ops(tuned):
        raise UsageError(
            f"{path}: no variant was tuned, nor settings over inputs, of which a page could tell",
            "`dagc export` writes its settings, `dagc compile --launch` uses them",
        )
    return tuned


def _ops(tuned: Tuned) -> list[tuple[str, KernelChooser]]:
    over_inputs = {op for one in tuned.facts.inputs for op in one.features}
    return sorted((op, c) for op, c in tuned.kernel_choosers.items() if c.variants or op in over_inputs)


def variants_page(tuned: Tuned, version: str) -> str:
    """The page, a section for each op whose variant is chosen."""
    views = [op_view(tuned, op, chooser) for op, chooser in _ops(tuned)]
    on_host = tuned.facts.target == "host"  # then the GPU is that of the model which ranks settings
    where = "target host: times do not apply to a GPU" if on_host else tuned.facts.gpu or "GPU unknown"
    subtitle = f"{where}; {counted(len({c.case for c, _ in tuned.samples}), 'input')} measured"
    return as_page(views, title=tuned.program.name, subtitle=subtitle, file=tuned.path.name, version=version)


# ---- what the file holds ----


@dataclass(frozen=True, slots=True)
class MeasuredInputs:
    """Inputs of an op that have finite features and a time, in the order in which they were measured: names, features,
    values of the objective of each answer, and whether they are test inputs. `noise`: relative noise of a comparison.
    `failures`: why answers failed at each."""

    cases: tuple[Case, ...]
    vectors: tuple[tuple[float, ...], ...]
    times: tuple[Times, ...]
    test: tuple[bool, ...]
    noise: float
    objective: Objective = TIME
    failures: tuple[Mapping[int, str], ...] = ()

    def part(self, test: bool) -> MeasuredInputs:
        """The test inputs, or the others."""
        kept = [i for i, one in enumerate(self.test) if one == test]
        return MeasuredInputs(
            tuple(self.cases[i] for i in kept), tuple(self.vectors[i] for i in kept),
            tuple(self.times[i] for i in kept), tuple(self.test[i] for i in kept), self.noise,
            self.objective, tuple(self.failures[i] for i in kept) if self.failures else (),
        )  # fmt: skip

    def training(self, numbers: Sequence[int]) -> Training:
        """Of some of the inputs, to learn from."""
        from dagc.study.train import merged  # loads msgspec

        noise = (1 - self.noise / 2, 1.0, 1 + self.noise / 2)
        failed = [self.failures[i].keys() for i in numbers] if self.failures else ()
        vectors, times = [self.vectors[i] for i in numbers], [self.times[i] for i in numbers]
        return merged(vectors, times, [[noise]] * len(numbers), failed)


def measured(tuned: Tuned, op: str, chooser: KernelChooser, names: Sequence[str]) -> MeasuredInputs:
    """The inputs of an op. The constraint of an answer without a cell fails at the input: its time is infinite."""
    from dagc.study.train import tolerance_of  # loads msgspec

    number = {settings: i for i, settings in enumerate(chooser.settings)}
    objective, inputs = minimised(tuned), {one.case: one for one in tuned.facts.inputs}
    samples = {
        c: paid(c, sample, inputs.get(c.case), tuned.facts.calls, objective)
        for c, sample in tuned.samples
        if c.site == op and c.choice in number
    }
    at: dict[Case, dict[int, float]] = {}
    failures: dict[Case, dict[int, str]] = {}
    for (_, case, choice), sample in samples.items():
        row = at.setdefault(case, dict.fromkeys(range(len(number)), math.inf))
        if sample.good:
            row[number[choice]] = sample.value
        else:
            del row[number[choice]]
            failures.setdefault(case, {})[number[choice]] = sample.failure
    features = {case: one.features.get(op, {}) for case, one in inputs.items()}
    vectors = {p: tuple(features.get(p, {}).get(n, math.nan) for n in names) for p in at}
    kept = [p for p in at if all(map(math.isfinite, vectors[p])) and any(map(math.isfinite, at[p].values()))]
    noise = tolerance_of((*c.interval[:1], c.value, *c.interval[1:]) for c in samples.values() if c.good)
    tests = tuned.facts.tests
    return MeasuredInputs(
        tuple(kept),
        tuple(vectors[p] for p in kept),
        tuple(at[p] for p in kept),
        tuple(p in tests for p in kept),
        noise,
        objective,
        tuple(failures.get(p, {}) for p in kept),
    )


# ---- what is chosen ----


@dataclass(frozen=True, slots=True)
class AnswersAtInputs:
    """Answers at some inputs, the reason of each, and a sentence on how they were obtained."""

    inputs: MeasuredInputs
    answers: tuple[int, ...]
    reasons: tuple[str, ...]
    how: str


def taken(answer: Answer, selector: Selector, beyond: float) -> tuple[int, str]:
    if beyond > FAR:
        return 0, "outside"
    return (0, "unsure") if answer.sure < selector.least_sure else (answer.label, "chosen")


def choice_at(selector: Selector, avoided: Avoided, extent: Extent, x: Sequence[float]) -> tuple[int, str]:
    """The answer and the reason, as a chooser decides."""
    beyond = max(extent.beyond(dict(zip(selector.data, x, strict=True))).values(), default=1)
    label, reason = taken(selector.ask(x), selector, beyond)
    failed = avoided.at(x)
    if label not in failed:
        return label, reason
    other = next((answer for answer in selector.order(x) if answer not in failed), None)
    return (0, "failed") if other is None else (other, "avoided")


def chosen_at(method: str, selector: Selector, inputs: MeasuredInputs) -> AnswersAtInputs:
    """The answers at the test inputs if there are any, else at the training inputs by cross-validation."""
    from dagc.study.train import answers_left_out  # loads msgspec

    tests, kept = inputs.part(True), inputs.part(False)
    names = selector.data
    if tests.cases:
        extent = Extent.of(dict(zip(names, row, strict=True)) for row in kept.vectors)
        avoided = kept.training(range(len(kept.cases))).avoided
        reasoned = [choice_at(selector, avoided, extent, x) for x in tests.vectors]
        how = f"Evaluated at {counted(len(tests.cases), 'test input')} that were not used for training."
        return AnswersAtInputs(tests, tuple(a for a, _ in reasoned), tuple(r for _, r in reasoned), how)
    known = kept.training(range(len(kept.cases)))
    answers = dict(zip(known.sizes, answers_left_out(method, names, known), strict=False))
    if not answers:
        return AnswersAtInputs(MeasuredInputs((), (), (), (), kept.noise), (), (), "Too few inputs to leave any out.")
    reasoned = [taken(answers[x], selector, 1.0) for x in kept.vectors]
    how = (
        "Evaluated by cross-validation: each input with a selector trained without it and about a fifth of the others."
    )
    return AnswersAtInputs(kept, tuple(a for a, _ in reasoned), tuple(r for _, r in reasoned), how)


def learning_curve(method: str, names: Sequence[str], inputs: MeasuredInputs) -> tuple[tuple[int, float], ...]:
    """Fraction of exhaustive by the number of labelled inputs, in their order: at the test inputs, or without any at
    the inputs labelled later."""
    from dagc.study.sampling import trained  # loads msgspec

    tests, kept = inputs.part(True), inputs.part(False)
    last = len(kept.cases) - (0 if tests.cases else LEFT_AFTER)
    if last <= FEWEST:
        return ()
    steps = sorted({round(FEWEST + (last - FEWEST) * k / (MOST_STEPS - 1)) for k in range(MOST_STEPS)})
    labelled = [dict(enumerate(kept.times[:count])) for count in steps]
    learned = [trained(names, kept.vectors, known, method, 0, kept.noise) for known in labelled]
    selectors = {count: selector for count, selector in zip(steps, learned, strict=True) if selector is not None}
    compile_together(tuple(selectors.values()))
    out = []
    for count, selector in selectors.items():
        vectors = tests.vectors or kept.vectors[count:]
        times = tests.times or kept.times[count:]
        share = judge([""] * len(vectors), times, [selector.order(x) for x in vectors], 0, kept.noise).all.percent
        out += [(count, share)] if not math.isnan(share) else []
    return tuple(out)


# ---- views ----


def op_view(tuned: Tuned, op: str, chooser: KernelChooser) -> VariantView:
    """The view of an op on the page."""
    selector = chooser.selector
    names = selector.data if selector is not None else chooser.data
    inputs = measured(tuned, op, chooser, names)
    texts = [s.in_words for s in chooser.settings]
    if selector is None:
        chosen = AnswersAtInputs(inputs.part(True), (), (), "")
        return _view(op, "No selector was learned", chosen, inputs, names, texts, {}, ())
    chosen = chosen_at(chooser.method, selector, inputs)
    lost = dict(zip(names, importance(selector.order, inputs.vectors, inputs.times), strict=False))
    curve = learning_curve(chooser.method, names, inputs)
    learned = f"{selector.text}, by {', '.join(names)}"
    return _view(op, learned[0].upper() + learned[1:], chosen, inputs, names, texts, lost, curve)


def _view(
    op: str,
    learned: str,
    chosen: AnswersAtInputs,
    inputs: MeasuredInputs,
    names: Sequence[str],
    texts: Sequence[str],
    lost: Mapping[str, float],
    curve: tuple[tuple[int, float], ...],
) -> VariantView:
    judged = None
    if chosen.answers:
        where, noise = [p.text for p in chosen.inputs.cases], chosen.inputs.noise
        judged = judge(
            where, chosen.inputs.times, chosen.answers, 0, noise, reasons=chosen.reasons,
            failures=chosen.inputs.failures,
        )  # fmt: skip
    best = [min(at, key=lambda a: (at[a], a)) for at in inputs.times]
    looks = _looks(best)
    order = sorted(names, key=lambda name: -lost.get(name, 0.0))
    axes, marks = _marks(_Drawn(inputs, names, texts, looks, best), judged, order[:2])
    view = VariantView(
        op, learned, chosen.how, (), axes, marks, _legend(looks, best, texts),
        tuple((name, lost[name]) for name in order if name in lost), (), curve, (), (),
    )  # fmt: skip
    if judged is None:
        return view
    mistakes = _mistakes(judged, chosen, names, texts)
    return replace(
        view, tiles=_tiles(judged, texts), bars=_bars(judged, texts, looks), figures=_figures(judged), mistakes=mistakes
    )


def _looks(best: Sequence[int]) -> dict[int, int]:
    """The style of each answer that is best somewhere, the most frequent first; the last style is shared."""
    wins = {a: best.count(a) for a in best}
    return {a: min(k, LOOKS - 1) for k, a in enumerate(sorted(wins, key=lambda a: (-wins[a], a)))}


def _legend(looks: Mapping[int, int], best: Sequence[int], texts: Sequence[str]) -> tuple[tuple[int, str, int], ...]:
    out = []
    for look in sorted(set(looks.values())):
        of = [a for a, k in looks.items() if k == look]
        name = texts[of[0]] if len(of) == 1 else f"{len(of)} others"
        out.append((look, name, sum(best.count(a) for a in of)))
    return tuple(out)


@dataclass(frozen=True, slots=True)
class _Drawn:
    """The data of marks. `best`: the fastest answer of each input."""

    inputs: MeasuredInputs
    names: Sequence[str]
    texts: Sequence[str]
    looks: Mapping[int, int]
    best: Sequence[int]


def _marks(drawn: _Drawn, judged: Judged | None, two: Sequence[str]) -> tuple[tuple[Axis, Axis], tuple[Mark, ...]]:
    """The axes are two features; with a single feature, the second axis is the gain of the best over the default."""
    wrong = {verdict.name: verdict for verdict in (*judged.failed, *judged.wrong)} if judged is not None else {}
    titles = [*two, *["t_default / t_best"] * (2 - len(two))]
    places, marks, inputs = [], [], drawn.inputs
    for i, (case, vector, at) in enumerate(zip(inputs.cases, inputs.vectors, inputs.times, strict=True)):
        by_name = dict(zip(drawn.names, vector, strict=True))
        gain = min(at.get(0, math.inf), 1e3 * at[drawn.best[i]]) / at[drawn.best[i]]
        x, y = [by_name[n] for n in two] + [gain] * (2 - len(two))
        verdict = wrong.get(case.text)
        tip = _tip(case.text, by_name, at, verdict, drawn.texts, inputs.objective)
        places.append((x, y))
        marks.append(Mark(case.text, x, y, drawn.looks[drawn.best[i]], inputs.test[i], verdict is not None, tip))
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


def _mistakes(
    judged: Judged, chosen: AnswersAtInputs, names: Sequence[str], texts: Sequence[str]
) -> tuple[Mistake, ...]:
    vectors = {p.text: x for p, x in zip(chosen.inputs.cases, chosen.inputs.vectors, strict=True)}
    return tuple(
        Mistake(
            verdict.name, texts[verdict.taken], texts[verdict.best],
            "failed" if verdict.failed else f"{verdict.ratio:.2f}",
            verdict.failure or verdict.reason,
            ", ".join(f"{n} {si.significant(v)}" for n, v in zip(names, vectors[verdict.name], strict=True)),
        )
        for verdict in (*judged.failed, *judged.wrong)[:MOST_MISTAKES]
    )  # fmt: skip


def _percent(share: float, digits: int = 1) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.{digits}f} %"


# ---- folds and shares of the inputs, left out ------------------------------------------------------


FOLDS = 10


@dataclass(frozen=True, slots=True)
class LeftOut:
    """One op. `judged`: all held-out inputs, once each; `parts`: those of each fold."""

    judged: Judged
    parts: tuple[Figures, ...]
    trained: int

    @property
    def spread(self) -> str:
        """Mean and standard deviation over the folds; nothing for one part."""
        if len(self.parts) < 2:
            return ""
        parts = [f for f in self.parts if f.inputs]  # in which the choice works at an input
        if len(parts) < 2:
            return ""
        named = [("PPP", [f.regret for f in parts]), ("PoIS", [f.ideal for f in parts])]
        named.append(("accuracy", [f.accuracy for f in parts]))
        shown = (f"{n} {_percent(statistics.fmean(v), 2)} +- {_percent(statistics.stdev(v), 2)}" for n, v in named)
        return f"mean and standard deviation of {len(parts)} folds: {', '.join(shown)}"


def left_out(
    method: str, names: Sequence[str], inputs: MeasuredInputs, parts: Sequence[Sequence[int]], seed: int
) -> LeftOut:
    """Evaluate on each of `parts`, numbers of inputs, a selector trained on all others. Raises UsageError if these are
    too few."""
    from dagc.study.train import train  # loads msgspec

    others = [sorted(set(range(len(inputs.cases))) - set(part)) for part in parts]
    known = [inputs.training(kept) for kept in others]
    few = next((len(training.sizes) for training in known if len(training.sizes) < FEWEST), None)
    if few is not None:
        left = counted(few, "input")
        raise UsageError(f"{left} to train on, {FEWEST} are needed", "leave fewer out, or tune with more")
    selectors = [train(method, names, training, seed, default=0) for training in known]
    compile_together(selectors)
    figures, answers = [], []
    for part, kept, training, selector in zip(parts, others, known, selectors, strict=True):
        avoided = training.avoided
        extent = Extent.of(dict(zip(names, inputs.vectors[i], strict=True)) for i in kept)
        for i in part:
            answers.append((i, *choice_at(selector, avoided, extent, inputs.vectors[i])))
        figures.append(_judged(inputs, answers[-len(part) :]).all)
    return LeftOut(_judged(inputs, answers), tuple(figures), max(map(len, others)))


def _judged(inputs: MeasuredInputs, answers: Sequence[tuple[int, int, str]]) -> Judged:
    return judge(
        [inputs.cases[i].text for i, _, _ in answers], [inputs.times[i] for i, _, _ in answers],
        [a for _, a, _ in answers], 0, inputs.noise, reasons=[reason for _, _, reason in answers],
        failures=[inputs.failures[i] for i, _, _ in answers] if inputs.failures else (),
    )  # fmt: skip


def cross_validated(tuned: Tuned, op: str, chooser: KernelChooser, folds: int, seed: int) -> LeftOut:
    """Cross-validation in folds. Raises UsageError if nothing was learned, or from fewer inputs than folds."""
    names, inputs = _learned_from(tuned, op, chooser)
    if len(inputs.cases) < max(2, folds):
        raise UsageError(f"{op}: {folds} folds of {counted(len(inputs.cases), 'input')}", "give fewer --folds")
    order = _order(len(inputs.cases), seed)
    return left_out(chooser.method, names, inputs, [order[k::folds] for k in range(folds)], seed)


def _held_out(tuned: Tuned, op: str, chooser: KernelChooser, share: float, seed: int) -> LeftOut:
    names, inputs = _learned_from(tuned, op, chooser)
    order = _order(len(inputs.cases), seed)
    return left_out(chooser.method, names, inputs, [order[: max(1, round(share * len(order)))]], seed)


def _order(count: int, seed: int) -> list[int]:
    return random.Random(f"{seed} left out").sample(range(count), count)


def _learned_from(tuned: Tuned, op: str, chooser: KernelChooser) -> tuple[tuple[str, ...], MeasuredInputs]:
    if chooser.selector is None:
        raise UsageError(f"{tuned.path}: nothing was learned for {op}", "tune it with more inputs")
    names = chooser.selector.data
    return names, measured(tuned, op, chooser, names).part(False)


def evaluate_left_out(text: ProgramText, tuned: Tuned, options: TuneOptions) -> Evaluation:
    """Evaluate the choosers of a tuned file by cross-validation (`options.folds`), or on a fraction of its inputs
    (`options.hold_out`). Raises UsageError, also if the file belongs to another program."""
    check_tuned(tuned, text.program(), None)
    began, ops, trained = time.monotonic(), [], 0
    for op, chooser in tuned.kernel_choosers.items():
        if options.kernels and op not in options.kernels:
            continue
        if options.folds is not None:
            result = cross_validated(tuned, op, chooser, options.folds, options.seed)
        else:
            result = _held_out(tuned, op, chooser, options.hold_out or 0.1, options.seed)
        trained = max(trained, result.trained)
        more = (result.spread,) if result.spread else ()
        ops.append(Evaluated(op, result.judged, chooser.settings, more))
    if not ops:
        raise UsageError(f"{tuned.path}: no chooser in it", "tune with --inputs or --samples first")
    how = f"{options.folds}-fold cross-validation" if options.folds is not None else f"{options.hold_out:.0%} held out"
    grade = f"{how} of the inputs that {tuned.path.name} was trained on"
    return Evaluation(
        tuple(ops), grade, max(len(one.judged.verdicts) for one in ops), (), (), time.monotonic() - began, trained
    )
