"""Slices whose bounds are scalars: what `require`s say of them, against every small value."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from fractions import Fraction
from itertools import combinations, product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagc import api
from dagc.base.errors import ProgramError, Severity
from dagc.ir.enums import ElementType
from dagc.ir.linear import Facts
from dagc.ir.program import Region, Require, Scalar
from dagc.ir.regions import Regions, facts
from dagc.ir.sym import Apply, Const, Fn, Sym, Var, evaluate, show
from dagc.passes import graph_with_diagnostics
from tests.passes.text import edges, graph, program
from tests.tiers import examples

VALUES = range(-5, 8)
COMPARISONS = {Fn.LT, Fn.LE, Fn.GT, Fn.GE, Fn.EQ}
LEAVES = st.integers(-4, 6).map(Const) | st.sampled_from([Var("m"), Var("n")])


def grown(inner: st.SearchStrategy[Sym]) -> st.SearchStrategy[Sym]:
    two = st.tuples(st.sampled_from([Fn.ADD, Fn.SUB, Fn.MIN, Fn.MAX]), inner, inner)
    by = st.tuples(st.integers(-3, 3).map(Const), inner)
    part = st.tuples(st.sampled_from([Fn.FLOOR, Fn.CEIL]), inner, st.integers(1, 3).map(Const))
    return (
        two.map(lambda t: Apply(t[0], (t[1], t[2])))
        | by.map(lambda t: Apply(Fn.MUL, t))
        | part.map(lambda t: Apply(t[0], (Apply(Fn.DIV, (t[1], t[2])),)))
        | st.tuples(inner, st.integers(1, 4).map(Const)).map(lambda t: Apply(Fn.MOD, t))
    )


BOUNDS = st.recursive(LEAVES, grown, max_leaves=4)
COMPARED = st.tuples(st.sampled_from(sorted(COMPARISONS, key=str)), BOUNDS, BOUNDS).map(
    lambda t: Apply(t[0], (t[1], t[2]))
)
REQUIRES = st.lists(
    COMPARED | st.tuples(COMPARED, COMPARED).map(lambda both: Apply(Fn.OR, both)),
    max_size=3,
)
SCALARS = (Scalar("m", ElementType.I64), Scalar("n", ElementType.I32))


@settings(max_examples=examples(250), deadline=None)
@given(bounds=st.tuples(BOUNDS, BOUNDS, BOUNDS, BOUNDS), requires=REQUIRES)
def test_what_is_said_holds_for_every_value(bounds: tuple[Sym, Sym, Sym, Sym], requires: list[Sym]) -> None:
    a, b = Region("a", *bounds[:2]), Region("a", *bounds[2:])
    known = facts(SCALARS, [Require(r) for r in requires], (a, b))
    said = [known.at_most(a.stop, b.start), known.at_most(b.stop, a.start)]  # type: ignore[arg-type]
    shared = Regions(known).overlap(a, b)
    for m, n in product(VALUES, VALUES):
        env = {"m": m, "n": n}
        start, stop, other_start, other_stop = (int(evaluate(bound, env)) for bound in bounds)
        if not (0 <= start <= stop and 0 <= other_start <= other_stop):
            continue  # no slices: the program ends before it starts
        if all(evaluate(require, env) for require in requires):
            assert said[0] is not (stop > other_start)
            assert said[1] is not (other_stop > start)
            assert shared or stop <= other_start or other_stop <= start


@settings(max_examples=examples(250), deadline=None)
@given(
    requires=REQUIRES,
    sides=st.tuples(BOUNDS, BOUNDS),
    comparison=st.sampled_from(sorted(COMPARISONS, key=str)),
    divisor=st.integers(2, 4),
)
def test_what_a_condition_on_quotients_follows_from(
    requires: list[Sym], sides: tuple[Sym, Sym], comparison: Fn, divisor: int
) -> None:
    low, high = (Apply(Fn.DIV, (side, Const(divisor))) for side in sides)
    condition = Apply(comparison, (Apply(Fn.ADD, (low, low)), Apply(Fn.ADD, (high, Const(Fraction(1, 2))))))
    if facts(SCALARS, [Require(r) for r in requires]).implies(condition):
        envs = [{"m": m, "n": n} for m, n in product(VALUES, VALUES)]
        assert all(evaluate(condition, env) for env in envs if all(evaluate(r, env) for r in requires))


def test_a_quotient_is_not_rounded_by_a_condition() -> None:
    m = Var("m")
    half = Apply(Fn.DIV, (m, Const(2)))
    known = Facts([Apply(Fn.GE, (m, Const(0)))])
    assert not known.implies(Apply(Fn.GE, (half, Const(Fraction(1, 2)))))  # m = 0
    assert not known.implies(Apply(Fn.GT, (half, Const(0))))
    assert known.implies(Apply(Fn.GT, (half, Const(Fraction(-1, 2)))))


def test_linear_consequences_are_found() -> None:
    m, n, two = Var("m"), Var("n"), Const(2)
    known = Facts([Apply(Fn.GE, (m, two)), Apply(Fn.GT, (n, Apply(Fn.MUL, (two, m))))])
    assert known.at_most(Const(5), n) is True  # n >= 2 m + 1 >= 5
    assert known.at_most(n, Const(4)) is False
    assert known.at_most(n, Const(5)) is None
    half = Apply(Fn.FLOOR, (Apply(Fn.DIV, (m, two)),))
    assert Facts().at_most(Apply(Fn.MUL, (two, half)), m) is True
    assert Facts([Apply(Fn.LT, (Apply(Fn.MUL, (two, m)), Const(5)))]).at_most(m, two) is True  # m < 2.5, and whole


def test_what_is_no_integer_says_little() -> None:
    f = Facts([Apply(Fn.GT, (Var("f"), Const(1))), Apply(Fn.LE, (Var("f"), Var("m")))], fractional=["f"])
    assert f.at_most(Const(2), Var("m")) is None


ROWS = "scalar m : i64\nREQUIRE array a : f32[m + 10] inout  array b : f32[8] in"
DAG = "top : gpu add(a[0 .. 8], b)\nlow : gpu add(a[m .. m + 8], b)"


def test_a_require_separates_slices() -> None:
    assert edges(graph(DAG, ROWS.replace("REQUIRE", ""))) == {"top -> low"}
    assert edges(graph(DAG, ROWS.replace("REQUIRE", "require m >= 8"))) == set()
    assert edges(graph(DAG, ROWS.replace("REQUIRE", "require m >= 7"))) == {"top -> low"}
    assert edges(graph(DAG, ROWS.replace("REQUIRE", "require m % 8 == 0 && m != 0"))) == {"top -> low"}
    assert edges(graph(DAG, ROWS.replace("REQUIRE", "require floor(m / 2) > 3"))) == set()
    assert edges(graph(DAG, ROWS.replace("REQUIRE", "require m + 8 <= 0 || m > 9"))) == set()
    assert edges(graph(DAG, ROWS.replace("REQUIRE", "require m + 7 <= 0 || m > 9"))) == {"top -> low"}
    assert edges(graph(DAG, ROWS.replace("REQUIRE", "require hw.sms <= m require hw.sms >= 8"))) == {"top -> low"}


def test_what_cannot_be_told_is_said_once_per_pair_of_lines() -> None:
    text = "for t in 0..3 { top[t] : gpu add(a[0 .. 8], b)\nlow[t] : gpu add(a[m .. m + 8], b) }"
    found, notes = graph_with_diagnostics(program(text, ROWS.replace("REQUIRE", "")))
    assert found is not None
    assert {n.severity for n in notes} == {Severity.NOTE}
    message = "cannot decide whether `a[0 .. 8]` of `top[0]` and `a[m .. m + 8]` of `low[0]` overlap"
    assert [n.message for n in notes] == [f"{message}, so one waits for the other: is `8 <= m`?"]
    assert {n.help for n in notes} == {"if so, write `require 8 <= m`; it is checked when the program starts"}
    _, notes = graph_with_diagnostics(program(text, ROWS.replace("REQUIRE", "require 8 <= m")))
    assert notes == ()


def indexed(bounds: list[tuple[Sym, Sym]], nested: tuple[int, int]) -> str:
    """Indexed parts of `a` with these bounds, and parts of the first of them: all of it, and elements of it."""
    declared = "\n".join(f"let lo[{k}] = {show(a)}\nlet hi[{k}] = {show(b)}" for k, (a, b) in enumerate(bounds))
    parts = f"for i in 0..{len(bounds)} {{ part p[i] of a[lo[i] .. hi[i]] }}"
    inner = f"part q[0] of p[0]\npart q[1] of p[0][{nested[0]} .. {sum(nested)}]"
    return f"{declared}\n{parts}\n{inner}"


PART_BOUNDS = st.one_of(
    st.tuples(BOUNDS, BOUNDS),
    st.tuples(BOUNDS, st.integers(0, 4)).map(lambda t: (t[0], Apply(Fn.ADD, (t[0], Const(t[1]))))),
)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(PART_BOUNDS, min_size=2, max_size=4), st.tuples(st.integers(0, 2), st.integers(0, 2)), REQUIRES)
def test_parts_without_an_order_have_no_element_in_common(
    bounds: list[tuple[Sym, Sym]], nested: tuple[int, int], requires: list[Sym]
) -> None:
    """Indexed parts, parts of parts and slices, whose bounds are scalars: on every rank."""
    required = "\n".join(f"require {show(condition)}" for condition in requires)
    arrays = f"scalar m : i64\nscalar n : i32\narray a : f32[100] inout\n{required}\n{indexed(bounds, nested)}"
    parts = [*(f"p[{k}]" for k in range(len(bounds))), "q[0]", "q[1]", f"a[{show(bounds[0][0])} .. 7]"]
    dag = "\n".join(f"o{k} : gpu ones({part})" for k, part in enumerate(parts))
    ones = 'kernel ones(y: inout f32[*]) { gpu { launch grid(1) block(8) cuda """ """ } }'
    try:
        made = graph(dag, f"{arrays}\n{ones}")
    except ProgramError:
        return  # a slice that certainly ends before it starts, or a `require` that never holds
    ranges = [touch.region for touch in made.touches]
    after = reachable(made.completion)
    for m, n in product(VALUES, VALUES):
        env = {"m": m, "n": n}
        elements = [range(int(evaluate(r.start, env)), int(evaluate(r.stop, env))) for r in ranges]  # type: ignore[arg-type]
        starts = all(0 <= e.start <= e.stop <= 100 for e in elements)
        if not starts or not all(evaluate(require, env) for require in requires):
            continue  # the program ends before its first op
        for u, v in combinations(range(len(ranges)), 2):
            if not set(elements[u]).isdisjoint(elements[v]):
                assert v in after[u]


def reachable(edges: Iterable[tuple[int, int]]) -> dict[int, set[int]]:
    out: dict[int, set[int]] = defaultdict(set)
    for u, v in sorted(edges, reverse=True):
        out[u] |= {v, *out[v]}
    return out


SIBLINGS = """
scalar m : i64
array u : f32[20] inout  array b : f32[8] in
for i in 0..2 {
  let lo[i] = i * m
  part p[i] of u[lo[i] .. lo[i] + 8]
}"""


def test_indexed_parts_are_compared_as_named_ones() -> None:
    """The proof relies on nothing but what every rank checks: on ranks where m < 8 they share elements."""
    dag = "a : gpu add(p[0], b)\nc : gpu add(p[1], b)"
    assert edges(graph(dag, SIBLINGS)) == {"a -> c"}
    _, notes = graph_with_diagnostics(program(dag, SIBLINGS))
    assert [n.code for n in notes] == ["undecided-overlap"]
    assert edges(graph(dag, f"{SIBLINGS}\nrequire m >= 8")) == set()


def test_columns_of_a_slice_follow_what_writes_the_slice_without_a_note() -> None:
    """Whether the slice is empty is not asked; other rows are."""
    arrays = """scalar m : i64
    require 0 <= m && m <= 8
    array u : f32[8, 4] inout
    array c : f32[8, 1] out
    kernel ones(y: inout f32[*]) { gpu { launch grid(1) block(8) cuda \"\"\" \"\"\" } }"""
    dag = "a : gpu ones(u[m .. 8])\nb : gpu copy(c[{0}], u[{0}, 3 .. 4])"
    found, notes = graph_with_diagnostics(program(dag.format("m .. 8"), arrays))
    assert found is not None
    assert (edges(found), notes) == ({"a -> b"}, ())
    assert edges(graph(dag.format("0 .. m"), arrays)) == set()


def test_many_indexed_parts_need_no_order() -> None:
    """Parts that follow one another are apart, also where there are too many bounds for an elimination."""
    arrays = """scalar m : i64
    array u : f32[m] inout
    for c in 0..100 { part p[c] of u[floor(m * c / 100) .. floor(m * (c + 1) / 100)] }
    kernel ones(y: inout f32[*]) { gpu { launch grid(1) block(8) cuda \"\"\" \"\"\" } }"""
    for order in ("c", "99 - c"):
        assert edges(graph(f"for c in 0..100 {{ o[c] : gpu ones(p[{order}]) }}", arrays)) == set()


def test_a_part_without_bounds_beside_a_slice_is_noted() -> None:
    """Nothing says whether they overlap, so they are ordered."""
    arrays = "array a : f32[24] inout  array b : f32[8] in\npart inner of a\npart other of a"
    kernel = 'kernel ones(y: inout f32[*]) { gpu { launch grid(1) block(8) cuda """ """ } }'
    dag = "low : gpu add(a[0 .. 8], b)\nrest : gpu ones(inner)"
    _, notes = graph_with_diagnostics(program(dag, f"{arrays}\n{kernel}"))
    assert [(n.code, n.severity) for n in notes] == [("undecided-overlap", Severity.NOTE)]
    assert notes[0].message.endswith("so one waits for the other: `inner` has no bounds")
    dag = "low : gpu ones(other)\nrest : gpu ones(inner)"
    _, notes = graph_with_diagnostics(program(dag, f"{arrays}\n{kernel}"))
    assert notes == ()


RECEIVED = """scalar up, down, m : i32
require m >= 1
array u : f32[m + 2] inout
array v : f32[8] out
part core of u
kernel inner(v: out f32[8], u: in f32[*]) { gpu { launch grid(1) block(8) cuda \"\"\" \"\"\" } }"""


@pytest.mark.parametrize("choices", [{}, {"staging": "ops"}, {"transport": "mpi_cuda"}, {"transport": "nccl"}])
def test_a_part_without_bounds_beside_what_is_received_is_noted(choices: dict[str, str]) -> None:
    """Also where the op copies what was received to the device."""
    dag = "halo : mpi exchange { send u[1 .. 2] to down  recv u[m + 1 .. m + 2] from up }\ninner : gpu inner(v, core)"
    _, notes = graph_with_diagnostics(program(dag, RECEIVED, **choices))
    said = "`u[m + 1 .. m + 2]` of `halo` and `core` of `inner` overlap"
    assert [said in n.message for n in notes if "core" in n.message] == [True]


HEAT = Path(__file__).parents[2] / "samples/heat/heat.dag"


def test_the_heat_equation_has_its_own_order() -> None:
    """First and last rows wait for what they read, and the copies of both borders for nothing of each other."""
    found = edges(api.load_graph(HEAT, {"transport": "mpi_cuda", "steps": 1}))
    assert not any(e.startswith("take[0,top] -> take") or "take[0,bottom] -> inner" in e for e in found)
    assert {e for e in found if e.endswith("-> inner[0]")} == set()
    assert {e for e in found if e.endswith("-> keep")} == {"inner[0] -> keep", "first[0] -> keep", "last[0] -> keep"}
