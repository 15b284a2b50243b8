"""Expressions in emitted languages: one printer, and a table of what differs between C++ and Python.

Both compute what `dagc.ir.sym.at_run_time` evaluates. The printer decides which numbers are real, where an integer is
converted, and how a quotient is rounded; a language only spells it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction

from dagc.ir.sym import TIGHTEST, Apply, Const, Fn, Number, Sym, Var, fraction, infix, is_real

_COMPARISONS = (Fn.EQ, Fn.NE, Fn.LT, Fn.LE, Fn.GT, Fn.GE)
_ARITHMETIC = (Fn.ADD, Fn.SUB, Fn.MUL)
_NARROW = 2**31


@dataclass(frozen=True, slots=True)
class Language:
    """How a language spells an expression; `{0}`, `{1}` and `{2}` are operands.

    `integers` and `reals`: calls, by what they compute with. `quotients`: `floor` and `ceil` of a quotient of integers.
    `words`: infix operators. `converts`: whether integers beside real numbers in comparisons and conditions are
    converted by the language. `wide`: how an integer gets 64 bits; empty where integers have no size.
    """

    constant: Callable[[Number], str]
    quotients: Mapping[Fn, str]
    integers: Mapping[Fn, str]
    reals: Mapping[Fn, str]
    words: Mapping[Fn, str]
    real: str
    converts: bool
    wide: str


def _cxx_constant(value: Number) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Fraction):
        return f"({value.numerator}.0 / {value.denominator}.0)"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, int) and not -(2**63) < value < 2**63:
        return f"({value + 1} - 1)" if value < 0 else f"{value}u"
    return repr(value)


CXX = Language(
    constant=_cxx_constant,
    quotients={Fn.FLOOR: "dagc::floor_div({0}, {1})", Fn.CEIL: "dagc::ceil_div({0}, {1})"},
    integers={
        Fn.MOD: "dagc::floor_mod({0}, {1})", Fn.MIN: "std::min(std::int64_t({0}), std::int64_t({1}))",
        Fn.MAX: "std::max(std::int64_t({0}), std::int64_t({1}))", Fn.ABS: "std::abs({0})", Fn.NOT: "!{0}",
        Fn.COND: "({0} ? {1} : {2})",
    },
    reals={
        Fn.FLOOR: "dagc::floor({0})", Fn.CEIL: "dagc::ceil({0})", Fn.DIV: "({0} / {1})",
        Fn.MOD: "dagc::real_mod({0}, {1})", Fn.MIN: "std::min({0}, {1})", Fn.MAX: "std::max({0}, {1})",
        Fn.ABS: "std::abs({0})", Fn.LOG2: "std::log2({0})", Fn.SQRT: "std::sqrt({0})", Fn.COND: "({0} ? {1} : {2})",
    },
    words={},
    real="double({0})",
    converts=True,
    wide="std::int64_t({0})",
)  # fmt: skip
PYTHON = Language(
    constant=lambda value: repr(float(value) if isinstance(value, Fraction) else value),
    quotients={Fn.FLOOR: "(({0}) // ({1}))", Fn.CEIL: "dagc.ceil_div({0}, {1})"},
    integers={
        Fn.MIN: "min({0}, {1})", Fn.MAX: "max({0}, {1})", Fn.ABS: "abs({0})", Fn.NOT: "(not {0})",
        Fn.COND: "({1} if {0} else {2})",
    },
    reals={
        Fn.FLOOR: "dagc.floor({0})", Fn.CEIL: "dagc.ceil({0})", Fn.DIV: "dagc.quotient({0}, {1})",
        Fn.MOD: "dagc.real_mod({0}, {1})", Fn.MIN: "min({0}, {1})", Fn.MAX: "max({0}, {1})", Fn.ABS: "abs({0})",
        Fn.LOG2: "dagc.log2({0})", Fn.SQRT: "dagc.sqrt({0})", Fn.COND: "({1} if {0} else {2})",
    },
    words={Fn.AND: "and", Fn.OR: "or"},
    real="float({0})",
    converts=False,
    wide="",
)  # fmt: skip


MOST_RANKS = 2**24


def of_ranks(name: str) -> int:
    """The magnitude of a variable of the program: numbers of ranks have 32 bits, as in MPI."""
    return MOST_RANKS if name.rpartition(".")[2] in ("rank", "ranks") else 0


@dataclass(frozen=True, slots=True)
class Expressions:
    """`name`: the text of a variable. `reals`: the variables that are real. `narrow`: the largest magnitude of a
    variable with fewer than 64 bits, 0 for others."""

    language: Language
    name: Callable[[str], str] = str
    reals: Collection[str] = ()
    narrow: Callable[[str], int] = of_ranks

    def text(self, expr: Sym, outer: int = 0) -> str:
        """The text of an expression, in parentheses where the text around it, of the level `outer`, binds closer."""
        if isinstance(expr, Const):
            return self.language.constant(expr.value)
        if isinstance(expr, Var):
            return self.name(expr.name)
        fn, args, language = expr.fn, expr.args, self.language
        if fn in (Fn.FLOOR, Fn.CEIL):
            return self._rounded(expr, outer)
        if fn is Fn.NEG:
            inner = self.text(args[0], TIGHTEST)
            return f"-({inner})" if inner.startswith("-") else f"-{inner}"
        if fn is Fn.NOT:
            return language.integers[fn].format(self.text(args[0], TIGHTEST))
        if fn in (Fn.MIN, Fn.MAX) and len(args) > 2:
            return self.text(Apply(fn, (Apply(fn, args[:-1]), args[-1])), outer)
        if fn in (Fn.MIN, Fn.MAX) and len(args) == 1:
            return self.text(args[0], outer)
        real = self._is_real(expr)
        if fn is Fn.COND:
            parts = (self.text(args[0], 1), *(self._as(a, real and not language.converts, 1) for a in args[1:]))
            return language.integers[fn].format(*parts)
        if fn is Fn.DIV:
            return language.reals[fn].format(self._as(args[0], True, 5), self._as(args[1], True, 6))
        if call := (language.reals if real else language.integers).get(fn):
            return call.format(*(self._as(a, real) for a in args))
        mixed = fn in _COMPARISONS and not language.converts and any(map(self._is_real, args))
        left = self._wide_operand(expr) if not real else None

        def operand(part: Sym, level: int) -> str:
            if left is not None and part is args[0]:
                return left
            return self._as(part, mixed, level)

        return infix(expr, language.words.get(fn, fn.value), operand, outer)

    def _rounded(self, expr: Apply, outer: int) -> str:
        top, bottom = fraction(expr.args[0])
        if self._is_real(top) or self._is_real(bottom):
            return self.language.reals[expr.fn].format(self.text(expr.args[0]))
        if bottom == Const(1):
            return self.text(top, outer)
        return self.language.quotients[expr.fn].format(self.text(top), self.text(bottom))

    def _as(self, expr: Sym, real: bool, outer: int = 0) -> str:
        """The text, converted where a real number is wanted and it is none."""
        if not real or self._is_real(expr):
            return self.text(expr, outer)
        return self.language.real.format(self.text(expr))

    def _is_real(self, expr: Sym) -> bool:
        return is_real(expr, self.reals)

    def _wide_operand(self, expr: Apply) -> str | None:
        """The left operand with 64 bits, where both have fewer and the result may need them."""
        wanted = self.language.wide and expr.fn in _ARITHMETIC and self._bound(expr) >= _NARROW
        return self.language.wide.format(self.text(expr.args[0])) if wanted else None

    def _magnitude(self, expr: Sym) -> int:
        """The largest magnitude of an integer that is computed with 32 bits; 0 if it has 64."""
        bound = self._bound(expr)
        return bound if bound < _NARROW else 0

    def _bound(self, expr: Sym) -> int:
        if isinstance(expr, Const):
            return max(abs(expr.value), 1) if type(expr.value) is int else 0
        if isinstance(expr, Var):
            return self.narrow(expr.name)
        parts = [self._magnitude(a) for a in expr.args[expr.fn is Fn.COND :]]
        if not all(parts):
            return 0
        if expr.fn in (Fn.NEG, Fn.ABS, Fn.COND):
            return max(parts)
        if expr.fn is Fn.MUL:
            return parts[0] * parts[1]
        return sum(parts) if expr.fn in (Fn.ADD, Fn.SUB) else 0
