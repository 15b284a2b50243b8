"""The trees that are written are those that were grown, and the learner that is written is the one that is read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.tune.corpus import Replay, by_chance, default, judged
from benchmarks.tune.launches import Measured
from benchmarks.tune.learn import Recipe, as_json, fitted, grown, missed, rows
from dagc import api
from dagc.choice.legal import open_sites
from dagc.choice.residual import TERMS, UNTRAINED, coordinates, load_learner
from dagc.choice.types import Case

GEMM = Path(__file__).parents[2] / "samples" / "polybench" / "gemm.dag"


def kernels(number: int) -> list[Measured]:
    """Kernels with terms by chance, whose times differ from the model by one of these and a little noise."""
    graph = api.load_graph(GEMM)
    (site,) = open_sites(graph, ["gemm"])
    choices = tuple(site.every)[:30]
    draw, out = np.random.default_rng(0), []
    for k in range(number):
        cases = tuple(Case.of({"N": 2 ** (8 + i)}) for i in range(4))
        terms = np.exp(draw.normal(size=(len(cases), len(choices), len(TERMS))))
        terms[:, :, 0] *= 1e-4
        tail = terms[:, :, TERMS.index("tail")]
        logs = np.log(terms[:, :, 0]) + 0.5 * (tail > 1) + draw.normal(0, 0.02, tail.shape)
        program, noise = f"family{k % 3}.kernel{k}", np.full(logs.shape, 0.01)
        out.append(
            Measured(program, "gemm", site, choices, cases, logs, noise, terms, coordinates(site, choices), graph)
        )
    return out


def test_trees_are_read_as_they_were_written(tmp_path: Path) -> None:
    found, recipe = kernels(6), Recipe(rounds=20, least=20)
    trees = grown(found, recipe)
    assert trees is not None
    x, y, _ = rows(found)
    assert np.corrcoef(trees.predict(x), y)[0, 1] > 0.95, "the term that was missed is found"
    kernel, deviation, blind = fitted(missed(found[:2], [trees] * 2))
    learner = replace(UNTRAINED, trees=trees, kernel=kernel, deviation=deviation, blind=blind, source="six kernels")
    path = tmp_path / "learner.json"
    path.write_text(json.dumps(as_json(learner)))
    read = load_learner(path)
    assert read.kernel == kernel
    assert read.source == "six kernels"
    for terms in found[0].terms:
        both = (one.predict(terms, found[0].choices)[0] for one in (read, learner))
        assert np.allclose(*both, atol=1e-3)


def test_a_replay_measures_what_it_may_and_is_better_than_chance() -> None:
    found = kernels(3)
    replay = Replay(UNTRAINED)
    row = judged(found, lambda k: replay.run(k, 20))
    assert replay.measured <= 3 * 20
    chance = judged(found, by_chance(5, 0))
    assert np.mean(row.losses) < np.mean(chance.losses) < np.mean(judged(found, default).losses)
    assert all(over <= 1 for over in row.over_default)
