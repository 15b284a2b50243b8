"""Exact counting: how many traversals complete a state, memoised on states up to symmetry."""

from __future__ import annotations

import sys
from itertools import permutations
from operator import itemgetter

from dagc.space.moves import Moves, State, bits
from dagc.space.symmetry import Orbit, orbits
from dagc.traversal import Issue

_UNISSUED, _SETTLED = -2, -1


class TooManyStates(Exception):
    """The count would need more states than it was allowed."""


class Counter:
    """Counts completions of states of one graph. The memo grows with the states met, and is kept.

    `limit`: states after which it gives up and raises TooManyStates (default: none).
    """

    def __init__(self, moves: Moves, limit: int | None = None) -> None:
        self.moves = moves
        self.limit = limit
        self._orbits: tuple[Orbit, ...] = orbits(moves)
        # Per orbit and unit: what picks the codes of its ops.
        self._conditions_of = tuple(tuple(itemgetter(*unit) for unit in orbit.units) for orbit in self._orbits)
        in_orbit = {op for orbit in self._orbits for unit in orbit.units for op in unit}
        self._singles = tuple(v for v in range(moves.size) if v not in in_orbit)
        self._memo: dict[object, int] = {}

    def __len__(self) -> int:
        """States in the memo."""
        return len(self._memo)

    def total(self) -> int:
        """Size of the space."""
        return self.count(self.moves.start())

    def count(self, state: State) -> int:
        """Traversals that begin with the prefix of `state`."""
        # One level of recursion per entry of a traversal; three entries an op is more than any traversal has.
        depth = 3 * self.moves.size * max(2, self.moves.streams) + 200
        if sys.getrecursionlimit() < depth:
            sys.setrecursionlimit(depth)
        return self._count(state)

    def _count(self, state: State) -> int:
        if self.moves.finished(state):
            return 1
        key, codes = self._key(state)
        known = self._memo.get(key)
        if known is not None:
            return known
        if self.limit is not None and len(self._memo) >= self.limit:
            raise TooManyStates
        total = 0
        alike = self._alike(state, codes)
        for entry, askers in self.moves.offers(state).items():
            # Swapping two units in the same condition maps the state to itself, and the issue of one's op to that
            # of the other's: count one of them.
            times = alike.get(entry.op, 1) if isinstance(entry, Issue) else 1
            if times:
                total += times * self._count(self.moves.step(state, entry, askers))
        self._memo[key] = total
        return total

    # ---- canonical form -----------------------------------------------------------------

    def _codes(self, state: State) -> list[int]:
        """Per op: not issued, settled (nobody may ask on its behalf), or where it stands: place * streams + stream."""
        issued, streams = state[0], state[1]
        width = len(streams)
        codes = [_SETTLED if issued >> v & 1 else _UNISSUED for v in range(self.moves.size)]
        for s, (groups, tail) in enumerate(streams):
            place = s
            for group in groups:
                for u in bits(group[0]):
                    codes[u] = place
                place += width
            for u in bits(tail):
                codes[u] = place
        return codes

    def _alike(self, state: State, codes: list[int]) -> dict[int, int]:
        """Per op of an orbit: how many units are in the condition of its unit (first of them), or 0 (the others)."""
        if state[3] != ((),):
            return {}
        out: dict[int, int] = {}
        for orbit in self._orbits:
            first: dict[tuple[int, ...], tuple[int, ...]] = {}
            for unit in orbit.units:
                condition = tuple(codes[v] for v in unit)
                if condition in first:
                    for v, w in zip(first[condition], unit, strict=True):
                        out[v] += 1
                        out[w] = 0
                else:
                    first[condition] = unit
                    out.update((v, 1) for v in unit)
        return out

    def _key(self, state: State) -> tuple[object, list[int]]:
        """A value that is equal only for states that renaming streams and swapping units makes equal."""
        codes = self._codes(state)
        _, streams, used, hidden, _ = state
        labels = self.moves.free[:used]
        if len(labels) == 2:
            a, b = labels
            if streams[a] == streams[b] == ((), 0) and hidden == ((),):
                return self._encode(state, codes, None), codes
            swap = list(range(len(streams)))
            swap[a], swap[b] = b, a
            return min(self._encode(state, codes, None), self._encode(state, codes, swap)), codes
        if len(labels) > 2:
            return min(self._encode(state, codes, list(p)) for p in self._renamings(state, labels)), codes
        return self._encode(state, codes, None), codes

    def _renamings(self, state: State, labels: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Renamings that sort the streams by what they hold; all orders of those that hold the same kind of thing."""
        streams = state[1]
        held = {s: (tuple((len(bits(g[0])), g[1]) for g in streams[s][0]), len(bits(streams[s][1]))) for s in labels}
        out = []
        ordered = sorted(labels, key=lambda s: held[s])
        for choice in permutations(ordered):
            if all(held[x] == held[y] for x, y in zip(choice, ordered, strict=True)):
                renaming = list(range(len(streams)))
                for new, old in zip(labels, choice, strict=True):
                    renaming[old] = new
                out.append(tuple(renaming))
        return out

    def _encode(self, state: State, codes: list[int], renaming: list[int] | None) -> tuple[object, ...]:
        _, streams, used, hidden, _ = state
        width = len(streams)
        flags: list[tuple[tuple[int, int], ...]] = [()] * width
        for s, (groups, _) in enumerate(streams):
            if renaming is None:
                flags[s] = tuple((g[1], g[2]) for g in groups)
            else:
                flags[renaming[s]] = tuple((g[1], _rename(g[2], renaming)) for g in groups)
        if renaming is not None:
            codes = [c if c < 0 else c - c % width + renaming[c % width] for c in codes]
        image: dict[int, int] = {}
        parts: list[tuple[object, ...]] = []
        for orbit, conditions_of in zip(self._orbits, self._conditions_of, strict=True):
            if hidden == ((),):  # nearly always, and it is here that counting spends its time
                parts.append(tuple(sorted([condition(codes) for condition in conditions_of])))
                continue
            conditions = [(condition(codes), unit) for condition, unit in zip(conditions_of, orbit.units, strict=True)]
            conditions.sort()
            parts.append(tuple([c for c, _ in conditions]))
            for (_, unit), target in zip(conditions, orbit.units, strict=True):
                image.update(zip(unit, target, strict=True))
        commitments: tuple[tuple[tuple[int, int], ...], ...] = ()
        if hidden != ((),):
            commitments = tuple(
                sorted(
                    tuple(
                        sorted(
                            (image.get(op, op), mask if renaming is None else _rename(mask, renaming)) for op, mask in c
                        )
                    )
                    for c in hidden
                )
            )
        return tuple([codes[v] for v in self._singles]), tuple(parts), tuple(flags), used, commitments


def _rename(mask: int, renaming: list[int]) -> int:
    return sum(1 << renaming[s] for s in bits(mask))
