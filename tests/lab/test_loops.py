"""The model of a program with loops: a few rounds are simulated, which say what all of them take."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from scipy.stats import spearmanr

from dagc.ir.constraints import configuration_of
from dagc.lab.model.pool import ROUNDS, Pool
from dagc.lab.model.simulate import Batch, Costs, Simulator, messages_of
from dagc.lab.orders import domain_of
from dagc.space.loops import shortened, unroll
from dagc.stages.program import read
from tests.measure.conftest import SAMPLES
from tests.tiers import representatives


@pytest.mark.parametrize(
    ("name", "transport"),
    representatives(
        [("heat", "nccl"), ("jacobi", "peer"), ("heat", "mpi_host")], ("jacobi", "peer"), ("heat", "mpi_host")
    ),
)
def test_a_few_rounds_rank_candidates_as_all_do(name: str, transport: str) -> None:
    """One period alone does not: what overlaps with the round before is not in it (rank correlation -0.4 to 0.7)."""
    defines = {"transport": transport, "steps": 20}
    folded = read(SAMPLES / f"{name}/{name}.dag", defines, folds=True).graph()
    domain, random = domain_of([(configuration_of(folded), folded)]), Random(3)
    candidates = list(dict.fromkeys(domain.sample(random) for _ in range(150)))
    pool = Pool(domain.spaces)
    pool.extend(candidates)
    few = pool.batch.times(np.array(pool.costs.prior))
    costs = Costs(folded.streams, len(messages_of(folded.unrolled)))
    simulator, batch = Simulator(folded.unrolled, configuration_of(folded), costs), Batch(costs)
    batch.extend([simulator.program(unroll(folded, c.traversal)[1]) for c in candidates])
    every = batch.times(np.array(costs.prior))
    assert spearmanr(few, every)[0] > 0.9
    assert every[np.argmin(few)] < 1.05 * every.min()
    assert 0.8 < np.median(few / every) < 1.25


def test_a_shortened_graph_has_a_few_rounds() -> None:
    folded = read(SAMPLES / "jacobi/jacobi.dag", {"transport": "peer"}, folds=True).graph()
    short = shortened(folded, ROUNDS)
    assert [op.name for op in short.unrolled.ops][-5:] == ["first[2]", "last[2]", "halo[2]", "inner[2]", "end"]
    assert len(short.unrolled.ops) == 4 * ROUNDS + 1
    plain = folded.unrolled
    assert shortened(plain, ROUNDS) is plain
