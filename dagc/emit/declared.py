"""Views of what each op declares to write, for the audit of one run (templates/runtime/dagc/audit.hpp)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dagc.emit.layout import Layout
from dagc.ir.enums import Mode
from dagc.ir.graph import Action, Graph, GraphOp
from dagc.ir.program import CollectiveOp, ExchangeOp, KernelOp, Region


@dataclass(frozen=True, slots=True)
class WriteView:
    """Elements [start, start + count) of an array; texts are C++."""

    array: str
    start: str
    count: str


@dataclass(frozen=True, slots=True)
class PromiseView:
    """Two ops, by their numbers, that write different parts without bounds of one array, and have no order."""

    first: int
    second: int
    array: str
    first_part: str
    second_part: str


def writes(layout: Layout, op: GraphOp) -> tuple[WriteView, ...]:
    """What a kernel may change: what its header says, its scratch, and what is copied for it or for messages. Else
    empty."""
    if not isinstance(op.op, KernelOp) or op.action is not Action.KERNEL:
        return ()
    found = [_write(layout, a.region) for a in op.op.accesses if a.mode is not Mode.IN]
    found += [_write(layout, staged.region) for staged in op.copy_in]
    found += [_whole(f"p.{layout.staging[staged.region].member}") for staged in op.copy_out]
    found += [_whole(f"p.{s.member}") for s in layout.scratch.get(op.op.name, ())]
    return tuple(dict.fromkeys(found))


def received(layout: Layout) -> tuple[WriteView, ...]:
    """What messages may change while other ops run."""
    regions = tuple(_received(layout.graph))
    buffers = (_whole(f"p.{layout.staging[r].member}") for r in regions if r in layout.staging)
    return tuple(dict.fromkeys((*(_write(layout, region) for region in regions), *buffers)))


def _received(graph: Graph) -> Iterator[Region]:
    for op in graph.program.ops:
        if isinstance(op, ExchangeOp):
            yield from (m.recv for m in op.messages)
        elif isinstance(op, CollectiveOp):
            yield from (a.region for a in op.accesses if a.mode is not Mode.IN)


def promises(graph: Graph) -> tuple[PromiseView, ...]:
    """Pairs of kernels that only different parts without bounds keep apart."""
    ordered = _below(graph)
    promised = [
        (number, access.region)
        for number, op in enumerate(graph.ops)
        if isinstance(op.op, KernelOp) and op.action is Action.KERNEL
        for access in op.op.accesses
        if access.mode is not Mode.IN and access.region.part is not None and access.region.start is None
    ]
    return tuple(
        PromiseView(u, v, a.array, str(a.part), str(b.part))
        for i, (u, a) in enumerate(promised)
        for v, b in promised[i + 1 :]
        if a.array == b.array and a.part != b.part and u != v and not (ordered[u] >> v & 1 or ordered[v] >> u & 1)
    )


def _below(graph: Graph) -> list[int]:
    """For each op, the ops that it reaches by completion edges, as bits."""
    after: list[list[int]] = [[] for _ in graph.ops]
    for before, then in graph.completion:
        after[before].append(then)
    below = [-1] * len(graph.ops)
    for root in range(len(graph.ops)):
        stack = [root]
        while stack:
            u = stack[-1]
            missing = [v for v in after[u] if below[v] < 0]
            if missing:
                stack += missing
                continue
            stack.pop()
            below[u] = 0
            for v in after[u]:
                below[u] |= below[v] | 1 << v
    return below


def _write(layout: Layout, region: Region) -> WriteView:
    if region.start is None or region.stop is None:  # also a part without bounds: nobody knows where it is
        return _whole(layout.array(region.array))
    extent = layout.extent(region)
    return WriteView(layout.array(region.array), extent.start, extent.count)


def _whole(array: str) -> WriteView:
    return WriteView(array, "0", f"{array}.size")
