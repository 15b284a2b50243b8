"""Orders and launch settings as one space: numbers, neighbours, results files, and what the model makes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random

import numpy as np
import pytest

from dagc.base.sample import Sample
from dagc.choice.types import Site
from dagc.ir.choice import Choice
from dagc.lab.candidate import Candidate, ConfiguredSpace
from dagc.lab.model.estimate import Model
from dagc.lab.model.pool import Pool
from dagc.lab.orders import Orders, steps_of
from dagc.lab.settings import timed_alone
from dagc.lab.strategy import find
from dagc.space import Space
from tests.graphs import make_graph, spmv

BLOCKS = tuple(Choice.at("yl", [("bx", x), ("by", y)]) for x in (32, 64, 128) for y in (1, 2))
LINES = tuple(Choice.at("yr", [("bx", x)]) for x in (64, 128, 256, 512))


def _configuration(transport: str) -> Choice:
    made = {"transport": transport, "yl.bx": 32, "yl.by": 1, "yr.bx": 64, "streams": 2}
    return Choice.of(made)


@pytest.fixture(scope="module")
def domain() -> Orders:
    """Two configurations; `yr` has a model that says that larger blocks are faster."""
    sites = Site("yl", BLOCKS), Site("yr", LINES, (8e-6, 4e-6, 2e-6, 1e-6))
    space = Space(spmv())
    return Orders([ConfiguredSpace(_configuration(t), space, sites) for t in ("mpi_cuda", "peer")])


def test_numbers_and_paths_lead_to_each_candidate_and_back(domain: Orders) -> None:
    assert domain.size() == 2 * 2036 * 6 * 4
    seen = set()
    for number in range(0, 2 * 2036 * 24, 997):
        candidate = domain.at(number)
        seen.add(candidate)
        assert domain.candidate(domain.path(candidate)) == candidate
        assert domain.find(domain.configuration(candidate)) == (candidate.space, candidate.choices)
    assert len(seen) == len(range(0, 2 * 2036 * 24, 997))
    first = [candidate for _, candidate in zip(range(60), domain, strict=False)]
    assert first == [domain.at(i) for i in range(60)]
    with pytest.raises(IndexError):
        domain.at(2 * 2036 * 24)


def test_the_decision_process_counts_what_is_below(domain: Orders) -> None:
    node, random = domain.start(), Random(5)
    sizes = [sum(domain.weights(node, domain.offers(node)) or ())]
    path = []
    while offers := domain.offers(node):
        weights = domain.weights(node, offers)
        assert weights is not None
        assert len(weights) == len(offers)
        decision = random.choice(list(offers))
        node = domain.step(node, decision, offers[decision])
        path.append(decision)
    assert sizes == [domain.size()]
    assert domain.finished(node)
    assert domain.candidate(path).choices == node.choices


def test_configurations_of_files(domain: Orders) -> None:
    """A file of a search without launch settings has those of its configuration; other values are not searched."""
    assert domain.find(_configuration("peer")) == (1, (BLOCKS[0], LINES[0]))
    decisions = dict(_configuration("peer")) | {"yr.bx": 512}
    assert domain.find(Choice.of(decisions)) == (1, (BLOCKS[0], LINES[3]))
    for name, value in (("yr.bx", 1024), ("transport", "nccl"), ("other", 1)):
        elsewhere = Choice.of(decisions | {name: value})
        assert domain.find(elsewhere) is None
        assert domain.number(elsewhere) is None


def test_neighbours_change_an_order_a_setting_or_the_configuration(domain: Orders) -> None:
    random = Random(3)
    start = domain.at(2036 * 24 + 12345)
    kinds: Counter[str] = Counter()
    for _ in range(400):
        near = domain.near(start, random)
        list(domain.spaces[near.space].space.replay(near.traversal))
        differ = (
            ["configuration"] * (near.space != start.space)
            + ["setting"] * (near.choices != start.choices)
            + ["order"] * (near.traversal != start.traversal)
        )
        kinds.update([" ".join(differ)])
    assert min(kinds[one] for one in ("configuration", "setting", "order")) > 20
    assert sum(n for kind, n in kinds.items() if " " in kind) < 200


def test_steps_of_settings_change_one_tunable_by_one_value() -> None:
    for block, others in steps_of(BLOCKS).items():
        for other in others:
            changed = [(a, b) for a, b in zip(block.items(), other.items(), strict=True) if a != b]
            assert len(changed) == 1
            values = sorted({s[changed[0][0][0]] for s in BLOCKS})
            assert (changed[0][0][1], changed[0][1][1]) in [*pairwise(values), *((b, a) for a, b in pairwise(values))]
    assert sum(map(len, steps_of(BLOCKS).values())) == 2 * (2 * 2 + 3)


def test_what_is_known_beforehand_is_drawn_more_often(domain: Orders) -> None:
    random = Random(1)
    drawn = [domain.likely(random) for _ in range(300)]
    by = Counter(candidate.choices[1] for candidate in drawn)
    assert by[LINES[3]] > 200 > by[LINES[2]] > by[LINES[0]]
    assert len({candidate.choices[0] for candidate in drawn}) == len(BLOCKS)
    assert 100 < sum(candidate.space for candidate in drawn) < 200


def test_simulated_times_have_the_derivatives_that_are_said(domain: Orders) -> None:
    random, pool = Random(2), Pool(domain.spaces)
    pool.extend(domain.sample(random) for _ in range(80))
    rows, draw = np.arange(len(pool)), np.random.default_rng(0)
    parameters = pool.prior + pool.spread(pool.prior) * draw.uniform(-0.5, 0.5, len(pool.prior))
    times, slopes = pool.paths(parameters, rows)
    assert pool.times(parameters) == pytest.approx(times)
    step = 1e-6 * pool.spread(pool.prior) * draw.uniform(-1, 1, len(pool.prior))
    assert (pool.times(parameters + step) - times) / 1e-6 == pytest.approx(slopes @ step / 1e-6, abs=1e-9)


def test_what_the_model_says_of_settings_is_relative_to_the_first(domain: Orders) -> None:
    pool, first = Pool(domain.spaces), domain.first(0)
    pool.extend(Candidate(0, first.traversal, (BLOCKS[2], line)) for line in LINES)
    alone = np.zeros(len(pool.prior))
    alone[_level(pool, "yr")] = 80.0
    assert pool.times(alone) == pytest.approx([80.0, 40.0, 20.0, 10.0])


def _level(pool: Pool, op: str) -> int:
    (number,) = (number for name, number in pool.costs.numbers.items() if name.startswith(f"kernel {op}"))
    return number


def _machine(domain: Orders, candidates: Sequence[Candidate]) -> list[float]:
    """Seconds: `yl` takes 120 us under its fourth block and up to 40 % more for each step from there; `yr` takes 30
    times what the model says, the other way round. The rest is as the model has it."""
    pool = Pool(domain.spaces)
    pool.extend(candidates)
    own = {
        _level(pool, "yl"): np.array([120e-6 * 1.4 ** abs(BLOCKS.index(c.choices[0]) - 3) for c in pool.candidates]),
        _level(pool, "yr"): np.array([30e-6 * (1 + LINES.index(c.choices[1])) for c in pool.candidates]),
    }
    times = dict(zip(pool.candidates, pool.batch.times(pool.costs.prior, own=own), strict=True))
    return [float(times[c]) for c in candidates]


def test_settings_are_learned_through_whole_times(domain: Orders) -> None:
    """Levels far from their prior, a model that is wrong, and orders in which the ops overlap."""
    random, model = Random(4), Model(domain.spaces)
    seen = [domain.sample(random) for _ in range(40)]
    model.extend(seen)
    for candidate, time in zip(seen, _machine(domain, seen), strict=True):
        model.observe(candidate, time * random.gauss(1, 0.01))
    model.estimate()
    unseen = [domain.sample(random) for _ in range(100)]
    model.extend(unseen)
    mean = model.estimate()[0]
    off = [mean[model.row[c]] / t - 1 for c, t in zip(unseen, _machine(domain, unseen), strict=True)]
    assert np.median(np.abs(off)) < 0.06
    drawn = Counter(c.choices for _ in range(40) for c in model.improved(seen[:1], random))
    assert drawn[BLOCKS[3], LINES[0]] > 20


def test_the_search_finds_the_settings_of_the_kernels_that_count(domain: Orders) -> None:
    strategy = find("model")(domain, 0)
    for _ in range(40):
        candidate = strategy.propose()
        strategy.observe(candidate, Sample(_machine(domain, [candidate])[0]))
    best, first = (BLOCKS[3], LINES[0]), (BLOCKS[0], LINES[0])
    everything = [Candidate(c.space, c.traversal, best) for c in domain if c.choices == first]
    assert _machine(domain, [strategy.best()])[0] <= 1.05 * min(_machine(domain, everything))


def test_a_space_without_settings_has_none() -> None:
    plain = Orders([ConfiguredSpace(Choice(()), Space(make_graph([("a", True), ("b", True)], [])))])
    assert all(candidate.choices == () for candidate in plain)
    assert Model(plain.spaces).improved([plain.at(0)], Random(0)) == []
    assert plain.configuration(plain.at(0)) == Choice(())


def test_settings_that_fail_are_left_alone(domain: Orders) -> None:
    """Of `yl`, no block of 128 threads in x runs: a few failures, not one for each order."""
    strategy, failures = find("model")(domain, 1), 0
    for _ in range(30):
        candidate = strategy.propose()
        fails = candidate.choices[0] in BLOCKS[4:]
        failures += fails
        value = float("nan") if fails else _machine(domain, [candidate])[0]
        strategy.observe(candidate, Sample(value, failure="run failed" if fails else ""))
    assert failures <= 6
    assert strategy.best().choices[0] == BLOCKS[3]


def test_launches_are_timed_where_they_may_gain() -> None:
    """Once of a short op, and of a variant that is slow; most of the op that takes most of the time."""
    asked: dict[str, int] = {"short": 0, "long": 0, "slow": 0}

    def of(name: str, us: float) -> tuple[Site, Callable[[Choice], Sample]]:
        def measure(choice: Choice) -> Sample:
            asked[name] += 1
            return Sample(1e-6 * us * (1 + 0.05 * LINES.index(choice)))

        return Site("long" if name == "slow" else name, LINES, (1e-6, 1.1e-6, 1.2e-6, 1.3e-6)), measure

    timed_alone([of("short", 0.1), of("long", 100.0), of("slow", 900.0)], 4, seed=0)
    assert asked["short"] == asked["slow"] == 1
    assert asked["long"] >= 2
    timed_alone([of("short", 0.1), of("long", 100.0)], 4, seed=0, late=lambda: asked["short"] == 2)
    assert asked["short"] == 2
    assert asked["long"] <= 4


def test_a_model_that_misreads_a_kernel_does_not_end_its_timings() -> None:
    """It predicts one setting to be far faster than all others, which it is not, and some that would take a day."""
    choices = tuple(Choice((("k.bx", bx), ("k.form.coarsen", c))) for bx in range(1, 13) for c in range(1, 7))
    prior = [0.05 * 1.3 ** (i % 7) for i in range(72)]
    prior[:3], prior[40] = [8e4, 8e4, 8e4], 1e-4
    true = {c: 1e-3 * (4 + abs(c.decisions[0][1] - 3) + c.decisions[1][1]) for c in choices} | {choices[40]: 30e-3}
    for seed in range(4):
        asked: list[float] = []

        def measure(choice: Choice, asked: list[float] = asked) -> Sample:
            asked.append(true[choice])
            return Sample(true[choice])

        (timed,) = timed_alone([(Site("k", choices, tuple(prior)), measure)], 60, seed=seed)
        assert min(asked) <= 1.2 * min(true.values())
    space = ConfiguredSpace(
        _configuration("peer"), Space(spmv()), (replace(timed, name="yl", prior=tuple(prior), doubts=()),)
    )
    strategy = find("model")(Orders([space]), 0)
    for _ in range(24):  # ended with a matrix that is not positive definite
        candidate = strategy.propose()
        strategy.observe(candidate, Sample(true[candidate.choices[0]]))


def test_what_single_launches_say_of_settings() -> None:
    """Two timings: these settings, those beside them, and which cannot be launched; a site of which all fail stays."""
    site = Site("yr", LINES, (1.3e-6, 1.2e-6, 1.1e-6, 1e-6))
    asked: list[int] = []

    def measure(choice: Choice) -> Sample:
        number = LINES.index(choice)
        asked.append(number)
        return Sample(failure="wrong result") if number == 3 else Sample(1e-6 * (50.0 + number))

    (timed,) = timed_alone([(site, measure)], 3, seed=0)
    assert len(set(asked)) == 3
    assert timed.prior[3] == float("inf")
    assert all(40e-6 < timed.prior[number] < 60e-6 for number in asked if number != 3)
    assert min(timed.doubts) >= 0.03
    assert timed_alone([(site, lambda choice: Sample(failure="run failed"))], 4, seed=0) == [site]
    pool = Pool([ConfiguredSpace(_configuration("peer"), Space(spmv()), (Site("yl", BLOCKS), timed))])
    level = _level(pool, "yr")
    assert pool.prior[level] == pytest.approx(timed.prior[0])
    assert pool.spread(pool.prior)[level] == pytest.approx(0.15 * timed.prior[0])
    assert not pool.work()[level]
