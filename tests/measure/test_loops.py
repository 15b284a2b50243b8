"""Programs whose rounds repeat one order, on real ranks of the host target: right, and silent under ThreadSanitizer."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from dagc import api
from dagc.emit import emit
from dagc.emit.forms import rolled
from dagc.ir.plan import Plan, Target
from dagc.ir.traversal import Issue, Record, Traversal
from dagc.measure.launch import launch
from dagc.passes.loops import fold
from dagc.setup import run_setup
from dagc.space import Space
from dagc.space.loops import unroll
from dagc.space.proof import Prover
from tests.emit.build import HEAT2D
from tests.emit.together import build_together
from tests.measure.conftest import RANKS, Built, needs_mpi
from tests.space.test_loops import HEAT, JACOBI, sample
from tests.tiers import examples, representatives

pytestmark = needs_mpi

PROGRAMS = {
    JACOBI: {"transport": "peer", "streams": "3", "steps": "6", "nx": "48", "rows": "6"},
    HEAT: {"transport": "mpi_host", "staging": "ops", "streams": "3", "steps": "8", "nx": "40", "rows": "8"},
    HEAT2D: {"transport": "nccl", "streams": "3", "nx": "40", "ny": "9"},
}
# Lowerings of messages of columns: their copies are ops of the program, whatever the transport.
LOWERINGS = {
    "fused": {"transport": "mpi_host"},
    "staged": {"transport": "mpi_host", "staging": "ops"},
    "mpi_cuda": {"transport": "mpi_cuda"},
    "nccl": {"transport": "nccl"},
    "peer": {"transport": "peer"},
    "captured": {"transport": "peer", "capture": "true"},
}


@pytest.fixture(scope="module", params=representatives(PROGRAMS, HEAT), ids=lambda path: path.stem)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    path: Path = request.param
    directory = tmp_path_factory.mktemp(path.stem) / "out"
    done = api.compile(path, directory, target="host", defines=PROGRAMS[path], build=False)
    run_setup(done.plan.program, path.parent, RANKS, 7, directory / "data")
    space = Space(fold(done.plan.graph))
    assert space.graph.folding is not None
    return Built(done.plan, space, directory, directory / "data", RANKS, "thread", False, ("-O0",))


def events(traversal: Traversal) -> set[int]:
    return {e.event for e in traversal.entries if isinstance(e, Record)}


def test_every_round_is_right_and_silent(built: Built) -> None:
    random = Random(11)
    chosen = [built.space.first(), built.space.last(), *(built.space.sample(random) for _ in range(examples(8)))]
    every = [unroll(built.space.graph, t)[1] for t in chosen]
    # With events used again from round to round, as emitted loops use them.
    again = [rolled(built.space.graph, t).traversal for t in every]
    assert all(len(events(t)) < len(events(u)) for t, u in zip(again[1:], every[1:], strict=True))
    done = built.run([*every, *again])
    assert "ThreadSanitizer" not in done.stderr, done.stderr[:4000]
    assert done.returncode == 0, done.stderr[-2000:] or done.stdout[-2000:]
    assert done.stdout.count(": good") == 2 * len(chosen)


def test_a_wait_that_is_dropped_across_the_back_edge_is_seen(built: Built) -> None:
    """By the proof, and by ThreadSanitizer in one of several of these."""
    random, graph = Random(3), built.plan.graph
    prover, mutants = Prover(graph), []
    while len(mutants) < 4:
        traversal = unroll(built.space.graph, built.space.sample(random))[1]
        records = {e.event: at for at, e in enumerate(traversal.entries) if isinstance(e, Record)}
        for at, entry in enumerate(traversal.entries):
            if isinstance(entry, Issue | Record):
                continue
            between = (e for e in traversal.entries[records[entry.event] : at] if isinstance(e, Issue))
            rest = Traversal((*traversal.entries[:at], *traversal.entries[at + 1 :]))
            back = any(graph.ops[e.op].name.partition("[")[2].startswith("3") for e in between)
            if back and not prover.proved(rest):
                mutants.append(rest)
                break
    done = built.run(mutants, times=2)
    assert "WARNING: ThreadSanitizer: data race" in done.stderr


def test_columns_sent_in_a_loop_arrive_under_every_transport(tmp_path: Path) -> None:
    """The emitted loops, in orders drawn at random, against NumPy; with two arrays that alternate and in place."""
    plans, random = {}, Random(5)
    for arrays in (2, 1):
        for name, choices in LOWERINGS.items():
            _, folded = sample(HEAT2D, **choices, arrays=arrays, streams=3)
            traversal = Space(folded).walk(random)
            made = Plan(*unroll(folded, traversal), Target.HOST, period=(folded, traversal))
            assert ("for (std::int64_t turn" in emit(made)["iteration.hpp"]) is (name != "captured")
            plans[f"{name}-{arrays}"] = made
        run_setup(made.program, HEAT2D.parent, RANKS, 1, tmp_path / f"data-{arrays}")
    for name, program in build_together(plans, tmp_path / "built").items():
        argv = [program, "--data", tmp_path / f"data-{name.rpartition('-')[2]}", "--check-only"]
        done = launch(argv, RANKS, timeout=300)
        assert done.returncode == 0, (name, done.stderr)
        assert "result agrees with the reference" in done.stdout
