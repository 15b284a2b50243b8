"""What a laboratory searches: assignments to the choices that are open, as a decision process.

Orders with their streams, configurations and launch settings (`dagc.lab.orders`) are one domain, the launch settings of
a single op (`dagc.lab.settings`) are another. Strategies know these protocols only, so each of them serves both.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]
    Numbers = np.ndarray[Any, np.dtype[np.int64]]

C = TypeVar("C", bound=Hashable)  # a candidate


class Surrogate(Protocol[C]):
    """What is expected of every candidate of a pool, from what was measured. Times are in microseconds.

    `candidates` stand in rows; `row` is the row of each. `times`: what was measured of each.
    """

    @property
    def candidates(self) -> Sequence[C]: ...

    @property
    def row(self) -> Mapping[C, int]: ...

    @property
    def times(self) -> Mapping[C, Sequence[float]]: ...

    def extend(self, candidates: Iterable[C]) -> None:
        """Candidates that the pool does not have yet are added to it."""

    def keep(self, rows: Sequence[int]) -> None:
        """The others, but for those that it needs, may be dropped from the pool; rows are renumbered."""

    def observe(self, candidate: C, time: float) -> None:
        """A measurement of a candidate of the pool."""

    def estimate(self) -> tuple[Array, Array]:
        """Expected time of each row, and its standard deviation."""

    def doubt(self, unmeasured: Numbers, measured: Numbers, share: float) -> float:
        """Probability that one of the first rows is faster than the best of the second by more than this share."""

    def incumbent(self) -> float:
        """The smallest expected time of what was measured; infinite where nothing was."""


class Domain(Protocol[C]):
    """All candidates that a search may measure.

    Node, decision and askers of the decision process are the domain's own; decisions can be hashed.
    """

    def size(self) -> int | None:
        """How many candidates there are; None if they are too many to count."""

    def at(self, number: int) -> C:
        """The candidate with this number, from 0. IndexError, ValueError."""

    def walk(self, random: Random) -> C:
        """A random candidate: each decision equally likely."""

    def sample(self, random: Random) -> C:
        """A random candidate: each equally likely where they can be counted, else by `walk`."""

    def likely(self, random: Random) -> C:
        """A random candidate, drawn by what is known before anything is measured; without that as `sample`."""

    def near(self, candidate: C, random: Random) -> C:
        """A random candidate that has much in common with this one."""

    def __iter__(self) -> Iterator[C]:
        """All candidates, in the order of their numbers."""

    def start(self) -> Any:
        """The node at which nothing is decided."""

    def offers(self, node: Any) -> dict[Any, Any]:
        """Every decision that may come next, with what `step` wants of it, in a fixed order. Empty: all is decided."""

    def weights(self, node: Any, offers: Mapping[Any, Any]) -> Sequence[int] | None:
        """How many candidates each of the offers leads to; None where they are too many to count."""

    def step(self, node: Any, decision: Any, askers: Any) -> Any:
        """The node that one of the offers leads to."""

    def path(self, candidate: C) -> tuple[Any, ...]:
        """The decisions that lead to a candidate."""

    def candidate(self, path: Sequence[Any]) -> C:
        """The candidate that decisions lead to."""

    def surrogate(self) -> Surrogate[C]:
        """A model of the candidates' times; its pool is empty."""

    @property
    def has_surrogate(self) -> bool:
        """Is its model fast beside a measurement?"""
