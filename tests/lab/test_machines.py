"""The synthetic machines of benchmarks/machines, and the default strategy on a few of them."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import median

import pytest

from benchmarks.machines.evaluate import NEVER, reached, search
from benchmarks.machines.family import draw
from dagc.lab.strategies import model
from tests.tiers import representatives


def test_a_machine_is_drawn_again_from_its_seed() -> None:
    first, again = draw(8), draw(8)
    candidate = first.domain.at(17)
    assert first.machine == again.machine
    assert first.truth(candidate) == again.truth(candidate) > 0


def test_nothing_is_faster_than_its_work() -> None:
    """Exclusive: at least the sum of all kernels. Shared: at least the longest."""
    drawn = draw(4)
    work = drawn.machine.work
    alone = {op.name: work[op.name] for op in drawn.executions[0].graph.ops if op.gpu}
    for exclusive in (False, True):
        machine = replace(drawn.machine, exclusive=exclusive, quirks=())
        execution = type(drawn.executions[0])(machine, drawn.executions[0].graph, drawn.domain.spaces[0].configuration)
        least = sum(alone.values()) if exclusive else max(alone.values())
        for number in range(0, 20000, 2500):
            assert execution.time(drawn.domain.at(number).traversal) >= least


def test_one_stream_costs_the_sum() -> None:
    """Everything on one stream of a machine without overheads takes as long as the kernels in sequence."""
    drawn = draw(4)
    machine = replace(
        drawn.machine,
        launch=0.0,
        record=0.0,
        wait=0.0,
        latency=0.0,
        event=0.0,
        sync=0.0,
        gap=0.0,
        depth=1000,
        quirks=(),
    )
    execution = type(drawn.executions[0])(machine, drawn.executions[0].graph, drawn.domain.spaces[0].configuration)
    first = drawn.domain.spaces[0].space.first()
    ops = [op.name for op in execution.graph.ops if op.gpu]
    assert execution.time(first) == pytest.approx(sum(machine.work[n] for n in ops), rel=1e-6)


@pytest.mark.parametrize("seed", representatives([10, 58], 10))
def test_the_default_finds_the_fastest_before_random_does(seed: int) -> None:
    drawn = draw(seed)
    best = min(drawn.truth(c) for c in drawn.domain)

    def measurements(name: str) -> float:
        return median(reached(search((seed, name, s, 60))["choices"], best) for s in range(3))

    default = measurements("default")
    assert default <= 12
    assert default <= measurements("random") <= NEVER
    assert math.isfinite(default)


def test_a_large_space_is_also_searched_on_the_simulation_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a halo exchange: around what was measured, the learned error of the simulation hides the rest."""
    found = search((42, "model", 0, 50))["choices"][-1]
    monkeypatch.setattr(model, "DEEP", 0)
    assert found < 0.97 * search((42, "model", 0, 50))["choices"][-1]
