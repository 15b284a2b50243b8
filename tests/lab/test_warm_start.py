"""`dagc explore --warm-start`: what another file knows begins the search, and measurements overrule it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import median

import pytest

from benchmarks.machines.evaluate import reached
from benchmarks.machines.family import draw
from dagc.base.errors import UsageError
from dagc.base.sample import Sample
from dagc.lab.orders import Orders
from dagc.lab.strategy import find
from dagc.recipes.explore import explore
from dagc.stages.options import ExploreOptions
from tests.data.h200 import SPMV, h200_file

RECORDS = Path(__file__).parents[2] / "benchmarks/results/2026-11-21-4xh200-explore"


def options(replay: Path, warm_start: Path, strategy: str | None = None) -> ExploreOptions:
    return ExploreOptions(
        strategy=strategy, budget=8, confirm=2, repeats=2, replay=str(replay), transport="mpi_host", capture="off",
        quiet=True, warm_start=str(warm_start),
    )  # fmt: skip


def test_a_file_of_the_program_starts_the_search(tmp_path: Path) -> None:
    recorded = h200_file(tmp_path)
    done = explore(SPMV, None, options(recorded, recorded))
    assert done is not None
    assert f"uses 2036 implementations of {recorded}: the fastest, and the costs of all" in done.notes


def test_a_file_of_another_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds results of another program: halo, not spmv"):
        explore(SPMV, None, options(h200_file(tmp_path), RECORDS / "halo-mpi_cuda-random.db"))


def test_a_file_that_does_not_exist_is_found_before_the_set_up_runs(tmp_path: Path) -> None:
    given = replace(options(tmp_path, tmp_path / "absent.db"), replay=None)
    with pytest.raises(UsageError, match="absent.db: no such file"):
        explore(SPMV, tmp_path / "out.db", given)
    assert list(tmp_path.iterdir()) == []


def test_only_the_model_can_be_started(tmp_path: Path) -> None:
    recorded = h200_file(tmp_path)
    with pytest.raises(UsageError, match="strategy `mcts` has no model to warm-start"):
        explore(SPMV, None, options(recorded, recorded, "mcts"))


@pytest.mark.parametrize("holds", [True, False])
def test_another_one_that_was_fastest_elsewhere_follows_where_the_first_is_fast(holds: bool) -> None:
    """`holds`: whether what was fast elsewhere is twice as fast as others here, or half as fast."""
    drawn, random = draw(58), Random(5)
    known = list(dict.fromkeys(drawn.domain.sample(random) for _ in range(6)))
    strategy = find("model")(Orders(drawn.domain.spaces, [(c, 1.0 + i) for i, c in enumerate(reversed(known))]), 0)
    proposed = []
    for _ in range(12):
        candidate = strategy.propose()
        proposed.append(candidate)
        strategy.observe(candidate, Sample(1e-4 * (2 if candidate not in known else 1 if holds else 4)))
    assert proposed[4] == known[-1]
    assert (known[-2] in proposed) == holds
    assert not set(proposed[:4]) & set(known)


@pytest.mark.parametrize("factor", [4.0, None])
def test_knowledge_of_another_size_helps_and_nonsense_does_little_harm(factor: float | None) -> None:
    """`factor`: times of elsewhere in proportion to those here; None: of no relation to them."""
    drawn, random = draw(58), Random(5)
    candidates = [drawn.domain.sample(random) for _ in range(60)]
    best = min(drawn.truth(c) for c in drawn.domain)
    times = [factor * drawn.truth(c) if factor else random.uniform(1e-4, 2e-4) for c in candidates]

    def measurements(seed: int) -> int:
        strategy = find("model")(Orders(drawn.domain.spaces, list(zip(candidates, times, strict=True))), seed)
        factors, choices = drawn.noise.factors(Random(seed)), []
        for _ in range(15):
            candidate = strategy.propose()
            strategy.observe(candidate, Sample(drawn.truth(candidate) * next(factors)))
            choices.append(drawn.truth(strategy.best()))
        return reached(choices, best)

    assert median(measurements(seed) for seed in range(3)) <= 12
