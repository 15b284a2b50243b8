"""Three-address code: one operation per instruction, equal ones once; and the table of the operations: their text in C,
their values, and the ranges of these."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from dagc.base.python import np
from dagc.perf.program import Number

Operand: TypeAlias = str | int | float | bool  # a name, or a constant


@dataclass(frozen=True, slots=True)
class Instruction:
    """`name = operation(args)`, an operation of OPERATIONS. `number` is None for a boolean."""

    name: str
    operation: str
    args: tuple[Operand, ...]
    number: Number | None


def live(code: Sequence[Instruction]) -> tuple[Instruction, ...]:
    """The instructions that the last one depends on."""
    needed = {code[-1].name}
    for instruction in reversed(code):
        if instruction.name in needed:
            needed |= {a for a in instruction.args if isinstance(a, str)}
    return tuple(i for i in code if i.name in needed)


# ---- ranges of values ----
# The possible results of an instruction, given the ranges of its arguments. Rounding is monotonic, so a range of reals
# with ends computed in doubles contains every rounded value between them.


Value: TypeAlias = int | float


@dataclass(frozen=True, slots=True)
class Interval:
    """From `low` to `high`, inclusive. Integers have integer ends."""

    low: Value
    high: Value

    @property
    def size(self) -> Value:
        """The largest magnitude."""
        return max(abs(self.low), abs(self.high))

    @property
    def has_zero(self) -> bool:
        return self.low <= 0 <= self.high


ANY = Interval(-math.inf, math.inf)
TRUTH = Interval(0, 1)


def of_constant(value: Operand) -> Interval:
    assert not isinstance(value, str)
    return Interval(value, value)


def decided(operation: str, a: Interval, b: Interval) -> bool | None:
    """The result of the comparison for all values of the ranges; None if it is not the same for all."""
    match operation:
        case "lt":
            return True if a.high < b.low else (False if a.low >= b.high else None)
        case "le":
            return True if a.high <= b.low else (False if a.low > b.high else None)
        case "gt" | "ge":
            return decided("lt" if operation == "gt" else "le", b, a)
        case "eq":
            return False if a.high < b.low or b.high < a.low else (True if a.low == a.high == b.low == b.high else None)
        case _:
            equal = decided("eq", a, b)
            return None if equal is None else not equal


def _hull(values: Sequence[Value]) -> Interval:
    return ANY if any(math.isnan(v) for v in values) else Interval(min(values), max(values))


def _corners(compute: Callable[[Any, Any], Value], a: Interval, b: Interval) -> Interval:
    return _hull([compute(x, y) for x in (a.low, a.high) for y in (b.low, b.high)])


def _rounded(compute: Callable[[Any, Any], Value], a: Interval, b: Interval) -> Interval:
    """Quotients of integers. A divisor has a magnitude of at least one, or is zero, which gives zero."""
    if b.has_zero or not all(isinstance(v, int) for v in (a.low, a.high, b.low, b.high)):
        return Interval(-a.size, a.size)
    return _corners(compute, a, b)


# ---- the operations ----


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def _divided(divide: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    """The quotient; 0 if `b` is zero."""
    if not _is_array(b):
        return divide(a, b) if b else a * 0
    if np.count_nonzero(b) == b.size:
        return divide(a, b)
    return np.where(b == 0, 0, divide(a, np.where(b == 0, 1, b)))


def _floor_div(a: Any, b: Any) -> Any:
    return _divided(operator.floordiv, a, b)


def _ceil_div(a: Any, b: Any) -> Any:
    return -_floor_div(-a, b)


def _least(a: Any, b: Any) -> Any:
    return np.minimum(a, b) if _is_array(a) or _is_array(b) else (a if a < b else b)


def _most(a: Any, b: Any) -> Any:
    return np.maximum(a, b) if _is_array(a) or _is_array(b) else (a if a > b else b)


def _select(test: Any, then: Any, other: Any) -> Any:
    return np.where(test, then, other) if _is_array(test) else (then if test else other)


def _real(a: Any) -> Any:
    return a.astype(np.float64) if _is_array(a) else float(a)


@dataclass(frozen=True, slots=True)
class Operation:
    """`c`: the text in C, and `wrapping` that for integers of unknown range, where it differs. `compute`: the value, of
    numbers or NumPy arrays. `range`: that of the value, from those of the arguments."""

    c: str
    compute: Callable[..., Any]
    range: Callable[..., Interval] = lambda *_: TRUTH
    wrapping: str = ""

    def text(self, args: Sequence[str], number: Number | None) -> str:
        """In C, of the texts of the arguments."""
        return (self.wrapping if self.wrapping and number is Number.INTEGER else self.c).format(*args)


# floordiv, ceildiv: of integers, rounded down and up; div: of reals; real: an integer as a real.
OPERATIONS: dict[str, Operation] = {
    "add": Operation(
        "{0} + {1}", operator.add, lambda a, b: _hull([a.low + b.low, a.high + b.high]), "dagc_add({0}, {1})"
    ),
    "sub": Operation(
        "{0} - {1}", operator.sub, lambda a, b: _hull([a.low - b.high, a.high - b.low]), "dagc_sub({0}, {1})"
    ),
    "mul": Operation("{0} * {1}", operator.mul, lambda a, b: _corners(operator.mul, a, b), "dagc_mul({0}, {1})"),
    "floordiv": Operation("dagc_floordiv({0}, {1})", _floor_div, lambda a, b: _rounded(operator.floordiv, a, b)),
    "ceildiv": Operation("dagc_ceildiv({0}, {1})", _ceil_div, lambda a, b: _rounded(lambda x, y: -(-x // y), a, b)),
    "div": Operation(
        "dagc_div({0}, {1})", lambda a, b: _divided(operator.truediv, a, b),
        lambda a, b: ANY if b.has_zero else _corners(operator.truediv, a, b),
    ),
    "min": Operation(
        "{0} < {1} ? {0} : {1}", _least, lambda a, b: Interval(min(a.low, b.low), min(a.high, b.high))
    ),
    "max": Operation(
        "{0} > {1} ? {0} : {1}", _most, lambda a, b: Interval(max(a.low, b.low), max(a.high, b.high))
    ),
    "lt": Operation("{0} < {1}", operator.lt), "le": Operation("{0} <= {1}", operator.le),
    "gt": Operation("{0} > {1}", operator.gt), "ge": Operation("{0} >= {1}", operator.ge),
    "eq": Operation("{0} == {1}", operator.eq), "ne": Operation("{0} != {1}", operator.ne),
    "and": Operation("{0} && {1}", operator.and_), "or": Operation("{0} || {1}", operator.or_),
    "not": Operation("!{0}", lambda a: ~a if _is_array(a) else not a),
    "select": Operation(
        "{0} ? {1} : {2}", _select, lambda _, a, b: Interval(min(a.low, b.low), max(a.high, b.high))
    ),
    "copy": Operation("{0}", lambda a: a, lambda a: a),
    "real": Operation("(double){0}", _real, lambda a: Interval(float(a.low), float(a.high))),
}  # fmt: skip
COMPARISONS = frozenset(("lt", "le", "gt", "ge", "eq", "ne"))
