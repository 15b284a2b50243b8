"""Loops in emitted code: what is a `for`, that what it issues is what was proved, and that it is right."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import settings as examples_of
from hypothesis import strategies as st

from dagc import api
from dagc.build.builder import Build, build
from dagc.build.mpi import require_mpi
from dagc.emit import emit
from dagc.emit.forms import rolled
from dagc.ir.plan import Plan, Target
from dagc.ir.program import Graph
from dagc.ir.traversal import Issue, Record, Traversal, parse_traversal
from dagc.passes.loops import fold
from dagc.space import Space
from dagc.space.loops import unroll
from dagc.space.proof import Prover
from tests.conftest import Compare
from tests.emit.build import graph as of_checkout
from tests.emit.test_compile import needs_cxx, needs_mpi
from tests.emit.together import write_together
from tests.measure.conftest import SAMPLES
from tests.passes.text import graph
from tests.space.test_loops import ALTERNATE, FOUR, LOWERINGS, TWO_BUFFERS, loops, sample
from tests.tiers import examples

GOLDEN = Path(__file__).parents[1] / "golden/emit"
JACOBI = SAMPLES / "jacobi/jacobi.dag"


def planned(folded: Graph, text: str, target: Target = Target.HOST) -> Plan:
    traversal = parse_traversal(text, folded)
    return Plan(*unroll(folded, traversal), target, period=(folded, traversal))


def iteration(plan: Plan) -> str:
    return emit(plan)["iteration.hpp"]


@pytest.mark.parametrize("target", list(Target), ids=lambda t: t.value)
def test_the_text_of_a_loop(target: Target, golden: Compare) -> None:
    """Rounds from the second to the last but one, two at a time, as the buffers alternate; events are used again."""
    folded = fold(of_checkout(JACOBI, transport="mpi_cuda", nx="64", rows="32"))
    text = (
        "first[t]@s0 record(e0)@s0 last[t]@s0 record(e1)@s0 inner[t]@s1 halo[t].post_recv.north halo[t].post_recv.south"
        " sync(e0) halo[t].post_send.north sync(e1) halo[t].post_send.south halo[t].wait_send halo[t].wait_recv.north"
        " halo[t].wait_recv.south end"
    )
    files = emit(planned(folded, text, target))
    golden(GOLDEN / f"jacobi-{target.value}-loop" / "iteration.hpp.golden", files["iteration.hpp"])
    if target is Target.CUDA:
        assert "for (std::int64_t turn" not in files["driver.py"]  # the Python driver issues every round


def test_rounds_that_use_the_same_buffers_are_one_by_one() -> None:
    folded = fold(graph("for t in 3..10 { x[t] : gpu add(a, b)\n y[t] : gpu add(b, a) }", FOUR))
    text = iteration(planned(folded, "x[t]@s0 y[t]@s0 end"))
    assert "for (std::int64_t turn = 3; turn < 10; turn += 1) {" in text
    assert text.count("dagc::launch(") == 2
    two = iteration(planned(folded, "x[t]@s0 record(e0)@s0 wait(e0)@s1 y[t]@s1 end"))
    assert "for (std::int64_t turn = 4; turn < 10; turn += 1) {" in two
    assert two.count("dagc::launch(") == 4
    assert "stream 0 waits for event 1: y[t] of the previous round" in two


def test_buffers_that_alternate_are_two_rounds_at_a_time() -> None:
    folded = fold(graph(ALTERNATE, TWO_BUFFERS, steps="9"))
    text = iteration(planned(folded, "s[t]@s0 end"))
    assert "for (std::int64_t turn = 0; turn < 8; turn += 2) {" in text
    assert [line.strip() for line in text.splitlines() if "// s[" in line] == [
        "// s[t] on stream 0: add(u[1], u[0])", "// s[t+1] on stream 0: add(u[0], u[1])",
        "// s[8] on stream 0: add(u[1], u[0])",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("dag", "arrays"),
    [
        ("for t in 0..3 { x[t] : gpu add(a, b)\n y[t] : gpu add(e[t], a) }", FOUR),  # other data in every round
        (ALTERNATE, TWO_BUFFERS.replace("= 4", "= 3")),  # too few rounds for two of two
    ],
)
def test_rounds_that_differ_stay_unrolled(dag: str, arrays: str) -> None:
    folded = fold(graph(dag, arrays + "\nfor i in 0..3 { array e[i] : f32[8] inout }"))
    assert folded.folding is not None
    traversal = unroll(folded, Space(folded).first())[1]
    assert rolled(folded, traversal).blocks == ()
    assert rolled(folded, traversal).traversal == traversal


def test_what_a_cuda_graph_captures_stays_unrolled() -> None:
    _, folded = sample(JACOBI, transport="peer", capture="true", nx="64", rows="32", steps="8")
    assert "for (std::int64_t turn" not in iteration(
        planned(folded, "first[t]@s0 last[t]@s0 halo[t]@s0 inner[t]@s0 end")
    )


def issued(traversal: Traversal) -> list[tuple[object, ...]]:
    """Entries, each wait by where its record stands."""
    recorded: dict[int, int] = {}
    out: list[tuple[object, ...]] = []
    for at, entry in enumerate(traversal.entries):
        if isinstance(entry, Issue):
            out.append((entry.op, entry.stream))
            continue
        if isinstance(entry, Record):
            recorded[entry.event] = at
        out.append((type(entry), getattr(entry, "stream", None), recorded[entry.event]))
    return out


@pytest.mark.parametrize(("path", "choices"), LOWERINGS)
def test_a_loop_issues_what_was_proved(path: object, choices: dict[str, str]) -> None:
    """With its events used again, every wait is for the record that it was for, and blocks repeat entry by entry."""
    whole, folded = sample(path, **choices, steps=12)
    space, prover, random = Space(folded), Prover(whole), Random(8)
    blocks = 0
    for _ in range(20):
        traversal = unroll(folded, space.sample(random))[1]
        short = rolled(folded, traversal)
        assert issued(short.traversal) == issued(traversal)
        prover.prove(short.traversal)
        names = dict(short.names)
        for block in short.blocks:
            entries = short.traversal.entries
            words = [
                [
                    (names[e.op], e.stream) if isinstance(e, Issue) else e
                    for e in entries[block.start + i * block.length : block.start + (i + 1) * block.length]
                ]
                for i in range(block.times)
            ]
            assert all(one == words[0] for one in words)
            blocks += 1
    assert blocks == 20


@given(loops(), st.integers(0, 2**32))
@examples_of(max_examples=examples(30))
def test_a_loop_of_any_kind_issues_what_was_proved(whole: Graph, seed: int) -> None:
    folded = fold(whole)
    traversal = unroll(folded, Space(folded).walk(Random(seed)))[1]
    short = rolled(folded, traversal).traversal
    assert issued(short) == issued(traversal)
    Prover(whole).prove(short)


def test_a_plan_keeps_its_period(tmp_path: Path) -> None:
    defines = {"transport": "peer", "nx": 40, "rows": 6, "steps": 8}
    first = api.compile(JACOBI, tmp_path / "a", target="host", defines=defines, traversal="40", build=False)
    again = api.compile(
        JACOBI, tmp_path / "b", target="host", defines=defines, traversal=str(tmp_path / "a/plan.json"), build=False
    )
    assert first.number == again.number == 40
    text = (tmp_path / "a/iteration.hpp").read_text()
    assert text == (tmp_path / "b/iteration.hpp").read_text()
    assert re.search(r"for \(std::int64_t turn = 1; turn < 7; turn \+= 2\)", text)


@pytest.mark.thorough
@needs_mpi
@needs_cxx
def test_loops_compile_without_a_warning(tmp_path: Path) -> None:
    plans = {}
    for transport in ("mpi_cuda", "peer"):
        _, folded = sample(JACOBI, transport=transport)
        traversal = Space(folded).last()
        plans[transport] = Plan(*unroll(folded, traversal), Target.HOST, period=(folded, traversal))
        assert "for (std::int64_t turn" in iteration(plans[transport])
    source = write_together(plans, tmp_path)
    build(Build([source], mpi=require_mpi(), flags=("-c", "-O0")), tmp_path / "together.o")
