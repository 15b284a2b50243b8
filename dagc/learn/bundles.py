"""Why one implementation is slower than another: the decisions in which they differ, in bundles that act together.

A *decision* is an entry that the slower one takes where the faster one, followed as far as possible, would take
another. Taken one after the other, decisions lead from the faster to the slower. A bundle is a set of them that is as
small as was found: with the others of the set taken, and all else left as in the faster one, the last one makes most of
the difference that it makes on that way (delta debugging, Zeller and Hildebrandt 2002, of times).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, permutations
from statistics import NormalDist
from typing import Any

from dagc.base.errors import counted
from dagc.base.sample import Objective
from dagc.ir.choice import Choice
from dagc.lab.candidate import Candidate
from dagc.lab.neighbours import ISSUE, Item, follow, outline
from dagc.lab.orders import Orders, carried_over
from dagc.learn.explain import EditView, cost_text, percent, view_of
from dagc.learn.features import Samples
from dagc.learn.pairs import PairTiming, Verdict
from dagc.learn.text import cell, finite, in_form
from dagc.space import Space

FIRST = 12  # points of the way that are timed at first; further ones lie between two that differ
CHANCE = 0.01  # probability of any change that is none: timing ends when an interval is narrow, by chance too early
MOST_STREAMS = 5  # streams whose renamings are tried
ALIKE, SURE = 0.25, 3.0  # part of a change by which that of fewer decisions may differ; standard errors, if more
MOST_TIMED = 80  # implementations, so that the time is limited

Steps = frozenset[int]  # numbers of decisions


@dataclass(frozen=True, slots=True)
class Bundle:
    """Decisions that act together.

    steps      how many they are
    base       what `timing` compares with: the best, or the same order in the configuration of the other
    candidate  the base with these decisions of the other
    partial    of the base with all of them but the last; None: there is one only, or it could not be timed
    """

    steps: int
    base: Candidate
    candidate: Candidate
    timing: PairTiming
    partial: PairTiming | None = None

    @property
    def level(self) -> bool:
        """Whether the interval of the difference has none in it."""
        return self.timing.verdict is not Verdict.FAILED and self.timing.low <= 1 <= self.timing.high


@dataclass(frozen=True, slots=True)
class Bundles:
    """The difference between two implementations. `whole`: the other against the best; `bundles`: what makes it, the
    largest first; `decisions`: all in which they differ; `complete`: whether all was timed that was wanted; `level`:
    settings that make no difference beyond the noise."""

    best: Candidate
    other: Candidate
    whole: PairTiming
    bundles: tuple[Bundle, ...]
    decisions: int
    complete: bool
    level: tuple[Bundle, ...] = ()

    @property
    def together(self) -> float:
        """The ratio of all bundles, if none changes what another one does."""
        return math.prod(bundle.timing.ratio for bundle in self.bundles)


# Times candidates against the first one, together.
Measure = Callable[[Candidate, Sequence[Candidate]], Sequence[PairTiming]]


def difference_of(
    domain: Orders, best: Candidate, other: Candidate, measure: Measure, between: Sequence[int] = ()
) -> Bundles:
    """The bundles of decisions that make another implementation slower (or faster) than the best. `between`: the
    configurations of the domain that lead from the best's to the other's, one decision after the other."""
    base, bundles = best, list[Bundle]()
    [whole] = measure(best, [other])
    for space in [*between, other.space] if best.space != other.space else ():
        old, new = (domain.spaces[number].space for number in (base.space, space))
        choices = other.choices if space == other.space else best.choices
        moved = Candidate(space, carried_over(base.traversal, old, new), choices)
        bundles.append(Bundle(1, base, moved, whole if (base, moved) == (best, other) else measure(base, [moved])[0]))
        base = moved
    settings, level = len(bundles), tuple(one for one in bundles if one.level)
    way, times = Route(domain.spaces[base.space].space, base, other), _Times(base, measure)
    sets, found = list[Steps](), Steps()
    for a, b in _jumps(way, times):
        sets.append(_smallest(way, times, a, b, found))
        found |= frozenset(range(a, b))
    each = (_bundle(way, times, steps) for steps in _joined(sets))
    bundles += [one for one in each if one.timing.pairs and times.differ(base, one.candidate, len(way))]
    bundles = [one for one in bundles if not one.level]
    bundles.sort(key=lambda one: -abs(math.log(one.timing.ratio)) if one.timing.pairs else math.inf)
    return Bundles(best, other, whole, tuple(bundles), len(way) + settings, not times.full, level)


class Route:
    """The way from one implementation to another of the same configuration, a decision at a time; and the first with
    some of these decisions only."""

    def __init__(self, space: Space, base: Candidate, other: Candidate) -> None:
        self._moves, self._graph = space.moves, space.graph
        self._base, self._wanted = base, outline(other.traversal)
        self._start = self._renamed(outline(base.traversal))
        points, self._at = [base], list[int]()
        for place in range(len(self._wanted)):
            head = self._wanted[: place + 1]
            taken = {_key(item) for item in head}
            point = self._followed([*head, *(item for item in self._start if _key(item) not in taken)])
            if point != points[-1]:
                points.append(point)
                self._at.append(place)
        self.points = tuple(points)

    def __len__(self) -> int:
        """The number of decisions."""
        return len(self._at)

    def with_only(self, steps: Steps) -> Candidate | None:
        """The base with these decisions of the other; None if they are impossible without others: if the result has
        an order or a shared stream that neither of the two has."""
        if steps == frozenset(range(len(steps))):
            return self.points[len(steps)]
        items = self._start
        for step in sorted(steps):
            items = self._taken(items, self._at[step])
        found = self._followed(items)
        three = Samples([(self._graph, Choice(()), c.traversal) for c in (found, self._base, self.points[-1])])
        places, lanes = three.positions[:, (three.positions >= 0).all(axis=0)], three.streams
        orders, shared = places[:, :, None] < places[:, None, :], lanes[:, :, None] == lanes[:, None, :]
        known = all(((x[0] == x[1]) | (x[0] == x[2])).all() for x in (orders, shared))
        return found if known else None

    def _followed(self, items: Sequence[Item]) -> Candidate:
        return replace(self._base, traversal=follow(self._moves, items))

    def _taken(self, items: Sequence[Item], place: int) -> list[Item]:
        """The outline with one entry of the other before all that follow it there, down to an op that precedes it
        there; `follow` adds the sync ops that it needs."""
        item = self._wanted[place]
        later = {_key(other) for other in self._wanted[place + 1 :]}
        keys = [_key(other) for other in items]
        at = first = keys.index(_key(item)) if _key(item) in keys else len(items)
        rest = [other for other in items if _key(other) != _key(item)]
        while first and (rest[first - 1][0] != ISSUE or _key(rest[first - 1]) in later):
            first -= 1
            at = first if _key(rest[first]) in later else at
        return [*rest[:at], item, *rest[at:]]

    def _renamed(self, items: Sequence[Item]) -> list[Item]:
        """The outline with its streams named as those of the other, as far as they have the same ops."""
        theirs = {op: stream for kind, op, stream in self._wanted if kind == ISSUE}
        free = self._moves.free
        orders = permutations(free) if len(free) <= MOST_STREAMS else iter([free])
        names = (dict(zip(free, order, strict=True)) for order in orders)

        def alike(name: Mapping[int, int]) -> int:
            return sum(name.get(s, s) == theirs[op] for kind, op, s in items if kind == ISSUE)

        best = max(names, key=alike)
        return [(kind, op, best.get(s, s)) for kind, op, s in items]


def _key(item: Item) -> tuple[int, ...]:
    """What an item does, wherever: an op is issued once, on whichever stream."""
    return item[:2] if item[0] == ISSUE else item


@dataclass(slots=True)
class _Times:
    """What was timed against the base, each once."""

    base: Candidate
    measure: Measure
    known: dict[Candidate, PairTiming] = field(default_factory=dict)
    full: bool = False

    def of(self, candidates: Iterable[Candidate]) -> None:
        new = [c for c in dict.fromkeys(candidates) if c not in self.known and c != self.base]
        self.full |= len(self.known) + len(new) > MOST_TIMED
        if new and not self.full:
            self.known.update(zip(new, self.measure(self.base, new), strict=True))

    def log(self, candidate: Candidate) -> float:
        """Logarithm of its time over that of the base; NaN if it could not be timed."""
        one = self.known.get(candidate)
        if candidate == self.base:
            return 0.0
        return math.nan if one is None or one.verdict is Verdict.FAILED else math.log(one.ratio)

    def error(self, *candidates: Candidate) -> float:
        """The standard error of a sum of their logarithms; they were timed."""
        return math.hypot(*(self.known[c].error for c in candidates if c != self.base))

    def differ(self, one: Candidate, other: Candidate, comparisons: int) -> bool:
        """Whether their times differ beyond the noise, by a test that so many comparisons pass by chance in CHANCE of
        all runs."""
        both = [self.known[c] for c in (one, other) if c != self.base]
        usual = max(timing.noise * math.sqrt(2 / timing.pairs) for timing in both)
        sure = NormalDist().inv_cdf(1 - CHANCE / (2 * comparisons))
        return abs(self.log(one) - self.log(other)) > max(sure * self.error(one, other), usual)


def _jumps(way: Route, times: _Times) -> list[tuple[int, int]]:
    """Between which points of the way the time changes: numbers of points, next to each other unless those between
    could not be timed."""
    last, tried = len(way), set[int]()
    wanted = {round(i * last / FIRST) for i in range(FIRST + 1)}
    while wanted and not times.full:
        times.of(way.points[i] for i in sorted(wanted))
        tried |= wanted
        wanted = {i for a, b in _changed(way, times, tried) if (i := _between(a, b, tried)) is not None}
    return _changed(way, times, tried)


def _changed(way: Route, times: _Times, tried: Collection[int]) -> list[tuple[int, int]]:
    timed = [i for i in sorted(tried) if not math.isnan(times.log(way.points[i]))]
    return [(a, b) for a, b in pairwise(timed) if times.differ(way.points[a], way.points[b], len(way))]


def _between(a: int, b: int, tried: Collection[int]) -> int | None:
    """The point nearest to the middle that was not tried yet."""
    left = [i for i in range(a + 1, b) if i not in tried]
    return min(left, key=lambda i: abs(2 * i - a - b), default=None)


def _smallest(way: Route, times: _Times, a: int, b: int, found: Steps) -> Steps:
    """The decisions from point a to b, with as few of the earlier ones as the change needs that they make on the way:
    none, those that changed the time themselves (`found`), the latest, or all."""
    core, change = frozenset(range(a, b)), times.log(way.points[b]) - times.log(way.points[a])

    def act(more: Sequence[int]) -> bool:
        before, after = way.with_only(frozenset(more)), way.with_only(core.union(more))
        if before is None or after is None:
            return False
        times.of([before, after])
        if math.isnan(times.log(before) + times.log(after)):
            return False
        off = abs(times.log(after) - times.log(before) - change)
        return off <= max(ALIKE * abs(change), SURE * times.error(before, after, way.points[a], way.points[b]))

    latest = ([*range(a - width, a)] for width in (1 << i for i in range(a.bit_length())) if width < a)
    more = next((some for some in ([], sorted(found), *latest) if act(some)), [*range(a)])
    size = len(more)
    while size and not times.full:
        fewer = (more[:i] + more[i + size :] for i in range(0, len(more), size))
        smaller = next((less for less in fewer if act(less)), None)
        more, size = (more, size // 2) if smaller is None else (smaller, min(size, len(smaller)))
    return core.union(more)


def _joined(sets: Iterable[Steps]) -> list[Steps]:
    """Sets that share a decision as one."""
    out: list[Steps] = []
    for steps in sets:
        shared = [other for other in out if other & steps]
        out = [*(other for other in out if other not in shared), steps.union(*shared)]
    return out


def _bundle(way: Route, times: _Times, steps: Steps) -> Bundle:
    failed = PairTiming(failure="not timed")
    candidate, partial = way.with_only(steps), way.with_only(steps - {max(steps)})
    if candidate is None:  # of several sets: up to the last of them
        candidate = way.points[max(steps) + 1]
    times.of([c for c in (candidate, partial) if c is not None])
    without = times.known.get(partial) if partial is not None else None
    return Bundle(len(steps), times.base, candidate, times.known.get(candidate, failed), without)


# ---- as text, Markdown or JSON ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BundlesView:
    """A difference as it is printed. `number`: how many implementations are before the other one in the file; None: it
    is the order of an application; `shown`: what each bundle changes; `level`: what makes no difference; `noise`:
    relative standard deviation of a single measurement, NaN: unknown."""

    difference: Bundles
    number: int | None
    best: EditView
    other: EditView
    shown: tuple[EditView, ...]
    notes: tuple[str, ...]
    objective: Objective
    level: tuple[EditView, ...] = ()
    noise: float = math.nan

    @classmethod
    def of(
        cls, domain: Orders, difference: Bundles, number: int | None, notes: Sequence[str], objective: Objective,
        noise: float = math.nan,
    ) -> BundlesView:  # fmt: skip
        best, other = (view_of(domain, difference.best, c) for c in (difference.best, difference.other))
        shown, level = (
            tuple(view_of(domain, bundle.base, bundle.candidate) for bundle in bundles)
            for bundles in (difference.bundles, difference.level)
        )
        if not difference.complete:
            notes = (*notes, f"not all was timed: more than {MOST_TIMED} implementations would be needed")
        return cls(difference, number, best, other, shown, tuple(notes), objective, level, noise)

    def render(self, form: str = "text", everything: bool = True) -> str:
        """In one of FORMATS; `everything`: also the entries that differ. Raises UsageError for another form."""
        return in_form(form, lambda: self._text(everything), lambda: self._markdown(everything), self.as_json)

    def _cost(self, timing: PairTiming) -> str:
        return timing.failure or cost_text(timing, self.objective)

    @property
    def _other(self) -> str:
        return "original" if self.number is None else f"number {self.number}"

    def _title(self) -> str:
        whole, count = self.difference.whole, counted(self.difference.decisions, "decision")
        if whole.verdict is Verdict.FAILED:
            return f"It could not be timed: {whole.failure}"
        bundles = counted(len(self.shown), "bundle")
        if not self.shown:
            return f"It differs in {count}. No difference in time beyond the noise, with any of them."
        off = math.log(self.difference.together / whole.ratio)
        rest = (
            "; the rest is what they do to each other, or too small to tell"
            if abs(off) > ALIKE * abs(math.log(whole.ratio))
            else ""
        )
        total = f"{percent(self.difference.together)} % together{rest}"
        return f"It differs in {count}. Those that change its time, in {bundles} ({total}):"

    def _without_cost(self) -> str:
        texts = [view.mechanism for view in self.level if view.mechanism]
        return f"No difference beyond the noise: {'; '.join(texts)}." if texts else ""

    def _closing(self) -> str:
        """What a sign means, and how sure a difference is."""
        whole = self.difference.whole
        if whole.verdict is Verdict.FAILED:
            return ""
        more = "takes longer" if self.objective.is_time else "has more"
        noise = "" if math.isnan(self.noise) else f" Noise of a single measurement: {100 * self.noise:.1f} %."
        return (
            f"A difference above 0: {self._called} {more} than the best, in the median of interleaved pairs"
            f" ({whole.pairs} for the whole), with its {100 * whole.confidence:.0f} % interval; one whose interval"
            f" contains 0 may be chance.{noise}"
        )

    @property
    def _called(self) -> str:
        return "the original" if self.number is None else self._other

    def _remark(self, bundle: Bundle) -> str:
        if bundle.steps == 1:
            return "one decision"
        without = "" if bundle.partial is None else f"; without the last {self._cost(bundle.partial)}"
        return f"{bundle.steps} decisions act together{without}"

    def _pairs(self) -> list[tuple[Bundle, EditView]]:
        return list(zip(self.difference.bundles, self.shown, strict=True))

    def _text(self, everything: bool) -> str:
        out = [f"best       {self.best.configuration.text}", f"           {self.best.traversal}"]
        out += [f"{self._other:<10} {self._cost(self.difference.whole)}, {self.other.configuration.text}"]
        out += [f"           {self.other.traversal}", *(f"note       {note}" for note in self.notes), "", self._title()]
        for bundle, view in self._pairs():
            out += [f"  {self._cost(bundle.timing)}  {self._remark(bundle)}"]
            out += [f"    {view.mechanism}"] if view.mechanism else []
            out += [f"    - {view.before}", f"    + {view.after}"] if view.before and everything else []
        out += [text for text in (self._without_cost(), self._closing()) if text]
        out += ["`--all` prints the entries that differ."] if self.shown and not everything else []
        return "\n".join(out) + "\n"

    def _markdown(self, everything: bool) -> str:
        out = [f"## Why {self._other} differs from the best", "", f"Best: `{self.best.traversal}`", ""]
        out += [f"{self._other.capitalize()}: {self._cost(self.difference.whole)}, `{self.other.traversal}`", ""]
        out += [*(f"- {cell(note)}" for note in self.notes), self._title(), ""]
        if self.shown:
            out += ["| cost | decisions | what they change | instead of | entries |", "|---|---|---|---|---|"]
        for bundle, view in self._pairs():
            entries = [f"`{text}`" if everything and text else "" for text in (view.before, view.after)]
            cells = [self._cost(bundle.timing), self._remark(bundle), view.mechanism]
            out.append(f"| {' | '.join([*map(cell, cells), *entries])} |")
        for text in (self._without_cost(), self._closing()):
            out += ["", cell(text)] if text else []
        return "\n".join(out).rstrip() + "\n"

    def as_json(self) -> dict[str, Any]:
        """Everything; ratios to the best, or to `base` of a bundle. Unknown values are null."""
        whole = self.difference
        return {
            "objective": self.objective.text,
            "best": {"configuration": dict(self.best.configuration), "traversal": self.best.traversal},
            "other": {
                "number": self.number, "configuration": dict(self.other.configuration),
                "traversal": self.other.traversal, **_timing_json(whole.whole),
            },
            "decisions": whole.decisions,
            "together": finite(whole.together), "noise": finite(self.noise),
            "complete": whole.complete,
            "notes": list(self.notes),
            "bundles": [
                {
                    "decisions": bundle.steps, "configuration": dict(view.configuration), "traversal": view.traversal,
                    "mechanism": view.mechanism, **_timing_json(bundle.timing),
                    "without_the_last": None if bundle.partial is None else _timing_json(bundle.partial),
                }
                for bundle, view in self._pairs()
            ],
            "level": [
                {"mechanism": view.mechanism, **_timing_json(bundle.timing)}
                for bundle, view in zip(self.difference.level, self.level, strict=True)
            ],
        }  # fmt: skip


def _timing_json(timing: PairTiming) -> dict[str, Any]:
    values = {name: finite(getattr(timing, name)) for name in ("ratio", "low", "high", "confidence")}
    return {**values, "pairs": timing.pairs, "failure": timing.failure}
