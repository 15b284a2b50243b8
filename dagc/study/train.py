"""Training on measured times: the tolerance, the labels, the selector, its cross-validation, and the selection of
features (`--select-features`)."""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from dagc.base.errors import counted
from dagc.choice.avoid import Avoided
from dagc.choice.methods import fit, unsure_below
from dagc.choice.selector import FEWEST, Answer, Selector, compile_together

Label = TypeVar("Label", bound=Hashable)
Times = Mapping[int, float]  # number of a choice -> seconds
Interval = tuple[float, float, float]  # low, median, high of one measurement
ONE_BY_ONE = 24  # up to this many sizes are left out one at a time
FOLDS = 10
MOST_PREDICTED = 32  # choices whose times are predicted in addition to those that may be chosen
STEPS = 20_000  # of the search for the smallest set of labels
JUDGES = 0.5  # tolerance up to which it says something that a choice is within it


@dataclass(frozen=True, slots=True)
class Training:
    """The measurements: a row for each different size. `intervals`: those of all measurements at each size. `barred`:
    the choices that a constraint excludes at each, () for none. `failed`: those that failed at each, as far as is
    known, () for none."""

    sizes: tuple[tuple[float, ...], ...]
    times: tuple[Times, ...]
    intervals: tuple[tuple[Interval, ...], ...]
    barred: tuple[frozenset[int], ...] = ()
    failed: tuple[frozenset[int], ...] = ()

    @property
    def avoided(self) -> Avoided:
        """Where choices failed."""
        return Avoided.of(self.sizes, [set(at) for at in self.times], self.failed) if self.failed else Avoided()

    @property
    def tolerance(self) -> float:
        """`tolerance_of` these intervals."""
        return tolerance_of(i for at in self.intervals for i in at)

    def only(self, kept: Sequence[int]) -> Training:
        """The training data of some of the sizes."""
        columns = (self.sizes, self.times, self.intervals, self.barred, self.failed)
        return Training(*(tuple(column[k] for k in kept) if column else () for column in columns))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class CrossValidation:
    """Cross-validation, leave-one-out or in `folds`: t_chosen / t_best - 1 at each of `sizes`, chosen by a selector
    trained on the others; NaN where the choice failed.

    `beside`: the same for other ways to choose, by name. `tolerance` is the noise of all sizes; it is used for
    evaluation, not for training.
    """

    sizes: tuple[tuple[float, ...], ...]
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


def merged(
    sizes: Sequence[Sequence[float]],
    times: Sequence[Times],
    intervals: Sequence[Sequence[Interval]],
    failed: Sequence[Collection[int]] = (),
) -> Training:
    """Merge cases of equal sizes: the mean of each choice's time over the best, over the choices that all have, times
    the geometric mean of the best.

    Cases may have equal sizes if the selector uses fewer features than distinguish them. An infinite time (the
    constraint of a variant fails) bars the choice there; a case without times is dropped. `failed`: the choices that
    failed at each. The rows are in the order of the sizes, so that training does not depend on the order in which
    inputs were listed or measured.
    """
    groups: dict[tuple[float, ...], list[Times]] = {}
    noise: dict[tuple[float, ...], list[Interval]] = {}
    barred: dict[tuple[float, ...], set[int]] = {}
    lost: dict[tuple[float, ...], set[int]] = {}
    for row, bad in zip(sizes, failed, strict=bool(failed)):
        lost.setdefault(tuple(row), set()).update(bad)
    for row, all_times, seen in zip(sizes, times, intervals, strict=True):
        if at := {label: seconds for label, seconds in all_times.items() if math.isfinite(seconds)}:
            groups.setdefault(tuple(row), []).append(at)
            noise.setdefault(tuple(row), []).extend(seen)
            barred.setdefault(tuple(row), set()).update(all_times.keys() - at.keys())
    rows = sorted(groups)
    times_of = tuple(_mean(groups[row]) for row in rows)
    without = tuple(frozenset(barred[row] - at.keys()) for row, at in zip(rows, times_of, strict=True))
    bad_at = tuple(frozenset(lost.get(row, ())) for row in rows) if any(lost.values()) else ()
    return Training(tuple(rows), times_of, tuple(tuple(noise[row]) for row in rows), without, bad_at)


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


# ---- training ---------------------------------------------------------------------------------


def train(method: str, data: Sequence[str], training: Training, seed: int = 0, default: int | None = None) -> Selector:
    """A selector trained on gains: a wrong choice is weighted by the fraction of the best performance that it loses.
    Raises UsageError like `fit`.

    It chooses among the choices that are best somewhere (for sizes that grow together: labels corrected by rule, within
    the tolerance of `training`), the one that is best on average, and the default; the number is limited since every
    possible choice has to be compiled. A method that predicts times also learns the MOST_PREDICTED choices that are
    best on average. `default`: the confidence below which the default is better is learned, too.
    """
    labels = observed_labels(training.times)
    if ascends(training.sizes):
        labels = corrected_labels(training.sizes, training.times, training.tolerance)
    shares = [shares_of(at) for at in training.times]
    ranked = best_on_average(shares)
    offered = {*labels, ranked[0], *(() if default is None else [default])}
    predicted = offered | set(ranked[:MOST_PREDICTED])
    kept = [{label: share for label, share in at.items() if label in offered} for at in shares]
    excluded: Sequence[frozenset[int]] = training.barred or [frozenset()] * len(training.times)
    times = [
        {label: seconds for label, seconds in at.items() if label in predicted}
        | dict.fromkeys(sorted(predicted & barred), math.inf)
        for at, barred in zip(training.times, excluded, strict=True)
    ]
    selector = fit(method, data, training.sizes, labels, seed, kept, times)
    return selector if default is None else unsure_below(selector, least_sure(method, data, training, default, seed))


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


def ask_avoiding(selector: Selector, avoided: Avoided, x: Sequence[float]) -> Answer:
    """The answer of a selector; where it failed at inputs like this one, the next in its order that did not, if there
    is one."""
    answer, failed = selector.ask(x), avoided.at(x)
    if answer.label not in failed:
        return answer
    return Answer(next((label for label in selector.order(x) if label not in failed), answer.label), answer.sure)


def answers_left_out(
    method: str, data: Sequence[str], training: Training, seed: int = 0, folds: int = 5
) -> tuple[Answer, ...]:
    """The answers of selectors trained without a fold at the sizes of this fold; empty if too few sizes would
    remain."""
    order = random.Random(seed).sample(range(len(training.sizes)), len(training.sizes))
    held_out = [order[k::folds] for k in range(folds)]
    if not all(held_out) or any(len(order) - len(fold) < FEWEST for fold in held_out):
        return ()
    selectors = trained_without(method, data, training, held_out, seed)
    answers: dict[int, Answer] = {}
    for fold, (selector, others) in zip(held_out, selectors, strict=True):
        avoided = others.avoided
        answers.update((i, ask_avoiding(selector, avoided, training.sizes[i])) for i in fold)
    return tuple(answers[i] for i in range(len(order)))


def trained_without(
    method: str, data: Sequence[str], training: Training, folds: Sequence[Sequence[int]], seed: int
) -> list[tuple[Selector, Training]]:
    """For each fold the selector that is trained on the other sizes, and these."""
    kept = [[i for i in range(len(training.sizes)) if i not in set(fold)] for fold in folds]
    others = [training.only(sizes) for sizes in kept]
    selectors = [train(method, data, one, seed) for one in others]
    compile_together(selectors)
    return list(zip(selectors, others, strict=True))


def least_sure(
    method: str, data: Sequence[str], training: Training, default: int, seed: int = 0, folds: int = 5
) -> float:
    """The confidence below which the default is better on average, by cross-validation; 0 if it never is.

    Selectors trained without a fold are evaluated at its sizes. The threshold is the one with the largest gain, and is
    used only if the gain exceeds its standard error. The gain of `default` is 0 where it was not measured.
    """
    asked: list[tuple[float, float]] = []  # confidence, gain of the default minus that of the answer
    for answer, at in zip(answers_left_out(method, data, training, seed, folds), training.times, strict=False):
        share = shares_of(at)
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
    method: str,
    data: Sequence[str],
    training: Training,
    seed: int = 0,
    untrained: Mapping[str, Sequence[int]] | None = None,
) -> CrossValidation | None:
    """Cross-validation: leave-one-out, or in FOLDS folds with more than ONE_BY_ONE sizes; None if too few sizes would
    remain. Compared with the best constant choice of the other sizes, and with `untrained` (name -> its choice at each
    size).

    Nothing of the held-out sizes is used, including the noise of their measurements. A choice that was not measured at
    a size, since it cannot be launched there, counts as the first that was; one that failed has no regret.
    """
    if len(training.sizes) <= FEWEST:
        return None
    count = len(training.sizes)
    folds = FOLDS if count > ONE_BY_ONE else 0
    order = random.Random(seed).sample(range(count), count)
    chosen: dict[str, list[int]] = {"": [0] * count, "best constant": [0] * count}
    held_out = [order[k :: folds or count] for k in range(folds or count)]
    selectors = trained_without(method, data, training, held_out, seed)
    for fold, (selector, others) in zip(held_out, selectors, strict=True):
        constant, avoided = best_constant(others.times), others.avoided
        for i in fold:
            chosen[""][i] = ask_avoiding(selector, avoided, training.sizes[i]).label
            chosen["best constant"][i] = constant
    failed: Sequence[frozenset[int]] = training.failed or [frozenset()] * count
    regrets = {
        name: tuple(map(_regret, training.times, choices, failed))
        for name, choices in {**chosen, **(untrained or {})}.items()
    }
    return CrossValidation(training.sizes, regrets.pop(""), training.tolerance, tuple(regrets.items()), folds)


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


def _regret(at: Times, choice: int, failed: Collection[int]) -> float:
    return math.nan if choice in failed else at.get(choice, at[min(at)]) / min(at.values()) - 1


# ---- fewer features --------------------------------------------------------------------------------


SUBSET_FOLDS = 4
GAIN = 0.005  # the least saving of a feature, in mean time over the best


@dataclass(frozen=True, slots=True)
class Subset:
    """`loss`: geometric mean of t_chosen / t_best at held-out inputs, with these features; `all_loss`: with all."""

    names: tuple[str, ...]
    loss: float
    all_loss: float


def select_features(
    method: str,
    names: Sequence[str],
    rows: Sequence[Sequence[float]],
    times: Sequence[Times],
    costs: Mapping[str, float],
    seed: int = 0,
    tolerance: float = 0.0,
) -> Subset:
    """Greedy forward selection by cross-validation: repeatedly adds the feature that saves the most time (the cheapest
    if several are equal), as long as that is at least GAIN.

    `rows`: the features `names` of each input, all finite; `times`: seconds of each answer there; `costs`: seconds to
    compute each feature (0 where missing). Returns all names if there are too few inputs to hold any out. `tolerance`:
    the noise of a comparison, relative.
    """
    table = _Table(method, names, rows, times, tolerance, seed)
    every = tuple(names)
    if len(rows) < FEWEST + SUBSET_FOLDS:
        return Subset(every, math.nan, math.nan)
    all_loss = table.loss(every)
    chosen: tuple[str, ...] = ()
    loss = math.inf
    while len(chosen) < len(names):
        left = sorted((n for n in names if n not in chosen), key=lambda n: costs.get(n, 0.0))
        losses = {n: table.loss((*chosen, n)) for n in left}
        least = min(losses.values())
        name = next(n for n in left if losses[n] <= least + GAIN / 2)
        if losses[name] > loss - GAIN:
            break
        chosen, loss = (*chosen, name), losses[name]
    if not chosen or all_loss < loss - GAIN:
        return Subset(every, all_loss, all_loss)
    return Subset(tuple(n for n in names if n in chosen), loss, all_loss)


class _Table:
    """Cross-validated losses of subsets; the folds are the same for all."""

    def __init__(
        self,
        method: str,
        names: Sequence[str],
        rows: Sequence[Sequence[float]],
        times: Sequence[Times],
        tolerance: float,
        seed: int,
    ) -> None:
        self._method, self._names, self._seed = method, list(names), seed
        self._rows, self._times = rows, times
        self._noise: Interval = (1 - tolerance / 2, 1.0, 1 + tolerance / 2)
        order = list(range(len(rows)))
        random.Random(f"{seed} folds").shuffle(order)
        self._folds = [order[k::SUBSET_FOLDS] for k in range(SUBSET_FOLDS)]

    def loss(self, names: Sequence[str]) -> float:
        """Geometric mean of t_chosen / t_best at the inputs of each fold, trained on the others."""
        places = [self._names.index(n) for n in names]
        vectors = [tuple(row[i] for i in places) for row in self._rows]
        selectors = []
        for fold in self._folds:
            kept = [i for i in range(len(vectors)) if i not in fold]
            noise = [[self._noise]] * len(kept)
            training = merged([vectors[i] for i in kept], [self._times[i] for i in kept], noise)
            if len(training.sizes) < FEWEST:
                return math.inf
            selectors.append(train(self._method, list(names), training, self._seed))
        compile_together(selectors)
        pairs = zip(self._folds, selectors, strict=True)
        logs = [math.log(_ratio(self._times[i], one.choose(vectors[i]))) for fold, one in pairs for i in fold]
        return math.exp(sum(logs) / len(logs))


def _ratio(at: Times, answer: int) -> float:
    """t / t_best; that of the slowest answer if this one has none."""
    finite = [t for t in at.values() if math.isfinite(t)]
    seconds = at.get(answer, math.inf)
    return (seconds if math.isfinite(seconds) else max(finite)) / min(finite)
