"""`dagc tune --evaluate --folds`, `--hold-out`: what a tuned file is worth, from the inputs it was trained on; runs
nothing.

At each input that is left out, a selector answers that was trained on the others, by the method of the file.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagc.base.errors import UsageError, counted
from dagc.choice.judge import Figures, Judged, judge
from dagc.choice.selector import FEWEST, Extent
from dagc.recipes.tune_results import Evaluated, Evaluation
from dagc.recipes.tuned import check_tuned
from dagc.recipes.tuned_report import MeasuredInputs, measured, taken

if TYPE_CHECKING:
    from dagc.recipes.options import TuneOptions
    from dagc.recipes.program import ProgramText
    from dagc.store.tuned import KernelChooser, Tuned

FOLDS = 10


@dataclass(frozen=True, slots=True)
class LeftOut:
    """One op. `judged`: all inputs that were left out, once each; `parts`: those of each fold."""

    judged: Judged
    parts: tuple[Figures, ...]
    trained: int

    @property
    def spread(self) -> str:
        """Mean and standard deviation over the folds; nothing for one part."""
        if len(self.parts) < 2:
            return ""
        named = [("PPP", [f.regret for f in self.parts]), ("PoIS", [f.ideal for f in self.parts])]
        named.append(("accuracy", [f.accuracy for f in self.parts]))
        shown = (f"{n} {_percent(statistics.fmean(v))} +- {_percent(_deviation(v))}" for n, v in named)
        return f"mean and standard deviation of {len(self.parts)} folds: {', '.join(shown)}"


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.2f} %"


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if all(map(math.isfinite, values)) else math.inf


def left_out(
    method: str, names: Sequence[str], inputs: MeasuredInputs, parts: Sequence[Sequence[int]], seed: int
) -> LeftOut:
    """Judge each of `parts`, numbers of inputs, by what is trained on all others. Raises UsageError where these are too
    few."""
    from dagc.choice.train import merged, train  # loads msgspec

    noise = (1 - inputs.noise / 2, 1.0, 1 + inputs.noise / 2)
    figures, answers, trained = [], [], 0
    for part in parts:
        kept = sorted(set(range(len(inputs.points))) - set(part))
        known = merged(
            [inputs.vectors[i] for i in kept], [inputs.times[i] for i in kept], [[noise]] * len(kept)
        )  # fmt: skip
        if len(known.sizes) < FEWEST:
            left = counted(len(known.sizes), "input")
            raise UsageError(f"{left} to train on, {FEWEST} are needed", "leave fewer out, or tune with more")
        trained = max(trained, len(kept))
        selector = train(method, names, known, seed, default=0)
        extent = Extent.of(dict(zip(names, inputs.vectors[i], strict=True)) for i in kept)
        for i in part:
            x = inputs.vectors[i]
            beyond = max(extent.beyond(dict(zip(names, x, strict=True))).values(), default=1)
            answers.append((i, *taken(selector.ask(x), selector, beyond)))
        figures.append(_judged(inputs, answers[-len(part) :]).all)
    return LeftOut(_judged(inputs, answers), tuple(figures), trained)


def _judged(inputs: MeasuredInputs, answers: Sequence[tuple[int, int, str]]) -> Judged:
    return judge(
        [inputs.points[i].text for i, _, _ in answers], [inputs.times[i] for i, _, _ in answers],
        [a for _, a, _ in answers], 0, inputs.noise, reasons=[reason for _, _, reason in answers],
    )  # fmt: skip


def cross_validated(tuned: Tuned, op: str, chooser: KernelChooser, folds: int, seed: int) -> LeftOut:
    """Raises UsageError where nothing was learned, or from fewer inputs than folds."""
    names, inputs = _learned_from(tuned, op, chooser)
    if len(inputs.points) < max(2, folds):
        raise UsageError(f"{op}: {folds} folds of {counted(len(inputs.points), 'input')}", "give fewer --folds")
    order = _order(len(inputs.points), seed)
    return left_out(chooser.method, names, inputs, [order[k::folds] for k in range(folds)], seed)


def _held_out(tuned: Tuned, op: str, chooser: KernelChooser, share: float, seed: int) -> LeftOut:
    names, inputs = _learned_from(tuned, op, chooser)
    order = _order(len(inputs.points), seed)
    return left_out(chooser.method, names, inputs, [order[: max(1, round(share * len(order)))]], seed)


def _order(count: int, seed: int) -> list[int]:
    return random.Random(f"{seed} left out").sample(range(count), count)


def _learned_from(tuned: Tuned, op: str, chooser: KernelChooser) -> tuple[tuple[str, ...], MeasuredInputs]:
    if chooser.selector is None:
        raise UsageError(f"{tuned.path}: nothing was learned for {op}", "tune it with more inputs")
    names = chooser.selector.data
    return names, measured(tuned, op, chooser, names).part(False)


def evaluate_left_out(text: ProgramText, tuned: Tuned, options: TuneOptions) -> Evaluation:
    """Judge the choosers of a tuned file by cross-validation (`options.folds`), or at a share of its inputs
    (`options.hold_out`). Raises UsageError, also where the file is of another program."""
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
        tuple(ops), grade, max(len(one.judged.cases) for one in ops), (), (), time.monotonic() - began, trained
    )
