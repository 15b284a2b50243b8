"""Training on measured times: the tolerance, the labels, the selector, and how well it does on sizes left out."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dagc.errors import counted
from dagc.select.labels import corrected_labels
from dagc.select.methods import fit
from dagc.select.selector import FEWEST, Selector

Times = Mapping[int, float]  # number of a choice -> seconds


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Leave one size out: t_chosen / t_best - 1 at each size, chosen by what was trained on the others."""

    regrets: tuple[float, ...]
    tolerance: float

    @property
    def right(self) -> int:
        """At how many sizes the choice is within the tolerance of the best."""
        return sum(regret <= self.tolerance for regret in self.regrets)

    @property
    def text(self) -> str:
        """`leave one out: 7 of 9 sizes within 1.2 % of the best, mean regret 0.4 %, largest 2.1 %`."""
        of = counted(len(self.regrets), "size")
        return (
            f"leave one out: {self.right} of {of} within {100 * self.tolerance:.1f} % of the best,"
            f" mean regret {100 * statistics.fmean(self.regrets):.1f} %, largest {100 * max(self.regrets):.1f} %"
        )


def tolerance_of(intervals: Iterable[tuple[float, float, float]]) -> float:
    """The noise floor of a comparison, relative: twice the median half width of the 95 % intervals.

    Each entry is (low, median, high) of one measurement, in any unit. 0 where there is none.
    """
    widths = [(high - low) / 2 / middle for low, middle, high in intervals if middle > 0]
    return 2 * statistics.median(widths) if widths else 0.0


def merged(
    sizes: Sequence[Sequence[int]], times: Sequence[Times]
) -> tuple[tuple[tuple[int, ...], ...], tuple[Times, ...]]:
    """Points of equal sizes as one: the mean of each choice's time over the best, over the choices that all have.

    Points differ in more than the sizes a selector is given where the program asks for fewer.
    """
    groups: dict[tuple[int, ...], list[Times]] = {}
    for row, at in zip(sizes, times, strict=True):
        if at:
            groups.setdefault(tuple(row), []).append(at)
    return tuple(groups), tuple(_mean(group) for group in groups.values())


def _mean(group: Sequence[Times]) -> Times:
    if len(group) == 1:
        return group[0]
    shared = [label for label in group[0] if all(label in at for at in group)]
    relative = {label: statistics.fmean(at[label] / min(at.values()) for at in group) for label in shared}
    return relative or group[0]


def train(
    method: str,
    data: Sequence[str],
    sizes: Sequence[Sequence[int]],
    times: Sequence[Times],
    tolerance: float,
    seed: int = 0,
) -> Selector:
    """Labels by rule, and a selector trained on them. `times`: number of a choice -> seconds, per size.

    Raises UsageError as `fit`; `merged` sees to sizes that are given twice.
    """
    return fit(method, data, sizes, corrected_labels(sizes, times, tolerance), seed)


def leave_one_out(
    method: str,
    data: Sequence[str],
    sizes: Sequence[Sequence[int]],
    times: Sequence[Times],
    tolerance: float,
    seed: int = 0,
) -> LeftOut | None:
    """Trained as often as there are sizes, each time without one; None where too few would be left.

    A choice that was not measured at the size, since it cannot be launched there, counts as the first that was.
    """
    if len(sizes) <= FEWEST:
        return None
    regrets = []
    for i, (here, at) in enumerate(zip(sizes, times, strict=True)):
        others = [k for k in range(len(sizes)) if k != i]
        selector = train(method, data, [sizes[k] for k in others], [times[k] for k in others], tolerance, seed)
        regrets.append(at.get(selector.choose(here), at[min(at)]) / min(at.values()) - 1)
    return LeftOut(tuple(regrets), tolerance)
