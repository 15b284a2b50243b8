"""Random rational programs, each with a Python function that computes the same, and a way to call their C."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sympy as sp
from hypothesis import assume
from hypothesis import strategies as st

from dagc.cuda.expressions import symbol
from dagc.perf.cprint import HELPERS, to_c
from dagc.perf.lower import instructions
from dagc.perf.program import Assign, Branch, Number, Parameter, ParameterKind, RationalProgram, Statement

Values = dict[str, Any]
MODULUS = 97  # keeps what is assigned small, so that products fit in 64 bits

PARAMETERS = (
    Parameter("n", ParameterKind.DATA, Number.INTEGER),
    Parameter("m", ParameterKind.HARDWARE, Number.INTEGER),
    Parameter("k", ParameterKind.PROGRAM, Number.INTEGER),
    Parameter("u", ParameterKind.HARDWARE, Number.REAL),
    Parameter("w", ParameterKind.DATA, Number.REAL),
)
INTEGERS = tuple(p for p in PARAMETERS if p.number is Number.INTEGER)


@dataclass(frozen=True)
class Term:
    """An expression and the same as a Python function of all names."""

    expr: sp.Basic
    value: Callable[[Values], Any]


@dataclass(frozen=True)
class Drawn:
    program: RationalProgram
    value: Callable[[Values], Any]


def made_symbol(name: str, number: Number) -> sp.Symbol:
    return symbol(name) if number is Number.INTEGER else sp.Symbol(name, real=True)


def values_of(parameters: Sequence[Parameter]) -> st.SearchStrategy[Values]:
    """Small numbers of both signs, zero among them; reals are eighths."""
    whole = st.integers(-40, 40)
    return st.fixed_dictionaries(
        {p.name: whole if p.number is Number.INTEGER else whole.map(lambda i: i / 8) for p in parameters}
    )


@st.composite
def integer_terms(draw: st.DrawFn, names: tuple[str, ...], depth: int = 2, wild: bool = False) -> Term:
    """`wild`: divisors may be anything, zero too (what SymPy cancels is then not what Python computes)."""
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        if draw(st.booleans()):
            name = draw(st.sampled_from(names))
            return Term(symbol(name), lambda v: v[name])
        constant = draw(st.integers(-9, 9))
        return Term(sp.Integer(constant), lambda v: constant)
    a, b = (draw(integer_terms(names, depth - 1, wild)) for _ in range(2))
    match draw(st.sampled_from(["+", "-", "*", "floor", "ceiling", "min", "max", "piecewise"])):
        case "+":
            return Term(a.expr + b.expr, lambda v: a.value(v) + b.value(v))
        case "-":
            return Term(a.expr - b.expr, lambda v: a.value(v) - b.value(v))
        case "*":
            return Term(a.expr * b.expr, lambda v: a.value(v) * b.value(v))
        case "min":
            return Term(sp.Min(a.expr, b.expr), lambda v: min(a.value(v), b.value(v)))
        case "max":
            return Term(sp.Max(a.expr, b.expr), lambda v: max(a.value(v), b.value(v)))
        case "piecewise":
            test = draw(conditions(names, wild=wild))
            expr = _piecewise(a.expr, test.expr, b.expr)
            return Term(expr, lambda v: a.value(v) if test.value(v) else b.value(v))
        case rounding:
            below = b if wild and b.expr != 0 else _constant(draw(st.integers(1, 12)))
            if rounding == "floor":
                return Term(sp.floor(a.expr / below.expr), lambda v: a.value(v) // below.value(v))
            return Term(sp.ceiling(a.expr / below.expr), lambda v: -(-a.value(v) // below.value(v)))


def _piecewise(then: sp.Expr, test: sp.Basic, other: sp.Expr) -> sp.Expr:
    """SymPy rewrites some comparisons of reals back and forth without end: such a one is not simplified."""
    try:
        return sp.Piecewise((then, test), (other, True))
    except RecursionError:
        return sp.Piecewise((then, test), (other, True), evaluate=False)


def _constant(value: int) -> Term:
    return Term(sp.Integer(value), lambda v: value)


@st.composite
def conditions(draw: st.DrawFn, names: tuple[str, ...], depth: int = 1, wild: bool = False) -> Term:
    kind = draw(st.sampled_from(["<", "<=", ">", ">=", "==", "!="] + (["and", "or", "not"] if depth else [])))
    if kind in ("and", "or", "not"):
        p, q = (draw(conditions(names, depth - 1, wild)) for _ in range(2))
        if kind == "and":
            return Term(sp.And(p.expr, q.expr), lambda v: p.value(v) and q.value(v))
        if kind == "or":
            return Term(sp.Or(p.expr, q.expr), lambda v: p.value(v) or q.value(v))
        return Term(sp.Not(p.expr), lambda v: not p.value(v))
    a, b = (draw(integer_terms(names, 1, wild)) for _ in range(2))
    build, compute = {
        "<": (sp.Lt, int.__lt__), "<=": (sp.Le, int.__le__), ">": (sp.Gt, int.__gt__), ">=": (sp.Ge, int.__ge__),
        "==": (sp.Eq, int.__eq__), "!=": (sp.Ne, int.__ne__),
    }[kind]  # fmt: skip
    return Term(build(a.expr, b.expr), lambda v: compute(a.value(v), b.value(v)))


def _small(term: Term) -> Term:
    """Modulo a prime, in the language's own words."""
    expr = term.expr - MODULUS * sp.floor(term.expr / MODULUS)
    return Term(expr, lambda v: term.value(v) % MODULUS)


@st.composite
def _statement(draw: st.DrawFn, name: str, names: tuple[str, ...], wild: bool, depth: int = 1) -> tuple[Any, Any]:
    """A statement that assigns a name, and a function that does so in a dictionary."""
    if depth == 0 or draw(st.booleans()):
        term = _small(draw(integer_terms(names, 2, wild)))
        return Assign(name, term.expr, Number.INTEGER), lambda v: v.update({name: term.value(v)})
    tests = draw(st.lists(conditions(names, wild=wild), min_size=1, max_size=2))
    paths = [draw(_statement(name, names, wild, depth - 1)) for _ in range(len(tests) + 1)]

    def run(v: Values) -> None:
        taken = next((i for i, test in enumerate(tests) if test.value(v)), len(tests))
        paths[taken][1](v)

    cases = tuple((test.expr, (path[0],)) for test, path in zip(tests, paths, strict=False))
    return Branch(cases, (paths[-1][0],)), run


@st.composite
def integer_programs(draw: st.DrawFn, wild: bool = False) -> Drawn:
    names = tuple(p.name for p in INTEGERS)
    body: list[Statement] = []
    steps: list[Callable[[Values], None]] = []
    for i in range(draw(st.integers(1, 3))):
        statement, step = draw(_statement(f"s{i}", names, wild, 2))
        body.append(statement)
        steps.append(step)
        names = (*names, f"s{i}")

    def value(given: Values) -> int:
        v = dict(given)
        for step in steps:
            step(v)
        return int(v[names[-1]])

    program = RationalProgram("random", INTEGERS, tuple(body), names[-1], "", "drawn")
    assume("zoo" not in repr(body) and "nan" not in repr(body))  # a divisor that is the constant zero is refused
    return Drawn(program, value)


@st.composite
def _real_terms(draw: st.DrawFn, names: dict[str, Number], depth: int = 3) -> sp.Expr:
    if depth == 0 or draw(st.integers(0, 6)) == 0:
        if draw(st.booleans()):
            name = draw(st.sampled_from(sorted(names)))
            return made_symbol(name, names[name])
        return sp.Float(draw(st.integers(-40, 40)) / 8)
    a, b = (draw(_real_terms(names, depth - 1)) for _ in range(2))
    match draw(st.sampled_from(["+", "-", "*", "/", "square", "min", "max", "piecewise"])):
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "/":
            return a / b if not b.is_zero else a  # SymPy: Float(0) != 0
        case "square":
            return a**2
        case "min":
            return sp.Min(a, b)
        case "max":
            return sp.Max(a, b)
        case _:
            return _piecewise(a, a < b, b)


@st.composite
def real_programs(draw: st.DrawFn) -> RationalProgram:
    """Integers and reals mixed, real quotients; no Python function, since SymPy orders the terms anew."""
    names = {p.name: p.number for p in PARAMETERS}
    body = []
    for i in range(draw(st.integers(1, 2))):
        value = draw(_real_terms(names))
        body.append(Assign(f"s{i}", value, Number.REAL))
        names[f"s{i}"] = Number.REAL
    assume("zoo" not in repr(body) and "nan" not in repr(body))
    return RationalProgram("random", PARAMETERS, tuple(body), body[-1].name, "", "drawn")


class CLibrary:
    """Programs as C functions p0, p1, ... of one shared library."""

    def __init__(self, programs: Sequence[RationalProgram], folder: Path, number: int = 0) -> None:
        text = [HELPERS]
        for i, program in enumerate(programs):
            kinds = {Number.INTEGER: "int64_t", Number.REAL: "double"}
            out = kinds[instructions(program)[-1].number or Number.INTEGER]
            args = ", ".join(f"{kinds[p.number]} {p.name}" for p in program.parameters) or "void"
            names = ", ".join(p.name for p in program.parameters)
            text += [to_c(program, f"f{i}"), f"{out} p{i}({args}) {{ return f{i}({names}); }}"]
        source, library = folder / f"programs{number}.c", folder / f"programs{number}.so"
        source.write_text("\n".join(text))
        flags = ["-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-shared", "-fPIC"]
        subprocess.run(["gcc", *flags, str(source), "-o", str(library)], check=True, capture_output=True, text=True)
        self._library = ctypes.CDLL(str(library))
        self._programs = programs
        self.source = source

    def call(self, i: int, values: Values) -> Any:
        program = self._programs[i]
        kinds = {Number.INTEGER: ctypes.c_int64, Number.REAL: ctypes.c_double}
        function = getattr(self._library, f"p{i}")
        function.restype = kinds[instructions(program)[-1].number or Number.INTEGER]
        function.argtypes = [kinds[p.number] for p in program.parameters]
        return function(*(values[p.name] for p in program.parameters))
