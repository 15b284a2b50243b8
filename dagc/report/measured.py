"""Quantities derived from a results file before drawing: intervals, ties, labels, convergence."""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from dagc.base.statistics import interval
from dagc.ir.program import Configuration, shown
from dagc.store.results import CONFIRMED, FASTEST, Implementation, ImplementationId, Results, rank


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """A measured implementation: median of its times and its 95% interval (equal to it with one time)."""

    implementation: Implementation
    value: float
    low: float
    high: float
    times: tuple[float, ...]
    confirming: tuple[float, ...] = ()  # those of them that did not choose it

    @property
    def judged(self) -> tuple[float, ...]:
        return self.confirming or self.times


@dataclass(frozen=True, slots=True)
class ConfigurationPoints:
    """A configuration: its label, its colour, and its points, fastest first."""

    configuration: Configuration
    label: str
    colour: int
    points: tuple[MeasuredPoint, ...]


COLOURS = 8  # in the style sheet, distinguishable with colour blindness


def points_of(results: Results) -> tuple[MeasuredPoint, ...]:
    """All measured implementations, fastest first, drift divided out."""
    points = []
    for implementation in results.measured():
        times = implementation.times(results.reference)
        confirming = implementation.confirming(results.reference)
        points.append(MeasuredPoint(implementation, median(times), *interval(times), times, confirming))
    return tuple(points)


def groups_of(points: Sequence[MeasuredPoint]) -> tuple[ConfigurationPoints, ...]:
    """By configuration, that of the fastest first. If there are more than colours, they share them by transport."""
    mine: dict[Configuration, list[MeasuredPoint]] = {}
    for point in points:
        mine.setdefault(point.implementation.configuration, []).append(point)
    common = common_decisions(mine)
    if len(mine) <= COLOURS:
        colours = {c: i for i, c in enumerate(mine)}
    else:
        transports = list(dict.fromkeys(str(c.get("transport")) for c in mine))
        colours = {c: transports.index(str(c.get("transport"))) % COLOURS for c in mine}
    return tuple(ConfigurationPoints(c, label(c, common), colours[c], tuple(members)) for c, members in mine.items())


def common_decisions(configurations: Iterable[Configuration]) -> dict[str, str]:
    """Decisions with the same value in all of them: name -> value as text."""
    sets = [{name: shown(value) for name, value in c.decisions} for c in configurations]
    if not sets:
        return {}
    return {name: value for name, value in sets[0].items() if all(s.get(name) == value for s in sets)}


def label(configuration: Configuration, common: dict[str, str]) -> str:
    """The decisions that distinguish it from others; its transport if it is the only one."""
    left = [f"{name}={shown(value)}" for name, value in configuration.decisions if name not in common]
    transport = configuration.get("transport")
    return " ".join(left) or (configuration.text if transport is None else f"transport={transport}")


def ranked(points: Sequence[MeasuredPoint]) -> tuple[MeasuredPoint, ...]:
    """Candidates for the best, best first, as numbered by `dagc best --rank N` (`dagc.store.results.rank`).

    `points`: fastest first. A point with a smaller time that is missing here was measured less often.
    """
    return rank(points, lambda p: p.times, lambda p: p.confirming)


@dataclass(frozen=True, slots=True)
class Curve:
    """The course of one run, by its own measurements, counted from 1.

    measured   the time of each
    lowest     (measurement, value): the lowest single time so far, at each decrease
    choice     (measurement, value): the best at that moment (`dagc.store.results.rank`), at each change, with the
               median of all its times in the file: the value of the choice
    """

    run: int
    measured: tuple[float, ...]
    lowest: tuple[tuple[int, float], ...]
    choice: tuple[tuple[int, float], ...]


def curves_of(results: Results) -> tuple[Curve, ...]:
    """One for each run with measurements."""
    rows: dict[int, list[tuple[int, ImplementationId, float]]] = {}
    final: dict[ImplementationId, float] = {}
    for implementation in results.measured():
        times = implementation.times(results.reference)
        final[implementation.id] = median(times)
        for m, seconds in zip(implementation.measurements, times, strict=True):
            rows.setdefault(m.run, []).append((m.order, implementation.id, seconds))
    return tuple(_curve(run, sorted(rows[run]), final) for run in sorted(rows))


def _curve(
    run: int, rows: Sequence[tuple[int, ImplementationId, float]], final: dict[ImplementationId, float]
) -> Curve:
    lowest: list[tuple[int, float]] = []
    choice: list[tuple[int, float]] = []
    so_far = _SoFar()
    chosen: ImplementationId | None = None
    for number, (_, key, seconds) in enumerate(rows, 1):
        if not lowest or seconds < lowest[-1][1]:
            lowest.append((number, seconds))
        so_far.add(key, seconds)
        best = so_far.best()
        if best != chosen:
            chosen = best
            choice.append((number, final[chosen]))
    return Curve(run, tuple(seconds for _, _, seconds in rows), tuple(lowest), tuple(choice))


class _SoFar:
    """The first of `dagc.store.results.rank`, updated incrementally: ranking everything after each of thousands of
    measurements would take minutes."""

    def __init__(self) -> None:
        self.times: dict[ImplementationId, list[float]] = {}
        self.first: list[tuple[float, ImplementationId]] = []  # the FASTEST by their first times
        # By the number of measurements, at most CONFIRMED: medians of candidates with that many. Includes outdated
        # ones, which `best` skips.
        self.medians: list[list[tuple[float, ImplementationId]]] = [[] for _ in range(CONFIRMED + 1)]

    def add(self, key: ImplementationId, seconds: float) -> None:
        mine = self.times.setdefault(key, [])
        mine.append(seconds)
        if len(mine) == 1:
            insort(self.first, (seconds, key))
            del self.first[FASTEST:]
        for heap in self.medians[1 : len(mine) + 1]:
            heapq.heappush(heap, (median(mine), key))

    def best(self) -> ImplementationId:
        """There must be a measurement."""
        ranked = self.medians[min(CONFIRMED, max(len(self.times[key]) for _, key in self.first))]
        while ranked[0][0] != median(self.times[ranked[0][1]]):
            heapq.heappop(ranked)
        return ranked[0][1]
