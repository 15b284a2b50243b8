"""ThreadSanitizer on the host target: silent on proved traversals, and it speaks where an order is missing.

Streams are threads there, and the runtime's own bookkeeping gives the tool no order that CUDA would not give. The tool
compares accesses by what orders them, not by when they happened, so one run of a mutant is enough in most cases;
each mutant is nevertheless run several times, and once has to be reported.

What `lowered` builds is not optimised, and compiled by clang++ where there is one; what `make` builds is built as users
build it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from dagc.emit.forms import BeginCapture, EndCapture, with_capture_regions
from dagc.ir.program import Action, GraphOp, KernelOp
from dagc.ir.traversal import Issue, Record, Traversal
from dagc.measure.launch import Finished
from tests.measure.conftest import HALO, LOWERINGS, LOWERINGS_OF, MIXED, SPMV, Built, Lowered, Make, needs_mpi, wander
from tests.tiers import examples, representatives

pytestmark = needs_mpi

REPORT = "WARNING: ThreadSanitizer: data race"
# One message of 1 MiB each way at least, on two ranks.
LARGE = {
    SPMV: {"rows": "640000", "nnz_per_row": "4", "bandwidth": "640000"},
    HALO: {"nx": "4", "ny": "256", "nz": "256", "nq": "1", "g": "2"},
}
LARGE_BYTES = 1 << 20


def _silent(done: Finished, number: int) -> None:
    assert "ThreadSanitizer" not in done.stderr, done.stderr[:4000]
    assert done.returncode == 0, done.stderr[-2000:] or done.stdout[-2000:]
    assert done.stdout.count(": good") == number


# ---- silent on what is proved ----------------------------------------------------------------


@pytest.mark.parametrize("lowering", LOWERINGS)
@pytest.mark.parametrize("path", representatives([SPMV, HALO], SPMV), ids=["spmv", "halo"])
def test_silent_on_proved_traversals(lowered: Lowered, path: Path, lowering: str) -> None:
    built = lowered(path, lowering, flags=("-O0",), sanitize="thread")
    random = Random(20)
    traversals = [wander(built.space, random) for _ in range(examples(8))]
    assert all(built.prover.proved(t) for t in traversals)
    _silent(built.run(traversals, times=2), len(traversals))


@pytest.mark.parametrize("lowering", LOWERINGS_OF[MIXED])
def test_silent_where_messages_have_different_transports(lowered: Lowered, lowering: str) -> None:
    built = lowered(MIXED, lowering, flags=("-O0",), sanitize="thread")
    random = Random(21)
    traversals = [wander(built.space, random) for _ in range(examples(8))]
    assert all(built.prover.proved(t) for t in traversals)
    _silent(built.run(traversals), len(traversals))


# ---- messages of 1 MiB -----------------------------------------------------------------------


def _message_bytes(built: Built) -> int:
    """The largest message that rank 0 sends."""
    folder = built.data / "rank-0000"
    if (folder / "send_counts.npy").exists():
        return int(np.load(folder / "send_counts.npy").max()) * 4
    params = {p.name: p.value for p in built.space.graph.program.params}
    return 8 * int(params["nq"]) * int(params["g"]) * int(params["ny"]) * int(params["nz"])


@pytest.fixture(params=representatives([SPMV, HALO], SPMV), ids=["spmv", "halo"])
def large(make: Make, lowered: Lowered, request: pytest.FixtureRequest) -> Built:
    path = request.param
    built = make(path, "thread", ranks=2, transport="mpi_cuda", **LARGE[path])
    if path is SPMV:  # whose sizes come with its data
        built = replace(built, built=lowered(path, "mpi_cuda", flags=("-O0",), sanitize="thread").built)
    assert _message_bytes(built) >= LARGE_BYTES
    return built


@pytest.mark.thorough
def test_silent_on_large_messages(large: Built) -> None:
    random = Random(3)
    _silent(large.run([wander(large.space, random) for _ in range(2)], times=2), 2)


# ---- mutants: one order is missing -----------------------------------------------------------


Mutation = Callable[[Built, Traversal], Iterator[Traversal]]


def _without(traversal: Traversal, dropped: set[int]) -> Traversal:
    return Traversal(tuple(e for i, e in enumerate(traversal.entries) if i not in dropped))


def drop_record(built: Built, traversal: Traversal) -> Iterator[Traversal]:
    """An event is never recorded, and nobody waits for it."""
    for event in {e.event for e in traversal.entries if isinstance(e, Record)}:
        users = {i for i, e in enumerate(traversal.entries) if not isinstance(e, Issue) and e.event == event}
        yield _without(traversal, users)


def drop_sync(built: Built, traversal: Traversal) -> Iterator[Traversal]:
    """The CPU does not wait for an event."""
    yield from (_without(traversal, {i}) for i, e in enumerate(traversal.entries) if e.waits and e.stream is None)


def drop_wait(built: Built, traversal: Traversal) -> Iterator[Traversal]:
    """A stream does not wait for an event."""
    yield from (_without(traversal, {i}) for i, e in enumerate(traversal.entries) if e.waits and e.stream is not None)


def late_wait_recv(built: Built, traversal: Traversal) -> Iterator[Traversal]:
    """A received array is read before the wait for it: the wait comes last."""
    ops = built.space.graph.ops
    for i, entry in enumerate(traversal.entries):
        if isinstance(entry, Issue) and ops[entry.op].action is Action.WAIT_RECV:
            rest = [e for j, e in enumerate(traversal.entries) if j != i]
            yield Traversal((*rest[:-1], entry, rest[-1]))


def _executed(built: Built, traversal: Traversal) -> Traversal:
    """What a traversal is in the end: capturing a region adds some order."""
    steps = [p.step for p in with_capture_regions(traversal)] if built.capture else traversal.entries
    return Traversal(tuple(step for step in steps if not isinstance(step, BeginCapture | EndCapture)))


def _lost(built: Built, traversal: Traversal) -> list[tuple[GraphOp, GraphOp]]:
    """Pairs of ops that touch the same data and whose order a traversal has lost. Not those with `end`."""
    graph = built.space.graph
    traversal = _executed(built, traversal)
    conflicts = {(graph.touches[i].end, graph.touches[j].begin) for i, j in graph.hazards}
    pairs = [(gap.first, gap.second) for gap in built.prover.gaps(traversal)]
    return [(graph.ops[u], graph.ops[v]) for u, v in pairs if u is not None and v is not None and (u, v) in conflicts]


def _mutant(built: Built, mutation: Mutation, seed: int) -> Traversal:
    """The first mutant of random traversals in which an order between two ops on the same data is lost."""
    random = Random(seed)
    for _ in range(200):
        for mutant in mutation(built, wander(built.space, random)):
            if _lost(built, mutant):
                return mutant
    raise AssertionError("no mutant of this kind")


def _functions(op: GraphOp) -> set[str]:
    """What the stack of an op's access shows; of a message, the stand-in for the MPI."""
    if op.gpu and not isinstance(op.op, KernelOp) and op.action is not Action.GROUP:
        return {"memcpy"}
    if isinstance(op.op, KernelOp):
        return {op.op.kernel, "memcpy"} if op.copy_in or op.copy_out else {op.op.kernel}
    return {"dagc::tsan::InFlight::access"}


def _speaks(built: Built, mutant: Traversal, culprits: list[tuple[GraphOp, GraphOp]]) -> None:
    """The mutant is reported in one of five runs, and the report is about the ops whose order is lost."""
    assert not built.prover.proved(_executed(built, mutant))
    for _ in range(5):
        done = built.run([mutant, mutant], first_report=True)
        if REPORT in done.stderr:
            break
    else:
        pytest.fail("ThreadSanitizer saw no race")
    assert done.returncode != 0
    # Built with others, its functions are in a namespace of its own.
    seen = set(re.findall(r"#\d+ (?:p_\w+::)?([\w:]+)", done.stderr))
    # Of an access long ago, the stack may be lost; the other one is then enough.
    enough = 1 if "failed to restore the stack" in done.stderr else 2
    named = [f"{u.name} and {v.name}" for u, v in culprits]
    found = [bool(_functions(u) & seen) + bool(_functions(v) & seen) for u, v in culprits]
    assert max(found) >= enough, (named, done.stderr[:3000])


HOST, OPS, DEVICE = "mpi_host", "staging_ops", "mpi_cuda"
KINDS = {
    "spmv-record": (SPMV, DEVICE, drop_record),
    "spmv-sync": (SPMV, DEVICE, drop_sync),
    "spmv-wait": (SPMV, DEVICE, drop_wait),
    "spmv-wait_recv": (SPMV, DEVICE, late_wait_recv),
    "spmv-wait-captured": (SPMV, "captured", drop_wait),
    "spmv-wait-grouped": (SPMV, "nccl", drop_wait),
    "spmv-sync-staged": (SPMV, OPS, drop_sync),
    "spmv-wait_recv-staged": (SPMV, HOST, late_wait_recv),
    "halo-record": (HALO, DEVICE, drop_record),
    "halo-sync": (HALO, DEVICE, drop_sync),
    "halo-wait": (HALO, OPS, drop_wait),  # a GPU op after a GPU op: only where copies are ops
    "halo-wait_recv": (HALO, DEVICE, late_wait_recv),
    "halo-sync-staged": (HALO, HOST, drop_sync),
}


@pytest.mark.parametrize("kind", representatives(KINDS, *(kind for kind in KINDS if kind.startswith("spmv"))))
def test_speaks_on_mutants(lowered: Lowered, kind: str) -> None:
    path, lowering, mutation = KINDS[kind]
    built = lowered(path, lowering, flags=("-O0",), sanitize="thread")
    mutant = _mutant(built, mutation, seed=8)
    _speaks(built, mutant, _lost(built, mutant))


@pytest.mark.parametrize("path", representatives([SPMV, HALO], SPMV), ids=["spmv", "halo"])
def test_speaks_where_a_send_is_not_waited_for(lowered: Lowered, path: Path) -> None:
    """The next iteration packs into a buffer that may still be read: two iterations in a row, the first without."""
    built = lowered(path, DEVICE, flags=("-O0",), sanitize="thread")
    ops = built.space.graph.ops
    whole = wander(built.space, Random(4)).entries
    cut = [e for e in whole if not (isinstance(e, Issue) and ops[e.op].action is Action.WAIT_SEND)]
    assert len(cut) == len(whole) - 1
    packs = [op for op in ops if op.name.startswith("pack")]
    sends = [op for op in ops if op.action is Action.POST_SEND]
    _speaks(built, Traversal((*cut, *whole)), [(send, pack) for send in sends for pack in packs])


@pytest.mark.thorough
@pytest.mark.parametrize("mutation", [drop_record, drop_sync, late_wait_recv])
def test_speaks_on_mutants_with_large_messages(large: Built, mutation: Mutation) -> None:
    mutant = _mutant(large, mutation, seed=1)
    _speaks(large, mutant, _lost(large, mutant))
