"""Implementations of one proved space that disagree: some give right results, others wrong ones.

The proof derives from headers which orders are right. If results depend on the order all the same, one of the facts
that it starts from is wrong, and implementations with right results may have them by chance. None of them is the best.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from dagc.base.errors import WrongResult, counted
from dagc.ir.choice import Choice, site_of
from dagc.ir.program import Graph
from dagc.space.loops import shortened
from dagc.space.proof import Prover
from dagc.store.results import Implementation, Results

WRONG = "wrong result"  # how the failures begin that are meant; a crash or a hang says nothing about an order
MOST = 200  # right ones, and wrong ones, whose orders are compared
MOST_SUSPECTS = 4
ROUNDS = 3  # compared rounds of a loop
FIND = "docs/how-to/find-races.md"
CAUSES = (
    "A header (in, out, inout), a bound or a promise is wrong, an op uses data that no header names, a kernel races"
    " with itself, or a verify tolerates less than sums in another order differ by."
)


class SpaceKind(NamedTuple):
    """What implementations of equal kind share: the ops and edges. `settings`: the names of the decisions that are
    launch settings."""

    key: Hashable
    graph: Graph
    settings: frozenset[str]


@dataclass(frozen=True, slots=True)
class Suspect:
    """Two ops whose order may be missing: of `number` implementations in which `second` need not wait for `first`,
    `wrong` give wrong results."""

    first: str
    second: str
    wrong: int
    number: int


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Of implementations of one kind, `wrong` give wrong results and `right` do not. `both`: those of the wrong ones
    that gave both. `example`: a wrong one. `suspects`: the most probable first; empty if no order explains it."""

    wrong: int
    right: int
    both: int
    example: Implementation
    suspects: tuple[Suspect, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        """What is wrong, what may be the cause, and how to find it."""
        whole = self.wrong + self.right
        numbers = f"{self.wrong} of {counted(whole, 'implementation')} that differ only in the order of their ops"
        out = [
            f"{numbers} give wrong results ({self.example.failure}). The others may be right by chance.",
            CAUSES,
        ]
        if self.both:
            out.append(
                f"{counted(self.both, 'implementation')} gave right and wrong results: a kernel may race with itself,"
                " where a block reads what another one writes."
            )
        out += [
            f"Suspect: `{s.first}` and `{s.second}`. Where `{s.second}` need not wait for `{s.first}`, {s.wrong} of"
            f" {s.number} are wrong."
            for s in self.suspects
        ]
        return (*out, f"To find it, see {FIND}; a wrong order is: {self.example.traversal}")

    def error(self, path: str) -> WrongResult:
        """That no implementation of a results file can be used."""
        return WrongResult(f"{path}: {self.lines[0]}", "\n".join(self.lines[1:]))


def disagreement(results: Results, kind: Callable[[Implementation], SpaceKind | None]) -> Disagreement | None:
    """That of the kind with the most wrong results; None if there is none.

    A wrong result that goes with the launch settings of an op, whatever the order, is a fault of these and is no
    disagreement. `kind`: None for an implementation that does not count.
    """
    found = []
    for graph, right, wrong in _kinds(results, kind):
        if right and wrong:
            both = sum(bool(one.samples) for one in wrong)
            suspects = _suspects(graph, right, wrong)
            found.append(Disagreement(len(wrong), len(right), both, wrong[0], suspects))
    return max(found, key=lambda one: one.wrong, default=None)


def by_settings(results: Results, kind: Callable[[Implementation], SpaceKind | None]) -> list[Implementation]:
    """Wrong implementations whose launch settings were only measured with wrong results: these, or the order."""
    out = []
    for members in _members(results, kind).values():
        unexplained = {id(one) for one in _unexplained(members)}
        out += [one for _, one in members if _is_wrong(one) and id(one) not in unexplained]
    return out


_Members = list[tuple[SpaceKind, Implementation]]


def _members(results: Results, kind: Callable[[Implementation], SpaceKind | None]) -> dict[Hashable, _Members]:
    members: dict[Hashable, _Members] = defaultdict(list)
    for one in results.implementations:
        if (_is_wrong(one) or (one.samples and not one.failure)) and (of := kind(one)) is not None:
            members[of.key].append((of, one))
    return members


def _kinds(
    results: Results, kind: Callable[[Implementation], SpaceKind | None]
) -> Iterable[tuple[Graph, list[Implementation], list[Implementation]]]:
    """The graph, the right and the wrong implementations of each kind, without those that their settings explain."""
    for members in _members(results, kind).values():
        yield members[0][0].graph, [one for _, one in members if not _is_wrong(one)], _unexplained(members)


def _is_wrong(one: Implementation) -> bool:
    return one.failure.startswith(WRONG)


def _unexplained(members: _Members) -> list[Implementation]:
    """The wrong ones of which each op has launch settings that gave a right result elsewhere, and those that gave
    both."""
    right = {setting for kind, one in members if not _is_wrong(one) for setting in _settings(kind, one.configuration)}
    return [
        one
        for kind, one in members
        if _is_wrong(one) and (one.samples or right.issuperset(_settings(kind, one.configuration)))
    ]


def _settings(kind: SpaceKind, configuration: Choice) -> list[tuple[object, ...]]:
    """The launch settings of each op."""
    of_op: dict[str, list[object]] = defaultdict(list)
    for name, value in configuration.decisions:
        if name in kind.settings:
            of_op[site_of(name)] += (name, value)
    return [(op, *values) for op, values in of_op.items()]


# ---- suspects -----------------------------------------------------------------------------------


def _suspects(graph: Graph, right: Sequence[Implementation], wrong: Sequence[Implementation]) -> tuple[Suspect, ...]:
    """Pairs of ops such that results are right where the second waits for the first, in each of the pairs.

    Of all pairs, the one is taken whose order leaves the fewest wrong ones, then the most right ones; and so on with
    what is left.
    """
    short = shortened(graph, ROUNDS)
    prover, names = Prover(short), [op.name for op in short.unrolled.ops]
    known = [[prover.known(one.order(short)) for one in _some(some)] for some in (right, wrong)]
    every = list(known)
    out: list[Suspect] = []
    while known[1] and len(out) < MOST_SUSPECTS:
        ranked = []
        for second in range(len(names) - 1):  # the last is `end`
            for first in range(len(names) - 1):
                left = [sum(one[second] >> first & 1 for one in some) for some in known]
                if first != second and left[0] and left[1] < len(known[1]):
                    ranked.append((left[1] / (left[0] + left[1]), -left[0], first, second))
        if not ranked:
            break
        _, _, first, second = min(ranked)
        without = [sum(not one[second] >> first & 1 for one in some) for some in every]
        out.append(Suspect(names[first], names[second], without[1], sum(without)))
        known = [[one for one in some if one[second] >> first & 1] for some in known]
    return tuple(out)


def _some(implementations: Sequence[Implementation]) -> Iterable[Implementation]:
    return islice(implementations, 0, None, max(1, -(-len(implementations) // MOST)))
