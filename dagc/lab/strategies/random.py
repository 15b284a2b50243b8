"""Uniformly random candidates, each at most once."""

from __future__ import annotations

from random import Random
from typing import ClassVar, Generic

from dagc.base.sample import Sample
from dagc.lab.domain import C, Domain

_TRIES = 1000


class Strategy(Generic[C]):
    """The baseline. Random walks replace uniform samples if the space cannot be counted."""

    summary: ClassVar[str] = "uniformly random, without repetition"

    def __init__(self, domain: Domain[C], seed: int) -> None:
        self.domain, self.random = domain, Random(seed)
        self.seen: set[C] = set()
        self.left = domain.size()
        self.moved: dict[int, int] = {}  # changed entries of a virtual, shuffled list of all numbers

    def propose(self) -> C | None:
        tries = 0
        while self.left != 0 and tries < _TRIES:
            if self.left is None:
                candidate = self.domain.walk(self.random)
                tries += 1
            else:
                candidate = self.domain.at(self._draw(self.left))
            if candidate not in self.seen:
                self.seen.add(candidate)
                return candidate
        return None

    def _draw(self, left: int) -> int:
        """The next number of a random permutation (Fisher and Yates), of which only changed entries are held."""
        place = self.random.randrange(left)
        number = self.moved.get(place, place)
        self.moved[place] = self.moved.pop(left - 1, left - 1)
        self.left = left - 1
        return number

    def observe(self, candidate: C, sample: Sample) -> None:
        self.seen.add(candidate)
