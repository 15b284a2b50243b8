"""What is searched: domains of several configurations."""

from __future__ import annotations

from contextlib import suppress

from dagc.base.sample import Sample
from dagc.ir.choice import Choice
from dagc.ir.traversal import traversal_text
from dagc.lab.orders import domain_of
from dagc.space import TooManyStates
from dagc.store.results import Implementation, ImplementationId, ProgramRecord, Results
from dagc.study.outcome import earlier_samples
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


def test_a_configuration_of_a_file_from_before_a_decision_is_found() -> None:
    """Launches were not fused, and collectives as the messages, before these were decisions."""
    now = [Choice.of({"block": 64, "collectives": "same", "fuse.a": fused}) for fused in (0, 1)]
    domain = domain_of((c, spmv()) for c in now)
    assert domain.number(Choice.of({"block": 64})) == 0
    assert domain.number(now[1]) == 1
    assert domain.number(Choice.of({"block": 64, "collectives": "nccl"})) is None


def test_measurements_of_both_configurations_are_continued() -> None:
    now = Choice.of({"block": 64, "fuse.a": 0})
    domain = domain_of([(now, spmv())])
    text = traversal_text(domain.first(0).traversal, domain.spaces[0].graph)
    program = ProgramRecord("p", "p.dag", "", (), ())
    written = Choice.of({"block": 64}), now
    each = [Implementation(ImplementationId(n), c, text, (Sample(1e-5 * n),)) for n, c in enumerate(written, 1)]
    known = earlier_samples(Results(program, (), tuple(each)), domain)
    assert [s.value for s in known[domain.first(0)]] == [1e-5, 2e-5]
