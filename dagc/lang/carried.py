"""State that runs hand on: where a run reads it, and where it leaves it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dagc.ir import program as ir
from dagc.ir.enums import Mode, Role
from dagc.lang.scope import Report


@dataclass(frozen=True, slots=True)
class _Step:
    """An op that computes one array of a family from others: `u[1]` from `u[0]`."""

    op: ir.Op
    sources: frozenset[str]
    target: str


def check_carried(report: Report, ops: Sequence[ir.Op], arrays: Iterable[ir.Array]) -> None:
    """Warn where the next run does not start from the newest state: `u[t % 2]` after an odd number of steps."""
    families: dict[tuple[str, object, object], list[ir.Array]] = {}
    for array in arrays:
        if "[" in array.name:
            families.setdefault((array.name.partition("[")[0], array.type, array.dims), []).append(array)
    states: dict[tuple[str, str], list[tuple[str, str]]] = {}
    spans = {op.name: op.span for op in ops}
    for family in families.values():
        stale = _stale(ops, family) if len(family) > 1 else None
        if stale is not None:
            first, last, oldest = stale
            states.setdefault((first.op.name, last.op.name), []).append((oldest, last.target))
    for (start, end), moved in states.items():
        reads, leaves = (", ".join(f"`{names[k]}`" for names in moved) for k in (0, 1))
        message = f"a run starts from {reads} and leaves its state in {leaves}: the next run starts from an older one"
        copies = ", ".join(f"`gpu copy({old}, {new})`" for old, new in moved)
        help = f"take a number of steps after which the state is in {reads}, or end the dag with {copies}"
        report.warning("stale-state", message, spans[end], help, ((spans[start], "the run starts here"),))


def _stale(ops: Sequence[ir.Op], family: Sequence[ir.Array]) -> tuple[_Step, _Step, str] | None:
    """The first and the last step of a run in a family, and the array that the first reads although a later one is
    newer; None if the next run starts from the newest, or from what no run changes."""
    names = {array.name for array in family}
    kept = {array.name for array in family if array.role is Role.INOUT}
    steps = list(_steps(ops, names))
    if not steps:
        return None
    first, last = steps[0], steps[-1]
    targets = {step.target for step in steps}
    if last.target in first.sources:
        return None
    states = sorted((first.sources & kept & targets) - _set_before(ops, first.op))
    return (first, last, states[0]) if states else None


def _steps(ops: Sequence[ir.Op], names: set[str]) -> Iterator[_Step]:
    for op in ops:
        accesses = [a for a in _accesses(op) if a.region.array in names]
        written = {a.region.array for a in accesses if a.mode is not Mode.IN}
        read = frozenset(a.region.array for a in accesses if a.mode is Mode.IN) - written
        if read and len(written) == 1:
            yield _Step(op, read, next(iter(written)))


def _accesses(op: ir.Op) -> tuple[ir.Access, ...]:
    """Of kernels and copies. Messages move borders of the state, and compute none."""
    if isinstance(op, ir.CopyOp):
        return ir.Access(op.dst, Mode.OUT), ir.Access(op.src, Mode.IN)
    return op.accesses if isinstance(op, ir.KernelOp) else ()


def _set_before(ops: Sequence[ir.Op], op: ir.Op) -> set[str]:
    """The arrays that a run overwrites as a whole before an op."""
    out: set[str] = set()
    for one in ops:
        if one is op:
            break
        whole = (a.region for a in _accesses(one) if a.mode is Mode.OUT)
        out.update(r.array for r in whole if r.start is None and r.part is None)
    return out
