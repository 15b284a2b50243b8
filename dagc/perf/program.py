"""The language: typed assignments and branches over SymPy expressions, in parameters of three kinds.

A rational program (KLARAPTOR, section "Rational Program") is a terminating sequence of additions, subtractions,
multiplications, comparisons and divisions of integers that computes a number. Real numbers are allowed here too, since
bandwidths and fitted constants are not integers. A division by zero gives 0, so that every input has a result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

import sympy as sp

from dagc.base.errors import DagcError


class ParameterKind(Enum):
    """When a parameter is known: data at run time, hardware on the machine, program when a configuration is tried."""

    DATA = "data"
    HARDWARE = "hardware"
    PROGRAM = "program"


class Number(Enum):
    """`int64_t` or `double`."""

    INTEGER = "integer"
    REAL = "real"


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    kind: ParameterKind
    number: Number
    unit: str = ""
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class Assign:
    """`name = value`; a name is assigned once on each path."""

    name: str
    value: sp.Expr
    number: Number
    unit: str = ""
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class Branch:
    """The statements of the first condition that holds, else `otherwise`. Every path assigns the same names."""

    cases: tuple[tuple[sp.Basic, tuple[Statement, ...]], ...]
    otherwise: tuple[Statement, ...]


Statement: TypeAlias = Assign | Branch


class NotRational(DagcError):
    """The program is not a rational program; the message gives the place."""


@dataclass(frozen=True, slots=True)
class RationalProgram:
    """`result` is the name of the metric, in `unit`; `source` cites the formula.

    Raises NotRational if a name is used before it is assigned, paths assign different names, or the result is
    not assigned.
    """

    name: str
    parameters: tuple[Parameter, ...]
    body: tuple[Statement, ...]
    result: str
    unit: str
    source: str

    def __post_init__(self) -> None:
        known = {p.name for p in self.parameters}
        if len(known) != len(self.parameters):
            raise NotRational(f"{self.name}: two parameters have one name")
        assigned = _check(self.name, self.body, known)
        if self.result not in assigned:
            raise NotRational(f"{self.name}: `{self.result}` is never assigned")

    def parameter(self, name: str) -> Parameter:
        """Raises KeyError."""
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        raise KeyError(name)

    def of_kind(self, kind: ParameterKind) -> tuple[Parameter, ...]:
        return tuple(p for p in self.parameters if p.kind is kind)


def assignments(body: tuple[Statement, ...]) -> Iterator[Assign]:
    """All assignments, including those of branches."""
    for statement in body:
        if isinstance(statement, Assign):
            yield statement
        else:
            for _, inner in statement.cases:
                yield from assignments(inner)
            yield from assignments(statement.otherwise)


def _check(program: str, body: tuple[Statement, ...], known: set[str]) -> set[str]:
    """The names that the body assigns."""
    known, out = set(known), set[str]()
    for statement in body:
        if isinstance(statement, Assign):
            _defined(program, statement.value, known)
            if statement.name in known:
                raise NotRational(f"{program}: `{statement.name}` is assigned twice")
            new = {statement.name}
        else:
            paths = []
            for condition, inner in statement.cases:
                _defined(program, condition, known)
                paths.append(_check(program, inner, known))
            paths.append(_check(program, statement.otherwise, known))
            if any(path != paths[0] for path in paths):
                odd = sorted(set[str]().union(*paths) - paths[0].intersection(*paths))
                raise NotRational(f"{program}: not every path assigns `{odd[0]}`")
            new = paths[0]
        known |= new
        out |= new
    return out


def _defined(program: str, value: sp.Basic, known: set[str]) -> None:
    unknown = sorted(s.name for s in value.free_symbols if s.name not in known)
    if unknown:
        raise NotRational(f"{program}: `{unknown[0]}` is used before it is assigned")


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
    return value.xreplace({s: values[s.name] for s in value.free_symbols if s.name in values})


def expressions(body: tuple[Statement, ...]) -> Iterator[sp.Basic]:
    """All values and conditions, including those in branches."""
    for statement in body:
        if isinstance(statement, Assign):
            yield statement.value
        else:
            for condition, inner in statement.cases:
                yield condition
                yield from expressions(inner)
            yield from expressions(statement.otherwise)
