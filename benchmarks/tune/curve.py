"""Learning curves: incremental tuning (`dagc.study.sampling.next_input`) replayed on a full table of measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dagc.choice.selector import FEWEST, Selector
from dagc.study.judge import Asked, Times, judge
from dagc.study.sampling import Strategy, Vectors, next_after
from dagc.study.train import TrainingTable, trained


@dataclass(frozen=True, slots=True)
class LearningCurve:
    """`percent[seed][k]`: fraction of the exhaustive performance at the test inputs, with `first + k` labelled inputs.
    `full`: with all."""

    strategy: str
    first: int
    percent: tuple[tuple[float, ...], ...]
    full: float

    @property
    def mean(self) -> tuple[float, ...]:
        """Over the seeds."""
        return tuple(sum(column) / len(column) for column in zip(*self.percent, strict=True))

    def reaches(self, share: float) -> int | None:
        """The number of labelled inputs from which the mean stays at or above this fraction of that of full
        training."""
        low = [k for k, value in enumerate(self.mean) if value < share * self.full]
        count = low[-1] + 1 if low else 0
        return self.first + count if count < len(self.mean) else None


def curve(
    names: Sequence[str],
    vectors: Vectors,
    times: Sequence[Times],
    method: str,
    strategy: Strategy = "bvsb",
    *,
    test: tuple[Vectors, Sequence[Times]] | None = None,
    seeds: Sequence[int] = range(20),
    steps: int = 50,
    default: int = 0,
    tolerance: float = 0.0,
) -> LearningCurve:
    """Replay incremental tuning on a full table of measurements: `times` of all answers at all inputs.

    Evaluates after each labelled input at the `test` inputs, or at all inputs of the table. Raises UsageError like
    `next_input`.
    """
    asked, truth = test if test is not None else (vectors, times)
    table = TrainingTable.of(names, vectors, times, tolerance)

    def percent(selector: Selector | None) -> float:
        return judge([""] * len(asked), truth, [_choose(selector, x, default) for x in asked], default).all.percent

    def replay(seed: int) -> tuple[float, ...]:
        labelled: list[int] = []
        out: list[float] = []
        selector = None
        while len(labelled) < steps:
            number = next_after(table, labelled, selector, seed, strategy)
            if number is None:
                break
            labelled.append(number)
            if len(labelled) >= FEWEST:
                selector = trained(table.only(labelled), method, seed)
                out.append(percent(selector))
        return tuple(out)

    full = percent(trained(table, method))
    return LearningCurve(strategy, FEWEST, tuple(map(replay, seeds)), full)


def _choose(selector: Selector | None, x: Sequence[float], default: int) -> Asked:
    return selector.order(x) if selector is not None and all(map(math.isfinite, x)) else default
