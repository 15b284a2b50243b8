"""Implementations of one proved space of which some give wrong results: what is said, and by whom."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagc.base.sample import Sample
from dagc.cli.main import main
from dagc.ir.choice import Choice
from dagc.ir.traversal import traversal_text
from dagc.learn.disagreement import Disagreement, SpaceKind, by_settings, disagreement
from dagc.recipes.explore import explore
from dagc.space import Space
from dagc.space.proof import Prover
from dagc.stages.options import ExploreOptions
from dagc.store.records import load
from dagc.store.results import Implementation, ImplementationId, Results
from tests.data.h200 import RUN
from tests.graphs import make_graph
from tests.measure.conftest import can_run
from tests.report.test_measured import PROGRAM
from tests.tiers import examples

OPS = [("a", True), ("b", True), ("c", True), ("d", False)]
GRAPH = make_graph(OPS, [("a", "b")], streams=2)
PROVER, SPACE = Prover(GRAPH), list(Space(GRAPH))
PAIRS = [(i, j) for i in range(4) for j in range(4) if i != j]
SETTINGS = frozenset({"a.bx", "b.bx"})


def found(rows: list[tuple[int, str, tuple[int, int]]], both: bool = False) -> Results:
    """Implementations: the number of the traversal, its failure, and the two launch settings."""
    made = []
    for traversal, failure, (a, b) in rows:
        timed = (Sample(1.0),) if both or not failure else ()
        configuration = Choice((("a.bx", a), ("b.bx", b), ("streams", 2)))
        text = traversal_text(SPACE[traversal], GRAPH)
        made.append(Implementation(ImplementationId(len(made)), configuration, text, timed, failure))
    return Results(PROGRAM, (RUN,), tuple(made))


def judged(results: Results) -> Disagreement | None:
    return disagreement(results, lambda _: SpaceKind("all", GRAPH, SETTINGS))


@settings(max_examples=examples(30), deadline=None)
@given(
    guilty=st.lists(st.sampled_from(PAIRS), min_size=1, max_size=2, unique=True),
    chosen=st.lists(st.integers(0, len(SPACE) - 1), min_size=10, max_size=60, unique=True),
)
def test_the_ops_whose_order_is_missing_are_suspects(guilty: list[tuple[int, int]], chosen: list[int]) -> None:
    """Results are wrong where the second op of a pair need not wait for the first: the suspects explain all of them."""
    known = {number: PROVER.known(SPACE[number]) for number in chosen}
    wrong = {n for n in chosen if any(not known[n][second] >> first & 1 for first, second in guilty)}
    result = judged(found([(n, "wrong result: y" if n in wrong else "", (32, 32)) for n in chosen]))
    if not wrong or len(wrong) == len(chosen):
        assert result is None
        return
    assert result is not None
    assert (result.wrong, result.right) == (len(wrong), len(chosen) - len(wrong))
    names = [name for name, _ in OPS]
    suspects = [(names.index(s.first), names.index(s.second)) for s in result.suspects]
    ordered = {n for n in chosen if all(known[n][second] >> first & 1 for first, second in suspects)}
    assert suspects
    assert not ordered & wrong
    assert all(s.wrong <= s.number for s in result.suspects)


def test_crashes_and_settings_are_not_disagreement() -> None:
    """A hang or a crash says nothing about headers; a block that is wrong in every order is wrong by itself."""
    right = [(n, "", (32, 32)) for n in range(4)]
    assert judged(found([*right, (5, "hang: rank 0", (32, 32)), (6, "run failed: x", (32, 32))])) is None
    by_block = found([*right, (5, "wrong result: y", (64, 32)), (1, "wrong result: y", (64, 32))])
    assert judged(by_block) is None
    assert len(by_settings(by_block, lambda _: SpaceKind("all", GRAPH, SETTINGS))) == 2
    combined = found([*right, (5, "wrong result: y", (64, 32)), (1, "", (64, 32))])
    assert judged(combined) is not None  # the block was right in another order


def test_right_and_wrong_results_of_one_implementation() -> None:
    results = found([(0, "wrong result: y", (64, 64))], both=True)
    results = replace(results, implementations=(*results.implementations, *found([(1, "", (32, 32))]).implementations))
    result = judged(results)
    assert result is not None
    assert result.both == 1
    assert "a kernel may race with itself" in " ".join(result.lines)


# `late` reads one element more than the bound of its slice says: the first that `right` writes.
WRONG_BOUND = """
program bound
param n : i64 = 64
setup "bound.py" numbers(n)
array x : f64[n] on host in
array y : f64[2 * n] on host
array z : f64[n] on host out
kernel keep(y: out f64[k], x: in f64[k], k: i64) { cpu { cpp \"\"\" for (long i = 0; i < k; ++i) y[i] = x[i]; \"\"\" } }
kernel shift(z: out f64[k], y: in f64[k], k: i64) {
  tune wide in {1, 2}
  cpu { cpp \"\"\" for (long i = 0; i < k; ++i) z[i] = y[i + 1] + 0 * wide; \"\"\" }
}
dag {
  left  : cpu keep(y[0 .. n], x, n)
  right : cpu keep(y[n .. 2 * n], x, n)
  late  : cpu shift(z, y[0 .. n], n)
}
verify z ~ expected() rtol 1e-12
"""
SETUP = """
import numpy as np

def numbers(rank, size, seed, n):
    return {"x": np.arange(1.0, n + 1)}

def expected(data, *, rank, size, seed, n):
    return {"z": np.append(data["x"][1:], data["x"][0])}
"""


@pytest.mark.mpi
@pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI")
@pytest.mark.usefixtures("unoptimised")
def test_no_command_names_a_best(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`explore` with exit code 1 and the ops whose order decides; `best` and `explain` refuse, `rules` and the page say
    why there is none. The file keeps everything."""
    (tmp_path / "bound.dag").write_text(WRONG_BOUND)
    (tmp_path / "bound.py").write_text(SETUP)
    out = tmp_path / "r.db"
    options = ExploreOptions(
        ranks=1, target="host", seconds=5e-4, confirm=2, repeats=2, quiet=True, budget=20, strategy="random",
    )  # fmt: skip
    done = explore(tmp_path / "bound.dag", out, options)
    assert done is not None
    assert done.exit_code == 1
    assert done.summary.best is None
    said = done.render()
    assert "best       none: " in said
    assert re.search(
        r"Suspect: `right` and `late`. Where `late` need not wait for `right`, (\d+) of \1 are wrong", said
    )
    assert "docs/how-to/find-races.md" in said
    failures = [i.failure for i in load(out).implementations]
    assert any(failures)
    assert not all(failures)
    for command in (["best", str(out)], ["explain", str(out)]):
        assert main(command) == 1
        assert "`right` and `late`" in capsys.readouterr().err
    assert main(["rules", str(out), "--format", "json"]) == 0
    rules = json.loads(capsys.readouterr().out)
    assert rules["best"] is None
    assert any("`right` and `late`" in line for line in rules["advice"])
    assert main(["report", str(out), "-o", str(tmp_path / "r.html")]) == 0
    page = (tmp_path / "r.html").read_text()
    assert "results disagree" in page
    assert "<code>dagc best" not in page
