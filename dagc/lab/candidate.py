"""One implementation of a program: a traversal of one of the searched spaces, with launch settings."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from dagc.choice.types import Site
from dagc.ir.choice import Choice
from dagc.ir.program import Graph
from dagc.ir.traversal import Traversal
from dagc.space import Space


@dataclass(frozen=True, slots=True)
class ConfiguredSpace:
    """A configuration, its traversals, and the launch settings that the search may choose.

    At the `sites`, the configuration has the settings of the program.
    """

    configuration: Choice
    space: Space
    sites: tuple[Site, ...] = ()

    @property
    def graph(self) -> Graph:
        return self.space.graph

    @property
    def combinations(self) -> int:
        """The number of combinations of launch settings."""
        return math.prod(len(site.choices) for site in self.sites)

    @property
    def usual(self) -> tuple[Choice, ...]:
        """The program's own choice at each of the sites."""
        return tuple(site.choices[0] for site in self.sites)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One implementation: a traversal of `domain.spaces[space]`, and the choice at each of its sites."""

    space: int
    traversal: Traversal
    choices: tuple[Choice, ...] = ()
    _hash: int = field(default=0, init=False, repr=False, compare=False)

    def __hash__(self) -> int:
        """Cached: a traversal is long, and searches look candidates up often."""
        if self._hash == 0:
            object.__setattr__(self, "_hash", hash((self.space, self.traversal, self.choices)) or 1)
        return self._hash
