"""Launch settings as a domain: every strategy of the laboratory searches them."""

from __future__ import annotations

import math
from itertools import product
from random import Random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagc.base.sample import Sample
from dagc.ir.choice import Choice
from dagc.lab.settings import LaunchSettings
from dagc.lab.strategy import find, names

BLOCKS: tuple[Choice, ...] = tuple(
    Choice.at("k", [("bx", x), ("by", y)])
    for x, y in product((4, 8, 16, 32, 64, 128, 256), (1, 2, 4, 8, 16))
    if 32 <= x * y <= 1024
)


@st.composite
def legal(draw: st.DrawFn) -> tuple[Choice, ...]:
    values = draw(st.lists(st.lists(st.integers(1, 512), min_size=1, max_size=4, unique=True), min_size=1, max_size=3))
    every = [Choice.at("k", zip("abc", combination, strict=False)) for combination in product(*values)]
    return tuple(draw(st.lists(st.sampled_from(every), min_size=1, unique=True)))


@given(legal())
def test_the_decisions_lead_to_every_setting_and_to_no_other(choices: tuple[Choice, ...]) -> None:
    domain = LaunchSettings(choices)
    open_, found = [domain.start()], []
    while open_:
        node = open_.pop()
        offers = domain.offers(node)
        if not offers:
            found.append(domain.candidate(node))
        open_ += [domain.step(node, decision, askers) for decision, askers in offers.items()]
    assert sorted(found) == sorted(choices)
    assert all(domain.near(s, Random(1)) in choices for s in choices)


@pytest.mark.parametrize("name", names())
@given(legal(), st.integers(0, 5))
def test_a_strategy_proposes_each_setting_once(name: str, choices: tuple[Choice, ...], seed: int) -> None:
    strategy = find(name)(LaunchSettings(choices), seed)
    proposed = []
    while (candidate := strategy.propose()) is not None:
        proposed.append(candidate)
        strategy.observe(candidate, Sample(1e-6 * (1 + len(proposed))))
    assert sorted(proposed) == sorted(choices)


def _truth(seed: int) -> tuple[dict[Choice, float], list[float]]:
    """Times of a kernel that likes one block, and a performance model's opinion, which misses up to 30 % smoothly."""
    random = Random(seed)
    best, off = (random.uniform(3, 8), random.uniform(0, 4)), (random.gauss(0, 0.1), random.gauss(0, 0.1))
    times, prior = {}, []
    for s in BLOCKS:
        x, y = (math.log2(v) for v in s.values())
        time = 50e-6 * (1 + 0.08 * (x - best[0]) ** 2 + 0.1 * (y - best[1]) ** 2)
        times[s] = time
        prior.append(1e5 * time * math.exp(off[0] * (x - 5) + off[1] * (y - 2)))
    return times, prior


def _regret(name: str, seed: int, measured: int, with_prior: bool) -> float:
    times, prior = _truth(seed)
    strategy, noise = find(name)(LaunchSettings(BLOCKS, prior if with_prior else ()), seed), Random(seed + 1000)
    seen = []
    for _ in range(measured):
        candidate = strategy.propose()
        strategy.observe(candidate, Sample(times[candidate] * noise.gauss(1, 0.01)))
        seen.append(times[candidate])
    return min(seen) / min(times.values()) - 1


def test_the_model_needs_fewer_measurements_than_chance() -> None:
    """With what a performance model says, and without."""
    chance = fmean(_regret("random", seed, 6, False) for seed in range(40))
    alone = fmean(_regret("model", seed, 6, False) for seed in range(40))
    guided = fmean(_regret("model", seed, 6, True) for seed in range(40))
    assert guided < alone < chance
    assert guided < 0.02


def test_an_infinite_prior_is_not_fatal() -> None:
    """A model that says that a setting cannot be launched may be wrong about it."""
    domain = LaunchSettings(BLOCKS, [math.inf] * len(BLOCKS))
    strategy = find("model")(domain, 0)
    first = strategy.propose()
    strategy.observe(first, Sample(failure="run failed"))
    assert strategy.propose() != first
