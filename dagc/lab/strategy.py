"""The protocol of strategies, and the available ones.

A strategy is a class `Strategy` in a file of `dagc/lab/strategies`: `mcts_min.py` has the strategy `mcts-min`. Adding
one needs no other file.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

from dagc.base.errors import UsageError
from dagc.base.resources import names_in
from dagc.base.sample import Sample
from dagc.lab.domain import C, Domain


class Proposer(Protocol[C]):
    """Decides what is measured next, and learns from measurements: orders, settings, cells of several sizes, inputs."""

    def propose(self) -> C | None:
        """The next candidate to measure; None if nothing more is worth it."""

    def observe(self, candidate: C, sample: Sample) -> None:
        """Learn from a measurement of the last proposal, or of any other candidate (resumed search, confirmation)."""


class Strategy(Proposer[C], Protocol[C]):
    """A proposer that can search any domain.

    `summary`: one line for the user. Equal domain, seed and observations give equal proposals.
    """

    summary: ClassVar[str]

    def __init__(self, domain: Domain[C], seed: int) -> None: ...


C_co = TypeVar("C_co", bound=Hashable, covariant=True)  # a candidate
C_contra = TypeVar("C_contra", bound=Hashable, contravariant=True)


@runtime_checkable
class Choosing(Protocol[C_co]):
    """A strategy whose model chooses among measured candidates."""

    def best(self) -> C_co | None:
        """The current choice, of all or of the group that was measured last; None before the first measurement."""


@runtime_checkable
class RankingStrategy(Choosing[C_co], Protocol[C_co]):
    """A strategy that can rank measured candidates better than by their times."""

    def ranked(self, number: int) -> Sequence[C_co]:
        """At most `number` measured candidates, the expected fastest first; the first is `best`."""


@runtime_checkable
class Predictor(Protocol[C_contra]):
    """A strategy with a model that predicts measurements."""

    def expected(self, candidate: C_contra) -> tuple[float, float] | None:
        """The expected value of a measurement of a candidate that was not measured yet, and its standard deviation;
        None if the model says nothing about it."""


@runtime_checkable
class Modelled(Protocol):
    """A proposer that can go on without its model, with what it has observed."""

    def give_up(self) -> None: ...


@runtime_checkable
class Batching(Protocol[C_contra]):
    """A proposer that takes into account what is being measured elsewhere. Others may propose that again; it is then
    waited for."""

    def await_sample(self, candidate: C_contra) -> None:
        """This candidate is being measured, and observed later."""


@runtime_checkable
class Judge(Protocol):
    """A strategy that can estimate whether a better candidate is left."""

    def doubt(self, share: float) -> float:
        """Probability that an unmeasured candidate is faster than the current choice by more than this share."""


PREFERRED = ("model", "mcts-min")  # the first suitable one is the default; the last is always suitable


def default(domain: Domain[Any]) -> str:
    """The default strategy for a domain.

    A strategy that is not suitable for every domain has a class method `suits(domain)`.
    """
    for name in PREFERRED[:-1]:
        suits: Callable[[Domain[Any]], bool] | None = getattr(find(name), "suits", None)
        if suits is None or suits(domain):
            return name
    return PREFERRED[-1]


def fallback(domain: Domain[C], seed: int) -> Strategy[C]:
    """A strategy without a model, for a search whose model is given up."""
    return find(PREFERRED[-1])(domain, seed)


def names() -> tuple[str, ...]:
    """Names of all strategies, sorted. Imports none of them."""
    return names_in("lab/strategies")


def find(name: str) -> type[Strategy[Any]]:
    """The strategy of this name. Raises UsageError."""
    if name not in names():
        raise UsageError(f"unknown strategy `{name}`", f"one of: {', '.join(names())}")
    module = importlib.import_module(f"dagc.lab.strategies.{name.replace('-', '_')}")
    strategy: type[Strategy[Any]] = module.Strategy
    return strategy
