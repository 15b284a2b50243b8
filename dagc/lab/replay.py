"""Replay of a recorded results file: compares strategies and rules on real data, without a GPU."""

from __future__ import annotations

import math
from random import Random
from statistics import median

from dagc.base.sample import Sample
from dagc.ir.traversal import traversal_text
from dagc.lab.candidate import Candidate
from dagc.lab.orders import Orders
from dagc.store.results import Implementation, Results


class ReplayMachine:
    """Returns recorded times, with drift divided out.

    The passes of each implementation are returned in an order drawn by `seed`, each once, then again except the first.
    An implementation that was not recorded is a failure.
    """

    def __init__(self, results: Results, domain: Orders, seed: int) -> None:
        self.domain, self.results = domain, results
        self._recorded = {(i.configuration, i.traversal): i for i in results.implementations}
        self._random = Random(seed)
        self._dealt: dict[int, list[int]] = {}  # per implementation, order of its passes
        self._next: dict[int, int] = {}

    def measure(self, candidate: Candidate) -> Sample:
        implementation = self._implementation(candidate)
        if implementation is None:
            return Sample(failure="not recorded")
        times = implementation.times(self.results.reference)
        if not times:
            return Sample(failure=implementation.failure or "not recorded")
        order = self._dealt.get(implementation.id)
        if order is None:
            order = self._dealt[implementation.id] = list(range(len(times)))
            self._random.shuffle(order)
        turn = self._next.get(implementation.id, 0)
        self._next[implementation.id] = turn + 1
        # After the last pass, start again without the first, which may have chosen the implementation and must not
        # confirm it.
        again = order[1:] or order
        dealt = order[turn] if turn < len(order) else again[(turn - len(order)) % len(again)]
        metrics = {} if self.results.objective.is_time else implementation.samples[dealt].metrics
        return Sample(times[dealt], iterations=1, metrics=metrics)

    def judged(self, candidate: Candidate) -> float:
        """The median of the passes that `measure` has not returned; of all passes if it has returned every one."""
        recorded = self._implementation(candidate)
        if recorded is None or not recorded.samples:
            return math.nan
        times = recorded.times(self.results.reference)
        seen = set(self._dealt.get(recorded.id, [])[: self._next.get(recorded.id, 0)])
        unseen = [t for i, t in enumerate(times) if i not in seen]
        return median(unseen or times)

    def passes(self, candidate: Candidate) -> int:
        """The number of recorded measurements."""
        recorded = self._implementation(candidate)
        return 0 if recorded is None else len(recorded.samples)

    def _implementation(self, candidate: Candidate) -> Implementation | None:
        text = traversal_text(candidate.traversal, self.domain.spaces[candidate.space].graph)
        return self._recorded.get((self.domain.configuration(candidate), text))
