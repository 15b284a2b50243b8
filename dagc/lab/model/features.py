"""Features of candidates: what is alike of two of them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from dagc.base.python import Array, Numbers, Single, np
from dagc.lab.candidate import Candidate, ConfiguredSpace
from dagc.space.moves import Moves, bits

MOST_PAIRS = 128 * 127 // 2  # pairs of ops that are features: all pairs in a program with up to 128 ops
_ABSENT = 1 << 20  # position of an op that a candidate does not have
_CONFIGURATION = 4  # bits that differ with the configuration
_EITHER = 2  # of two ops: their order is not the same in all candidates


class CandidateFeatures:
    """Features of the candidates of these spaces, 0 or 1: the configuration, the order of all pairs of ops, which GPU
    ops share a stream, and of each launch parameter which of its values it reaches.

    `number`: of all of them. Pairs of ops whose order is the same in all candidates count, but are left out of `of`.
    """

    def __init__(self, spaces: Sequence[ConfiguredSpace]) -> None:
        self._spaces = len(spaces)
        self._steps = sorted(
            {(n, int(v)) for s in spaces for site in s.sites for o in site.choices for n, v in o.items()}
        )
        names = sorted({op.name for s in spaces for op in s.graph.ops})
        on_gpu = {op.name for s in spaces for op in s.graph.ops if op.gpu}
        self._ops, number = len(names), {name: at for at, name in enumerate(names)}
        self._columns = [np.array([number[op.name] for op in s.graph.ops], dtype=np.int64) for s in spaces]
        pairs = [(i, j) for i in range(len(names)) for j in range(i + 1, len(names))]
        if len(pairs) > MOST_PAIRS:  # the share of bits that differ is about the same for a sample of them
            pairs = sorted(Random(0).sample(pairs, MOST_PAIRS))
        gpu_pairs = [(i, j) for i, j in pairs if names[i] in on_gpu and names[j] in on_gpu]
        self.number = _CONFIGURATION * len(spaces) + len(pairs) + len(gpu_pairs) + len(self._steps)
        known = {(s.space.moves, tuple(c.tolist())) for s, c in zip(spaces, self._columns, strict=True)}
        orders = np.stack([_order(moves, columns, len(names)) for moves, columns in known])
        order = np.where((orders == orders[0]).all(axis=0), orders[0], _EITHER)
        self._pairs = _columns_of([pair for pair in pairs if order[pair] == _EITHER])
        self._gpu_pairs = _columns_of(gpu_pairs)

    def of(self, candidates: Sequence[Candidate]) -> Single:
        """Shape (candidates, features that may differ)."""
        place = np.full((self._ops, len(candidates)), _ABSENT)
        stream = np.full((self._ops, len(candidates)), -1)
        for number, candidate in enumerate(candidates):
            issues = [entry for entry in candidate.traversal.entries if entry.op is not None]
            rows = self._columns[candidate.space][[entry.op for entry in issues]]
            place[rows, number] = np.arange(len(rows))
            stream[rows, number] = [-1 if entry.stream is None else entry.stream for entry in issues]
        spaces = np.array([c.space for c in candidates], dtype=np.int64)
        chosen = np.repeat(spaces[:, None] == np.arange(self._spaces), _CONFIGURATION, axis=1)
        (a, b), (c, d) = self._pairs, self._gpu_pairs
        before, shared = place[a] < place[b], (stream[c] == stream[d]) & (stream[c] >= 0)
        parts = [chosen, before.T, shared.T, self._reached(candidates)]
        return np.concatenate(parts, axis=1).astype(np.float32)

    def _reached(self, candidates: Sequence[Candidate]) -> Any:
        """Whether each launch parameter is at least each of its values: shape (candidates, steps)."""
        out = np.zeros((len(candidates), len(self._steps)), dtype=bool)
        for row, candidate in enumerate(candidates):
            chosen = {name: int(value) for choice in candidate.choices for name, value in choice.items()}
            out[row] = [chosen.get(name, value - 1) >= value for name, value in self._steps]
        return out


def _columns_of(pairs: Sequence[tuple[int, int]]) -> Numbers:
    """Shape (2, pairs)."""
    return np.array(pairs, dtype=np.int64).reshape(-1, 2).T


def _order(moves: Moves, columns: tuple[int, ...], ops: int) -> Array:
    """Whether each op comes before each other in all traversals, by the columns of both: 0, 1 or _EITHER.

    An op that the space lacks comes after all that it has.
    """
    earlier, last = list(moves.before), None
    while earlier != last:  # up to all that must come before
        last = list(earlier)
        for v, mine in enumerate(last):
            for u in bits(mine):
                earlier[v] |= earlier[u]
    out = np.zeros((ops, ops))
    out[list(columns)] = 1.0
    for v, column in enumerate(columns):
        out[list(columns), column] = [
            1.0 if earlier[v] >> u & 1 else 0.0 if earlier[u] >> v & 1 else _EITHER for u in range(len(columns))
        ]
    return out
