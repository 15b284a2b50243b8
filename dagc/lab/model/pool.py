"""The candidates of the model, and their features."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from dagc.ir.traversal import Issue
from dagc.lab.candidate import Candidate, ConfiguredSpace
from dagc.lab.model.batch import Batch
from dagc.lab.model.simulate import Costs, Simulator, messages_of
from dagc.space.loops import shortened, unroll

if TYPE_CHECKING:
    import numpy as np

    Single = np.ndarray[Any, np.dtype[np.float32]]
    Numbers = np.ndarray[Any, np.dtype[np.int64]]

ROUNDS = 3  # simulated rounds of a loop: nothing precedes the first one
_ABSENT = 1 << 20  # position of an op that a candidate does not have
_CONFIGURATION = 4  # bits that differ with the configuration


class Pool:
    """Candidates in rows, each with its program for the simulation."""

    def __init__(self, spaces: Sequence[ConfiguredSpace]) -> None:
        self.spaces = spaces
        self._graphs = [shortened(s.graph, ROUNDS) for s in spaces]
        simulated = [graph.unrolled for graph in self._graphs]
        self.costs = Costs(max(s.space.moves.streams for s in spaces), max(len(messages_of(g)) for g in simulated))
        self.costs.scale = len(spaces[0].graph.unrolled.ops) / len(simulated[0].ops)
        self._simulators = [
            Simulator(graph, s.configuration, self.costs) for graph, s in zip(simulated, spaces, strict=True)
        ]
        self.batch = Batch(self.costs)
        self.candidates: list[Candidate] = []
        self.row: dict[Candidate, int] = {}
        names = sorted({op.name for s in spaces for op in s.graph.ops})
        on_gpu = {op.name for s in spaces for op in s.graph.ops if op.gpu}
        self._columns = [[names.index(op.name) for op in s.graph.ops] for s in spaces]
        self._pairs = [(i, j) for i in range(len(names)) for j in range(i + 1, len(names))]
        self._gpu_pairs = [(i, j) for i, j in self._pairs if names[i] in on_gpu and names[j] in on_gpu]
        self._ops = len(names)

    def __len__(self) -> int:
        return len(self.candidates)

    @property
    def bits(self) -> int:
        """The number of features."""
        return _CONFIGURATION * len(self.spaces) + len(self._pairs) + len(self._gpu_pairs)

    def keep(self, rows: Numbers) -> None:
        """Drop all other rows; these are renumbered in this order."""
        self.candidates = [self.candidates[row] for row in rows]
        self.row = {candidate: row for row, candidate in enumerate(self.candidates)}
        self.batch.keep(rows)

    def extend(self, candidates: Iterable[Candidate]) -> Single:
        """Add the new candidates, in order. Returns their features, 0 or 1, shape (new candidates, bits).

        Features are the configuration, the order of all pairs of ops, and which GPU ops share a stream.
        """
        import numpy as np

        new = [c for c in dict.fromkeys(candidates) if c not in self.row]
        for candidate in new:
            self.row[candidate] = len(self.candidates)
            self.candidates.append(candidate)
        runs = (unroll(self._graphs[c.space], c.traversal)[1] for c in new)
        self.batch.extend([self._simulators[c.space].program(run) for c, run in zip(new, runs, strict=True)])
        place = np.full((self._ops, len(new)), _ABSENT)
        stream = np.full((self._ops, len(new)), -1)
        for number, candidate in enumerate(new):
            columns, issued = self._columns[candidate.space], 0
            for entry in candidate.traversal.entries:
                if isinstance(entry, Issue):
                    column = columns[entry.op]
                    place[column, number] = issued
                    issued += 1
                    if entry.stream is not None:
                        stream[column, number] = entry.stream
        spaces = np.array([c.space for c in new], dtype=np.int64)
        chosen = np.repeat(spaces[:, None] == np.arange(len(self.spaces)), _CONFIGURATION, axis=1)
        a, b = np.array(self._pairs, dtype=np.int64).reshape(-1, 2).T
        c, d = np.array(self._gpu_pairs, dtype=np.int64).reshape(-1, 2).T
        before, shared = place[a] < place[b], (stream[c] == stream[d]) & (stream[c] >= 0)
        return np.concatenate([chosen, before.T, shared.T], axis=1).astype(np.float32)
