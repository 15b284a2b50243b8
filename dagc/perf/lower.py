"""Rational programs in three-address code: from SymPy's expressions to `dagc.perf.code`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import sympy as sp

from dagc.perf.code import Instruction, Operand
from dagc.perf.program import Assign, Branch, NotRational, Number, RationalProgram, Statement

_COMPARISONS = {
    sp.StrictLessThan: "lt", sp.LessThan: "le", sp.StrictGreaterThan: "gt", sp.GreaterThan: "ge",
    sp.Equality: "eq", sp.Unequality: "ne",
}  # fmt: skip


def instructions(program: RationalProgram) -> tuple[Instruction, ...]:
    """The program in three-address code; the last instruction gives the result.

    Raises NotRational for an operation that the language does not have.
    """
    return lowered(program)[0]


@lru_cache(maxsize=256)
def lowered(program: RationalProgram) -> tuple[tuple[Instruction, ...], Mapping[str, str]]:
    """`instructions`, and the names of the program with those of the instructions that have their values."""
    lowering = _Lowering(program)
    lowering.statements(program.body)
    return tuple(lowering.out), {n: v for n, v in lowering.values.items() if isinstance(v, str)}


class _Lowering:
    def __init__(self, program: RationalProgram) -> None:
        self.program = program
        self.out: list[Instruction] = []
        self.numbers: dict[str, Number | None] = {p.name: p.number for p in program.parameters}
        self.known: dict[tuple[object, ...], str] = {}
        self.values: dict[str, Operand] = {}  # operands of the program's names
        self.fresh = 0

    # ---- statements ---------------------------------------------------------------------------

    def statements(self, body: tuple[Statement, ...]) -> None:
        for statement in body:
            if isinstance(statement, Assign):
                value = self._as(self._value(statement.value), statement.number)
                if not isinstance(value, str) or value in self.values or value in self.numbers:
                    value = self._emit_named(statement.name, "copy", (value,), statement.number)
                self.values[statement.name] = value
            else:
                self._branch(statement)
        if body and body is self.program.body:
            self._emit_named(
                f"{self.program.result}_",
                "copy",
                (self.values[self.program.result],),
                self._number(self.values[self.program.result]),
            )

    def _branch(self, branch: Branch) -> None:
        """Compute all paths and select the right result: nothing has side effects, and nothing can fail."""
        before = dict(self.values)
        paths: list[tuple[Operand, dict[str, Operand]]] = []
        for condition, body in branch.cases:
            test = self._value(condition)
            self._path(body)
            paths.append((test, dict(self.values)))
            self.values = dict(before)
        self._path(branch.otherwise)
        last = dict(self.values)
        self.values = before
        for name in (n for n in last if n not in before):
            chosen = last[name]
            for test, values in reversed(paths):
                chosen = self._select(test, values[name], chosen)
            self.values[name] = chosen

    def _path(self, body: tuple[Statement, ...]) -> None:
        for statement in body:
            if isinstance(statement, Assign):
                self.values[statement.name] = self._as(self._value(statement.value), statement.number)
            else:
                self._branch(statement)

    # ---- instructions -------------------------------------------------------------------------

    def _emit(self, operation: str, args: tuple[Operand, ...], number: Number | None) -> str:
        key = (operation, number, *((type(a).__name__, a) for a in args))
        if key not in self.known:
            self.fresh += 1
            self.known[key] = self._emit_named(f"v{self.fresh}", operation, args, number)
        return self.known[key]

    def _emit_named(self, name: str, operation: str, args: tuple[Operand, ...], number: Number | None) -> str:
        while name in self.numbers:
            name += "_"
        self.out.append(Instruction(name, operation, args, number))
        self.numbers[name] = number
        return name

    def _number(self, value: Operand) -> Number | None:
        if isinstance(value, str):
            return self.numbers[value]
        if isinstance(value, bool):
            return None
        return Number.INTEGER if isinstance(value, int) else Number.REAL

    def _as(self, value: Operand, number: Number) -> Operand:
        have = self._number(value)
        if have is number:
            return value
        if have is Number.INTEGER:
            return self._emit("real", (value,), Number.REAL) if isinstance(value, str) else float(value)
        raise NotRational(f"{self.program.name}: a real number where an integer is expected")

    def _same(self, values: list[Operand]) -> tuple[tuple[Operand, ...], Number]:
        """The operands as integers, or all as reals if one of them is real."""
        real = any(self._number(v) is Number.REAL for v in values)
        number = Number.REAL if real else Number.INTEGER
        return tuple(self._as(v, number) for v in values), number

    def _fold(self, operation: str, values: list[Operand]) -> Operand:
        result = values[0]
        for value in values[1:]:
            args, number = self._same([result, value])
            result = self._emit(operation, args, number)
        return result

    def _select(self, test: Operand, then: Operand, other: Operand) -> Operand:
        if isinstance(test, bool):
            return then if test else other
        if then == other and type(then) is type(other):
            return then
        if self._number(then) is None and self._number(other) is None:
            return self._emit("select", (test, then, other), None)
        args, number = self._same([then, other])
        return self._emit("select", (test, *args), number)

    # ---- expressions --------------------------------------------------------------------------

    def _value(self, expr: sp.Basic) -> Operand:
        if isinstance(expr, sp.Symbol):
            return self.values.get(expr.name, str(expr.name))
        if isinstance(expr, sp.Integer):
            return int(expr)
        if isinstance(expr, (sp.Float, sp.Rational)):
            return float(expr)
        if expr in (sp.true, sp.false):
            return bool(expr)
        if isinstance(expr, sp.Add):
            return self._sum(expr)
        if isinstance(expr, sp.Mul):
            return self._product(expr)
        if isinstance(expr, sp.Pow):
            return self._power(expr)
        if isinstance(expr, (sp.floor, sp.ceiling)):
            return self._rounded(expr)
        if isinstance(expr, (sp.Min, sp.Max)):
            return self._fold("min" if isinstance(expr, sp.Min) else "max", [self._value(a) for a in _ordered(expr)])
        if isinstance(expr, sp.Piecewise):
            return self._pieces(expr)
        for kind, operation in _COMPARISONS.items():
            if isinstance(expr, kind):
                args, _ = self._same([self._value(a) for a in expr.args])
                return self._emit(operation, args, None)
        if isinstance(expr, (sp.And, sp.Or)):
            values = [self._value(a) for a in _ordered(expr)]
            result = values[0]
            for value in values[1:]:
                result = self._emit("and" if isinstance(expr, sp.And) else "or", (result, value), None)
            return result
        if isinstance(expr, sp.ITE):  # SymPy creates it from comparisons of a Piecewise
            return self._select(*(self._value(a) for a in expr.args))
        if isinstance(expr, sp.Not):
            return self._emit("not", (self._value(expr.args[0]),), None)
        if expr in (sp.zoo, sp.nan):
            raise NotRational(f"{self.program.name}: a division by the constant zero")
        raise NotRational(f"{self.program.name}: `{type(expr).__name__}` is not a rational operation: {expr}")

    def _sum(self, expr: sp.Add) -> Operand:
        result: Operand | None = None
        negative: list[sp.Expr] = []
        for term in _ordered(expr):
            if term.could_extract_minus_sign():
                negative.append(-term)
            else:
                value = self._value(term)
                result = value if result is None else self._fold("add", [result, value])
        for term in negative:
            value = self._value(term)
            result = self._fold("sub", [0 if result is None else result, value])
        assert result is not None
        return result

    def _product(self, expr: sp.Mul) -> Operand:
        if expr.could_extract_minus_sign():
            return self._fold("sub", [0, self._value(-expr)])
        above, below = sp.fraction(expr)
        factors = list(above.args) if isinstance(above, sp.Mul) else [above]
        value = self._fold("mul", [self._value(f) for f in sorted(factors, key=sp.default_sort_key)])
        if below == 1:
            return value
        top, bottom = self._as(value, Number.REAL), self._as(self._value(below), Number.REAL)
        return self._emit("div", (top, bottom), Number.REAL)

    def _power(self, expr: sp.Pow) -> Operand:
        base, exponent = expr.args
        if not exponent.is_Integer:
            raise NotRational(f"{self.program.name}: a power that is not an integer: {expr}")
        value = self._fold("mul", [self._value(base)] * abs(int(exponent)))
        if int(exponent) > 0:
            return value
        return self._emit("div", (1.0, self._as(value, Number.REAL)), Number.REAL)

    def _rounded(self, expr: sp.Expr) -> Operand:
        """floor(a / b) and ceiling(a / b) of integers."""
        top, bottom = self._quotient(expr.args[0])
        if self._number(top) is not Number.INTEGER or self._number(bottom) is not Number.INTEGER:
            raise NotRational(f"{self.program.name}: only quotients of integers are rounded: {expr}")
        return self._emit("floordiv" if isinstance(expr, sp.floor) else "ceildiv", (top, bottom), Number.INTEGER)

    def _quotient(self, expr: sp.Expr) -> tuple[Operand, Operand]:
        """Numerator and denominator. SymPy moves divisions into a Piecewise, so its pieces may be quotients."""
        quotients = [p for p in expr.atoms(sp.Piecewise) if not all(piece.expr.is_integer for piece in p.args)]
        if not quotients:
            above, below = sp.fraction(sp.together(expr))
            return self._value(above), self._value(below)
        if isinstance(expr, sp.Piecewise):
            self._has_end(expr)
            top, bottom = self._quotient(expr.args[-1].expr)
            for piece in reversed(expr.args[:-1]):
                test, (above, below) = self._value(piece.cond), self._quotient(piece.expr)
                top, bottom = self._select(test, above, top), self._select(test, below, bottom)
            return top, bottom
        if isinstance(expr, sp.Pow) and expr.exp == -1:
            top, bottom = self._quotient(expr.base)
            return bottom, top
        if not isinstance(expr, (sp.Mul, sp.Add)):
            return self._value(expr), 1
        first, *rest = _ordered(expr)
        top, bottom = self._quotient(first)
        for part in rest:
            above, below = self._quotient(part)
            if isinstance(expr, sp.Add):
                top = self._fold("add", [self._fold("mul", [top, below]), self._fold("mul", [above, bottom])])
            else:
                top = self._fold("mul", [top, above])
            bottom = self._fold("mul", [bottom, below])
        return top, bottom

    def _pieces(self, expr: sp.Piecewise) -> Operand:
        self._has_end(expr)
        result = self._value(expr.args[-1].expr)
        for piece in reversed(expr.args[:-1]):
            result = self._select(self._value(piece.cond), self._value(piece.expr), result)
        return result

    def _has_end(self, expr: sp.Piecewise) -> None:
        if expr.args[-1].cond != sp.true:
            raise NotRational(f"{self.program.name}: a Piecewise without an end: {expr}")


def _ordered(expr: sp.Basic) -> list[sp.Expr]:
    """Arguments in an order that is the same in every run."""
    return sorted(expr.args, key=sp.default_sort_key)
