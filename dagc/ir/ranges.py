"""Ranges of per-rank values: which by-value arguments may not fit their formals; what ranks must have alike."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from dagc.ir.enums import ElementType
from dagc.ir.program import CollectiveKind, CollectiveOp, Formal, Program, Region
from dagc.ir.sym import Apply, Const, Fn, Sym, Var, free

Range = tuple[int, int]
_RANKS = -1, 2**31 - 1  # -1: in no communicator


def integer_range(type_: ElementType) -> Range:
    """The least and the largest value."""
    bits = 8 * type_.size
    return (0, 2**bits - 1) if type_.is_unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def may_not_hold(program: Program, formal: Formal, arg: Sym) -> bool:
    """Whether the formal's type may be too small for a value of a rank; constants have been compared."""
    if isinstance(arg, Const):
        return False
    if formal.type is ElementType.F32:
        return not (isinstance(arg, Var) and any(s.name == arg.name and s.type.size < 8 for s in program.scalars))
    if not formal.type.is_integer or formal.type is ElementType.I64:
        return False
    known = {s.name: integer_range(s.type) for s in program.scalars if s.type.is_integer}
    have, (low, high) = _range(arg, known), integer_range(formal.type)
    return have is None or have[0] < low or have[1] > high


def _range(expr: Sym, known: dict[str, Range]) -> Range | None:
    """The least and the largest value of an integer; None if it is not known."""
    if isinstance(expr, Const):
        return (expr.value, expr.value) if type(expr.value) is int else None
    if isinstance(expr, Var):
        return _RANKS if expr.name.rpartition(".")[2] in ("rank", "ranks") else known.get(expr.name)
    if expr.fn is Fn.MOD and isinstance(expr.args[1], Const) and type(expr.args[1].value) is int:
        divisor = expr.args[1].value
        return (0, divisor - 1) if divisor > 0 else (divisor + 1, 0)
    parts = [_range(a, known) for a in expr.args[expr.fn is Fn.COND :]]
    found = [p for p in parts if p is not None]
    if len(found) < len(parts):
        return None
    lows, highs = zip(*found, strict=True)
    match expr.fn:
        case Fn.ADD:
            return sum(lows), sum(highs)
        case Fn.SUB:
            return lows[0] - highs[1], highs[0] - lows[1]
        case Fn.MUL:
            ends = [a * b for a, b in product(*found)]
            return min(ends), max(ends)
        case Fn.NEG:
            return -highs[0], -lows[0]
        case Fn.MIN:
            return min(lows), min(highs)
        case Fn.MAX:
            return max(lows), max(highs)
        case Fn.COND:
            return min(lows), max(highs)
    return None


def alike(program: Program) -> Iterator[tuple[CollectiveOp, str, Sym | Region]]:
    """What must be equal on all ranks that take part in a collective, and may differ: roots, and numbers of rows. A
    region stands for the number of its elements."""
    for op in program.ops:
        if not isinstance(op, CollectiveOp):
            continue
        if op.collective is CollectiveKind.BCAST and _differs(op.root):
            yield op, "root", op.root
        if op.collective in (CollectiveKind.BCAST, CollectiveKind.ALLREDUCE):
            region = op.regions[0]
            array = program.array(region.array)
            if region.start is not None and region.stop is not None:
                if _differs(rows := Apply(Fn.SUB, (region.stop, region.start))):
                    yield op, "number of rows", rows
            elif any(d is None or _differs(d) for d in array.dims):
                yield op, "number of elements", region


def _differs(expr: Sym) -> bool:
    """Whether a value may be another on another rank."""
    return any(name.rpartition(".")[2] != "ranks" and name[:3] != "hw." for name in free(expr))
