"""Interchangeable sub-graphs: sets of units, each a tuple of ops, such that any two units may be swapped.

The six faces of a halo exchange are the reason: their packs and sends are alike, so are their receives and unpacks.
States that differ by swapping units have equally many completions, which makes exact counting feasible.
"""

from __future__ import annotations

from dataclasses import dataclass

from dagc.space.moves import Moves, bits


@dataclass(frozen=True, slots=True)
class Orbit:
    """Units of one kind. `units[i][k]` and `units[j][k]` play the same part."""

    units: tuple[tuple[int, ...], ...]


def orbits(moves: Moves) -> tuple[Orbit, ...]:
    """Disjoint orbits; every transposition of two units of one orbit is an automorphism of the graph (checked)."""
    visited: set[int] = set()
    out: list[Orbit] = []
    for a in range(moves.size):
        if a in visited:
            continue
        units: list[tuple[int, ...]] = []
        used: set[int] = set()
        for b in range(a + 1, moves.size):
            if b in visited or b in used:
                continue
            swap = _transposition(moves, a, b)
            if swap is None:
                continue
            mine, theirs = tuple(x for x, _ in swap), tuple(y for _, y in swap)
            if not units:
                units, used = [mine], set(mine)
            if mine == units[0] and not used & set(theirs) and not visited & set(mine + theirs):
                units.append(theirs)
                used |= set(theirs)
        if len(units) > 1:
            out.append(Orbit(tuple(units)))
            visited |= used
    return tuple(out)


def _transposition(moves: Moves, a: int, b: int) -> list[tuple[int, int]] | None:
    """The smallest automorphism found that swaps a and b and is its own inverse; None where there is none."""
    image = {a: b, b: a}
    pairs, queue = [(a, b)], [(a, b)]
    while queue:
        x, y = queue.pop()
        if moves.allowed[x] != moves.allowed[y] or (moves.gpu >> x ^ moves.gpu >> y) & 1:
            return None
        for table in (moves.before, moves.needs, moves.users, _followers(moves)):
            ours, others = table[x] & ~table[y], table[y] & ~table[x]
            left = [p for p in bits(ours) if p not in (x, y) and p not in image]
            right = [p for p in bits(others) if p not in (x, y) and p not in image]
            if len(left) != len(right):
                return None
            for p, q in zip(left, right, strict=True):
                image[p], image[q] = q, p
                pairs.append((p, q))
                queue.append((p, q))
    return pairs if _is_automorphism(moves, image) else None


def _followers(moves: Moves) -> tuple[int, ...]:
    out = [0] * moves.size
    for v in range(moves.size):
        for u in bits(moves.before[v]):
            out[u] |= 1 << v
    return tuple(out)


def _is_automorphism(moves: Moves, image: dict[int, int]) -> bool:
    def mapped(mask: int) -> int:
        return sum(1 << image.get(u, u) for u in bits(mask))

    return all(
        mapped(table[v]) == table[image.get(v, v)]
        for v in range(moves.size)
        for table in (moves.before, moves.needs, moves.users)
    ) and all(
        moves.allowed[v] == moves.allowed[w] and moves.gpu >> v & 1 == moves.gpu >> w & 1 for v, w in image.items()
    )
