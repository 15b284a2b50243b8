"""Ranges of values: what an instruction can give, when the ranges of its arguments are known.

Rounding keeps order, so the ends of a range of reals, computed in doubles, hold every rounded value between them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dagc.perf.lower import Operand

Value = int | float


@dataclass(frozen=True, slots=True)
class Range:
    """From `low` to `high`, both in it. Integers have integer ends."""

    low: Value
    high: Value

    @property
    def size(self) -> Value:
        """The largest magnitude."""
        return max(abs(self.low), abs(self.high))

    @property
    def has_zero(self) -> bool:
        return self.low <= 0 <= self.high


ANY = Range(-math.inf, math.inf)
TRUTH = Range(0, 1)


def of_constant(value: Operand) -> Range:
    assert not isinstance(value, str)
    return Range(value, value)


def of_instruction(operation: str, args: Sequence[Range]) -> Range:
    """Of the result. Operations are those of `lower.Instruction`."""
    match operation:
        case "add":
            return _hull([args[0].low + args[1].low, args[0].high + args[1].high])
        case "sub":
            return _hull([args[0].low - args[1].high, args[0].high - args[1].low])
        case "mul":
            return _hull([a * b for a in _ends(args[0]) for b in _ends(args[1])])
        case "min":
            return Range(min(args[0].low, args[1].low), min(args[0].high, args[1].high))
        case "max":
            return Range(max(args[0].low, args[1].low), max(args[0].high, args[1].high))
        case "select":
            return Range(min(args[1].low, args[2].low), max(args[1].high, args[2].high))
        case "floordiv" | "ceildiv":
            return _rounded(operation, args[0], args[1])
        case "div":
            return ANY if args[1].has_zero else _hull([a / b for a in _ends(args[0]) for b in _ends(args[1])])
        case "copy":
            return args[0]
        case "real":
            return Range(float(args[0].low), float(args[0].high))
        case _:
            return TRUTH


def decided(operation: str, a: Range, b: Range) -> bool | None:
    """What the comparison gives for all values of the ranges; None where it is not the same for all."""
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


def _ends(r: Range) -> tuple[Value, Value]:
    return r.low, r.high


def _hull(values: Sequence[Value]) -> Range:
    return ANY if any(math.isnan(v) for v in values) else Range(min(values), max(values))


def _rounded(operation: str, a: Range, b: Range) -> Range:
    """Quotients of integers. A divisor is one at least in magnitude, or zero, which gives zero."""
    if b.has_zero or not all(isinstance(v, int) for v in (*_ends(a), *_ends(b))):
        return Range(-a.size, a.size)
    down = operation == "floordiv"
    return _hull([int(x) // int(y) if down else -(-int(x) // int(y)) for x in _ends(a) for y in _ends(b)])
