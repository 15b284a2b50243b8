"""Series of launches at different times: which candidates are timed again, and which series count."""

from __future__ import annotations

from dagc.ir.choice import Choice
from dagc.lab.launches import Timing, agree, middle, repeated, settled

FAST, NOISY, SLOW = (Choice.at("y", [("variant", name)]) for name in ("cpu.fast", "cpu.noisy", "cpu.slow"))
TIMING = Timing(seconds=0.006, rounds=3, every=True)
WIDE = (83e-6, 46e-6, 41e-6, 110e-6, 42e-6)  # a kernel of 11.3 us on an H100, disturbed


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
    asked: list[Choice] = []

    def measure(choice: Choice) -> tuple[float, ...]:
        asked.append(choice)
        return script[choice].pop(0)

    first = {FAST: (2.1e-5,), NOISY: (8e-3,) * 5, SLOW: (0.5,)}
    found = repeated(first, measure, TIMING, seed=0)
    assert found == {FAST: (2.1e-5, 2e-5), NOISY: (1.02e-5,)}
    assert sorted(asked) == [FAST, NOISY, NOISY], "agreed after two; after three; takes long, and is far from the best"


def test_it_ends_with_the_time_and_failures_add_nothing() -> None:
    assert repeated({FAST: (1e-3,)}, lambda _: (), TIMING, seed=0) == {}, "it failed each time: nothing was timed again"
    assert repeated({FAST: (1e-3,)}, lambda _: (9.0,), TIMING, seed=0, over=lambda: True) == {}
    asked: list[Choice] = []
    repeated({NOISY: WIDE}, lambda s: tuple(asked.append(s) or ()), TIMING, seed=0)
    assert asked == [NOISY], "nor is it tried once more"


def test_only_what_was_disturbed_is_timed_again_where_one_series_is_enough() -> None:
    first = {FAST: (2e-5, 2.01e-5, 2.02e-5, 2e-5, 2.1e-5), NOISY: WIDE, SLOW: (0.5, 0.9)}
    script = {NOISY: [(1.13e-5,) * 5, (1.14e-5,) * 5], FAST: [], SLOW: []}
    found = repeated(first, lambda s: script[s].pop(0), Timing(seconds=0.03, rounds=3), seed=0)
    assert found == {NOISY: (1.14e-5,) * 5}
    assert not script[NOISY], "the second does not agree with the first: a third decides"
    assert repeated(first, lambda _: (), Timing(rounds=1), seed=0) == {}


def test_what_varies_all_the_time_has_the_launches_of_all_series() -> None:
    series = [(3.0, 7.0, 7.1, 7.0, 3.1), (7.2, 3.0, 7.0), (3.1, 7.1, 7.0)]
    assert agree(series)
    assert not settled(series[:1])
    assert not settled(series[:2])
    rest = series[1:]
    assert repeated({NOISY: series[0]}, lambda _: rest.pop(0), Timing(rounds=3), seed=0) == {NOISY: sum(series, ())}
    assert settled([])
    assert settled([(1.0, 1.04, 1.02, 1.01, 1.05), ()])
    assert repeated({}, lambda _: (9.0,), TIMING, seed=0) == {}
