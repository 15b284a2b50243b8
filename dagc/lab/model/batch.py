"""Simulates many traversals at once: arrays with one column each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dagc.lab.model.simulate import END, Costs

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]
    Numbers = np.ndarray[Any, np.dtype[np.int64]]
    Counts = np.ndarray[Any, np.dtype[np.uint16]]

    Own = Mapping[int, Array]

NO_OWN: Own = MappingProxyType({})


class Batch:
    """Programs (`Simulator.program`) side by side, padded with no-ops to equal length."""

    def __init__(self, costs: Costs) -> None:
        import numpy as np

        self.costs = costs
        self.programs: Numbers = np.zeros((0, 0), dtype=np.int64)  # instruction, traversal

    def __len__(self) -> int:
        return int(self.programs.shape[1])

    def extend(self, programs: Sequence[Sequence[int]]) -> None:
        """Add columns."""
        import numpy as np

        longest = max([len(self.programs), *map(len, programs)])
        out = np.zeros((longest, len(self) + len(programs)), dtype=np.int64)
        out[: len(self.programs), : len(self)] = self.programs
        for column, program in enumerate(programs, len(self)):
            out[: len(program), column] = program
        self.programs = out

    def keep(self, columns: Numbers) -> None:
        """Drop all other columns."""
        self.programs = self.programs[:, columns]

    def times(self, costs: Array, columns: Any = slice(None), own: Own = NO_OWN) -> Array:
        """When each iteration ends, in microseconds, under these costs (one for each of `Costs.prior`).

        `own`: costs that differ from column to column: their numbers, and an array for each.
        """
        return self._run(costs, self.programs[:, columns], None, own)[0]

    def paths(self, costs: Array, columns: Numbers, own: Own = NO_OWN) -> tuple[Array, Array]:
        """As `times`, for some columns, with how often each cost lies on the critical path.

        Shapes (columns,) and (columns, costs); the product of the second with the costs is the first.
        """
        import numpy as np

        programs = self.programs[:, columns]
        counts = np.zeros((self.costs.moments, programs.shape[1], len(costs)), dtype=np.uint16)  # narrow: copied often
        times, paths = self._run(costs, programs, counts, own)
        return times, paths.astype(np.float64)

    def _run(self, costs: Array, programs: Numbers, counts: Counts | None, own: Own) -> tuple[Array, Array | Counts]:
        import numpy as np

        totals = np.zeros((len(self.costs.sums), len(costs)))
        for numbers, row in self.costs.sums.items():
            for number in numbers:
                totals[row, number] += 1
        target, a, b, total = np.array(list(self.costs.instructions)).T
        width = programs.shape[1]
        # A fixed order of additions, whichever library multiplies matrices.
        shared = np.where(np.isin(np.arange(len(costs)), list(own)), 0.0, costs)
        added = np.repeat((totals * shared).cumsum(axis=1)[:, -1][total][:, None], width if own else 1, axis=1)
        for number, values in own.items():
            holds = np.flatnonzero(totals[total, number])
            added[holds] += totals[total[holds], number][:, None] * values
        totals = totals.astype(np.uint16)
        column = np.arange(width)
        of_column = column if own else 0
        moments = np.zeros((self.costs.moments, width))
        flat = moments.ravel()
        targets, left, right = (numbers * width for numbers in (target, a, b))
        for step in programs:
            first, second = flat[left[step] + column], flat[right[step] + column]
            if counts is not None:
                # Of equal moments the first: waiting for an event that has already completed takes no time.
                won = np.where(second > first, b[step], a[step])
                counts[target[step], column] = counts[won, column] + totals[total[step]]
            flat[targets[step] + column] = np.maximum(first, second) + added[step, of_column]
        return moments[END], moments if counts is None else counts[END]
