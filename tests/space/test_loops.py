"""Loops folded to one period: which are found, what is counted, and that what is unrolled again is right."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import settings as examples_of
from hypothesis import strategies as st

from dagc.base.errors import UsageError
from dagc.ir.program import Graph
from dagc.ir.traversal import Issue, Record, Traversal, Wait, parse_traversal, traversal_text
from dagc.passes.loops import fold, folded_name, unfolded
from dagc.space import Space
from dagc.space.loops import is_folded_text, unroll
from dagc.space.proof import NotProved, Prover, prune, renumbered
from dagc.stages.program import read
from tests.emit.build import HEAT2D
from tests.measure.conftest import SAMPLES
from tests.passes.text import graph
from tests.space.naive import all_traversals
from tests.tiers import examples

JACOBI, HEAT = SAMPLES / "jacobi/jacobi.dag", SAMPLES / "heat/heat.dag"
FOUR = "array a, b, c, d : f32[8] inout"
TWO_BUFFERS = "param steps : i64 = 4\nfor p in 0..2 { array u[p] : f32[8] inout }"
ALTERNATE = "for t in 0..steps { s[t] : gpu add(u[(t + 1) % 2], u[t % 2]) }"


def sample(path: object, **choices: object) -> tuple[Graph, Graph]:
    """The graph and the folded one."""
    unrolled = read(str(path), choices).graph()
    return unrolled, fold(unrolled)


def shape(folded: Graph) -> list[tuple[int, list[str]]]:
    """Rounds (0 where there is no loop) and ops of each segment."""
    assert folded.folding is not None
    return [(len(s.rounds) if s.loop else 0, [folded.ops[op].name for op in s.ops]) for s in folded.folding.segments]


# ---- which loops are found ------------------------------------------------------------------


def test_buffers_that_alternate_leave_a_period_of_one_turn() -> None:
    folded = fold(graph(ALTERNATE, TWO_BUFFERS))
    assert shape(folded) == [(4, ["s[t]"]), (0, ["end"])]
    assert folded.folding is not None
    assert folded.folding.segments[0].carried == ((0, 0, 1),)


def test_the_jacobi_solver_is_one_loop_with_every_transport() -> None:
    """Fused copies differ in the first round and in the last, and what only the last one has comes after the loop."""
    _, peer = sample(JACOBI, transport="peer")
    assert shape(peer) == [(20, ["first[t]", "last[t]", "halo[t]", "inner[t]"]), (0, ["end"])]
    unrolled, staged = sample(JACOBI, transport="mpi_host")
    (rounds, ops), (none, after) = shape(staged)
    assert (rounds, len(ops), none) == (20, 10, 0)
    assert after == ["halo[19].stage_in.north", "halo[19].stage_in.south", "end"]
    assert {len(unrolled.ops), len(staged.ops)} == {203, 13}


TRANSPORTS = [
    {"transport": "mpi_host"},
    {"transport": "mpi_host", "staging": "ops"},
    {"transport": "mpi_cuda"},
    {"transport": "nccl"},
    {"transport": "peer", "capture": "true"},
]


@pytest.mark.parametrize("arrays", [1, 2])
@pytest.mark.parametrize("choices", TRANSPORTS, ids=lambda c: "-".join(c.values()))
def test_messages_of_columns_are_of_the_round_as_messages_of_rows_are(choices: dict[str, str], arrays: int) -> None:
    """Their copies have the base names of other ops. The last round is fused as the others are, although the next step
    no longer reads what was received."""
    _, folded = sample(HEAT2D, **choices, arrays=arrays)
    before = [f"halo[0].stage_out.{side}" for side in ("north", "south")]  # later ones are fused with the step before
    head, (rounds, ops), after = ([], *shape(folded))[-3:]
    assert head == ((0, before) if choices == TRANSPORTS[0] else [])
    assert (rounds, after) == (6, (0, ["keep", "end"]))
    copies = [f"halo[t].{side}.{copy}" for side in ("west", "east") for copy in ("pack", "unpack")]
    assert set(copies) <= set(ops)
    assert not [op for op in ops if ".." in op]


@pytest.mark.parametrize(
    "messages",
    [
        "for s in 0..2 { face[s] : send p[*, s .. s + 1] to next recv p[*, s + 2 .. s + 3] from next }",
        "for s in 0..2 { face[s, t] : send p[*, s .. s + 1] to next recv p[*, s + 2 .. s + 3] from next }",
        "send p[*, t .. t + 1] to next recv p[*, t + 1 .. t + 2] from next",  # other columns, and buffers, each time
        "if ranks > 1 { send p[*, 0 .. 1] to next recv p[*, 1 .. 2] from next }",
    ],
)
@pytest.mark.parametrize("transport", ["mpi_host", "nccl"])
def test_messages_of_columns_of_any_form_are_of_the_round(messages: str, transport: str) -> None:
    arrays = "array p : f32[4, 9] inout\narray q : f32[4, 1] inout\nscalar next : i32"
    copies = "y[t] : gpu copy(q, p[*, 8 .. 9])\n z[t] : gpu copy(p[*, 7 .. 8], q)"
    dag = f"for t in 0..6 {{ x[t] : mpi exchange {{ {messages} }}\n {copies} }}"
    folded = fold(graph(dag, arrays, transport=transport))
    assert [rounds for rounds, _ in shape(folded)] == [6, 0]


def test_messages_of_columns_in_a_compound_are_of_the_round() -> None:
    compound = "x : mpi exchange { send a[*, 0 .. 1] to next recv a[*, 2 .. 3] from next }"
    arrays = "for i in 0..2 { array p[i] : f32[4, 3] inout }\nscalar next : i32\n"
    arrays += f"dag ex(a: inout f32[4, 3]) {{ {compound} }}"
    whole = graph("for t in 0..6 { h[t] : dag ex(p[t % 2])\n y[t] : gpu copy(p[(t + 1) % 2], p[t % 2]) }", arrays)
    assert [rounds for rounds, _ in shape(fold(whole))] == [6, 0]
    assert len(whole.program.arrays) == 2 + 2 * 2


def test_copies_between_sides_leave_a_period_of_one_turn() -> None:
    """Their names are those of arrays, which may alternate."""
    arrays = """
for p in 0..2 { array v[p] : f32[8] on any inout }
kernel half(y: out f32[8], x: in f32[8]) { cpu { cpp \"\"\"y[0] = x[0] / 2;\"\"\" } }
"""
    dag = "for t in 0..6 { g[t] : gpu add(v[(t + 1) % 2], v[t % 2])\n c[t] : cpu half(v[t % 2], v[(t + 1) % 2]) }"
    folded = fold(graph(dag, arrays))
    assert [rounds for rounds, _ in shape(folded)] == [0, 6, 0]


def test_what_stands_around_a_loop_stays_as_it_is() -> None:
    _, folded = sample(HEAT, transport="mpi_host", staging="ops")
    assert shape(folded)[-1] == (0, ["keep", "end"])
    assert folded.folding is not None
    names = {folded.ops[u].name: folded.ops[v].name for u, v in folded.folding.crossing}
    assert names["first[t]"] == "keep"


def test_a_branch_on_the_turn_may_double_the_period() -> None:
    body = "if t % 2 == 0 { even[t] : gpu add(a, b) } else { odd[t] : gpu add(b, a) }"
    folded = fold(graph(f"for t in 0..8 {{ {body} }}", FOUR))
    assert shape(folded)[0] == (4, ["even[t]", "odd[t+1]"])


def test_turns_that_differ_are_peeled() -> None:
    dag = "for t in 2..10 { if t == 2 { begin : gpu fill(c) }\n s[t] : gpu add(a, b)\n w[t] : gpu add(a, c) }"
    folded = fold(graph(dag, FOUR))
    assert shape(folded) == [(0, ["begin"]), (8, ["s[t]", "w[t]"]), (0, ["end"])]


def test_copies_that_the_compiler_inserts_are_of_the_turn_of_their_op() -> None:
    folded = fold(read(SAMPLES / "gnn/gcn.dag", {"layers": 4}).graph())
    assert shape(folded) == [(0, ["h[0].to_device"]), (4, ["layer[l]"]), (0, ["h[4].to_host", "end"])]


def test_iterations_around_others_are_loops_of_their_own() -> None:
    dag = "for t in 0..9 { s[t] : gpu add(a, b)\n if t == 4 { m : gpu add(c, a) } }"
    folded = fold(graph(dag, FOUR))
    assert shape(folded) == [(5, ["s[t]"]), (0, ["m"]), (4, ["s[5].."]), (0, ["end"])]
    assert unfolded(folded) == ()
    filled = read(SAMPLES / "pipeline/pipeline.dag", {"transport": "nccl"}).graph()
    assert [rounds for rounds, _ in shape(fold(filled))] == [0, 7, 3, 0]  # filling, loading, draining


def test_loops_are_those_of_called_dags_too_and_of_the_first_of_several_variables() -> None:
    called = "dag run(x: inout f32[8], y: in f32[8]) { for t in 0..4 { s[t] : gpu add(x, y) } }"
    folded = fold(graph("p : dag run(a, b)\nq : dag run(c, d)", f"{FOUR}\n{called}"))
    assert shape(folded) == [(4, ["p.s[t]"]), (4, ["q.s[t]"]), (0, ["end"])]
    whole = graph("for k in 0..2 { p[k] : dag run(a, b) }", f"{FOUR}\n{called}")
    assert fold(whole) is whole  # an outermost loop of two iterations
    folded = fold(graph("for t in 0..4, k in 0..2 { s[t, k] : gpu add(a, b) }", FOUR))
    assert shape(folded) == [(4, ["s[t,0]", "s[t,1]"]), (0, ["end"])]


OWN = "\nfor i in 0..8 { array e[i] : f32[8] inout }"
ODD = "give all iterations the same ops"
SWAPPED = """for t in 0..4 {
  if t < 2 { x[t] : gpu add(a, b)
    y[t] : gpu add(c, d) } else { y[t] : gpu add(c, d)
    x[t] : gpu add(a, b) }
}"""
APART = "edges explicit\nfor t in 0..{} {{ x[t] : gpu add(e[t], a)\n y[t] : gpu add(e[t + 4], a) }}\n"
ALTERNATING_EDGES = APART.format(4) + "x[0] -> x[1] -> x[2] -> x[3]\n y[0] -> x[1] -> y[2] -> x[3]"
ODD_EDGES = APART.format(3) + "x[0] -> x[1] -> x[2] -> y[2]\n x[0] -> y[0]"


@pytest.mark.parametrize(
    ("dag", "why", "help"),
    [
        ("for t in 0..2 { s[t] : gpu add(a, b) }", "", ""),  # two rounds
        (  # two rounds of three iterations
            "for t in 0..6 { if t % 3 == 1 { s[t] : gpu add(a, b) } else { s[t] : gpu add(b, a) } }",
            "`s[2]` and `s[1]` differ in their place in the text", ODD,
        ),
        (  # ever more ops
            "for t in 0..4 { for k in 0..t + 1 { s[t, k] : gpu add(a, b) } }",
            "`s[2,0]` has no counterpart in t = 1", ODD,
        ),
        ("for t in {3, 1, 2, 5} { s[t] : gpu add(a, b) }", "`t` do not count up by one", "`for t in a .. b`"),
        ("for t in 0..4 { s[t] : gpu add(e[t], b) }", "", ""),  # iterations that do not depend on each other
        ("for t in 0..4 { if t == 0 { f : gpu fill(d) }\n s[t] : gpu add(e[t], d) }", "", ""),  # each on the first
        ("for t in 0..4 { s[t] : gpu add(a, b) stream t }", "`s[2]` and `s[1]` differ in their stream", ODD),
        (SWAPPED, "`y[2]` and `y[1]` differ in their place in the text", ODD),
        (ALTERNATING_EDGES, "`y[2]` waits for `x[1]`, but nothing like it happens one round earlier", "let arrays"),
        (ODD_EDGES, "`y[0]` waits for `x[0]`, but nothing like it happens one round later", "let arrays"),
    ],
)  # fmt: skip
def test_what_is_no_loop_stays_unrolled_and_a_note_says_why(dag: str, why: str, help: str) -> None:
    whole = graph(dag, FOUR + OWN, streams="4")
    assert fold(whole) is whole
    found = unfolded(whole)
    assert len(found) == bool(why)
    for left in found:
        assert why in left.why
        assert help in left.help
        assert left.count == len(left.loop.turns)


def test_edges_that_lead_back_keep_a_loop_unrolled() -> None:
    dag = "edges explicit\nfor t in 0..4 { s[t] : gpu add(a, b) }\nx : gpu add(c, d)\n"
    dag += "s[0] -> s[1] -> s[2] -> s[3]\n"
    assert fold(graph(dag, FOUR)).folding is not None
    whole = graph(dag + "x -> s[2]", FOUR)
    assert fold(whole) is whole
    assert [left.why for left in unfolded(whole)] == ["`s[2]` waits for `x`, which comes after it"]


def test_edges_that_lead_back_between_loops_of_one_for_leave_the_longest() -> None:
    dag = "edges explicit\nfor t in 0..9 { s[t] : gpu add(e[t % 5], b)\n if t == 4 { m : gpu add(c, d) } }\n"
    dag += " -> ".join(f"s[{t}]" for t in range(9))
    assert [rounds for rounds, _ in shape(fold(graph(dag, FOUR + OWN)))] == [5, 0, 4, 0]
    folded = fold(graph(f"{dag}\nx : gpu add(c, d)\nx -> s[7]\nm -> x", FOUR + OWN))
    assert [rounds for rounds, _ in shape(folded)] == [5, 0]
    assert [left.count for left in unfolded(folded)] == [4]


def test_few_rounds_of_staging_copies_are_said_to_be_too_few() -> None:
    (left,) = unfolded(sample(HEAT2D, transport="mpi_host", steps=3, arrays=1)[1])
    assert left.why == "`halo[0].stage_out.north` has no counterpart in t = 1"
    assert "run more iterations" in left.help


def test_samples_without_a_loop_are_not_folded() -> None:
    for path in ("spmv/spmv.dag", "halo3d/halo3d.dag", "tridiag/tridiag.dag", "cg/cg.dag"):
        whole = read(SAMPLES / path).graph()
        assert fold(whole) is whole
        assert unfolded(whole) == ()


def test_names_say_what_follows_the_variable() -> None:
    assert folded_name(["x[2,top].a1", "x[3,top].a1"], [2, 3], "t") == "x[t,top].a1"
    assert folded_name(["x[3]", "x[5]"], [2, 4], "t") == "x[t+1]"
    assert folded_name(["x[1]", "x[4]"], [2, 3], "t") == "x[1..]"
    assert folded_name(["x", "x.2"], [0, 1], "t") == "x.."


def test_two_loops_of_equal_names_are_told_apart() -> None:
    dag = "for t in 0..3 { s[t] : gpu add(a, b) }\nm : gpu add(a, c)\nfor t in 3..6 { s[t] : gpu add(a, b) }"
    assert shape(fold(graph(dag, FOUR))) == [(3, ["s[t]"]), (0, ["m"]), (3, ["s[3].."]), (0, ["end"])]


# ---- what is counted ------------------------------------------------------------------------

SMALL = [
    (ALTERNATE, TWO_BUFFERS),
    ("for t in 0..3 { x[t] : gpu add(a, b)\n y[t] : gpu add(b, a) }", FOUR),
    ("for t in 0..3 { x[t] : gpu add(a, b)\n y[t] : gpu add(c, b)\n z[t] : gpu add(b, c) }", FOUR),
    ("i : gpu fill(a)\nfor t in 0..3 { x[t] : gpu add(a, b)\n y[t] : gpu add(c, a) }\no : gpu add(d, c)", FOUR),
    ("for t in 0..4 { x[t] : gpu add(a, b)\n if t % 2 == 0 { y[t] : gpu add(b, a) } }\n", FOUR),
]
# A message of a column in every round, of one array and of two that alternate; with its edges a chain, or two of them.
COLUMN = "x[t] : mpi exchange {{ send {0}[*, 0 .. 1] to next recv {0}[*, 3 .. 4] from next }}"
MATRICES = "for i in 0..2 { array m[i] : f32[4, 4] inout }\nscalar next : i32"
IN_PLACE = (
    f"for t in 0..3 {{ {COLUMN.format('m[0]')}\n y[t] : gpu copy(m[0][*, 0 .. 1], m[0][*, 3 .. 4]) }}",
    MATRICES,
)
IN_TURN = (f"for t in 0..3 {{ {COLUMN.format('m[t % 2]')}\n y[t] : gpu copy(m[(t + 1) % 2], m[t % 2]) }}", MATRICES)
SMALL_CASES = [(*case, "mpi_host") for case in SMALL]
SMALL_CASES += [(*case, transport) for case in (IN_PLACE, IN_TURN) for transport in ("mpi_host", "mpi_cuda", "nccl")]


@pytest.mark.parametrize(("dag", "arrays", "transport"), SMALL_CASES)
def test_the_count_is_that_of_distinct_programs_that_repeat_their_rounds(dag: str, arrays: str, transport: str) -> None:
    """The folded graph counted naively, and each unrolled: no two are one program, and all are proved."""
    whole = graph(dag, arrays, transport=transport)
    folded = fold(whole)
    space, prover = Space(folded), Prover(whole)
    found = [traversal_text(t, folded) for t in space]
    assert set(found) == all_traversals(folded)
    unrolled = [unroll(folded, t)[1] for t in space]
    assert len(set(unrolled)) == space.count() == len(found)
    for traversal in unrolled:
        prover.prove(traversal)


def skeleton(traversal: Traversal) -> tuple[tuple[int, int | None], ...]:
    """Ops and streams in issue order, streams by first appearance."""
    seen: dict[int, int] = {}
    issued = [e for e in traversal.entries if isinstance(e, Issue)]
    return tuple((e.op, None if e.stream is None else seen.setdefault(e.stream, len(seen))) for e in issued)


@pytest.mark.parametrize(
    ("dag", "arrays", "transport"), [SMALL_CASES[0], SMALL_CASES[1], (*IN_PLACE, "peer"), (*IN_TURN, "nccl")]
)
def test_orders_and_streams_are_all_those_of_the_unrolled_space_that_repeat(
    dag: str, arrays: str, transport: str
) -> None:
    """Cross-check by brute force: of all traversals of the unrolled graph, those whose rounds are alike."""
    whole = graph(dag, arrays, transport=transport)
    folded = fold(whole)
    assert folded.folding is not None
    segment = folded.folding.segments[0]
    place = {op: (number, at) for number, ops in enumerate(segment.rounds) for at, op in enumerate(ops)}
    width = len(segment.ops)

    def repeats(found: tuple[tuple[int, int | None], ...]) -> bool:
        body = [(*place[op], stream) for op, stream in found if op in place]  # type: ignore[index]
        rounds = [body[i : i + width] for i in range(0, len(body), width)]
        return all([(number, at, stream) for _, at, stream in rounds[0]] == one for number, one in enumerate(rounds))

    brute = {skeleton(t) for t in Space(whole)}
    assert {s for s in brute if repeats(s)} == {skeleton(unroll(folded, t)[1]) for t in Space(folded)}


def test_iterations_that_differ_do_not_count_as_rounds() -> None:
    """With `mpi_host` the first or the last step differs (docs/explanation/space.md)."""
    folded = {(t, n): sample(JACOBI, transport=t, steps=n)[1] for t in ("mpi_host", "nccl") for n in (2, 3, 4)}
    assert {key for key, graph in folded.items() if graph.folding} == {("mpi_host", 4), ("nccl", 3), ("nccl", 4)}


def test_twenty_steps_are_counted_as_one() -> None:
    counts = {}
    for steps in (3, 20):
        _, folded = sample(JACOBI, transport="mpi_cuda", steps=steps)
        counts[steps] = Space(folded).count()
    assert counts == {3: 1498464, 20: 1498464}
    _, folded = sample(JACOBI, transport="peer")
    assert Space(folded).count() == 88


def test_ids_samples_and_walks_are_those_of_a_space() -> None:
    _, folded = sample(HEAT, transport="nccl")
    space, random = Space(folded), Random(1)
    for _ in range(20):
        traversal = space.sample(random)
        assert space.at(space.id_of(traversal)) == traversal
        walk = space.walk(random)
        assert parse_traversal(traversal_text(walk, folded), folded) == walk
    with pytest.raises(UsageError):
        space.at(space.count())


# ---- what is unrolled -----------------------------------------------------------------------

LOWERINGS = [
    (JACOBI, {"transport": "mpi_host"}),
    (JACOBI, {"transport": "mpi_host", "staging": "ops", "streams": "3"}),
    (JACOBI, {"transport": "peer", "streams": "4"}),
    (HEAT, {"transport": "mpi_host", "staging": "ops", "streams": "3"}),
    (HEAT, {"transport": "mpi_cuda"}),
    (HEAT, {"transport": "nccl"}),
    (HEAT2D, {"transport": "mpi_host", "arrays": "1", "streams": "3"}),
    (HEAT2D, {"transport": "mpi_cuda"}),
    (HEAT2D, {"transport": "nccl"}),
]


@pytest.mark.parametrize(("path", "choices"), LOWERINGS)
def test_every_round_is_proved(path: object, choices: dict[str, str]) -> None:
    whole, folded = sample(path, **choices)
    space, prover, random = Space(folded), Prover(whole), Random(2)
    for traversal in [space.first(), space.last(), *(space.sample(random) for _ in range(30))]:
        prover.prove(unroll(folded, traversal)[1])
        Prover(folded).prove(traversal)


PLATES = ("e", "f", "v[t % 2]", "v[(t + 1) % 2]")
NAMES = ("a", "b", "c", "d", "u[t % 2]", "u[(t + 1) % 2]")


@st.composite
def loops(draw: st.DrawFn) -> Graph:
    """A loop of two to five kernels and perhaps an exchange, or columns that are sent, with ops before it and after
    it."""
    pairs = st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)).filter(lambda p: p[0] != p[1])
    body = [f"k{i}[t] : gpu add({y}, {x})" for i, (y, x) in enumerate(draw(st.lists(pairs, min_size=2, max_size=5)))]
    if draw(st.booleans()):
        sent, received = draw(st.permutations(NAMES))[:2]
        exchange = f"x[t] : mpi exchange {{ send {sent} to next recv {received} from next }}"
        body.insert(draw(st.integers(0, len(body))), exchange)
    if draw(st.booleans()):
        sent, received, to, of = (draw(st.sampled_from(PLATES)) for _ in range(4))
        column = f"send {sent}[*, 1 .. 2] to next recv {received}[*, 0 .. 1] from next"
        body.insert(draw(st.integers(0, len(body))), f"z[t] : mpi exchange {{ {column} }}")
        if to != of:
            body.insert(draw(st.integers(0, len(body))), f"c[t] : gpu copy({to}, {of})")
    if draw(st.booleans()):
        body.append(f"if t == {draw(st.sampled_from([0, 3]))} {{ f : gpu fill(a) }}")
    parts = ["p : gpu add(a, b)"] if draw(st.booleans()) else []
    parts += [f"for t in 0..{draw(st.integers(3, 8))} {{ {chr(10).join(body)} }}"]
    parts += ["q : gpu add(c, a)\nr : gpu add(b, d)"] if draw(st.booleans()) else []
    lowering = draw(
        st.sampled_from([("mpi_host", "fused"), ("mpi_host", "ops"), ("mpi_cuda", "fused"), ("nccl", "fused")])
    )
    arrays = f"{FOUR}\nscalar next : i32\nfor i in 0..2 {{ array u[i] : f32[8] inout }}"
    arrays += "\nfor i in 0..2 { array v[i] : f32[4, 3] inout }\narray e, f : f32[4, 3] inout"
    streams = str(draw(st.integers(1, 3)))
    return graph("\n".join(parts), arrays, transport=lowering[0], staging=lowering[1], streams=streams)


@given(loops(), st.integers(0, 2**32))
@examples_of(max_examples=examples(60))
def test_loops_of_any_kind_are_proved(whole: Graph, seed: int) -> None:
    """Whatever is read, written, sent and received: every round is ordered, and every op is issued once."""
    folded = fold(whole)
    space, prover, random = Space(folded), Prover(whole), Random(seed)
    for traversal in [space.first(), space.last(), *(space.walk(random) for _ in range(5))]:
        prover.prove(unroll(folded, traversal)[1])


def test_waits_pair_with_records_of_the_round_before_and_only_where_the_order_lacks_them() -> None:
    dag = "for t in 0..4 { x[t] : gpu add(a, b)\n y[t] : gpu add(b, a) }"
    whole = graph(dag, FOUR)
    folded = fold(whole)

    def unrolled(text: str) -> str:
        return traversal_text(unroll(folded, parse_traversal(text, folded))[1], whole)

    one = unrolled("x[t]@s0 y[t]@s0 end")
    assert one == " ".join(f"x[{t}]@s0 y[{t}]@s0" for t in range(4)) + " record(e0)@s0 sync(e0) end"
    two = unrolled("x[t]@s0 record(e0)@s0 wait(e0)@s1 y[t]@s1 end").split(" record(e2)")[0]
    assert two == (
        "x[0]@s0 record(e0)@s0 wait(e0)@s1 y[0]@s1 record(e1)@s1"  # the first round waits for nothing
        " wait(e1)@s0 x[1]@s0"
    )


def test_one_wait_for_the_last_op_of_the_round_before_covers_the_others_on_its_stream() -> None:
    dag = "for t in 0..4 { v[t] : gpu fill(c)\n x[t] : gpu add(a, c)\n y[t] : gpu add(b, c) }"
    whole = graph(dag, FOUR)
    folded = fold(whole)
    one = parse_traversal("v[t]@s0 record(e0)@s0 wait(e0)@s1 x[t]@s1 y[t]@s1 end", folded)
    unrolled = unroll(folded, one)[1]
    Prover(whole).prove(unrolled)
    assert traversal_text(unrolled, whole).split(" record(e2)")[0] == (
        "v[0]@s0 record(e0)@s0 wait(e0)@s1 x[0]@s1 y[0]@s1 record(e1)@s1 wait(e1)@s0 v[1]@s0"
    )
    assert (
        sum(not isinstance(entry, Issue) for entry in unrolled.entries) == 4 * 4
    )  # with a wait for `x` too: 6 * 4 - 2


def test_a_wait_before_its_record_is_for_the_round_before() -> None:
    whole = graph("for t in 0..3 { x[t] : gpu add(a, b)\n y[t] : gpu add(b, a) }", FOUR)
    folded = fold(whole)
    text = "wait(e1)@s0 x[t]@s0 record(e0)@s0 wait(e0)@s1 y[t]@s1 record(e1)@s1 end"
    unrolled = unroll(folded, parse_traversal(text, folded))[1]
    Prover(whole).prove(unrolled)
    assert traversal_text(unrolled, whole).startswith(
        "x[0]@s0 record(e0)@s0 wait(e0)@s1 y[0]@s1 record(e1)@s1 wait(e1)@s0 x[1]@s0"
    )


def test_a_traversal_with_a_gap_is_refused_by_the_name_of_the_round() -> None:
    folded = fold(graph("for t in 0..3 { x[t] : gpu add(a, b)\n y[t] : gpu add(b, a) }", FOUR))
    with pytest.raises(NotProved, match=r"`y\[0\]@s1` may start before `x\[0\]` has completed"):
        Prover(folded).prove(parse_traversal("x[t]@s0 y[t]@s1 end", folded))
    missing = parse_traversal("x[t]@s0 end", folded)
    assert any("never issued" in gap.reason for gap in Prover(folded).gaps(missing))
    long = fold(graph("for t in 0..30 { x[t] : gpu add(a, b)\n y[t] : gpu add(b, a) }", FOUR))
    with pytest.raises(NotProved, match=r"unrolled, is not proved:(\n  entry .*){12}\n  and \d+ more$"):
        Prover(long).prove(parse_traversal("x[t]@s0 y[t]@s1 end", long))


def test_ops_of_a_loop_and_others_are_not_mixed() -> None:
    folded = fold(graph("for t in 0..3 { x[t] : gpu add(a, b)\n y[t] : gpu add(b, a) }\nz : gpu add(c, a)", FOUR))
    with pytest.raises(UsageError, match="`z` is issued before ops of an earlier part"):
        unroll(folded, parse_traversal("x[t]@s0 z@s0 y[t]@s0 end", folded))
    for text in ("x[t]@s0 x[t]@s1 y[t]@s0 z@s0 end", "x[t]@s0 y[t]@s1 y[t]@s0 z@s0 end", "z@s0 end"):
        assert not Prover(folded).proved(parse_traversal(text, folded))


def test_pruning_keeps_what_is_proved() -> None:
    _, folded = sample(JACOBI, transport="mpi_host", staging="ops", steps=4)
    prover, space, random = Prover(folded), Space(folded), Random(5)
    for _ in range(5):
        traversal = space.walk(random)
        pruned = prune(traversal, prover)
        assert prover.proved(pruned)
        assert len(pruned.entries) <= len(traversal.entries)


def test_a_wait_across_the_back_edge_is_pruned_like_any_other() -> None:
    folded = fold(graph("for t in 0..3 { x[t] : gpu add(a, b)\n y[t] : gpu add(b, a) }", FOUR))
    text = "wait(e1)@s0 x[t]@s0 record(e0)@s0 wait(e0)@s1 wait(e0)@s1 y[t]@s1 record(e1)@s1 end"
    pruned = prune(parse_traversal(text, folded), Prover(folded))
    assert Prover(folded).proved(pruned)
    # The wait for the round before would be added again, so it may be written or not.
    assert traversal_text(pruned, folded) == "x[t]@s0 record(e0)@s0 wait(e0)@s1 y[t]@s1 end"
    kept = parse_traversal(text.replace("wait(e0)@s1 wait(e0)@s1", "wait(e0)@s1"), folded)
    assert traversal_text(renumbered(kept.entries), folded).startswith("wait(e1)@s0 x[t]@s0 record(e0)@s0")


def test_the_text_of_a_file_says_whether_it_is_folded() -> None:
    whole = graph(ALTERNATE, TWO_BUFFERS)
    folded = fold(whole)
    assert is_folded_text("s[t]@s0 end", folded)
    assert not is_folded_text("s[0]@s0 s[1]@s0 end", folded)
    assert not is_folded_text("s[t]@s0 end", whole)


# ---- a proof of few rounds is one of any number -----------------------------------------------


def _kinds(traversal: Traversal, whole: Graph) -> list[tuple[object, ...]]:
    """Per entry what it is in every round: sync ops by what they follow and what follows them, without turns."""

    def word(name: str) -> str:
        return re.sub(r"\[\d+", "[t", name)

    last: dict[int, str] = {}
    of: dict[int, str] = {}
    out: list[tuple[object, ...]] = []
    following = "end"
    nexts = []
    for entry in reversed(traversal.entries):
        following = word(whole.ops[entry.op].name) if isinstance(entry, Issue) else following
        nexts.append(following)
    for entry, then in zip(traversal.entries, reversed(nexts), strict=True):
        match entry:
            case Issue(op, stream):
                out.append(("op",))
                if stream is not None:
                    last[stream] = word(whole.ops[op].name)
            case Record(event, stream):
                of[event] = last.get(stream, "")
                out.append(("record",))
            case Wait(event, stream):
                out.append(("wait", stream, of[event], then))
    return out


@given(st.sampled_from(LOWERINGS), st.integers(0, 2**32))
@examples_of(max_examples=examples(25))
def test_what_few_rounds_lack_all_lack(lowering: tuple[object, dict[str, str]], seed: int) -> None:
    """Also where a sync op is dropped from every round: the proof of four rounds says what that of nine does, and a
    dropped pair across the back edge is caught."""
    path, choices = lowering
    random, found = Random(seed), []
    cases = [sample(path, **choices, steps=steps) for steps in (4, 9)]
    text = traversal_text(Space(cases[0][1]).walk(random), cases[0][1])
    dropped: object = None
    for (whole, folded), last in zip(cases, (3, 8), strict=True):
        name = re.sub(r"\[\d+\]\.stage_in", f"[{last}].stage_in", text)  # those of the last round, after the loop
        traversal = unroll(folded, parse_traversal(name, folded))[1]
        kinds = _kinds(traversal, whole)
        if dropped is None:
            dropped = random.choice([k for k in kinds if k[0] in ("wait", "sync")] or [("none",)])
        entries = tuple(e for e, kind in zip(traversal.entries, kinds, strict=True) if kind != dropped)
        prover = Prover(whole)
        assert prover.proved(traversal)
        found.append(prover.proved(Traversal(entries)))
    assert found[0] == found[1]


def test_a_sync_op_that_is_dropped_across_the_back_edge_is_missed() -> None:
    whole, folded = sample(JACOBI, transport="mpi_cuda", steps=6)
    space, prover, random = Space(folded), Prover(whole), Random(4)
    seen = missed = 0
    for _ in range(40):
        traversal = unroll(folded, space.sample(random))[1]
        last = {e.event: at for at, e in enumerate(traversal.entries) if isinstance(e, Record)}
        for at, entry in enumerate(traversal.entries):
            between = [] if isinstance(entry, Issue | Record) else traversal.entries[last[entry.event] : at]
            if any(isinstance(e, Issue) and whole.ops[e.op].name == "first[3]" for e in between):
                seen += 1
                rest = (*traversal.entries[:at], *traversal.entries[at + 1 :])
                missed += not prover.proved(Traversal(rest))
    assert seen > 10
    assert missed > 0.8 * seen
