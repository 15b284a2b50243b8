"""Every candidate once, in a random order."""

from __future__ import annotations

from random import Random
from typing import ClassVar, Generic

from dagc.base.sample import Sample
from dagc.lab.domain import C, Domain


class Strategy(Generic[C]):
    """Random order, so that drift of the machine is not mistaken for a property of neighbours."""

    summary: ClassVar[str] = "every implementation, in random order; --passes N measures each N times"

    def __init__(self, domain: Domain[C], seed: int) -> None:
        """Holds the whole domain in memory: `explore` rejects a domain larger than --max."""
        self.left = list(domain)
        Random(seed).shuffle(self.left)
        self.seen: set[C] = set()

    def propose(self) -> C | None:
        while self.left:
            candidate = self.left.pop()
            if candidate not in self.seen:
                self.seen.add(candidate)
                return candidate
        return None

    def observe(self, candidate: C, sample: Sample) -> None:
        self.seen.add(candidate)
