"""Quality against labelled inputs: replays of active learning on a full table of measurements, beside random inputs.

For each seed a tenth of the inputs is held out for judging. Of the rest, inputs are labelled, from the same random ones
on: in batches by Algorithm 1 of MLCD (`active`: candidates at random, kept where the guide's margin is small), in
batches by Best-vs-Second-Best of the method itself (`bvsb`), or at random. After each batch the method is trained on
what is labelled, and judged at the held-out inputs. The reduction factor of a strategy is all inputs over those from
which on its mean PPP stays within WITHIN of that of all.

`in_order` needs no more than what was labelled: the inputs in the order in which they were measured, beside a random
order of the same ones.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from dagc.base.errors import UsageError, counted
from dagc.choice.selector import FEWEST
from dagc.study.cases import Sampling
from dagc.study.judge import Figures, judged_at, percent
from dagc.study.sampling import guide, uncertain
from dagc.study.train import TrainingTable, trained, trained_each

STRATEGIES = ("active", "bvsb", "random")
WITHIN = (1.0, 1.1, 1.25)  # times the PPP of all inputs
SHOWN = 8  # rows of a curve that are printed
LEFT = 5  # every input of this number is held out, where a file has no test inputs
ENOUGH = 10  # inputs of a table that is replayed: a tenth is one


@dataclass(frozen=True, slots=True)
class Quality:
    """After a batch: labelled inputs; PPP, PoIS, accuracy and share of exhaustive at the held-out ones."""

    samples: int
    penalty: float
    ideal: float
    accuracy: float
    share: float

    @classmethod
    def of(cls, samples: int, figures: Sequence[Figures]) -> Quality:
        """The mean of some figures."""
        parts = ("regret", "ideal", "accuracy", "percent")
        return cls(samples, *(statistics.fmean(getattr(one, part) for one in figures) for part in parts))

    @classmethod
    def mean(cls, samples: int, steps: Sequence[Quality]) -> Quality:
        parts = ("penalty", "ideal", "accuracy", "share")
        return cls(samples, *(statistics.fmean(getattr(one, part) for one in steps) for part in parts))

    @property
    def text(self) -> str:
        """PPP, PoIS and accuracy."""
        return ", ".join(map(percent, (self.penalty, self.ideal, self.accuracy)))


@dataclass(frozen=True, slots=True)
class Replay:
    """`looked`: candidates whose margin was computed. `steps`: the last one is where the strategy stopped."""

    steps: tuple[Quality, ...]
    looked: int


@dataclass(frozen=True, slots=True)
class HeldOutSplit:
    """Numbers of the inputs to learn from, in random order, and of those to judge at."""

    pool: tuple[int, ...]
    test: tuple[int, ...]

    @classmethod
    def of(cls, count: int, seed: int, share: float = 0.1) -> HeldOutSplit:
        order = random.Random(f"{seed} split").sample(range(count), count)
        kept = max(1, round(share * count))
        return cls(tuple(order[kept:]), tuple(order[:kept]))


@dataclass(frozen=True, slots=True)
class QualityCurve:
    """Of a strategy: the mean over the replays at each number of samples; one that has stopped stays where it is.
    `ended`: labelled inputs at the end, the median; `looked`: candidates, the mean."""

    strategy: str
    steps: tuple[Quality, ...]
    ended: float
    looked: float

    @classmethod
    def of(cls, strategy: str, replays: Sequence[Replay]) -> QualityCurve:
        steps = []
        for count in sorted({s.samples for r in replays for s in r.steps}):
            at = [max((s for s in r.steps if s.samples <= count), key=lambda s: s.samples) for r in replays]
            steps.append(Quality.mean(count, at))
        ended = statistics.median(r.steps[-1].samples for r in replays)
        return cls(strategy, tuple(steps), ended, statistics.fmean(r.looked for r in replays))

    def reaches(self, penalty: float) -> int | None:
        """The samples from which on the mean PPP stays at most so large."""
        high = [n for n, step in enumerate(self.steps) if step.penalty > penalty]
        first = high[-1] + 1 if high else 0
        return self.steps[first].samples if first < len(self.steps) else None

    def at(self, samples: int) -> Quality:
        """The last step with at most so many samples; else the first."""
        return max((s for s in self.steps if s.samples <= samples), key=lambda s: s.samples, default=self.steps[0])


@dataclass(frozen=True, slots=True)
class Replayed:
    """`full`: trained on the whole pool. `seeds`: number of replays."""

    method: str
    seeds: int
    pool: int
    full: Quality
    curves: tuple[QualityCurve, ...]

    def lines(self, goals: Sequence[float] = ()) -> tuple[str, ...]:
        """Tables: quality by samples, and the reduction factors; `goals`: other PPPs than those of all inputs."""
        return (*self._quality(), *self._reduction(goals))

    def _quality(self) -> list[str]:
        cells = " | ".join([self.full.text] * len(self.curves))
        return [*quality(self.curves, self.pool), f"| all {self.pool} (1.0) | {cells} |"]

    def _reduction(self, goals: Sequence[float]) -> list[str]:
        penalty = self.full.penalty
        out = ["| PPP at most | " + " | ".join(f"{c.strategy}: samples (reduction factor)" for c in self.curves) + " |"]
        out.append("|---" * (len(self.curves) + 1) + "|")
        for goal in sorted({*goals, *(factor * penalty for factor in WITHIN)}):
            reached = [curve.reaches(goal) for curve in self.curves]
            cells = ("not reached" if n is None else f"{n} ({self.pool / n:.1f})" for n in reached)
            times = f"{goal / penalty:.2f} times that of all" if penalty else "that of all"
            out.append(f"| {percent(goal)} ({times}) | " + " | ".join(cells) + " |")
        ends = (f"{c.strategy} at {c.ended:g}, of {c.looked:.0f} candidates" for c in self.curves if c.looked)
        return [*out, f"ended (median): {'; '.join(ends)}"] if any(c.looked for c in self.curves) else out


def quality(curves: Sequence[QualityCurve], pool: int) -> list[str]:
    """A table of the quality by labelled inputs, of `pool`; the curves side by side."""
    names = " | ".join(f"{c.strategy}: PPP, PoIS, accuracy" for c in curves)
    counts = [step.samples for step in curves[-1].steps]  # in whole batches: others may stop anywhere
    shown = sorted({counts[round(k * (len(counts) - 1) / (SHOWN - 1))] for k in range(SHOWN)})
    out = [f"| samples (times fewer) | {names} |", "|---" * (len(curves) + 1) + "|"]
    for count in shown:
        out.append(f"| {count} ({pool / count:.1f}) | " + " | ".join(c.at(count).text for c in curves) + " |")
    return out


# ---- replays ------------------------------------------------------------------------------------


def replayed(table: TrainingTable, method: str, seeds: int, sampling: Sampling, most: int, seed: int = 0) -> Replayed:
    """Replays on the rows of a table, until `most` are labelled. Raises UsageError for a table of fewer than ENOUGH."""
    count = len(table.rows)
    if count < ENOUGH:
        raise UsageError(f"{counted(count, 'input')} to replay on, {ENOUGH} are needed", "tune with more --samples")
    splits = [HeldOutSplit.of(count, seed + n) for n in range(seeds)]
    pool = len(splits[0].pool)
    full = Quality.of(pool, [judged(table, split, split.pool, method) for split in splits])
    curves = []
    for strategy in STRATEGIES:
        done = [
            replay(table, split, sampling, strategy, method, seed + n, min(most, pool))
            for n, split in enumerate(splits)
        ]
        curves.append(QualityCurve.of(strategy, done))
    return Replayed(method, seeds, pool, full, tuple(curves))


def replay(
    table: TrainingTable, split: HeldOutSplit, sampling: Sampling, strategy: str, method: str, seed: int, most: int
) -> Replay:
    """Label until `most`, or until the strategy finds nothing more."""
    draw = random.Random(f"{seed} {strategy}")
    labelled = list(split.pool[: max(FEWEST, sampling.initial)])
    steps, looked = [], 0
    while True:
        steps.append(Quality.of(len(labelled), [judged(table, split, labelled, method)]))
        if len(labelled) >= most:
            break
        size = min(sampling.batch, most - len(labelled))
        batch, more = next_batch(table, split.pool, labelled, strategy, size, sampling.margin, method, draw)
        looked += more
        if not batch:
            break
        labelled += batch
    return Replay(tuple(steps), looked)


def judged(table: TrainingTable, split: HeldOutSplit, labelled: Sequence[int], method: str) -> Figures:
    """At the held-out inputs, by what these teach."""
    selector, test = trained(table.only(labelled), method), table.only(split.test)
    said = [selector.choose(x) if selector is not None else 0 for x in test.features]
    return judged_at(test, said).all


def in_order(table: TrainingTable, method: str, most: int) -> tuple[QualityCurve, ...]:
    """Quality by the number of labelled inputs, at most so many steps: in the order of the rows, and in a random one.
    Judged at the test inputs, or without any at every fifth input, which then is not labelled. Empty for a few rows."""
    tests, kept = table.part(True), table.part(False)
    if not tests.rows:
        apart = range(LEFT - 1, len(kept.rows), LEFT)
        tests, kept = kept.only(apart), kept.without(apart)
    last = len(kept.rows)
    if last <= FEWEST or not tests.rows:
        return ()
    counts = sorted({round(FEWEST + (last - FEWEST) * k / (most - 1)) for k in range(most)})
    mixed = random.Random("order").sample(range(last), last)
    curves = []
    for name, order in (("as measured", list(range(last))), ("at random", mixed)):
        selectors = trained_each([kept.only(order[:count]) for count in counts], method)
        steps = []
        for count, selector in zip(counts, selectors, strict=True):
            figures = judged_at(tests, [selector.order(x) if selector is not None else 0 for x in tests.features]).all
            steps += [Quality.of(count, [figures])] if figures.inputs else []
        if not steps:
            return ()
        curves.append(QualityCurve(name, tuple(steps), last, 0.0))
    return tuple(curves)


def next_batch(
    table: TrainingTable, pool: Sequence[int], labelled: Sequence[int], strategy: str, size: int, margin: float,
    method: str, draw: random.Random,
) -> tuple[Sequence[int], int]:  # fmt: skip
    """What is labelled next, and how many candidates were looked at."""
    known, features = set(labelled), table.features
    left = [i for i in pool if i not in known]
    draw.shuffle(left)
    if strategy == "random":
        return left[:size], 0
    if strategy == "active":
        rows = table.only(labelled)
        queue = list(left)

        def next_ones(count: int) -> list[int]:
            out = queue[:count]
            del queue[:count]
            return out

        one = guide(rows.features, rows.times, draw.randrange(2**31))
        batch = uncertain([one], next_ones, lambda i: features[i], size, margin)
        return batch.inputs, batch.looked
    selector = trained(table.only(labelled), method)
    if selector is None:
        return left[:size], 0
    gap = {}
    for i in left:
        first, second, *_ = sorted((*selector.votes(features[i]).values(), 0.0, 0.0), reverse=True)
        gap[i] = first - second
    return sorted(left, key=lambda i: gap[i])[:size], len(left)
