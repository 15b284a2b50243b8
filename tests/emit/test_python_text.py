"""One expression, three texts: what dagc evaluates, what C++ computes and what Python computes are equal."""

from __future__ import annotations

import math
import struct
import subprocess
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dagc.base.resources import resource
from dagc.build.toolchain import find_cxx
from dagc.emit import emit
from dagc.emit.render import CXX, PYTHON, Expressions
from dagc.ir.plan import Plan, Target
from dagc.ir.sym import Apply, Const, Fn, Number, Sym, Var, apply, at_run_time, evaluate, is_real, show
from dagc.space import Space
from tests.emit.build import graph_of
from tests.tiers import examples

BIG = 3_037_000_499  # its square is the last one below 2**63
ENV: dict[str, Number] = {
    "a": 7, "b": -12, "c": 100_003, "zero": 0, "big": BIG, "rank": 2, "ranks": 3,
    "f": 0.7, "g": -2.5, "h": 1e10, "none": 0.0, "yes": True, "no": False,
}  # fmt: skip
INTEGERS = [n for n, v in ENV.items() if type(v) is int]
REALS = [n for n, v in ENV.items() if isinstance(v, float)]
TRUTHS = [n for n, v in ENV.items() if isinstance(v, bool)]
_ARITHMETIC = (Fn.ADD, Fn.SUB, Fn.MUL)
_COMPARED = (Fn.EQ, Fn.NE, Fn.LT, Fn.LE, Fn.GT, Fn.GE)


def _all(fns: Sequence[Fn], *args: st.SearchStrategy[Sym]) -> st.SearchStrategy[Sym]:
    return st.builds(lambda fn, *of: Apply(fn, of), st.sampled_from(fns), *args)


def integers(depth: int) -> st.SearchStrategy[Sym]:
    leaf = st.one_of(
        st.sampled_from([Var(n) for n in INTEGERS]),
        st.one_of(st.integers(-9, 9), st.sampled_from([2**31 - 1, 2**31, -(2**31), 10**10])).map(Const),
    )
    if depth == 0:
        return leaf
    less = integers(depth - 1)
    quotient = _all([Fn.DIV], less, less)
    return st.one_of(
        leaf,
        _all(_ARITHMETIC, less, less),
        _all([Fn.MIN, Fn.MAX], less, less),
        _all([Fn.MIN, Fn.MAX], less, less, less),
        _all([Fn.FLOOR, Fn.CEIL], st.one_of(quotient, _all([Fn.ADD, Fn.MUL], quotient, less))),
        _all([Fn.FLOOR, Fn.CEIL], reals(depth - 1)),
        _all([Fn.MOD], less, less),
        _all([Fn.COND], truths(depth - 1), less, less),
        _all([Fn.NEG, Fn.ABS], less),
    )


def reals(depth: int) -> st.SearchStrategy[Sym]:
    leaf = st.one_of(st.sampled_from([Var(n) for n in REALS]), st.sampled_from([0.5, 1e-3, 2.0**70]).map(Const))
    if depth == 0:
        return leaf
    less, any_ = reals(depth - 1), st.one_of(reals(depth - 1), integers(depth - 1))
    return st.one_of(
        leaf,
        _all([Fn.DIV], any_, any_),
        _all([*_ARITHMETIC, Fn.MIN, Fn.MAX], less, any_),
        _all([*_ARITHMETIC, Fn.MIN, Fn.MAX, Fn.MOD], any_, less),
        _all([Fn.COND], truths(depth - 1), less, any_),
        _all([Fn.NEG, Fn.ABS], less),
        _all([Fn.LOG2, Fn.SQRT], any_),
    )


def truths(depth: int) -> st.SearchStrategy[Sym]:
    leaf = st.sampled_from([Var(n) for n in TRUTHS])
    if depth == 0:
        return leaf
    less, number = truths(depth - 1), st.one_of(reals(depth - 1), integers(depth - 1))
    return st.one_of(
        leaf,
        _all(_COMPARED, number, number),
        _all([Fn.EQ, Fn.NE, Fn.AND, Fn.OR], less, less),
        _all([Fn.NOT], less),
        _all([Fn.COND], less, less, less),
    )


EXPRESSIONS = st.one_of(integers(3), reals(3), truths(3))


def _bits(value: Any) -> str:
    """A value as both languages print it; NaN is one value."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack(">d", value + 0.0).hex()
    return str(int(value))


def _defined(expr: Sym) -> Number | None:
    """The value, None if a part of it is undefined, or is an integer that 64 bits do not hold: C++ leaves it open."""
    if isinstance(expr, Apply) and any(_defined(a) is None for a in expr.args):
        return None
    if isinstance(expr, Apply) and expr.fn in (Fn.FLOOR, Fn.CEIL):
        expr, quotient = Apply(Fn.MUL, expr.args), expr  # what is multiplied out, too
        if abs(evaluate_size(quotient.args[0])) >= 2**62:
            return None
        expr = quotient
    try:
        value = at_run_time(expr, ENV)
    except (ArithmeticError, ValueError):
        return None
    return None if isinstance(value, int) and abs(value) >= 2**63 else value


def evaluate_size(expr: Sym) -> int:
    """A bound of what the terms of a quotient have when they are brought over one divisor."""
    if not isinstance(expr, Apply):
        value = evaluate(expr, ENV)
        return math.ceil(abs(value)) + 1 if isinstance(value, int | float) and math.isfinite(value) else 2**64
    if expr.fn in (*_ARITHMETIC, Fn.DIV, Fn.NEG):
        return 2 * math.prod(map(evaluate_size, expr.args))
    value = _defined(expr)
    return 2**64 if value is None or isinstance(value, str) else math.ceil(abs(float(value))) + 1


def runtime() -> SimpleNamespace:
    """The arithmetic of driver_runtime.py, whose other parts need PyCUDA."""
    text = resource("templates/python/driver_runtime.py").read_text()
    part = text[text.index("# ---- arithmetic") : text.index("def grid(")]
    module = ModuleType("arithmetic")
    exec("from __future__ import annotations\nimport math\nfrom collections.abc import Callable\n" + part, vars(module))
    return SimpleNamespace(**vars(module))


DAGC = runtime()


def in_python(expr: Sym) -> Any:
    return eval(Expressions(PYTHON, reals=REALS).text(expr), {**ENV, "dagc": DAGC})


@given(EXPRESSIONS)
@settings(max_examples=examples(400), suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
def test_python_computes_what_dagc_evaluates(expr: Sym) -> None:
    value = _defined(expr)
    if value is not None:
        assert _bits(in_python(expr)) == _bits(value), show(expr)


def test_neutral_operands_are_left_out_and_values_stay() -> None:
    env = {"a": 7, "ranks": 4}
    operands: list[Sym] = [Const(0), Const(1), Const(-1), Const(0.0), Const(False), Const(True), *map(Var, env)]
    for fn, left, right in product((Fn.ADD, Fn.SUB, Fn.MUL, Fn.MOD), operands, operands):
        if fn is not Fn.MOD or evaluate(right, env):
            value = evaluate(apply(fn, left, right), env)
            assert value == evaluate(Apply(fn, (left, right)), env), (fn, left, right)
    a, ranks = Var("a"), Var("ranks")
    assert [apply(fn, a, Const(n)) for fn, n in ((Fn.ADD, 0), (Fn.SUB, 0), (Fn.MUL, 1))] == [a, a, a]
    assert [apply(Fn.ADD, Const(0), a), apply(Fn.MUL, Const(1), a), apply(Fn.MOD, Const(0), ranks)] == [a, a, Const(0)]
    kept = [apply(Fn.SUB, Const(0), a), apply(Fn.MUL, Const(0), a), apply(Fn.MOD, Const(0), a)]  # a may be 0 or a NaN
    assert [show(e) for e in kept] == ["0 - a", "0 * a", "0 % a"]


def test_a_sum_is_one_operand_where_ranks_have_few_bits() -> None:
    sum_ = Apply(Fn.ADD, (Var("rank"), Var("ranks")))
    assert in_python(Apply(Fn.MUL, (sum_, Var("ranks")))) == (ENV["rank"] + ENV["ranks"]) * ENV["ranks"]


@pytest.mark.parametrize("equal", [Fn.EQ, Fn.NE])
def test_a_comparison_of_comparisons_is_no_chain(equal: Fn) -> None:
    """`a < b == c` of Python is `a < b and b == c`."""
    first, second = Apply(Fn.LT, (Var("a"), Var("b"))), Apply(Fn.LE, (Var("b"), Var("c")))
    for expr in (Apply(equal, (first, second)), Apply(equal, (second, first))):
        assert in_python(expr) is evaluate(expr, ENV)
        assert show(expr).count("(") == Expressions(CXX).text(expr).count("(") == 2


# What the random ones may miss.
KNOWN = [
    Apply(Fn.FLOOR, (Apply(Fn.MUL, (Var("f"), Const(10))),)),  # both were dropped in Python
    Apply(Fn.CEIL, (Apply(Fn.DIV, (Apply(Fn.SQRT, (Var("c"),)), Const(2))),)),
    Apply(Fn.MUL, (Var("rank"), Const(2**31 - 1))),  # `int` times `int`
    Apply(Fn.ADD, (Apply(Fn.MUL, (Var("ranks"), Const(10**9))), Const(-1))),
    Apply(Fn.LT, (Const(2**53 + 1), Apply(Fn.MUL, (Const(2.0**53), Const(1.0))))),  # compared as doubles
    Apply(Fn.MIN, (Var("a"), Var("b"), Var("f"))),
    Apply(Fn.NEG, (Const(-(2**63) + 1),)),
]
# Real numbers that are none: as IEEE 754 has them. Rounded, they are the least integer.
UNDEFINED = {
    Apply(Fn.DIV, (Var("a"), Var("none"))): math.inf,
    Apply(Fn.DIV, (Var("b"), Var("zero"))): -math.inf,
    Apply(Fn.DIV, (Var("none"), Var("zero"))): math.nan,
    Apply(Fn.SQRT, (Var("b"),)): math.nan,
    Apply(Fn.LOG2, (Var("zero"),)): -math.inf,
    Apply(Fn.LOG2, (Var("g"),)): math.nan,
    Apply(Fn.MOD, (Var("a"), Var("none"))): math.nan,
    Apply(Fn.FLOOR, (Apply(Fn.DIV, (Var("a"), Var("none"))),)): -(2**63),
    Apply(Fn.CEIL, (Apply(Fn.SQRT, (Var("g"),)),)): -(2**63),
    Apply(Fn.FLOOR, (Apply(Fn.MUL, (Var("h"), Var("h"))),)): -(2**63),
}


@pytest.mark.parametrize("expr", [*KNOWN, *UNDEFINED], ids=show)
def test_python_of_special_values(expr: Sym) -> None:
    value = UNDEFINED[expr] if expr in UNDEFINED else at_run_time(expr, ENV)
    assert _bits(in_python(expr)) == _bits(value)


@pytest.mark.skipif(find_cxx() is None, reason="needs a C++ compiler")
def test_cxx_computes_what_dagc_evaluates(tmp_path: Path) -> None:
    """One program for many expressions: a compiler run each would take minutes."""
    wanted: dict[Sym, str] = {e: _bits(at_run_time(e, ENV)) for e in KNOWN}
    wanted |= {e: _bits(value) for e, value in UNDEFINED.items()}

    @given(EXPRESSIONS)
    @settings(max_examples=examples(400), database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    def collect(expr: Sym) -> None:
        value = _defined(expr)
        if value is not None:
            wanted[expr] = _bits(value)

    collect()
    printer = Expressions(CXX, reals=REALS)
    lines = "".join(f"  show<{'double' if is_real(e, REALS) else 'long long'}>({printer.text(e)});\n" for e in wanted)
    types = {int: "std::int64_t", float: "double", bool: "bool"}
    values = "".join(
        f"  {'int' if n in ('rank', 'ranks') else types[type(v)]} {n} = {str(v).lower()}; (void){n};\n"
        for n, v in ENV.items()
    )
    head = "#include <algorithm>\n#include <cmath>\n#include <cstdint>\n#include <cstdio>\n#include <cstring>\n"
    head += '#include "dagc/math.hpp"\n'
    head += """template <class T> void show(T value) {
  unsigned long long bits;
  if (value != value) return void(std::puts("nan"));
  std::memcpy(&bits, &(value += 0), 8);
  std::printf(sizeof(T) && T(0.5) ? "%016llx\\n" : "%lld\\n", bits);
}
"""
    (tmp_path / "t.cpp").write_text(f"{head}int main() {{\n{values}{lines}}}\n")
    cxx = find_cxx()
    assert cxx is not None
    words = [str(cxx.path), "-std=c++17", "-w", "-ftrapv", "-ffp-contract=off"]
    command = [*words, "-I", str(resource("templates/runtime")), "t.cpp", "-o", "t"]
    subprocess.run(command, cwd=tmp_path, check=True)
    out = subprocess.run(["./t"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    for text, (expr, value) in zip(out.split(), wanted.items(), strict=True):
        assert text == value, printer.text(expr)


def test_a_driver_rounds_real_numbers() -> None:
    """Both were left out: the grid was `sqrt(n) / 2`, the argument `f * 10`."""
    kernel = 'gpu { launch grid(ceil(sqrt(n) / 2)) block(64) cuda """ y[0] = e; """ }'
    graph = graph_of(
        'program p\nsetup "p.py" data()\nscalar f : f64\nscalar n : i64\narray y : f64[n] out\n'
        f"kernel s(y: out f64[n], n: i64, e: i64) {{ {kernel} }}\ndag {{ k : gpu s(y, n, floor(f * 10)) }}\n"
    )
    text = emit(Plan(graph, Space(graph).first(), Target.CUDA))["driver.py"]
    assert "k_grid = dagc.grid(dagc.ceil(dagc.quotient(dagc.sqrt(float(p.n)), float(2))))" in text
    assert "p.y.address, p.n, dagc.floor(p.f * 10))" in text
