"""What a strategy is, and which there are.

A strategy is one class in one file of `dagc/lab/strategies`: `mcts_min.py` holds the strategy `mcts-min`, as a
class `Strategy`. Adding one needs no other file.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

from dagc.base.errors import UsageError
from dagc.base.resources import names_in
from dagc.lab.domain import C, Domain
from dagc.store.results import Outcome


class Strategy(Protocol[C]):
    """Proposes what to measure next, and learns from what was measured.

    `summary` is one line for the user. Two with the same domain, seed and observations propose the same.
    """

    summary: ClassVar[str]

    def __init__(self, domain: Domain[C], seed: int) -> None: ...

    def propose(self) -> C | None:
        """What to measure next; None where everything has been proposed."""

    def observe(self, candidate: C, outcome: Outcome) -> None:
        """A measurement: of the last proposal, or of anything else (a resumed search, a confirmation)."""


C_co = TypeVar("C_co", bound=Hashable, covariant=True)  # a candidate


@runtime_checkable
class Chooser(Protocol[C_co]):
    """A strategy that knows better than its smallest time which candidate is the fastest."""

    def best(self) -> C_co | None:
        """The current choice; None before the first measurement."""

    def ranked(self, number: int) -> Sequence[C_co]:
        """So many of what was measured, at most, that it expects to be the fastest; the first is `best`."""


@runtime_checkable
class Judge(Protocol):
    """A strategy that can say whether it is worth going on."""

    def doubt(self, share: float) -> float:
        """Probability that something unmeasured is faster than the current choice by more than this share of it."""


PREFERRED = ("model", "mcts-min")  # the first that suits is the default; the last suits everything


def default(domain: Domain[Any]) -> str:
    """The strategy that a domain is searched with where the user names none.

    A strategy that does not suit every domain has a class method `suits(domain)`.
    """
    for name in PREFERRED[:-1]:
        suits: Callable[[Domain[Any]], bool] | None = getattr(find(name), "suits", None)
        if suits is None or suits(domain):
            return name
    return PREFERRED[-1]


def names() -> tuple[str, ...]:
    """Names of all strategies, sorted; nothing is imported."""
    return names_in("lab/strategies")


def find(name: str) -> type[Strategy[Any]]:
    """The strategy of this name. Raises UsageError."""
    if name not in names():
        raise UsageError(f"there is no strategy `{name}`", f"one of: {', '.join(names())}")
    module = importlib.import_module(f"dagc.lab.strategies.{name.replace('-', '_')}")
    found: type[Strategy[Any]] = module.Strategy
    return found
