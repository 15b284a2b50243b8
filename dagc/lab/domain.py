"""The search space as a decision process: assignments to the open choices.

Orders with their streams, configurations and launch settings (`dagc.lab.orders`) are one domain, the launch settings of
a single op (`dagc.lab.settings`) another. Strategies use only these protocols, so each of them can search both.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Protocol, TypeVar

from dagc.base.python import Array, Numbers

C = TypeVar("C", bound=Hashable)  # a candidate


class Surrogate(Protocol[C]):
    """A model of the times of a pool of candidates, fitted to measurements.

    `candidates`: the rows of the pool; `row`: the row of each candidate; `times`: the measured times of each.
    """

    @property
    def candidates(self) -> Sequence[C]: ...

    @property
    def row(self) -> Mapping[C, int]: ...

    @property
    def times(self) -> Mapping[C, Sequence[float]]: ...

    def extend(self, candidates: Iterable[C]) -> None:
        """Add the candidates that are not in the pool yet."""

    def keep(self, rows: Sequence[int]) -> None:
        """Drop all other rows from the pool, except those that the model needs; rows are renumbered."""

    def observe(self, candidate: C, time: float) -> None:
        """Add a measurement of a candidate in the pool."""

    def fail(self, candidate: C) -> None:
        """Record that a candidate of the pool cannot be measured."""

    def estimate(self) -> tuple[Array, Array]:
        """Expected time of each row, and its standard deviation."""

    def deviation_after(self, rows: Sequence[int]) -> Array:
        """Standard deviation of the expected time of each row, once these rows are measured too."""

    @property
    def fits(self) -> int:
        """How many times its parameters were fitted to the measurements so far."""

    def fitted(self) -> Array:
        """Time of each row by the parameters fitted last, without what was learned of single candidates since."""

    def improved(self, candidates: Sequence[C], random: Random) -> list[C]:
        """The candidates with the launch settings that are fastest in a draw from the posterior of the model. Empty if
        the model has no such choices."""

    def doubt(self, unmeasured: Numbers, measured: Numbers, share: float) -> float:
        """Probability that a row of `unmeasured` is faster than the best of `measured` by more than this share."""

    @property
    def noise(self) -> float:
        """Standard deviation of one measurement; 0 if measuring a candidate again gives no new information."""


class Domain(Protocol[C]):
    """All candidates that a search may measure.

    The types of nodes, decisions and askers (what `step` needs besides the decision) belong to the domain; decisions
    are hashable.
    """

    def size(self) -> int | None:
        """The number of candidates; None if there are too many to count."""

    def at(self, number: int) -> C:
        """The candidate with this number, from 0. Raises IndexError, and ValueError if candidates are not numbered."""

    def walk(self, random: Random) -> C:
        """A random candidate: each decision equally likely."""

    def sample(self, random: Random) -> C:
        """A random candidate: uniform if the candidates can be counted, else by `walk`."""

    def likely(self, random: Random) -> C:
        """A random candidate drawn from the prior knowledge of launch settings; without any, as `sample`."""

    def near(self, candidate: C, random: Random) -> C:
        """A random neighbour of this candidate."""

    def __iter__(self) -> Iterator[C]:
        """All candidates, in the order of their numbers."""

    def start(self) -> Any:
        """The root node: nothing is decided."""

    def offers(self, node: Any) -> dict[Any, Any]:
        """Decision -> askers, for every possible next decision, in a fixed order. Empty if all is decided."""

    def weights(self, node: Any, offers: Mapping[Any, Any]) -> Sequence[int] | None:
        """The number of candidates below each offer; None if there are too many to count."""

    def step(self, node: Any, decision: Any, askers: Any) -> Any:
        """The node after one of the offers."""

    def path(self, candidate: C) -> tuple[Any, ...]:
        """The decisions that lead to a candidate."""

    def candidate(self, path: Sequence[Any]) -> C:
        """The candidate at the end of a path."""

    def surrogate(self) -> Surrogate[C]:
        """A model of the times of the candidates, with an empty pool."""

    @property
    def sampled(self) -> int:
        """The initial number of candidates in the model of a large space."""

    @property
    def hints(self) -> Sequence[C]:
        """Candidates that were the fastest elsewhere, fastest first; empty if nothing is known from elsewhere."""

    @property
    def uniform_first(self) -> bool:
        """Whether every second of the first measurements is a uniform draw: the model may be wrong before it is
        fitted."""

    @property
    def has_surrogate(self) -> bool:
        """Whether evaluating the model is fast compared with a measurement."""
