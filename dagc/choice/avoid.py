"""Where answers failed in training: a chooser does not take them at inputs like these.

An answer that failed at an input (a wrong result, a crash, a hang) is avoided at the features of this input, and at
features that are nearer to them than those of any input at which the answer worked. Each feature counts by its share of
the measured range; features outside of the range count as its limit. In C: `choice/chooser.h.j2`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from dagc.base.sample import Sample
from dagc.choice.selector import Scale, scales_of, shares, trained_ranges
from dagc.choice.types import Case, Cell
from dagc.ir.choice import Choice

EVERYWHERE = 2**63 - 1  # the radius of an answer that worked nowhere
PENALTY = 1e6  # factor of the expected time of an avoided answer, where ops are placed together


@dataclass(frozen=True, slots=True)
class Tried:
    """An input at which answers were tried: its features by name, of those that are finite, and the answers that worked
    and failed there."""

    features: Mapping[str, float]
    worked: frozenset[Choice]
    failed: frozenset[Choice]


def tried_at(
    samples: Iterable[tuple[Cell, Sample]],
    op: str,
    features: Mapping[Case, Mapping[str, float]],
    tests: Collection[Case] = (),
) -> tuple[Tried, ...]:
    """The inputs with `features` at which an op was tried, except the `tests`; () if nothing failed."""
    worked: dict[Case, set[Choice]] = {}
    failed: dict[Case, set[Choice]] = {}
    for (site, case, choice), sample in samples:
        if site == op and case in features and case not in tests and (sample.failure or sample.times):
            (failed if sample.failure else worked).setdefault(case, set()).add(choice)
    cases = dict.fromkeys((*worked, *failed)) if failed else ()
    return tuple(
        Tried(features[p], frozenset(worked.get(p, ())), frozenset(failed.get(p, ()))) for p in cases
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class FailureRegion:
    """`answer` failed at the input with the features `centre`; `radius`: the squared distance of the nearest input at
    which it worked."""

    answer: int
    centre: tuple[int, ...]
    radius: int


@dataclass(frozen=True, slots=True)
class Avoided:
    """`scales`, `lows`, `widths`: the conversion of each feature to its share of the measured range. `ever`: the
    answers that failed at any input, which are avoided where a feature is not finite."""

    scales: tuple[Scale, ...] = ()
    lows: tuple[int, ...] = ()
    widths: tuple[int, ...] = ()
    regions: tuple[FailureRegion, ...] = ()
    ever: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, rows: Sequence[Sequence[float]], worked: Sequence[Collection[int]], failed: Sequence[Collection[int]]
    ) -> Avoided:
        """From the features of each input and the answers that worked and failed there, by number."""
        ever = tuple(sorted({answer for answers in failed for answer in answers}))
        known = [i for i, row in enumerate(rows) if all(map(math.isfinite, row))]
        if not ever or not known:
            return cls(ever=ever)
        scales = scales_of([rows[i] for i in known])
        lows, widths = trained_ranges([rows[i] for i in known], scales)
        places = dict(zip(known, shares([rows[i] for i in known], scales, lows, widths), strict=True))
        regions = {
            FailureRegion(answer, places[i], min((_apart(places[i], places[k]) for k in known if answer in worked[k]),
                                          default=EVERYWHERE))
            for i in known for answer in failed[i]
        }  # fmt: skip
        return cls(scales, lows, widths, tuple(sorted(regions, key=lambda r: (r.answer, r.centre))), ever)

    def at(self, x: Sequence[float]) -> frozenset[int]:
        """The answers to avoid for a vector of features."""
        if not self.ever:
            return frozenset()
        if not all(map(math.isfinite, x)):
            return frozenset(self.ever)
        if not self.regions:
            return frozenset()
        (here,) = shares([x], self.scales, self.lows, self.widths)
        apart = ((region, _apart(here, region.centre)) for region in self.regions)
        return frozenset(region.answer for region, far in apart if far == 0 or far < region.radius)


def _apart(one: Sequence[int], other: Sequence[int]) -> int:
    """The squared distance."""
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))
