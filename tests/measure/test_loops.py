"""Programs whose rounds repeat one order, on real ranks of the host target: right, and silent under ThreadSanitizer."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from dagc import api
from dagc.emit.rolling import rolled
from dagc.ir.traversal import Issue, Record, Traversal
from dagc.passes.loops import fold
from dagc.setup import run_setup
from dagc.space import Space
from dagc.space.loops import unroll
from dagc.space.proof import Prover
from tests.measure.conftest import RANKS, SAMPLES, Built, needs_mpi
from tests.tiers import representatives

pytestmark = needs_mpi

PROGRAMS = {
    "jacobi": {"transport": "peer", "streams": "3", "steps": "6", "nx": "48", "rows": "6"},
    "heat": {"transport": "mpi_host", "staging": "ops", "streams": "3", "steps": "8", "nx": "40", "rows": "8"},
}


@pytest.fixture(scope="module", params=representatives(PROGRAMS, "heat"))
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    path = SAMPLES / request.param / f"{request.param}.dag"
    directory: Path = tmp_path_factory.mktemp(request.param) / "out"
    done = api.compile(path, directory, target="host", defines=PROGRAMS[request.param], build=False)
    run_setup(done.plan.program, path.parent, RANKS, 7, directory / "data")
    space = Space(fold(done.plan.graph))
    assert space.graph.folding is not None
    return Built(done.plan, space, directory, directory / "data", RANKS, "thread", False, ("-O0",))


def events(traversal: Traversal) -> set[int]:
    return {e.event for e in traversal.entries if isinstance(e, Record)}


def test_every_round_is_right_and_silent(built: Built) -> None:
    random = Random(11)
    chosen = [built.space.first(), built.space.last(), *(built.space.sample(random) for _ in range(8))]
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
