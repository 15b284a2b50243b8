"""One implementation of a program: a traversal of one of the searched spaces."""

from __future__ import annotations

from dataclasses import dataclass, field

from dagc.ir.program import Graph
from dagc.ir.traversal import Traversal
from dagc.space import Space
from dagc.store.results import Configuration


@dataclass(frozen=True, slots=True)
class ConfiguredSpace:
    """A configuration and its traversals."""

    configuration: Configuration
    space: Space

    @property
    def graph(self) -> Graph:
        return self.space.graph


@dataclass(frozen=True, slots=True)
class Candidate:
    """One implementation: a traversal of `domain.spaces[space]`."""

    space: int
    traversal: Traversal
    _hash: int = field(default=0, init=False, repr=False, compare=False)

    def __hash__(self) -> int:
        """Cached: a traversal is long, and searches look candidates up often."""
        if self._hash == 0:
            object.__setattr__(self, "_hash", hash((self.space, self.traversal)) or 1)
        return self._hash
