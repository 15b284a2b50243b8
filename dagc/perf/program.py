"""The language: typed assignments and branches over SymPy expressions, in parameters of three kinds.

A rational program (KLARAPTOR, section "Rational Program") is a terminating sequence of additions, subtractions,
multiplications, comparisons and divisions of integers that computes a number. Real numbers are allowed here too, since
bandwidths and fitted constants are not integers. A division by zero gives 0, so that every input has a result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from dagc.base.errors import DagcError

if TYPE_CHECKING:
    import sympy as sp


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


def parameters_of(kind: ParameterKind, number: Number, rows: Mapping[str, tuple[str, str]]) -> tuple[Parameter, ...]:
    """Parameters of one kind, with the unit and the meaning of each."""
    return tuple(Parameter(name, kind, number, unit, meaning) for name, (unit, meaning) in rows.items())


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
