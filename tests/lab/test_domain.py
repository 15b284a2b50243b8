"""What is searched: domains of several configurations."""

from __future__ import annotations

from contextlib import suppress

from dagc.ir.choice import Choice
from dagc.lab.orders import domain_of
from dagc.space import TooManyStates
from tests.graphs import halo, spmv


def _configurations(number: int) -> list[Choice]:
    return [Choice((("block", i),)) for i in range(number)]


def test_equal_moves_are_counted_once() -> None:
    domain = domain_of((c, spmv()) for c in _configurations(3))
    first, *others = (configured.space.counter for configured in domain.spaces)
    assert all(other is first for other in others)
    assert (domain.size(), domain.more_than()) == (3 * 2036, 0)


def test_a_space_that_takes_long_to_count_has_a_bound_instead() -> None:
    domain = domain_of(((c, halo(6)) for c in _configurations(2)), work=20_000)
    assert domain.size() is None
    assert 10**6 < domain.more_than() < 5367658504764649454197598361600000
    assert len(domain.spaces[0].space.counter) < 1000  # 20 000 by 32 ops, and a few on the way back
    bound = domain.more_than()
    again = domain_of(((c, halo(6)) for c in _configurations(2)), work=20_000)
    with suppress(TooManyStates):
        again.spaces[0].space.count()
    assert again.more_than() == bound  # also after the limit was reached
    few = domain_of(((c, g) for c, g in zip(_configurations(2), (spmv(), halo(6)), strict=True)), work=20_000)
    assert few.more_than() > bound  # with the space that was counted
