"""Algebra by SymPy: rounded division, minima and maxima, and programs with values in place of parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sympy as sp

from dagc.perf.program import Assign, Branch, Parameter, RationalProgram, Statement, assignments, expressions


def int_div(a: sp.Expr, b: sp.Expr) -> sp.Expr:
    return sp.floor(a / b)


def ceil_div(a: sp.Expr, b: sp.Expr) -> sp.Expr:
    return sp.ceiling(a / b)


def minimum(*values: Any) -> sp.Expr:
    """`sp.Min` that compares numbers only. SymPy tries to order every pair of arguments, which takes a quarter of the
    time in which a model is built."""
    return _extreme(sp.Min, min, values)


def maximum(*values: Any) -> sp.Expr:
    """`sp.Max` that compares numbers only, see `minimum`."""
    return _extreme(sp.Max, max, values)


def _extreme(kind: Any, of_numbers: Callable[..., Any], values: Sequence[Any]) -> sp.Expr:
    expressions = list(dict.fromkeys(map(sp.sympify, values)))
    numbers = [e for e in expressions if e.is_number]
    others = [e for e in expressions if not e.is_number]
    if numbers:
        others.append(of_numbers(numbers))
    return others[0] if len(others) == 1 else kind(*others, evaluate=False)


def specialise(program: RationalProgram, known: Mapping[str, int | float]) -> RationalProgram:
    """The program with values substituted for parameters: constants are folded, decided branches removed.

    Constants are folded as exact numbers and rounded reals, so reals may differ in the last bits from `evaluate`'s.
    """
    values = {name: sp.sympify(value) for name, value in known.items()}
    left = tuple(p for p in program.parameters if p.name not in values)

    try:
        body = _put_body(program.body, values)
        infinite = any(value.has(sp.nan, sp.zoo) for value in expressions(body))
    except (TypeError, ValueError):  # SymPy cannot compare infinities
        infinite = True
    if infinite:
        # A division by zero gives 0 here and infinity in SymPy: nothing is folded, the values get names.
        known_here = (p for p in program.parameters if p.name in values)
        named = (Assign(p.name, values[p.name], p.number, p.unit, p.meaning) for p in known_here)
        body = (*named, *program.body)
    return RationalProgram(program.name, left, body, program.result, program.unit, program.source)


def renamed(body: tuple[Statement, ...], names: Mapping[sp.Symbol, sp.Symbol]) -> tuple[Statement, ...]:
    """The statements with other symbols for some, also where these are assigned."""
    out: list[Statement] = []
    new = {old.name: symbol.name for old, symbol in names.items()}
    for s in body:
        if isinstance(s, Assign):
            out.append(replace(s, name=new.get(s.name, s.name), value=s.value.xreplace(names)))
        else:
            cases = tuple((condition.xreplace(names), renamed(inner, names)) for condition, inner in s.cases)
            out.append(Branch(cases, renamed(s.otherwise, names)))
    return tuple(out)


def one_of(
    which: Mapping[tuple[tuple[sp.Symbol, int], ...], RationalProgram], parameters: Sequence[Parameter]
) -> RationalProgram:
    """The program that is the one of several whose symbols have these values, the first where none has. `parameters`:
    of the symbols. What only some of them assign is 0 in the others."""
    tests: dict[RationalProgram, list[sp.Basic]] = {}
    for values, program in which.items():
        tests.setdefault(program, []).append(sp.And(*(sp.Eq(symbol, value) for symbol, value in values)))
    programs = list(tests)
    if len(programs) == 1:
        return programs[0]
    every = {a.name: a for program in programs for a in assignments(program.body)}

    def whole(program: RationalProgram) -> tuple[Statement, ...]:
        missing = every.keys() - {a.name for a in assignments(program.body)}
        others = (replace(every[name], value=sp.Integer(0)) for name in every if name in missing)
        return (*program.body, *others)

    cases = tuple((sp.Or(*tests[program]), whole(program)) for program in programs[1:])
    known = {p.name: p for program in programs for p in program.parameters} | {p.name: p for p in parameters}
    return replace(programs[0], parameters=tuple(known.values()), body=(Branch(cases, whole(programs[0])),))


def _put_body(body: tuple[Statement, ...], values: Mapping[str, sp.Expr]) -> tuple[Statement, ...]:
    out: list[Statement] = []
    for s in body:
        if isinstance(s, Assign):
            out.append(Assign(s.name, _put(s.value, values), s.number, s.unit, s.meaning))
            continue
        cases = []
        otherwise = s.otherwise
        for condition, inner in ((_put(c, values), inner) for c, inner in s.cases):
            if condition == sp.true:
                otherwise = inner
                break
            if condition != sp.false:
                cases.append((condition, _put_body(inner, values)))
        rest = _put_body(otherwise, values)
        out += [Branch(tuple(cases), rest)] if cases else rest
    return tuple(out)


def _put(value: sp.Basic, values: Mapping[str, sp.Expr]) -> sp.Basic:
    """The expression with these values. Unlike `xreplace`, it orders only the numbers of a minimum or maximum."""
    if value.is_Symbol:
        return values.get(value.name, value)
    if not any(s.name in values for s in value.free_symbols):
        return value
    new = [_put(argument, values) for argument in value.args]
    extreme = _EXTREMES.get(value.func)
    return extreme(*new) if extreme else value.func(*new)


_EXTREMES: Mapping[Any, Callable[..., sp.Expr]] = {sp.Min: minimum, sp.Max: maximum}
