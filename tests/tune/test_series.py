"""Series of launches at different times: which candidates are timed again, and which series count."""

from __future__ import annotations

from dagc.choice.types import Settings
from dagc.lab.launches import Timing, agree, middle, repeated

FAST, NOISY, SLOW = ((("variant", name),) for name in ("cpu.fast", "cpu.noisy", "cpu.slow"))
TIMING = Timing(seconds=0.006, rounds=3)


def test_series_that_agree_count_together_and_a_disturbed_one_does_not() -> None:
    assert middle([(1.0, 1.02), (1.05,)]) == (1.0, 1.02, 1.05)
    assert middle([(9.0, 8.0), (1.0, 1.2)]) == (1.0, 1.2), "of two the faster one"
    assert middle([(9.0, 8.0), (1.0, 1.2), (1.5,)]) == (1.5,), "of three the one in the middle"
    assert middle([()]) == ()
    assert agree([(1.0,), (1.09,), ()])
    assert not agree([(1.0,), (1.2,)])


def test_what_is_slow_once_is_timed_again() -> None:
    """As on cores where something else ran: 8 ms instead of 10 us, in all launches of the first series."""
    script = {FAST: [(2e-5,)] * 2, NOISY: [(1e-5, 1.01e-5), (1.02e-5,)], SLOW: []}
    asked: list[Settings] = []

    def measure(settings: Settings) -> tuple[float, ...]:
        asked.append(settings)
        return script[settings].pop(0)

    first = {FAST: (2.1e-5,), NOISY: (8e-3,) * 5, SLOW: (0.5,)}
    found = repeated(first, measure, TIMING, seed=0)
    assert found == {FAST: (2.1e-5, 2e-5), NOISY: (1.02e-5,), SLOW: (0.5,)}
    assert sorted(asked) == [FAST, NOISY, NOISY], "agreed after two; after three; takes long, and is far from the best"


def test_it_ends_with_the_time_and_failures_add_nothing() -> None:
    assert repeated({FAST: (1e-3,)}, lambda _: (), TIMING, seed=0) == {FAST: (1e-3,)}
    assert repeated({FAST: (1e-3,)}, lambda _: (9.0,), TIMING, seed=0, over=lambda: True) == {FAST: (1e-3,)}
    assert repeated({}, lambda _: (9.0,), TIMING, seed=0) == {}
