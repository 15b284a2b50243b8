"""Ops on which nothing depends that the program gives out."""

from __future__ import annotations

from dagc.errors import Diagnostic, Severity
from dagc.ir import CollectiveOp, CopyOp, ExchangeOp, KernelOp, Op, Program
from dagc.lang.ast import Mode, Role


def _arrays(op: Op) -> tuple[set[str], set[str]]:
    """(read, written)."""
    match op:
        case KernelOp() | CollectiveOp():
            read = {a.region.array for a in op.accesses if a.mode is not Mode.OUT}
            return read, {a.region.array for a in op.accesses if a.mode is not Mode.IN}
        case CopyOp():
            return {op.src.array}, {op.dst.array}
        case ExchangeOp():
            return {m.send.array for m in op.messages}, {m.recv.array for m in op.messages}


def dead_ops(program: Program) -> list[Diagnostic]:
    """A warning per op from which no `out`, `inout` or verified array, and no `until`, can be reached."""
    wanted = {a.name for a in program.arrays if a.role in (Role.OUT, Role.INOUT)}
    wanted |= {v.region.array for v in program.verifies} | ({program.until} if program.until else set())
    alive: set[str] = set()
    grown = True
    while grown:
        grown = False
        for op in program.ops:
            read, written = _arrays(op)
            # An op that writes nothing (a barrier) is there for its effect.
            if op.name not in alive and (not written or written & wanted):
                alive.add(op.name)
                wanted |= read
                grown = True
    return [
        Diagnostic(
            "unreachable-op",
            f"nothing that the program gives out depends on `{op.name}`",
            op.span,
            "remove it, or give the array it writes the role `out`",
            Severity.WARNING,
        )
        for op in program.ops
        if op.name not in alive
    ]
