"""`on any` arrays have two sides. A copy is inserted before the first op that finds its side stale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dagc import ir
from dagc.ir import Device
from dagc.lang import ast

_SIDES = {Device.GPU: "device", Device.CPU: "host"}


@dataclass(slots=True)
class _Sides:
    """Which sides hold the present contents; none of them before the first write."""

    array: ir.Array
    fresh: set[Device]
    copies: int = 0


def insert_copies(ops: Sequence[ir.Op], arrays: Sequence[ir.Array]) -> tuple[ir.Op, ...]:
    """The ops with `A.to_device` and `A.to_host` copies between them.

    `const`: resident on both sides. `in` and `inout` begin on the host, `out` and `inout` end there.
    """
    sides = {a.name: _Sides(a, _initial(a)) for a in arrays if a.place is ast.Place.ANY}
    if not sides:
        return tuple(ops)
    out: list[ir.Op] = []
    for op in ops:
        if isinstance(op, ir.KernelOp):
            for access in op.accesses:
                state = sides.get(access.region.array)
                if state is not None and op.device not in state.fresh and state.fresh and _keeps(access):
                    out.append(_copy(state, op.device))
            for access in op.accesses:
                state = sides.get(access.region.array)
                if state is not None and access.mode is not ast.Mode.IN:
                    state.fresh = {op.device}
        out.append(op)
    for state in sides.values():
        ends_on_host = state.array.role in (ast.Role.OUT, ast.Role.INOUT)
        if ends_on_host and state.fresh and Device.CPU not in state.fresh:
            out.append(_copy(state, Device.CPU))
    return tuple(out)


def _initial(array: ir.Array) -> set[Device]:
    if array.role is ast.Role.CONST:
        return {Device.GPU, Device.CPU}
    return {Device.CPU} if array.role in (ast.Role.IN, ast.Role.INOUT) else set()


def _keeps(access: ir.Access) -> bool:
    """Does the op need what is there: does it read, or write only a piece?"""
    return access.mode is not ast.Mode.OUT or access.region.start is not None or access.region.part is not None


def _copy(state: _Sides, to: Device) -> ir.CopyOp:
    state.fresh.add(to)
    state.copies += 1
    base = f"{state.array.name}.to_{_SIDES[to]}"
    name = base if state.copies == 1 else f"{base}.{state.copies}"
    region = ir.Region(state.array.name)
    return ir.CopyOp(name, base, region, region, inserted=True, span=state.array.span)
