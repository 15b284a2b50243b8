"""One expression, three texts: what dagc evaluates, what C++ computes and what Python computes are equal."""

from __future__ import annotations

import subprocess
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dagc.base.resources import resource
from dagc.build.toolchain import find_cxx
from dagc.emit.driver import python
from dagc.emit.render import expression
from dagc.ir.sym import Apply, Const, Fn, Sym, Var, apply, evaluate, show
from tests.tiers import examples

ENV = {"a": 7, "b": -12, "c": 100_003, "zero": 0}


def sizes(depth: int = 3) -> st.SearchStrategy[Sym]:
    leaf = st.one_of(st.sampled_from([Var(n) for n in ENV]), st.integers(-9, 9).map(Const))
    if depth == 0:
        return leaf
    less = sizes(depth - 1)
    divisor = st.sampled_from([Const(2), Const(32), Const(-3), Var("a")])
    return st.one_of(
        leaf,
        st.builds(apply, st.sampled_from([Fn.ADD, Fn.SUB, Fn.MUL, Fn.MIN, Fn.MAX]), less, less),
        st.builds(lambda f, x, y: apply(f, apply(Fn.DIV, x, y)), st.sampled_from([Fn.FLOOR, Fn.CEIL]), less, divisor),
        st.builds(lambda x, y: apply(Fn.MOD, x, y), less, divisor),
        st.builds(lambda t, x, y: Apply(Fn.COND, (Apply(Fn.LT, (t, Const(0))), x, y)), less, less, less),
        st.builds(lambda x: apply(Fn.NEG, x), less),
    )


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


@given(sizes())
@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.too_slow])
def test_python_computes_what_dagc_evaluates(expr: Sym) -> None:
    names = {**ENV, "dagc": SimpleNamespace(ceil_div=ceil_div)}
    assert eval(python(expr, str), names) == evaluate(expr, ENV)


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


@pytest.mark.parametrize("equal", [Fn.EQ, Fn.NE])
def test_a_comparison_of_comparisons_is_no_chain(equal: Fn) -> None:
    """`a < b == c` of Python is `a < b and b == c`."""
    first, second = Apply(Fn.LT, (Var("a"), Var("b"))), Apply(Fn.LE, (Var("b"), Var("c")))
    for expr in (Apply(equal, (first, second)), Apply(equal, (second, first))):
        assert eval(python(expr, str), dict(ENV)) is evaluate(expr, ENV)
        assert show(expr).count("(") == expression(expr, str).count("(") == 2


@pytest.mark.skipif(find_cxx() is None, reason="needs a C++ compiler")
def test_cxx_computes_what_dagc_evaluates(tmp_path: Path) -> None:
    """One program for many expressions: a compiler run each would take minutes."""
    expressions: list[Sym] = []

    @given(sizes())
    @settings(max_examples=examples(200), database=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
    def collect(expr: Sym) -> None:
        # Signed overflow has no meaning in C++, and sizes stay far from it.
        if isinstance(value := evaluate(expr, ENV), int) and abs(value) < 2**62:
            expressions.append(expr)

    collect()
    lines = "".join(f'  std::printf("%lld\\n", (long long)({expression(e, str)}));\n' for e in expressions)
    values = "".join(f"  std::int64_t {n} = {v}; (void){n};\n" for n, v in ENV.items())
    head = '#include <algorithm>\n#include <cstdint>\n#include <cstdio>\n#include "dagc/math.hpp"\n'
    (tmp_path / "t.cpp").write_text(f"{head}int main() {{\n{values}{lines}}}\n")
    cxx = find_cxx()
    assert cxx is not None
    command = [str(cxx.path), "-std=c++17", "-w", "-I", str(resource("templates/runtime")), "t.cpp", "-o", "t"]
    subprocess.run(command, cwd=tmp_path, check=True)
    out = subprocess.run(["./t"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    for text, expr in zip(out.split(), expressions, strict=True):
        assert int(text) == evaluate(expr, ENV), expression(expr, str)
