"""The training table of a site, and what is learned from it: labels, a selector, its cross-validation, and the features
that it needs (`--select-features`).

Kernels, variants, devices and whole programs are learned in the same way: a table has a row for each case, with the
features of the site and the value of each choice there, by number.
"""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeVar

from dagc.base.errors import counted
from dagc.base.sample import Sample
from dagc.choice.choose import Avoided
from dagc.choice.methods import EXHAUSTIVE, fit, unsure_below
from dagc.choice.selector import FEWEST, Answer, Selector, compile_together
from dagc.choice.types import Case, Cell
from dagc.ir.choice import Choice

Label = TypeVar("Label", bound=Hashable)
Times = Mapping[int, float]  # number of a choice -> value of the objective, seconds for the time
Interval = tuple[float, float, float]  # low, median, high of one measurement
ONE_BY_ONE = 24  # up to this many sizes are left out one at a time
FOLDS = 10
MOST_PREDICTED = 32  # choices whose times are predicted in addition to those that may be chosen
STEPS = 20_000  # of the search for the smallest set of labels
JUDGES = 0.5  # tolerance up to which it says something that a choice is within it

# ---- the training table -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TableRow:
    """A site at a case. `times`: the value of each choice by number; infinite where a constraint excludes it, missing
    where it failed or was not measured. `intervals`: those of the measurements. `failures`: why choices failed.
    `elements`: the size of the case; `test`: whether nothing is learned from it."""

    features: tuple[float, ...]
    times: Times
    intervals: tuple[Interval, ...] = ()
    failures: Mapping[int, str] = field(default_factory=dict)
    case: Case = Case(())
    elements: float = math.nan
    test: bool = False

    @property
    def finite(self) -> dict[int, float]:
        """The values that were measured."""
        return {choice: value for choice, value in self.times.items() if math.isfinite(value)}

    @property
    def barred(self) -> frozenset[int]:
        """The choices that a constraint excludes."""
        return frozenset(self.times.keys() - self.finite.keys())

    @property
    def noise(self) -> float:
        """The relative noise of comparing the two fastest choices."""
        return noise_of_best(self.intervals)

    @property
    def usable(self) -> bool:
        """Whether something can be learned from it: its features are finite, and a choice has a value."""
        return all(map(math.isfinite, self.features)) and bool(self.finite)


@dataclass(frozen=True, slots=True)
class TrainingTable:
    """`names`: of the features of each row."""

    names: tuple[str, ...]
    rows: tuple[TableRow, ...]

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        features: Sequence[Sequence[float]],
        times: Sequence[Times],
        intervals: Sequence[Sequence[Interval]] | float = 0.0,
        failed: Sequence[Collection[int]] = (),
    ) -> TrainingTable:
        """From columns. `intervals`: those of each row, or the relative noise of all. `failed`: the choices that failed
        at each row."""
        noise = [[noisy(intervals)]] * len(features) if isinstance(intervals, float) else intervals
        bad = failed or [()] * len(features)
        columns = zip(features, times, noise, bad, strict=True)
        return cls(tuple(names), tuple(TableRow(tuple(x), t, tuple(i), dict.fromkeys(b, "")) for x, t, i, b in columns))

    @property
    def times(self) -> list[Times]:
        return [row.times for row in self.rows]

    @property
    def features(self) -> list[tuple[float, ...]]:
        return [row.features for row in self.rows]

    @property
    def tolerance(self) -> float:
        """`tolerance_of` all intervals."""
        return tolerance_of(i for row in self.rows for i in row.intervals)

    @property
    def noise(self) -> float:
        """The noise of a comparison of two choices, relative: the median over the rows."""
        return statistics.median([row.noise for row in self.rows] or [0.0])

    @property
    def usable(self) -> TrainingTable:
        """The rows from which something can be learned."""
        return replace(self, rows=tuple(row for row in self.rows if row.usable))

    @property
    def avoided(self) -> Avoided:
        """Where choices failed."""
        rows = self.rows
        return Avoided.of(self.features, [row.finite.keys() for row in rows], [row.failures.keys() for row in rows])

    @property
    def merged(self) -> TrainingTable:
        """A row for each different vector of features, in ascending order, so that training does not depend on the
        order in which cases were listed or measured. Cases may have equal features if the selector uses fewer than
        distinguish them. A row without finite values is dropped."""
        groups: dict[tuple[float, ...], list[TableRow]] = {}
        for row in self.rows:
            groups.setdefault(row.features, []).append(row)
        return replace(self, rows=tuple(_joined(groups[x]) for x in sorted(groups) if any(r.finite for r in groups[x])))

    def only(self, numbers: Iterable[int]) -> TrainingTable:
        """Some of the rows."""
        return replace(self, rows=tuple(self.rows[i] for i in numbers))

    def without(self, numbers: Collection[int]) -> TrainingTable:
        """The other rows."""
        left_out = set(numbers)
        return self.only(i for i in range(len(self.rows)) if i not in left_out)

    def part(self, test: bool) -> TrainingTable:
        """The test cases, or the others."""
        return replace(self, rows=tuple(row for row in self.rows if row.test == test))

    def by(self, names: Sequence[str]) -> TrainingTable:
        """With some of the features."""
        places = [self.names.index(name) for name in names]
        rows = tuple(replace(row, features=tuple(row.features[i] for i in places)) for row in self.rows)
        return TrainingTable(tuple(names), rows)

    def among(self, choices: Collection[int]) -> TrainingTable:
        """With the values of some of the choices."""
        rows = (replace(row, times={c: t for c, t in row.times.items() if c in choices}) for row in self.rows)
        return replace(self, rows=tuple(rows))

    def with_noise(self, noise: float) -> TrainingTable:
        """With this relative noise of all comparisons instead of the intervals."""
        return replace(self, rows=tuple(replace(row, intervals=(noisy(noise),)) for row in self.rows))


def tabulated(
    names: Sequence[str],
    choices: Sequence[Choice],
    cases: Iterable[Case],
    samples: Iterable[tuple[Cell, Sample]],
    features: Mapping[Case, Mapping[str, float]],
    allowed: Mapping[Case, Collection[Choice]] | None = None,
) -> TrainingTable:
    """The samples of a site as a table: a row for each of `cases`, `choices` by number. `features`: those known at each
    case, by name. `allowed`: the choices whose constraints hold at each case; all, without it."""
    number = {choice: i for i, choice in enumerate(choices)}
    at: dict[Case, dict[int, Sample]] = {case: {} for case in cases}
    for cell, sample in samples:
        if cell.case in at and cell.choice in number:
            at[cell.case][number[cell.choice]] = sample
    rows = []
    for case, here in at.items():
        values = {i: sample.value for i, sample in here.items() if sample.good}
        if allowed is not None:
            values |= {i: math.inf for choice, i in number.items() if choice not in allowed[case]}
        known = features.get(case, {})
        rows.append(
            TableRow(
                tuple(known.get(name, math.nan) for name in names),
                {i: values[i] for i in sorted(values)},
                tuple((s.interval[0], s.value, s.interval[1]) for s in here.values() if s.good),
                {i: sample.failure for i, sample in here.items() if sample.failure},
                case,
            )
        )
    return TrainingTable(tuple(names), tuple(rows))


def _joined(rows: Sequence[TableRow]) -> TableRow:
    """Rows with equal features as one: the mean of each choice's value over the best, over the choices that all have,
    times the geometric mean of the best."""
    timed = [row for row in rows if row.finite]
    times = _mean([row.finite for row in timed])
    barred = sorted({choice for row in timed for choice in row.barred} - times.keys())
    return replace(
        timed[0], times={**times, **dict.fromkeys(barred, math.inf)},
        intervals=tuple(i for row in timed for i in row.intervals),
        failures={choice: why for row in rows for choice, why in row.failures.items()},
    )  # fmt: skip


def _mean(group: Sequence[Times]) -> Times:
    if len(group) == 1:
        return group[0]
    shared = [label for label in group[0] if all(label in at for at in group)]
    best = [min(at.values()) for at in group]
    scale = statistics.geometric_mean(best)
    return {
        label: scale * statistics.fmean(at[label] / least for at, least in zip(group, best, strict=True))
        for label in shared
    } or group[0]


def noisy(noise: float) -> Interval:
    """An interval of a measurement of 1 whose comparisons have this relative noise."""
    return 1 - noise / 2, 1.0, 1 + noise / 2


def tolerance_of(intervals: Iterable[Interval]) -> float:
    """The noise floor of a comparison, relative: twice the median half width of the 95 % intervals.

    Each entry is (low, median, high) of one measurement, in any unit. 0 where there is none.
    """
    widths = [(high - low) / 2 / middle for low, middle, high in intervals if middle > 0]
    return 2 * statistics.median(widths) if widths else 0.0


def noise_of_best(intervals: Iterable[Interval]) -> float:
    """The noise of comparing the two fastest choices at one size, relative: the sum of the half widths of their
    intervals. Slower choices are measured less exactly. 0 with fewer than two."""
    fastest = sorted((i for i in intervals if i[1] > 0), key=lambda interval: interval[1])[:2]
    return sum((high - low) / 2 / middle for low, middle, high in fastest) if len(fastest) == 2 else 0.0


# ---- labels -----------------------------------------------------------------------------------
#
# The paper on the tridiagonal partition method (table "corrected opt m") corrects its labels by hand, to follow the
# trend where the difference is small. Here a rule does this: among the choices within a tolerance of the best at each
# size, it takes the labels that change least often along the sizes, and among these the ones that lose the least time.
# For sizes of several dimensions without an order, it takes the fewest different labels.


def observed_labels(times: Sequence[Mapping[Label, float]]) -> tuple[Label, ...]:
    """The fastest choice at each size; the first if several are equal."""
    return tuple(min(at, key=lambda label: at[label]) for at in times)


def simplest_labels(times: Sequence[Mapping[Label, float]], tolerance: float) -> tuple[Label, ...]:
    """One label per size, in the order of the sizes: fewest changes, then least relative loss.

    `times`: label -> seconds, per size, sizes ascending. `tolerance` is relative: 0.01 allows what is within 1 % of the
    best. Dynamic programming over sizes and allowed labels.
    """
    # label -> (changes, loss, path) of the best labelling so far that ends with it
    paths: dict[Label, tuple[int, float, tuple[Label, ...]]] = {}
    for at in times:
        least = min(at.values())
        allowed = [label for label, seconds in at.items() if seconds <= (1 + tolerance) * least]
        step: dict[Label, tuple[int, float, tuple[Label, ...]]] = {}
        cheapest = min(paths.values(), key=lambda p: p[:2]) if paths else (0, 0.0, ())
        for label in allowed:
            loss = at[label] / least - 1
            changed = (cheapest[0] + bool(cheapest[2]), cheapest[1] + loss, (*cheapest[2], label))
            same = paths.get(label)
            unchanged = (same[0], same[1] + loss, (*same[2], label)) if same is not None else changed
            step[label] = min(unchanged, changed, key=lambda p: p[:2])
        paths = step
    return min(paths.values(), key=lambda p: p[:2])[2] if paths else ()


def ascends(sizes: Sequence[Sequence[float]]) -> bool:
    """Whether all sizes grow together once sorted. They then have one order, and labels may have a trend along it."""
    ordered = sorted(tuple(row) for row in sizes)
    return all(a <= b for one, other in pairwise(ordered) for a, b in zip(one, other, strict=True))


def covering_labels(times: Sequence[Mapping[Label, float]], tolerance: float) -> tuple[Label, ...]:
    """One label per size, for sizes without an order: fewest different labels, then least relative loss.

    `times`: label -> seconds, per size. Among the labels within the tolerance of the best at each size, the smallest
    set that has one for every size; each size takes the fastest of this set. Branch and bound, starting with the greedy
    set; after STEPS steps the best set so far is taken.
    """
    losses = [_losses(at, tolerance) for at in times]
    order = list(dict.fromkeys(label for at in losses for label in at))
    covers = {label: frozenset(i for i, at in enumerate(losses) if label in at) for label in order}
    best = _greedy(losses, covers)
    score = (len(best), _loss(losses, best))
    steps = 0

    def extend(labels: tuple[Label, ...], left: frozenset[int]) -> None:
        nonlocal best, score, steps
        steps += 1
        if not left:
            candidate = (len(labels), _loss(losses, labels))
            if candidate < score:
                best, score = labels, candidate
            return
        most = max(len(covers[label] & left) for label in order)
        if steps > STEPS or len(labels) - (-len(left) // most) > score[0]:
            return
        hardest = min(left, key=lambda i: (len(losses[i]), i))
        for label in losses[hardest]:
            extend((*labels, label), left - covers[label])

    extend((), frozenset(range(len(times))))
    return tuple(min((label for label in best if label in at), key=lambda label: at[label]) for at in losses)


def corrected_labels(
    sizes: Sequence[Sequence[float]], times: Sequence[Mapping[Label, float]], tolerance: float
) -> tuple[Label, ...]:
    """`simplest_labels` if the sizes grow together, else `covering_labels`; in the given order."""
    if not ascends(sizes):
        return covering_labels(times, tolerance)
    order = sorted(range(len(sizes)), key=lambda i: tuple(sizes[i]))
    labels = simplest_labels([times[i] for i in order], tolerance)
    return tuple(label for _, label in sorted(zip(order, labels, strict=True), key=lambda pair: pair[0]))


def _losses(at: Mapping[Label, float], tolerance: float) -> dict[Label, float]:
    least = min(at.values())
    return {label: seconds / least - 1 for label, seconds in at.items() if seconds <= (1 + tolerance) * least}


def _loss(losses: Sequence[Mapping[Label, float]], labels: Sequence[Label]) -> float:
    return sum(min(at[label] for label in labels if label in at) for at in losses)


def _greedy(losses: Sequence[Mapping[Label, float]], covers: Mapping[Label, frozenset[int]]) -> tuple[Label, ...]:
    """Greedy cover: repeatedly the label that serves most of the remaining sizes; if several do, the one that loses
    less."""
    left, chosen = frozenset(range(len(losses))), []
    while left:
        gains = {label: (-len(at & left), sum(losses[i][label] for i in at & left)) for label, at in covers.items()}
        label = min(gains, key=lambda one: gains[one])
        chosen.append(label)
        left -= covers[label]
    return tuple(chosen)


# ---- training -----------------------------------------------------------------------------------


def train(method: str, table: TrainingTable, seed: int = 0, default: int | None = None) -> Selector:
    """A selector trained on gains: a wrong choice is weighted by the fraction of the best performance that it loses.
    With `exhaustive`, the best of the nearest row. Raises UsageError like `fit`, also for two rows with equal features:
    give a table that is `merged`.

    It chooses among the choices that are best somewhere (for sizes that grow together: labels corrected by rule, within
    the tolerance of the table), the one that is best on average, and the default; the number is limited since every
    possible choice has to be compiled. A method that predicts times also learns the MOST_PREDICTED choices that are
    best on average. `default`: the confidence below which the default is better is learned, too.
    """
    times = [row.finite for row in table.rows]
    labels = observed_labels(times)
    if method == EXHAUSTIVE:
        from dagc.choice.learners.knn import nearest  # loads msgspec

        return nearest(table.names, table.features, labels)
    if ascends(table.features):
        labels = corrected_labels(table.features, times, table.tolerance)
    shares = list(map(shares_of, times))
    ranked = best_on_average(shares)
    offered = {*labels, ranked[0], *(() if default is None else [default])}
    predicted = offered | set(ranked[:MOST_PREDICTED])
    kept = [{label: share for label, share in at.items() if label in offered} for at in shares]
    seconds = [
        {label: value for label, value in at.items() if label in predicted}
        | dict.fromkeys(sorted(predicted & row.barred), math.inf)
        for at, row in zip(times, table.rows, strict=True)
    ]
    selector = fit(method, table.names, table.features, labels, seed, kept, seconds)
    return selector if default is None else unsure_below(selector, least_sure(method, table, default, seed))


def train_few(method: str, table: TrainingTable, seed: int = 0) -> tuple[Selector, tuple[int, ...]]:
    """A selector that answers with few choices, which it numbers anew, and these: by rule, those within the noise of
    the best at each case, and the one that is best on average. With `exhaustive`, the best of the nearest case. Raises
    UsageError like `fit`."""
    from dagc.choice.learners.knn import nearest  # loads msgspec

    known = table.merged
    times = [row.finite for row in known.rows]
    exhaustive = method == EXHAUSTIVE
    labels = observed_labels(times) if exhaustive else corrected_labels(known.features, times, known.tolerance)
    shares = list(map(shares_of, times))
    choices = sorted({*labels, *(() if exhaustive else best_on_average(shares)[:1])})
    number = {choice: i for i, choice in enumerate(choices)}
    numbers = [number[label] for label in labels]
    if exhaustive:
        return nearest(known.names, known.features, numbers), tuple(choices)
    worth, seconds = ([{number[c]: v for c, v in at.items() if c in number} for at in of] for of in (shares, times))
    return fit(method, known.names, known.features, numbers, seed, worth, seconds), tuple(choices)


def trained(table: TrainingTable, method: str, seed: int = 0) -> Selector | None:
    """The selector trained on the usable rows; None if they are too few."""
    known = table.usable.merged
    return train(method, known, seed) if len(known.rows) >= FEWEST else None


def trained_each(tables: Iterable[TrainingTable], method: str, seed: int = 0) -> list[Selector | None]:
    """`trained` for each table, compiled together."""
    selectors = [trained(table, method, seed) for table in tables]
    compile_together([selector for selector in selectors if selector is not None])
    return selectors


def best_on_average(shares: Sequence[Mapping[int, float]]) -> list[int]:
    """The choices by decreasing mean gain over all sizes; the lowest first if several are equal."""
    total: dict[int, float] = {}
    for at in shares:
        for label, share in at.items():
            total[label] = total.get(label, 0.0) + share
    return sorted(total, key=lambda label: (-total[label], label))


def shares_of(times: Times) -> dict[int, float]:
    """t_best / t for each choice."""
    least = min(times.values())
    return {label: least / seconds for label, seconds in times.items()}


@dataclass(frozen=True, slots=True)
class Learned:
    """What was learned of a site. `selector` answers with numbers of `choices`, all legal ones unless it answers with
    few; None if nothing could be learned, `notes` say why. `left_out`: the regret at each training case of a selector
    trained without it."""

    selector: Selector | None = None
    notes: tuple[str, ...] = ()
    left_out: Mapping[Case, float] = field(default_factory=dict)
    choices: tuple[Choice, ...] = ()


# ---- cross-validation ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CrossValidation:
    """Cross-validation, leave-one-out or in `folds`: t_chosen / t_best - 1 at each of `rows`, chosen by a selector
    trained on the others; NaN where the choice failed.

    `beside`: the same for other ways to choose, by name. `tolerance` is the noise of all sizes; it is used for
    evaluation, not for training.
    """

    rows: tuple[TableRow, ...]
    regrets: tuple[float, ...]
    tolerance: float
    beside: tuple[tuple[str, tuple[float, ...]], ...] = ()
    folds: int = 0

    @property
    def right(self) -> int:
        """The number of sizes at which the choice is within the tolerance of the best."""
        return sum(regret <= self.tolerance for regret in self.regrets)

    @property
    def text(self) -> str:
        """`leave one out: 7 of 9 sizes within 1.2 % of the best, mean regret 0.4 %, largest 2.1 %; compared: ...`.

        Within a tolerance above JUDGES any choice is right, so it says that instead.
        """
        of = counted(len(self.regrets), "size")
        others = ", ".join(f"{name} {_mean_regret(regrets)}" for name, regrets in self.beside)
        worked = [regret for regret in self.regrets if not math.isnan(regret)]
        what = f"{self.folds} folds left out" if self.folds else "leave one out"
        right = f"{self.right} of {of} within {100 * self.tolerance:.1f} % of the best"
        if self.tolerance > JUDGES:
            right = f"{of}, not judged: repetitions differ by {100 * self.tolerance:.0f} % (a busy machine?)"
        return (
            f"{what}: {right},"
            f" mean regret {_mean_regret(self.regrets)}" + (f", largest {100 * max(worked):.1f} %" if worked else "")
        ) + (f"; compared: {others}" if others else "")


def _mean_regret(regrets: Sequence[float]) -> str:
    """`1.2 %`, `1.2 % (failed at 2 more)`, `- (failed at 9)`: over the sizes at which the choice works."""
    worked = [regret for regret in regrets if not math.isnan(regret)]
    failed = len(regrets) - len(worked)
    shown = f"{100 * statistics.fmean(worked):.1f} %" if worked else "-"
    return shown + (f" (failed at {failed}{' more' if worked else ''})" if failed else "")


def folds_of(count: int, folds: int, seed: int | str) -> list[list[int]]:
    """The numbers below `count`, in random order, in so many parts."""
    order = random.Random(seed).sample(range(count), count)
    return [order[k::folds] for k in range(folds)]


def ask_avoiding(selector: Selector, avoided: Avoided, x: Sequence[float]) -> Answer:
    """The answer of a selector; where it failed at inputs like this one, the next in its order that did not, if there
    is one."""
    answer, failed = selector.ask(x), avoided.at(x)
    if answer.label not in failed:
        return answer
    return Answer(next((label for label in selector.order(x) if label not in failed), answer.label), answer.sure)


def trained_without(
    method: str, table: TrainingTable, folds: Sequence[Sequence[int]], seed: int, default: int | None = None
) -> list[tuple[Sequence[int], Selector, TrainingTable]]:
    """Each fold, the selector that is trained on the other rows, and these."""
    others = [table.without(fold) for fold in folds]
    selectors = [train(method, known.merged, seed, default) for known in others]
    compile_together(selectors)
    return list(zip(folds, selectors, others, strict=True))


def answers_left_out(method: str, table: TrainingTable, seed: int = 0, folds: int = 5) -> tuple[Answer, ...]:
    """The answers of selectors trained without a fold of the merged rows at those of this fold; empty if too few would
    remain."""
    known = table.merged
    parts = folds_of(len(known.rows), folds, seed)
    if not all(parts) or any(len(known.rows) - len(fold) < FEWEST for fold in parts):
        return ()
    answers: dict[int, Answer] = {}
    for fold, selector, others in trained_without(method, known, parts, seed):
        avoided = others.avoided
        answers.update((i, ask_avoiding(selector, avoided, known.rows[i].features)) for i in fold)
    return tuple(answers[i] for i in range(len(known.rows)))


def expecting(selector: Selector, table: TrainingTable, group_of: Mapping[int, Hashable], seed: int = 0) -> Selector:
    """The selector, which predicts times, with means in place of medians: regressors of logarithms predict the middle,
    and sums of times, as of ops that are placed together, need the mean.

    The times of each group of choices (`group_of`, such as those of a device) are multiplied by one factor: the mean of
    measured over predicted times of the choice of the group that is predicted to be the fastest, at rows that are left
    out in folds. Unchanged if there are too few rows.
    """
    from dagc.choice.learners.cost import Cost  # loads msgspec

    known = table.usable.merged
    parts = folds_of(len(known.rows), FOLDS, f"{seed} expected")
    if not isinstance(selector, Cost) or not all(parts) or len(known.rows) - len(parts[0]) < FEWEST:
        return selector
    ratios: dict[Hashable, list[float]] = {}
    for fold, without, _ in trained_without(selector.method, known, parts, seed):
        for row in (known.rows[i] for i in fold):
            first: dict[Hashable, tuple[float, int]] = {}
            for answer, seconds in without.seconds(row.features).items():
                if answer in row.finite and seconds < first.get(group_of[answer], (math.inf,))[0]:
                    first[group_of[answer]] = seconds, answer
            for group, (seconds, answer) in first.items():
                ratios.setdefault(group, []).append(row.finite[answer] / seconds)
    means = {group: statistics.fmean(of) for group, of in ratios.items()}
    return selector.times({answer: means.get(group, 1.0) for answer, group in group_of.items()})


def least_sure(method: str, table: TrainingTable, default: int, seed: int = 0, folds: int = 5) -> float:
    """The confidence below which the default is better on average, by cross-validation; 0 if it never is.

    Selectors trained without a fold are evaluated at its sizes. The threshold is the one with the largest gain, and is
    used only if the gain exceeds its standard error. The gain of `default` is 0 where it was not measured.
    """
    asked: list[tuple[float, float]] = []  # confidence, gain of the default minus that of the answer
    for answer, row in zip(answers_left_out(method, table, seed, folds), table.merged.rows, strict=False):
        share = shares_of(row.finite)
        asked.append((answer.sure, share.get(default, 0.0) - share.get(answer.label, 0.0)))
    asked.sort()
    best, threshold = 0.0, 0.0
    for n in range(1, len(asked) + 1):
        gains = [gain for _, gain in asked[:n]]
        if n < len(asked) and asked[n][0] == asked[n - 1][0]:
            continue
        error = math.sqrt(sum((g - statistics.fmean(gains)) ** 2 for g in gains))
        if sum(gains) > max(best, error):
            best, threshold = sum(gains), math.nextafter(asked[n - 1][0], 2.0)
    return threshold


def leave_one_out(
    method: str, table: TrainingTable, seed: int = 0, untrained: Mapping[str, Sequence[int]] | None = None
) -> CrossValidation | None:
    """Cross-validation of the merged rows: leave-one-out, or in FOLDS folds with more than ONE_BY_ONE; None if too few
    would remain. Compared with the best constant choice of the other sizes, and with `untrained` (name -> its choice at
    each row).

    Nothing of the held-out sizes is used, including the noise of their measurements. A choice that was not measured at
    a size, since it cannot be launched there, counts as the first that was; one that failed has no regret.
    """
    known = table.merged
    count = len(known.rows)
    if count <= FEWEST:
        return None
    folds = FOLDS if count > ONE_BY_ONE else 0
    chosen: dict[str, list[int]] = {"": [0] * count, "best constant": [0] * count}
    for fold, selector, others in trained_without(method, known, folds_of(count, folds or count, seed), seed):
        constant, avoided = best_constant([row.finite for row in others.rows]), others.avoided
        for i in fold:
            chosen[""][i] = ask_avoiding(selector, avoided, known.rows[i].features).label
            chosen["best constant"][i] = constant
    regrets = {
        name: tuple(map(_regret, known.rows, choices)) for name, choices in {**chosen, **(untrained or {})}.items()
    }
    return CrossValidation(known.rows, regrets.pop(""), known.tolerance, tuple(regrets.items()), folds)


def left_out(
    selector: Selector, table: TrainingTable, seed: int, untrained: Mapping[str, Sequence[int]], who: str = ""
) -> tuple[str, Callable[[TrainingTable], dict[Case, float]]]:
    """The loss at held-out rows: a note, and what gives the regret at each case of a table. `untrained`: as for
    `leave_one_out`; `who`: the sites of the table, if there are several."""
    out = leave_one_out(selector.method, table, seed, untrained)
    line = out.text if out is not None else f"leave one out: takes {FEWEST + 1} sizes or more"
    known = zip(out.rows, out.regrets, strict=True) if out is not None else ()
    regrets = {row.features: regret for row, regret in known}
    note = f"{selector.text}, by {', '.join(table.names)}{who}; {line}"
    return note, lambda asked: {row.case: regrets.get(row.features, math.nan) for row in asked.rows}


def best_constant(times: Sequence[Times]) -> int:
    """The one choice for all sizes with the least geometric mean of t_chosen / t_best, among those measured at most of
    them; the lowest of equal ones."""
    count = Counter(label for at in times for label in at)
    loss = {
        label: statistics.fmean(math.log(at[label] / min(at.values())) for at in times if label in at)
        for label in count
        if count[label] == max(count.values())
    }
    return min(loss, key=lambda label: (loss[label], label))


def _regret(row: TableRow, choice: int) -> float:
    at = row.finite
    return math.nan if choice in row.failures else at.get(choice, at[min(at)]) / min(at.values()) - 1


# ---- fewer features -----------------------------------------------------------------------------


SUBSET_FOLDS = 4
GAIN = 0.005  # the least saving of a feature, in mean time over the best


@dataclass(frozen=True, slots=True)
class Subset:
    """`loss`: geometric mean of t_chosen / t_best at held-out inputs, with these features; `all_loss`: with all."""

    names: tuple[str, ...]
    loss: float
    all_loss: float


def select_features(method: str, table: TrainingTable, costs: Mapping[str, float], seed: int = 0) -> Subset:
    """Greedy forward selection by cross-validation: repeatedly adds the feature that saves the most time (the cheapest
    if several are equal), as long as that is at least GAIN.

    `table`: usable rows; `costs`: seconds to compute each feature (0 where missing). Returns all names if there are too
    few rows to hold any out.
    """
    names = table.names
    if len(table.rows) < FEWEST + SUBSET_FOLDS:
        return Subset(names, math.nan, math.nan)
    all_loss = _loss_left_out(method, table, seed)
    chosen: tuple[str, ...] = ()
    loss = math.inf
    while len(chosen) < len(names):
        left = sorted((n for n in names if n not in chosen), key=lambda n: costs.get(n, 0.0))
        losses = {n: _loss_left_out(method, table.by((*chosen, n)), seed) for n in left}
        least = min(losses.values())
        name = next(n for n in left if losses[n] <= least + GAIN / 2)
        if losses[name] > loss - GAIN:
            break
        chosen, loss = (*chosen, name), losses[name]
    if not chosen or all_loss < loss - GAIN:
        return Subset(names, all_loss, all_loss)
    return Subset(tuple(n for n in names if n in chosen), loss, all_loss)


def _loss_left_out(method: str, table: TrainingTable, seed: int) -> float:
    """Geometric mean of t_chosen / t_best at the rows of each fold, trained on the others; the folds are the same for
    all tables of so many rows."""
    order = list(range(len(table.rows)))
    random.Random(f"{seed} folds").shuffle(order)
    folds = [order[k::SUBSET_FOLDS] for k in range(SUBSET_FOLDS)]
    logs: list[float] = []
    for fold, selector in zip(folds, trained_each(map(table.without, folds), method, seed), strict=True):
        if selector is None:
            return math.inf
        logs += [math.log(_ratio(table.rows[i], selector.choose(table.rows[i].features))) for i in fold]
    return math.exp(sum(logs) / len(logs))


def _ratio(row: TableRow, choice: int) -> float:
    """t / t_best; that of the slowest choice if this one has none."""
    finite = row.finite
    return finite.get(choice, max(finite.values())) / min(finite.values())
