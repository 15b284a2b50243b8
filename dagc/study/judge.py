"""Evaluation of choices on a full table of measurements: percent of exhaustive, accuracy, regret, compared with other
ways to choose.

A table has the value of the objective of every answer at every input, seconds unless energy or another metric was
measured. An infinite value marks an answer whose constraint fails at the input: a program that requests it takes the
next answer in the selector's order, or the default if no order is given. An answer without a value failed (a crash, a
wrong result, no convergence).

Every input is in one of three groups: the choice worked, and the figures are over these; the choice failed, which is
counted, with the reason; or no answer has a finite value (unsolved). A single answer, the default and a random one gain
0 % of exhaustive at an input of the first group at which they fail. So all figures are finite, or NaN without inputs.
"""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dagc.base.errors import counted
from dagc.ir.choice import Choice
from dagc.study.results import remarks
from dagc.study.train import TrainingTable

Times = Mapping[int, float]  # number of an answer -> value of the objective
Asked = int | Sequence[int]  # an answer, or several in order: the first whose constraint holds is taken
BANDS = (1e5, 1e6)  # sizes at which a new band begins
PERMUTATIONS = 10  # of a feature
POOR = 0.7  # of exhaustive: the goal is that no input is below this


@dataclass(frozen=True, slots=True)
class JudgedCase:
    """One input. `taken` runs where `chosen` was requested: another answer where the constraint of `chosen` fails.
    `failure`: why `taken` failed, as far as is known."""

    name: str
    chosen: int
    taken: int
    best: int
    value: float  # of `taken`; infinite where it failed
    best_value: float
    tolerance: float
    reason: str = ""
    failure: str = ""

    @property
    def failed(self) -> bool:
        """Whether `taken` has no value."""
        return not math.isfinite(self.value)

    @property
    def ratio(self) -> float:
        """t_taken / t_best, 1 or more; infinite where `taken` failed."""
        return self.value / self.best_value

    @property
    def right(self) -> bool:
        """Within the noise of the best."""
        return self.ratio <= 1 + self.tolerance


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures for some of the inputs: over the `inputs` at which the choice worked, besides those where it `failed`.
    Fractions are in [0, 1], NaN for an empty set.

    `percent`: mean of t_best / t_taken, as in Nitro (Muralidharan et al. 2014, section V). `balanced`: mean over the
    best answers of the fraction of their inputs with a right choice. `regret`: mean of t_taken / t_best - 1;
    `geometric`: geometric mean of t_taken / t_best; `lost`: the same over the wrong choices only, 1 without any.
    `poor`: inputs below 70 % of exhaustive. `singles`: always one answer, the best first (in hindsight); `random`: the
    expectation over uniformly random answers.

    In the terms of MLCD (section IV-D), PPP, the percentage performance penalty, is `regret`, and PoIS is `ideal`, the
    sum of t_best over the sum of t_taken. `faster` and `faster_sum`: the least speed-up over a single answer, as the
    mean of t_single / t_taken and as the ratio of the sums, over the inputs at which that answer works; of the answers
    that fail at the fewest, `single_failed`.
    """

    inputs: int
    failed: int
    percent: float
    accuracy: float
    balanced: float
    regret: float
    geometric: float
    lost: float
    poor: int
    singles: tuple[tuple[int, float], ...]
    default: float
    random: float
    ideal: float
    faster: float
    faster_sum: float
    single_failed: int

    @property
    def single(self) -> tuple[int, float]:
        """The best single answer, and its fraction of exhaustive."""
        return self.singles[0]


@dataclass(frozen=True, slots=True)
class Judged:
    """`decisive`: inputs whose best and second best differ by more than the noise. `bands`: by size, the label first.

    `verdicts`: the costliest choice first. `reasons`: the number of inputs with each reason. `refused`: inputs at which
    the constraint of the chosen answer failed.
    """

    verdicts: tuple[JudgedCase, ...]
    all: Figures
    decisive: Figures
    bands: tuple[tuple[str, Figures], ...]
    reasons: Mapping[str, int]
    refused: int
    unsolved: tuple[str, ...]

    @property
    def wrong(self) -> tuple[JudgedCase, ...]:
        """Not within the noise of the best, the costliest first; without those that failed."""
        return tuple(verdict for verdict in self.verdicts if not verdict.right and not verdict.failed)

    @property
    def failed(self) -> tuple[JudgedCase, ...]:
        """The inputs at which the choice failed."""
        return tuple(verdict for verdict in self.verdicts if verdict.failed)

    def share(self, reason: str) -> float:
        """The fraction of the inputs with this reason, such as `unsure`."""
        return self.reasons.get(reason, 0) / len(self.verdicts) if self.verdicts else math.nan

    def lines(self, text: Callable[[int], str] = str, worst: int = 5) -> tuple[str, ...]:
        """A table as text, followed by the names of the costliest mistakes. `text`: the text of an answer."""
        parts = [("all", self.all), ("best beyond the noise", self.decisive), *self.bands]
        width = max(len(name) for name, _ in parts)
        apart = ("failed",) if self.failed else ()
        head = (
            "inputs",
            *apart,
            "% of exhaustive",
            "accuracy",
            "balanced",
            "mean regret",
            "single",
            "default",
            "random",
        )
        out = [f"{'':{width}}  " + "  ".join(head)]
        for name, f in parts:
            row = (
                str(f.inputs),
                *(str(f.failed) for _ in apart),
                *map(percent, (f.percent, f.accuracy, f.balanced, f.regret)),
            )
            row += tuple(map(percent, (f.singles[0][1] if f.singles else math.nan, f.default, f.random)))
            out.append(f"{name:{width}}  " + "  ".join(f"{v:>{len(h)}}" for v, h in zip(row, head, strict=True)))
        out += self._failures(text, worst)
        if self.all.inputs:
            f = self.all
            out.append(f"PPP {percent(f.regret)}, PoIS {percent(f.ideal)}, accuracy {percent(f.accuracy)}")
            over = f"{_ratio(f.faster)} (mean of ratios), {_ratio(f.faster_sum)} (ratio of sums)"
            where = f", which fails at {counted(f.single_failed, 'input')} more" if f.single_failed else ""
            out.append(f"speed-up over the best single variant{where}: {over}")
        if self.all.singles:
            out.append(f"best single variant, in hindsight: {text(self.all.single[0])}")
        if self.reasons:
            out.append("answers: " + ", ".join(f"{n} {reason}" for reason, n in self.reasons.items()))
        if self.refused:
            out.append(f"the choice violated a constraint and another was used: {counted(self.refused, 'input')}")
        if self.wrong:
            out.append(f"{counted(len(self.wrong), 'wrong choice')}: {self.all.lost:.3f} times the best on average")
        for verdict in self.wrong[:worst]:
            out.append(f"  {verdict.name}: {text(verdict.taken)} {verdict.ratio:.2f} times {text(verdict.best)}")
        if self.unsolved:
            out.append(
                f"no variant works at {counted(len(self.unsolved), 'input')}: {', '.join(self.unsolved[:worst])}"
            )
        return tuple(out)

    def _failures(self, text: Callable[[int], str], worst: int) -> list[str]:
        """The inputs at which the choice failed, with the reasons."""
        if not self.failed:
            return []
        rest = (
            f"the figures are over the other {counted(self.all.inputs, 'input')}" if self.all.inputs else "no figures"
        )
        out = [f"the choice failed at {counted(len(self.failed), 'input')}; {rest}"]
        for verdict in self.failed[:worst]:
            why = f": {verdict.failure}" if verdict.failure else ""
            out.append(f"  {verdict.name}: {text(verdict.taken)} failed{why}; the best is {text(verdict.best)}")
        return out


def judge(
    names: Sequence[str],
    times: Sequence[Times],
    chosen: Sequence[Asked],
    default: int = 0,
    tolerance: float | Sequence[float] = 0.0,
    *,
    sizes: Sequence[float] = (),
    bands: Sequence[float] = BANDS,
    reasons: Sequence[str] = (),
    failures: Sequence[Mapping[int, str]] = (),
) -> Judged:
    """Evaluate the answers `chosen` at the inputs `names`, with full measurements `times`. Where constraints may fail,
    an element of `chosen` is an order of all answers instead.

    `tolerance`: the relative noise of a comparison, one number or one for each input. `sizes`: a number for each input,
    by which bands are formed (`bands`: the lower bounds of all but the first). `reasons`: why each answer was given
    (`chosen`, `unsure`). `failures`: why answers failed at each input, by number. Raises ValueError if the lengths
    differ.
    """
    noise = list(tolerance) if isinstance(tolerance, Sequence) else [tolerance] * len(names)
    reason = list(reasons) or [""] * len(names)
    solved = [i for i, at in enumerate(times) if any(math.isfinite(t) for t in at.values())]
    why = list(failures) or [{}] * len(names)
    rows = list(zip(names, times, chosen, noise, reason, why, list(sizes) or [math.nan] * len(names), strict=True))
    kept = [(_verdict(rows[i][:6], default), rows[i][1], rows[i][6]) for i in solved]
    answers = sorted({answer for at in times for answer in at})

    def figures(part: Iterable[tuple[JudgedCase, Times, float]]) -> Figures:
        return _figures([(verdict, at) for verdict, at, _ in part], answers, default)

    return Judged(
        tuple(sorted((verdict for verdict, _, _ in kept), key=lambda c: -c.ratio)),
        figures(kept),
        figures(k for k in kept if _decisive(k[1], k[0].tolerance)),
        tuple((name, figures(part)) for name, part in _banded(kept, bands) if part) if sizes else (),
        dict(Counter(verdict.reason for verdict, _, _ in kept if verdict.reason)),
        sum(verdict.chosen != verdict.taken for verdict, _, _ in kept),
        tuple(names[i] for i in range(len(names)) if i not in set(solved)),
    )


def judged_at(
    table: TrainingTable,
    chosen: Sequence[Asked],
    default: int = 0,
    tolerance: float | None = None,
    reasons: Sequence[str] = (),
    banded: bool = False,
) -> Judged:
    """As `judge`, at the rows of a table. `tolerance`: without it, the noise of each row. `banded`: by their sizes."""
    rows = table.rows
    noise = [row.noise for row in rows] if tolerance is None else tolerance
    return judge(
        [row.case.text for row in rows], table.times, chosen, default, noise,
        sizes=[row.elements for row in rows] if banded else (), reasons=reasons,
        failures=[row.failures for row in rows],
    )  # fmt: skip


def importance(
    choose: Callable[[Sequence[float]], Asked],
    vectors: Sequence[Sequence[float]],
    times: Sequence[Times],
) -> tuple[float, ...]:
    """For each feature: the fraction of exhaustive that is lost if its values are permuted among the inputs, averaged
    over PERMUTATIONS (permutation importance, Breiman 2001). 0 if the choices do not depend on it."""
    draw = random.Random(0)

    def worth(rows: Sequence[Sequence[float]]) -> float:
        return _mean([_share(at, choose(row), 0) for row, at in zip(rows, times, strict=True)])

    before, out = worth(vectors), []
    for feature in range(len(vectors[0]) if vectors else 0):
        lost = []
        for _ in range(PERMUTATIONS):
            column = draw.sample([row[feature] for row in vectors], len(vectors))
            mixed = [[*row[:feature], v, *row[feature + 1 :]] for row, v in zip(vectors, column, strict=True)]
            lost.append(before - worth(mixed))
        out.append(_mean(lost))
    return tuple(out)


def pays_after(feature_seconds: float, default_seconds: float, chosen_seconds: float) -> float:
    """The number of calls after which the cost of features (or a conversion) is recovered; infinite if it never is."""
    gain = default_seconds - chosen_seconds
    return max(1.0, math.ceil(feature_seconds / gain)) if gain > 0 else math.inf


@dataclass(frozen=True, slots=True, order=True)
class Worst:
    """`failed`: the number of inputs at which an answer fails or is not allowed. `ratio`: how many times the best it
    takes at its worst, of the others; 1 without any."""

    failed: int
    ratio: float


def worst_cases(rows: Sequence[Times]) -> dict[int, Worst]:
    """Of each answer that `rows` of times by answer name. Rows without a finite time do not count."""
    timed = [(times, min(times.values())) for times in rows if min(times.values(), default=math.inf) < math.inf]
    out = {}
    for answer in sorted({answer for times, _ in timed for answer in times}):
        ratios = [times.get(answer, math.inf) / best for times, best in timed]
        worked = [ratio for ratio in ratios if ratio < math.inf]
        out[answer] = Worst(len(ratios) - len(worked), max(worked, default=1.0))
    return out


def least_calls(inputs: Iterable[tuple[float, Iterable[tuple[float, float]]]], most: int = 1 << 40) -> float:
    """The least number of calls at which it pays to compute features and take the best answer, on average over
    `inputs`; infinite above `most`.

    For each input: the cost of the features, and for each answer the gain of a call and the cost of its conversion, all
    in calls of the default.
    """
    rows = [(spent, list(answers)) for spent, answers in inputs]

    def won(calls: float) -> float:
        best = (max((g * (calls - spent) - cost for g, cost in of), default=0.0) for spent, of in rows)
        return sum(max(0.0, gain) - spent for gain, (spent, _) in zip(best, rows, strict=True))

    if not won(most) > 0:
        return math.inf
    low, high = 0, most  # it pays at `high`: the gain minus the cost of the features grows with the calls
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if won(middle) > 0 else (middle, high)
    return float(high)


def _verdict(row: tuple[str, Times, Asked, float, str, Mapping[int, str]], default: int) -> JudgedCase:
    name, at, chosen, noise, reason, failures = row
    taken = _taken(at, chosen, default)
    best = min(at, key=lambda answer: (at[answer], answer))
    return JudgedCase(
        name,
        chosen if isinstance(chosen, int) else chosen[0],
        taken,
        best,
        at.get(taken, math.inf),
        at[best],
        noise,
        reason,
        failures.get(taken, ""),
    )


def _taken(at: Times, asked: Asked, default: int) -> int:
    """The answer that runs: the first requested one whose constraint holds, else the default."""
    order = (asked,) if isinstance(asked, int) else asked
    return next((answer for answer in order if at.get(answer) != math.inf), default)


def _share(at: Times, answer: Asked, default: int) -> float:
    """t_best / t; 0 if the answer failed."""
    return min(at.values()) / at.get(_taken(at, answer, default), math.inf)


def _decisive(at: Times, tolerance: float) -> bool:
    ordered = sorted(at.values())
    return len(ordered) > 1 and ordered[1] > (1 + tolerance) * ordered[0]


def _figures(every: Sequence[tuple[JudgedCase, Times]], answers: Sequence[int], default: int) -> Figures:
    part = [(verdict, at) for verdict, at in every if not verdict.failed]
    verdicts = [verdict for verdict, _ in part]
    of_best: dict[int, list[bool]] = {}
    for verdict in verdicts:
        of_best.setdefault(verdict.best, []).append(verdict.right)
    singles = [(a, _mean([_share(at, a, default) for _, at in part])) for a in answers] if part else []
    ratios = [verdict.ratio for verdict in verdicts]
    return Figures(
        len(verdicts),
        len(every) - len(part),
        _mean([1 / r for r in ratios]),
        _mean([verdict.right for verdict in verdicts]),
        _mean([_mean(right) for right in of_best.values()]),
        _mean([r - 1 for r in ratios]),
        _geometric(ratios),
        _geometric([verdict.ratio for verdict in verdicts if not verdict.right] or [1.0]) if verdicts else math.nan,
        sum(1 / r < POOR for r in ratios),
        tuple(sorted(singles, key=lambda single: (-single[1], single[0]))),
        _mean([_share(at, default, default) for _, at in part]),
        _mean([share for _, share in singles]),
        sum(verdict.best_value for verdict in verdicts) / sum(verdict.value for verdict in verdicts)
        if verdicts
        else math.nan,
        *_faster(part, answers, default),
    )


def _faster(part: Sequence[tuple[JudgedCase, Times]], answers: Sequence[int], default: int) -> tuple[float, float, int]:
    """The least speed-up over a single answer, of those that fail at the fewest of the inputs: mean of ratios, ratio of
    sums, and at how many inputs it fails. NaN without an input."""
    over: list[tuple[int, float, float]] = []
    for answer in answers if part else ():
        values = [at.get(_taken(at, answer, default), math.inf) for _, at in part]
        both = [(v, verdict.value) for v, (verdict, _) in zip(values, part, strict=True) if math.isfinite(v)]
        if both:
            sums = sum(v for v, _ in both) / sum(taken for _, taken in both)
            over.append((len(part) - len(both), _mean([v / taken for v, taken in both]), sums))
    fewest = min((failed for failed, _, _ in over), default=0)
    rest = [(ratio, sums) for failed, ratio, sums in over if failed == fewest]
    return min((r for r, _ in rest), default=math.nan), min((s for _, s in rest), default=math.nan), fewest


def _banded(
    kept: Sequence[tuple[JudgedCase, Times, float]], bands: Sequence[float]
) -> list[tuple[str, list[tuple[JudgedCase, Times, float]]]]:
    """The inputs of each band, with its label: `under 1e+05`, `1e+05 to 1e+06`, `1e+06 or more`."""
    ends = [-math.inf, *bands, math.inf]
    out = []
    for low, high in pairwise(ends):
        label = f"under {high:g}" if low == -math.inf else f"{low:g} or more" if high == math.inf else ""
        part = [k for k in kept if low <= k[2] < high]
        out.append((label or f"{low:g} to {high:g}", part))
    return out


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else math.nan


def _geometric(ratios: Sequence[float]) -> float:
    return math.exp(_mean([math.log(r) for r in ratios])) if ratios else math.nan


def percent(share: float) -> str:
    """`12.34 %`; `-` for NaN."""
    return "-" if math.isnan(share) else f"{100 * share:.2f} %"


def _ratio(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


# ---- the result of `dagc tune --evaluate` --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Evaluated:
    """One op at the test inputs. `text`: the text of an answer by number; `costs`: a line for each feature."""

    op: str
    judged: Judged
    choices: tuple[Choice, ...]
    costs: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """The table."""
        return (*self.judged.lines(lambda answer: self.choices[answer].in_words), *self.costs)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of `dagc tune --evaluate`. `inputs`: number of test inputs; `trained`: number of training inputs."""

    ops: tuple[Evaluated, ...]
    grade: str
    inputs: int
    failures: tuple[str, ...]
    notes: tuple[str, ...]
    seconds: float
    trained: int = 0

    def render(self) -> str:
        """A table for each op: percent of exhaustive and the figures to compare with."""
        learned = f", trained on {counted(self.trained, 'other')}" if self.trained else ""
        text = [f"{self.grade}; {counted(self.inputs, 'test input')}{learned}, in {self.seconds:.1f} s"]
        for one in self.ops:
            text += [f"{one.op}:", *(f"  {line}" for line in one.lines)]
        return "\n".join([*text, *remarks(self.failures, self.notes)]) + "\n"
