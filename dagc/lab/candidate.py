"""One implementation of a program: a traversal of one of the spaces that are searched."""

from __future__ import annotations

from dataclasses import dataclass

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
