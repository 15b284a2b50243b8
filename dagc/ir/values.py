"""The values of two-sided arrays: what the ops of one run hand on to each other, for placing them on devices."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dagc.ir.enums import Mode, Role
from dagc.ir.program import Access, Array, KernelOp, Program, two_sided
from dagc.ir.sym import Apply, Const, Fn, Sym, substitute


@dataclass(frozen=True, slots=True)
class ArrayValue:
    """What one write of an array leaves, or what the set-up gives. It is copied to the other side at most once, as a
    whole.

    producer  the name of the op that writes it; None: the set-up, which leaves it on the host
    readers   the names of the ops that need it, in text order: they read it, or write a part of the array
    bytes     of the array, in per-rank scalars; None where its size comes with its data (`*`)
    ends_on_host  whether it must be on the host after the run
    """

    array: str
    bytes: Sym | None
    producer: str | None
    readers: tuple[str, ...] = ()
    ends_on_host: bool = False


def values_of(program: Program) -> tuple[ArrayValue, ...]:
    """The values of one run that may be copied, in the order of their producers, for each array in the order of the
    program: of the arrays whose sides the program copies when it runs (`two_sided`). Constants are on both sides.

    Ops of one device are among the producers and readers. An op under a condition counts as if each rank ran it.
    """
    at_run_time = two_sided(program.ops, program.arrays)
    arrays = (a for a in program.arrays if a.name in at_run_time and a.role is not Role.CONST)
    return tuple(value for array in arrays for value in _of(program, array))


def _of(program: Program, array: Array) -> list[ArrayValue]:
    size = _bytes(array)
    given = array.role in (Role.IN, Role.INOUT)
    values = [ArrayValue(array.name, size, None)] if given else []
    for op in program.ops:
        accesses = [a for a in op.accesses if a.region.array == array.name] if isinstance(op, KernelOp) else []
        if values and any(_needs(a) for a in accesses):
            values[-1] = replace(values[-1], readers=(*values[-1].readers, op.name))
        if any(a.mode is not Mode.IN for a in accesses):
            values.append(ArrayValue(array.name, size, op.name))
    if values and array.role in (Role.OUT, Role.INOUT):
        values[-1] = replace(values[-1], ends_on_host=True)
    return [value for value in values if value.readers or value.ends_on_host]


def _needs(access: Access) -> bool:
    return access.mode is not Mode.OUT or access.region.start is not None or access.region.part is not None


def _bytes(array: Array) -> Sym | None:
    size: Sym = Const(array.type.size)
    for dim in array.dims:
        if dim is None:
            return None
        size = Apply(Fn.MUL, (size, dim))
    return substitute(size, {})


def users_of(program: Program) -> tuple[KernelOp, ...]:
    """The ops that use two-sided arrays, and all placed ones, in text order."""
    at_run_time = two_sided(program.ops, program.arrays)
    ops = (op for op in program.ops if isinstance(op, KernelOp))
    return tuple(op for op in ops if op.placed or any(a.region.array in at_run_time for a in op.accesses))
