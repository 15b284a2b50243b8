"""Symbolic scalars (sizes, grids, by-value arguments, conditions) and their text in the language."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

# ---- symbolic scalars ----


Number: TypeAlias = "int | float | bool | str | Fraction"


class Fn(Enum):
    ADD = "+"
    SUB = "-"
    MUL = "*"
    DIV = "/"
    MOD = "%"
    NEG = "neg"
    FLOOR = "floor"
    CEIL = "ceil"
    MIN = "min"
    MAX = "max"
    ABS = "abs"
    LOG2 = "log2"
    SQRT = "sqrt"
    EQ = "=="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    AND = "&&"
    OR = "||"
    NOT = "!"
    COND = "?:"


@dataclass(frozen=True, slots=True)
class Const:
    value: Number


@dataclass(frozen=True, slots=True)
class Var:
    """A per-rank scalar by display name (`nbr[x,lo]`), `rank`, `ranks`, `hw.NAME`, a formal or a tunable."""

    name: str


@dataclass(frozen=True, slots=True)
class Apply:
    fn: Fn
    args: tuple[Sym, ...]


Sym: TypeAlias = Const | Var | Apply


class UnboundName(Exception):
    """`evaluate` found a `Var` without a value; `.args[0]` is its name."""


def _exact(value: Number) -> Number:
    """A number; an integral Fraction as int."""
    if isinstance(value, Fraction) and value.denominator == 1:
        return value.numerator
    return value


def _divide(a: Number, b: Number) -> Number:
    if isinstance(a, float) or isinstance(b, float):
        return a / b  # type: ignore[operator]
    return _exact(Fraction(a) / Fraction(b))


RULES: dict[Fn, Callable[..., Number]] = {
    Fn.ADD: lambda a, b: _exact(a + b),
    Fn.SUB: lambda a, b: _exact(a - b),
    Fn.MUL: lambda a, b: _exact(a * b),
    Fn.DIV: _divide,
    Fn.MOD: lambda a, b: a % b,
    Fn.NEG: lambda a: -a,
    Fn.FLOOR: math.floor,
    Fn.CEIL: math.ceil,
    Fn.MIN: lambda *a: min(a),
    Fn.MAX: lambda *a: max(a),
    Fn.ABS: abs,
    Fn.LOG2: math.log2,
    Fn.SQRT: math.sqrt,
    Fn.EQ: lambda a, b: a == b,
    Fn.NE: lambda a, b: a != b,
    Fn.LT: lambda a, b: a < b,
    Fn.LE: lambda a, b: a <= b,
    Fn.GT: lambda a, b: a > b,
    Fn.GE: lambda a, b: a >= b,
    Fn.AND: lambda a, b: bool(a) and bool(b),
    Fn.OR: lambda a, b: bool(a) or bool(b),
    Fn.NOT: lambda a: not a,
    Fn.COND: lambda t, a, b: a if t else b,
}


NEUTRAL = {Fn.ADD: 0, Fn.SUB: 0, Fn.MUL: 1}  # right operands that leave the left one as it is


def apply(fn: Fn, *args: Sym) -> Sym:
    """Build an application. Constants are folded, neutral operands are left out, and a condition with a constant test
    is resolved.

    Raises ZeroDivisionError, ValueError or TypeError if constant operands are invalid.
    """
    if fn is Fn.COND and isinstance(args[0], Const):
        return args[1] if args[0].value else args[2]
    if fn is Fn.AND and any(isinstance(a, Const) and not a.value for a in args):
        return Const(False)
    if fn is Fn.OR and any(isinstance(a, Const) and a.value for a in args):
        return Const(True)
    if all(isinstance(a, Const) for a in args):
        return Const(RULES[fn](*(a.value for a in args if isinstance(a, Const))))
    if len(args) == 2:
        left, right = (a.value if isinstance(a, Const) and type(a.value) is int else None for a in args)
        if right is not None and NEUTRAL.get(fn) == right:
            return args[0]
        if left is not None and fn in (Fn.ADD, Fn.MUL) and NEUTRAL[fn] == left:
            return args[1]
        if left == 0 and fn is Fn.MOD and args[1] == Var("ranks"):
            return Const(0)
    return Apply(fn, args)


def evaluate(expr: Sym, env: Mapping[str, Number]) -> Number:
    """The exact value. Raises `UnboundName`, ZeroDivisionError, ValueError or TypeError."""
    if isinstance(expr, Const):
        return expr.value
    if isinstance(expr, Var):
        if expr.name not in env:
            raise UnboundName(expr.name)
        return env[expr.name]
    if expr.fn is Fn.COND:
        return evaluate(expr.args[1] if evaluate(expr.args[0], env) else expr.args[2], env)
    if expr.fn is Fn.AND:
        return all(bool(evaluate(a, env)) for a in expr.args)
    if expr.fn is Fn.OR:
        return any(bool(evaluate(a, env)) for a in expr.args)
    return RULES[expr.fn](*(evaluate(a, env) for a in expr.args))


def substitute(expr: Sym, env: Mapping[str, Sym]) -> Sym:
    """Replace variables and fold constants."""
    if isinstance(expr, Var):
        return env.get(expr.name, expr)
    if isinstance(expr, Apply):
        return apply(expr.fn, *(substitute(a, env) for a in expr.args))
    return expr


def specialised(expr: Sym, env: Mapping[str, Sym]) -> Sym:
    """As `substitute`, but a part without a value, such as a division by zero, remains an expression."""
    if not isinstance(expr, Apply):
        return substitute(expr, env)
    args = tuple(specialised(a, env) for a in expr.args)
    try:
        return apply(expr.fn, *args)
    except (ArithmeticError, ValueError, TypeError):
        return Apply(expr.fn, args)


def free(expr: Sym) -> frozenset[str]:
    """The names of the variables of an expression."""
    if isinstance(expr, Var):
        return frozenset((expr.name,))
    if isinstance(expr, Apply):
        return frozenset().union(*(free(a) for a in expr.args))
    return frozenset()


# ---- equality of polynomials --------------------------------------------------------------
# A polynomial is {monomial: coefficient}; a monomial is a sorted tuple of atoms. An atom is a variable or an
# application that is not a ring operation (floor, ceil, %, ...), whose own arguments are normalised first.

Poly: TypeAlias = dict[tuple[Sym, ...], Fraction]


@lru_cache(maxsize=1 << 12)
def _order(atom: Sym) -> str:
    return repr(atom)


def polynomial(expr: Sym) -> Poly:
    if isinstance(expr, Const) and isinstance(expr.value, (int, Fraction)):
        return {(): Fraction(expr.value)} if expr.value else {}
    if isinstance(expr, Apply):
        if expr.fn in (Fn.ADD, Fn.SUB):
            sign = 1 if expr.fn is Fn.ADD else -1
            out = dict(polynomial(expr.args[0]))
            for m, c in polynomial(expr.args[1]).items():
                out[m] = out.get(m, Fraction(0)) + sign * c
            return {m: c for m, c in out.items() if c}
        if expr.fn is Fn.NEG:
            return {m: -c for m, c in polynomial(expr.args[0]).items()}
        if expr.fn is Fn.MUL:
            out = {}
            for m, c in polynomial(expr.args[0]).items():
                for n, d in polynomial(expr.args[1]).items():
                    k = tuple(sorted(m + n, key=_order)) if m and n else m or n
                    out[k] = out.get(k, Fraction(0)) + c * d
            return {m: c for m, c in out.items() if c}
        if expr.fn is Fn.DIV:
            divisor = polynomial(expr.args[1])
            if set(divisor) == {()}:
                return {m: c / divisor[()] for m, c in polynomial(expr.args[0]).items()}
        return {(Apply(expr.fn, tuple(_normal(a) for a in expr.args)),): Fraction(1)}
    return {(expr,): Fraction(1)}


def _normal(expr: Sym) -> Sym:
    """One representative per polynomial."""
    out: Sym | None = None
    for monomial, coefficient in sorted(polynomial(expr).items(), key=repr):
        term: Sym = Const(_exact(coefficient))
        for atom in monomial:
            term = atom if term == Const(1) else Apply(Fn.MUL, (term, atom))
        out = term if out is None else Apply(Fn.ADD, (out, term))
    return out if out is not None else Const(0)


def equal(a: Sym, b: Sym) -> bool | None:
    """Whether two expressions are equal: True or False if that can be proved, None if it depends on unknown values."""
    difference = polynomial(Apply(Fn.SUB, (a, b)))
    if not difference:
        return True
    return False if set(difference) == {()} else None


def difference(a: Sym, b: Sym) -> Sym:
    """a - b, as a number where that can be proved."""
    left = polynomial(Apply(Fn.SUB, (a, b)))
    return Const(_exact(left.get((), Fraction(0)))) if set(left) <= {()} else apply(Fn.SUB, a, b)


# ---- infix operators in a text --------------------------------------------------------------

TIGHTEST = 9  # for an operand of `-` and `!`
_LEVELS = {
    Fn.OR: 1, Fn.AND: 2, Fn.EQ: 3, Fn.NE: 3, Fn.LT: 3, Fn.LE: 3, Fn.GT: 3, Fn.GE: 3,
    Fn.ADD: 4, Fn.SUB: 4, Fn.MUL: 5, Fn.DIV: 5, Fn.MOD: 5,
}  # fmt: skip


def infix(expr: Apply, operator: str, operand: Callable[[Sym, int], str], outer: int) -> str:
    """`a + b`, in parentheses where the text around it binds closer: at the level `outer`. `operand`: the text of an
    operand at a level.

    Comparisons in a comparison have parentheses in every language: of C++ compilers warn, Python reads `a < b == c` as
    a chain, and the language has none.
    """
    level = _LEVELS[expr.fn]
    left, right = expr.args
    text = f"{operand(left, level + (level == 3))} {operator} {operand(right, level + 1)}"
    return f"({text})" if level < outer else text


# ---- values when the program runs -------------------------------------------------------------


def is_real(expr: Sym, reals: Collection[str]) -> bool:
    """Whether the value is a real number when the program runs; the variables `reals` are."""
    if isinstance(expr, Const):
        return isinstance(expr.value, float | Fraction)
    if isinstance(expr, Var):
        return expr.name in reals
    if expr.fn in _WHOLE:
        return False
    return expr.fn in (Fn.DIV, Fn.LOG2, Fn.SQRT) or any(is_real(a, reals) for a in expr.args[expr.fn is Fn.COND :])


_WHOLE = (Fn.FLOOR, Fn.CEIL, Fn.EQ, Fn.NE, Fn.LT, Fn.LE, Fn.GT, Fn.GE, Fn.AND, Fn.OR, Fn.NOT)


def at_run_time(expr: Sym, values: Mapping[str, Number]) -> Number:
    """The value as emitted programs compute it: in 64-bit integers, which do not overflow here, and in doubles. A
    quotient is a double, and so is what an integer is combined or compared with a real number as; `floor` and `ceil` of
    quotients of integers are exact. Raises as `evaluate`, and OverflowError."""
    reals = frozenset(name for name, value in values.items() if isinstance(value, float))

    def real(part: Sym) -> float:
        return float(at(part))

    def at(e: Sym) -> Number:
        if not isinstance(e, Apply):
            value = evaluate(e, values)
            return float(value) if isinstance(value, Fraction) else value
        if e.fn in (Fn.FLOOR, Fn.CEIL):
            top, bottom = fraction(e.args[0])
            if is_real(top, reals) or is_real(bottom, reals):
                return RULES[e.fn](real(e.args[0]))
            return RULES[e.fn](RULES[Fn.DIV](at(top), at(bottom)))
        if e.fn in (Fn.AND, Fn.OR):
            return any(map(at, e.args)) if e.fn is Fn.OR else all(map(at, e.args))
        if e.fn is Fn.COND:
            value = at(e.args[1] if at(e.args[0]) else e.args[2])
            return float(value) if is_real(e, reals) else value
        doubles = any(is_real(a, reals) for a in e.args) or e.fn in (Fn.DIV, Fn.LOG2, Fn.SQRT)
        return RULES[e.fn](*(real(a) if doubles else at(a) for a in e.args))

    return at(expr)


def fraction(expr: Sym) -> tuple[Sym, Sym]:
    """(numerator, denominator), neither with a division at its top."""
    if isinstance(expr, Const) and isinstance(expr.value, Fraction):
        return Const(expr.value.numerator), Const(expr.value.denominator)
    if isinstance(expr, Apply) and expr.fn in (Fn.ADD, Fn.SUB, Fn.MUL, Fn.DIV, Fn.NEG):
        parts = [fraction(a) for a in expr.args]
        (n, d) = parts[0]
        if expr.fn is Fn.NEG:
            return apply(Fn.NEG, n), d
        (m, e) = parts[1]
        if expr.fn is Fn.MUL:
            return _times(n, m), _times(d, e)
        if expr.fn is Fn.DIV:
            return _times(n, e), _times(d, m)
        if d == e:
            return apply(expr.fn, n, m), d
        return apply(expr.fn, _times(n, e), _times(m, d)), _times(d, e)
    return expr, Const(1)


def _times(a: Sym, b: Sym) -> Sym:
    if a == Const(1):
        return b
    return a if b == Const(1) else apply(Fn.MUL, a, b)


# ---- text in the language ----


def show(value: Sym, outer: int = 0) -> str:
    """A symbolic value in the syntax of the language."""
    if isinstance(value, Const):
        text = str(value.value).lower() if isinstance(value.value, bool) else str(value.value)
        return f"({text})" if isinstance(value.value, Fraction) else text
    if isinstance(value, Var):
        return value.name
    if value.fn is Fn.COND:
        return "(" + f"{show(value.args[0], 1)} ? {show(value.args[1])} : {show(value.args[2])}" + ")"
    if value.fn in (Fn.NEG, Fn.NOT):
        return ("-" if value.fn is Fn.NEG else "!") + show(value.args[0], TIGHTEST)
    if value.fn not in _LEVELS:
        return f"{value.fn.value}({', '.join(show(a) for a in value.args)})"
    return infix(value, value.fn.value, show, outer)
