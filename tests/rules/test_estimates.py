"""Estimated times: what is filled in, what is kept, and what rules make of it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from dagc.base.errors import UsageError
from dagc.cli.main import main
from dagc.ir.choice import Choice
from dagc.ir.program import Graph
from dagc.ir.traversal import Issue, Traversal, traversal_text
from dagc.lab.candidate import Candidate, ConfiguredSpace
from dagc.lab.model.calibrate import fitted_simulation
from dagc.lab.orders import Orders
from dagc.learn.classes import classify_times, with_estimates
from dagc.learn.features import Samples, in_order
from dagc.learn.judging import FEWEST, accuracy, estimate
from dagc.learn.text import Findings, render
from dagc.learn.tree import learn
from dagc.learn.types import Example
from dagc.space import Space
from dagc.study.loaded import estimated
from tests.graphs import make_graph, spmv
from tests.rules.samples import NONE, h200_outliers, h200_samples

NOISE = 0.01
RECORDED = Path(__file__).parents[2] / "benchmarks/results/2026-11-21-4xh200-explore"


def slow(graph: Graph, traversal: Traversal) -> bool:
    """Is yl issued after post_send?"""
    names = [graph.ops[e.op].name for e in traversal.entries if isinstance(e, Issue)]
    return names.index("yl") > names.index("post_send")


def made_up(seed: int, outliers: int = 0) -> tuple[list[Example], list[Example]]:
    """(60 measured of the SpMV, all of it without noise): 20 % slower where yl is issued after post_send."""
    graph, random = spmv(), Random(seed)
    whole = []
    for traversal in Space(graph):
        whole.append(Example(graph, NONE, traversal, 1e-4 * (1.2 if slow(graph, traversal) else 1.0)))
    measured = [replace(s, value=s.value * random.gauss(1, NOISE)) for s in random.sample(whole, 60)]
    fast = [i for i, s in enumerate(measured) if s.value < 1.1e-4]
    for i in fast[:outliers]:
        measured[i] = replace(measured[i], value=measured[i].value * 1.2)
    return measured, whole


def text(sample: Example) -> str:
    return sample.configuration.text + traversal_text(sample.traversal, sample.graph)


def test_the_space_is_filled_in() -> None:
    measured, whole = made_up(1)
    found = estimated(measured, NOISE).samples
    assert sorted(map(text, found)) == sorted(map(text, whole))
    assert sum(s.measurements for s in found) >= 0.9 * len(measured)
    truth = {text(s): s.value for s in whole}
    errors = [abs(s.value / truth[text(s)] - 1) for s in found]
    assert sum(e < 3 * NOISE for e in errors) >= 0.95 * len(found)


@pytest.mark.parametrize("seed", range(3))
def test_an_outlier_is_replaced_and_the_others_keep_their_times(seed: int) -> None:
    measured, _ = made_up(seed, outliers=1)
    before = {text(s): s for s in measured}
    found = {text(s): s for s in estimated(measured, NOISE).samples}
    (outlier,) = (text(s) for s in measured if s.value > 1.1e-4 and not slow(s.graph, s.traversal))
    assert found[outlier].measurements == 0
    assert found[outlier].value < 1.1e-4
    improbable = {key for key in before if not found[key].measurements}
    assert len(improbable) <= 0.1 * len(measured)
    assert all(found[key] == before[key] for key in before.keys() - improbable)


def test_a_median_of_three_is_kept() -> None:
    measured, _ = made_up(2, outliers=3)
    often = [replace(s, measurements=3) for s in measured]
    found = {text(s): s for s in estimated(often, NOISE).samples}
    assert all(found[text(s)] == s for s in often)


def test_the_order_of_samples_does_not_matter() -> None:
    measured, _ = made_up(3, outliers=2)
    assert estimated(measured, NOISE) == estimated(measured[::-1], NOISE)
    assert in_order(measured) == in_order(measured[::-1])


def test_the_noise_need_not_be_known() -> None:
    measured, whole = made_up(4)
    assert len(estimated(measured).samples) == len(whole)


def test_times_of_the_others_are_not_looked_at() -> None:
    measured, whole = made_up(5)
    known = {text(s) for s in measured}
    others = [s for s in whole if text(s) not in known]
    graph = measured[0].graph
    domain = Orders([ConfiguredSpace(NONE, Space(graph))])
    candidates = [Candidate(0, s.traversal) for s in (*measured, *others)]
    one, other = (
        estimate(
            measured,
            [replace(s, value=t) for s in others],
            fitted_simulation(domain.spaces, candidates, len(measured)),
            NOISE,
        )
        for t in (math.nan, 1.0)
    )
    assert one == other


def test_too_few() -> None:
    measured, _ = made_up(6)
    with pytest.raises(UsageError, match="at least 10"):
        estimated(measured[: FEWEST - 1], NOISE)
    assert estimated(measured[:FEWEST], NOISE).samples
    with pytest.raises(ValueError, match="at least 10"):
        estimate(measured[: FEWEST - 1], [], lambda seconds, weights: seconds)


def test_several_configurations() -> None:
    first, second = Choice((("k", 1),)), Choice((("k", 2),))
    graph = make_graph([("a", True), ("b", True), ("c", False)], [("a", "c")], 2)
    space = list(Space(graph))
    assert 2 * len(space) > FEWEST
    samples = [Example(graph, c, t, 1e-5 * f) for c, f in ((first, 1), (second, 3)) for t in space]
    found = estimated(samples[:-2] if len(samples) > FEWEST + 1 else samples, NOISE).samples
    assert len(found) == len(samples)
    assert all(s.value == pytest.approx(1e-5 if s.configuration == first else 3e-5, rel=0.2) for s in found)


def test_estimates_draw_no_boundary() -> None:
    times = [1.0] * 30 + [1.01] * 30 + [2.0] * 30
    measured = classify_times(times, 0.05)
    assert [c.count for c in measured.classes] == [60, 30]
    found = with_estimates(measured, [*times, 1.3, 1.4, 2.5])
    assert [b.value for b in found.boundaries] == [b.value for b in measured.boundaries]
    assert [(c.count, c.fastest, c.slowest) for c in found.classes] == [(62, 1.0, 1.4), (31, 2.0, 2.5)]
    assert found.times == measured.times


def test_rules_say_what_is_estimated() -> None:
    measured, whole = made_up(7)
    estimates = estimated(measured, NOISE)
    samples = estimates.samples
    learned = learn(samples, NOISE)
    assert len(learned.samples) == len(whole)
    assert learned.measured == sum(s.measurements > 0 for s in samples)
    assert len(learned.labels) == sum(c.count for c in learned.classes.classes) == len(whole)
    line = f"Times of {len(whole) - learned.measured} are estimated from {learned.measured} that were measured"
    assert line in render(Findings(learned, estimates=estimates))
    assert line in render(Findings(learned, estimates=estimates), "md")
    assert "estimated" not in render(Findings(learn(measured, NOISE)))
    found = accuracy(learned, Samples.of(whole), [s.value for s in whole])
    assert found.learned_from == learned.measured


def test_estimates_of_the_h200_data_classify_better() -> None:
    """Host-staged MPI, 100 of 2036 drawn uniformly, medians of five; averaged over three draws."""
    whole, noise = h200_samples(), 0.027
    table, times = Samples.of(whole), [s.value for s in whole]
    gains = []
    for seed in range(3):
        part = Random(seed).sample(whole, 100)
        plain = learn(part, noise, outliers=h200_outliers())
        better = learn(estimated(part, noise).samples, noise, outliers=h200_outliers())
        gains.append(accuracy(better, table, times).tolerant - accuracy(plain, table, times).tolerant)
    assert np.mean(gains) > 0


def test_how_far_estimates_are_off() -> None:
    measured, _ = made_up(8)
    found = estimated(measured, NOISE)
    assert found.error < 2 * NOISE
    assert not found.weak
    random = Random(8)
    noise_alone = [replace(s, value=random.gauss(1, NOISE)) for s in measured]
    nothing = estimated(noise_alone, NOISE)
    assert nothing.weak
    assert nothing.error == pytest.approx(nothing.spread, rel=0.5)
    assert "hardly better than that median" in render(Findings(learn(nothing.samples, NOISE), estimates=nothing))
    assert "hardly better than that median" not in render(Findings(learn(found.samples, NOISE), estimates=found))


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """`dagc rules --estimate` of a recording that holds 500 of 2036 orders."""
    path = RECORDED / "spmv-bcsstk32-mpi_cuda.db"
    assert main(["rules", str(path), "--estimate", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["implementations"], found["measured"]) == (2036, 500)
    assert sum(c["count"] for c in found["classes"]) == 2036
    assert 0 < found["estimates"]["error"] < found["estimates"]["spread"] / 2
    assert main(["rules", str(path), "--format", "json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert (plain["implementations"], plain["measured"], plain["estimates"]) == (500, 500, None)
    assert [b["seconds"] for b in plain["boundaries"]] == [b["seconds"] for b in found["boundaries"]]
