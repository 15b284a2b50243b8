"""Slices whose bounds are scalars: what `require`s say of them, against every small value."""

from __future__ import annotations

from itertools import product
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from dagc import api
from dagc.base.errors import Severity
from dagc.ir.enums import ElementType
from dagc.ir.linear import Facts
from dagc.ir.program import Region, Scalar, facts
from dagc.ir.sym import Apply, Const, Fn, Sym, Var, evaluate
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
REQUIRES = st.lists(
    st.tuples(st.sampled_from(sorted(COMPARISONS, key=str)), BOUNDS, BOUNDS).map(lambda t: Apply(t[0], (t[1], t[2]))),
    max_size=3,
)
SCALARS = (Scalar("m", ElementType.I64), Scalar("n", ElementType.I32))


@settings(max_examples=examples(250), deadline=None)
@given(bounds=st.tuples(BOUNDS, BOUNDS, BOUNDS, BOUNDS), requires=REQUIRES)
def test_what_is_said_holds_for_every_value(bounds: tuple[Sym, Sym, Sym, Sym], requires: list[Sym]) -> None:
    a, b = Region("a", *bounds[:2]), Region("a", *bounds[2:])
    known = facts(SCALARS, requires, (a, b))
    said = [known.at_most(a.stop, b.start), known.at_most(b.stop, a.start)]  # type: ignore[arg-type]
    for m, n in product(VALUES, VALUES):
        env = {"m": m, "n": n}
        start, stop, other_start, other_stop = (int(evaluate(bound, env)) for bound in bounds)
        if not (0 <= start <= stop and 0 <= other_start <= other_stop):
            continue  # no slices: the program ends before it starts
        if all(evaluate(require, env) for require in requires):
            assert said[0] is not (stop > other_start)
            assert said[1] is not (other_stop > start)


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


HEAT = Path(__file__).parents[2] / "samples/heat/heat.dag"


def test_the_heat_equation_has_its_own_order() -> None:
    """First and last rows wait for what they read, and the copies of both borders for nothing of each other."""
    found = edges(api.load_graph(HEAT, {"transport": "mpi_cuda", "steps": 1}))
    assert not any(e.startswith("take[0,top] -> take") or "take[0,bottom] -> inner" in e for e in found)
    assert {e for e in found if e.endswith("-> inner[0]")} == set()
    assert {e for e in found if e.endswith("-> keep")} == {"inner[0] -> keep", "first[0] -> keep", "last[0] -> keep"}
