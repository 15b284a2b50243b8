"""Bundles of decisions that act together, on machines whose times are known and on what four H200s have measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from dagc.base.errors import UsageError
from dagc.base.sample import TIME, Sample
from dagc.cli.main import main
from dagc.ir.choice import Choice
from dagc.ir.traversal import Issue, Traversal
from dagc.lab.candidate import Candidate, ConfiguredSpace
from dagc.lab.engine import UNKEPT
from dagc.lab.orders import Orders
from dagc.learn.bundles import MOST_TIMED, Bundles, BundlesView, Route, difference_of
from dagc.learn.pairs import PairTiming, TimingOptions, time_pairs
from dagc.recipes.explain import explain
from dagc.space import Space
from dagc.stages.options import ExplainOptions
from dagc.study.explanation import one_by_one
from tests.graphs import spmv
from tests.imports import ROOT

SPACE = Space(spmv())
DOMAIN = Orders([ConfiguredSpace(Choice.of({"transport": t}), SPACE) for t in ("mpi_cuda", "peer")])


def entry(traversal: Traversal, name: str) -> int:
    op = SPACE.graph.by_name(name).id
    return next(i for i, e in enumerate(traversal.entries) if e.op == op)


def stream(traversal: Traversal, name: str) -> int | None:
    one = traversal.entries[entry(traversal, name)]
    assert isinstance(one, Issue)
    return one.stream


def late(traversal: Traversal) -> bool:
    return entry(traversal, "yl") > entry(traversal, "post_send")


def swapped(traversal: Traversal) -> bool:
    return entry(traversal, "wait_send") < entry(traversal, "wait_recv")


def together(traversal: Traversal) -> bool:
    return stream(traversal, "yl") == stream(traversal, "pack")


@dataclass
class Known:
    """Times of a formula, with noise of 1 %. Also what `difference_of` asks."""

    formula: Callable[[Candidate], float]
    random: Random = field(default_factory=lambda: Random(3))
    timed: int = 0

    def measure(self, candidate: Candidate) -> Sample:
        return Sample(1e-5 * self.formula(candidate) * self.random.gauss(1, 0.01), iterations=3)

    def __call__(self, base: Candidate, candidates: Sequence[Candidate]) -> Sequence[PairTiming]:
        self.timed += len(candidates)
        return time_pairs(base, candidates, self, UNKEPT, TimingOptions(pairs=20, tolerance=0.002, noise=0.01)).timings


def pair(first: Callable[[Traversal], bool], second: Callable[[Traversal], bool], seed: int = 0) -> list[Candidate]:
    """An implementation with neither, and one with both."""
    random = Random(seed)
    drawn = [SPACE.at(random.randrange(2036)) for _ in range(400)]
    neither = next(t for t in drawn if not first(t) and not second(t))
    both = next(t for t in drawn if first(t) and second(t))
    return [Candidate(0, neither), Candidate(0, both)]


def changed(found: Bundles, what: Callable[[Traversal], bool]) -> list[int]:
    """The bundles that change an answer."""
    each = enumerate(found.bundles)
    return [i for i, one in each if what(one.candidate.traversal) != what(found.best.traversal)]


@pytest.mark.parametrize("seed", range(3))
def test_what_acts_alone_is_a_bundle_each(seed: int) -> None:
    best, other = pair(late, swapped, seed)
    machine = Known(lambda c: (1 + 0.1 * late(c.traversal)) * (1 + 0.05 * swapped(c.traversal)))
    found = difference_of(DOMAIN, best, other, machine)
    assert len(found.bundles) == 2
    assert changed(found, late) == [0]
    assert changed(found, swapped) == [1]
    assert found.together == pytest.approx(found.whole.ratio, rel=0.015)
    assert found.complete
    assert machine.timed <= 2 * found.decisions + 8


@pytest.mark.parametrize("seed", range(3))
def test_what_acts_together_is_one_bundle(seed: int) -> None:
    """Each alone changes nothing."""
    best, other = pair(late, together, seed)
    machine = Known(lambda c: 1 + 0.2 * (late(c.traversal) and together(c.traversal)))
    (bundle,) = difference_of(DOMAIN, best, other, machine).bundles
    assert bundle.steps > 1
    assert late(bundle.candidate.traversal)
    assert together(bundle.candidate.traversal)
    assert bundle.timing.ratio == pytest.approx(1.2, abs=0.02)
    assert bundle.partial is not None
    assert bundle.partial.ratio == pytest.approx(1.0, abs=0.02)


def test_without_a_difference_there_is_no_bundle() -> None:
    best, other = pair(late, swapped)
    found = difference_of(DOMAIN, best, other, Known(lambda _: 1.0))
    assert not found.bundles
    text = BundlesView.of(DOMAIN, found, 7, ["a note"], TIME).render()
    assert "No difference in time beyond the noise" in text
    assert "note       a note" in text


def test_the_configuration_is_a_bundle_of_its_own() -> None:
    best, other = pair(late, swapped)
    other = Candidate(1, other.traversal)
    machine = Known(lambda c: (1 + 0.3 * c.space) * (1 + 0.1 * late(c.traversal)))
    found = difference_of(DOMAIN, best, other, machine)
    assert [round(bundle.timing.ratio, 1) for bundle in found.bundles] == [1.3, 1.1]
    assert found.bundles[0].candidate == Candidate(1, best.traversal)
    assert found.bundles[1].base.space == 1
    text = BundlesView.of(DOMAIN, found, 7, (), TIME).render()
    assert "transport peer instead of mpi_cuda" in text


def test_each_decision_of_the_configuration_is_a_bundle() -> None:
    """Each compared with the one before, where the configurations in between are known."""
    first, other = pair(late, swapped)
    names = ({"transport": "peer", "staging": "fused"}, {"transport": "mpi_host", "staging": "fused"},
             {"transport": "mpi_host", "staging": "ops"})  # fmt: skip
    domain = Orders([ConfiguredSpace(Choice.of(values), SPACE) for values in names])
    machine = Known(lambda c: (1, 1.3, 1.3 * 1.2)[c.space])
    found = difference_of(domain, first, Candidate(2, other.traversal), machine, (1,))
    shown = BundlesView.of(domain, found, 7, (), TIME).shown
    ratios = [round(bundle.timing.ratio, 1) for bundle in found.bundles]
    assert list(zip([view.mechanism for view in shown], ratios, strict=True)) == [
        ("transport mpi_host instead of peer", 1.3), ("staging ops instead of fused", 1.2),
    ]  # fmt: skip
    assert found.whole.ratio == pytest.approx(1.56, abs=0.05)
    same = Known(lambda c: (1, 1.3, 1.3)[c.space], Random(5))
    found = difference_of(domain, first, Candidate(2, other.traversal), same, (1,))
    assert len(found.bundles) == len(found.level) == 1
    text = BundlesView.of(domain, found, 7, (), TIME).render()
    level = "No difference beyond the noise: staging ops instead of fused."
    assert f"{level}\nA difference above 0: number 7 takes longer than the best" in text


def test_between_two_configurations_one_decision_changes_at_a_time() -> None:
    """The transport first, then what only one of the two has."""
    old = Choice.of({"capture": True, "gemm.bx": 32, "halo.transport": "peer"})
    new = Choice.of({"gemm.bx": 64, "halo.transport": "mpi_host", "staging": "ops"})
    assert [dict(one) for one in one_by_one(old, new)] == [
        {"capture": True, "gemm.bx": 32, "halo.transport": "mpi_host"},
        {"gemm.bx": 32, "halo.transport": "mpi_host"},
        {"gemm.bx": 64, "halo.transport": "mpi_host"},
    ]


def test_the_way_leads_from_one_to_the_other_and_its_decisions_can_be_taken_alone() -> None:
    random, alone = Random(2), 0
    for _ in range(20):
        base, other = (Candidate(0, SPACE.at(random.randrange(2036))) for _ in range(2))
        way = Route(SPACE, base, other)
        assert (way.points[0], way.points[-1]) == (base, other)
        assert len(set(way.points)) == len(way) + 1
        found = [way.with_only(frozenset((step,))) for step in range(1, len(way))]
        alone += sum(c is not None for c in found)
        for point in [*way.points, *(c for c in found if c is not None)]:
            assert [*SPACE.replay(point.traversal)]
    assert alone > 10


def test_timing_ends_at_a_limit_and_says_so() -> None:
    best, other = pair(late, swapped)

    def every(base: Candidate, candidates: Sequence[Candidate]) -> Sequence[PairTiming]:
        """Each time another one: nothing agrees with anything."""
        ratios = [1 + random.random() for _ in candidates]
        return [PairTiming(30, r, r - 0.001, r + 0.001, 0.95, error=0.0005) for r in ratios]

    random = Random(1)
    found = difference_of(DOMAIN, best, other, every)
    assert found.bundles
    incomplete = Bundles(best, other, found.whole, found.bundles, found.decisions, complete=False)
    for form in ("text", "md"):
        assert f"more than {MOST_TIMED}" in BundlesView.of(DOMAIN, incomplete, 1, (), TIME).render(form)


def test_on_a_recording(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = str(ROOT / "benchmarks/results/2026-11-21-4xh200-explore/spmv-150000-mpi_cuda.db")
    assert main(["explain", file, "--replay", file, "--rank", "2000", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["other"]["number"] == 2000
    assert any("CES-b4-post_send also waits for yl" in bundle["mechanism"] for bundle in found["bundles"])
    assert main(["explain", file, "--replay", file, "--rank", "2000"]) == 0
    text = capsys.readouterr().out
    assert len(text.splitlines()) < 20
    assert all(bundle["mechanism"] in text for bundle in found["bundles"])
    with pytest.raises(UsageError, match="has 2036 implementations"):
        explain(file, ExplainOptions(replay=file, rank=2036))
    order = tmp_path / "original.txt"  # as `dagc record` writes it
    order.write_text(f"# of an application\n{found['other']['traversal']}\n")
    assert main(["explain", file, "--replay", file, "--original", str(order)]) == 0
    same = capsys.readouterr().out.replace("original   ", "number 2000 ").replace("the original", "number 2000")
    assert same == text
    for words, message in (
        (found["best"]["traversal"], "is the best"),
        ("other words", "original.txt:1:1: `other`: no op has this name"),
        ("# an order\n", "original.txt: has no order"),
    ):
        order.write_text(words)
        with pytest.raises(UsageError, match=message):
            explain(file, ExplainOptions(replay=file, original=str(order)))
