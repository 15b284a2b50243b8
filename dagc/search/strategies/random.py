"""Uniformly random candidates, each at most once."""

from __future__ import annotations

from random import Random
from typing import ClassVar

from dagc.results import Outcome
from dagc.search.domain import Candidate, Domain

_TRIES = 1000


class Strategy:
    """The baseline. Where the space cannot be counted, random walks stand in for uniform samples."""

    summary: ClassVar[str] = "uniformly random, without repetition"

    def __init__(self, domain: Domain, seed: int) -> None:
        self.domain, self.random = domain, Random(seed)
        self.seen: set[Candidate] = set()

    def propose(self) -> Candidate | None:
        size = self.domain.size()
        if size is not None and len(self.seen) >= size:
            return None
        tries = 0
        while size is not None or tries < _TRIES:
            candidate = self.domain.sample(self.random)
            if candidate not in self.seen:
                self.seen.add(candidate)
                return candidate
            tries += 1
        return None

    def observe(self, candidate: Candidate, outcome: Outcome) -> None:
        self.seen.add(candidate)
