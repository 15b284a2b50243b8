"""`loop=persistent`: iterations that one kernel repeats, and where its blocks wait for each other.

Its phases follow one another, and all blocks wait between two of them: an op begins a phase where it depends on one of
the phase before. So the order is that of the text, on one stream, and there is one traversal. After an iteration all
blocks wait, and read what is tested. Each block waits by itself for the messages of an exchange by `put`, so that the
next phase can follow at once.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import prod

from dagc.forms import kernel_of
from dagc.forms.types import Refusal
from dagc.forms.within import Within, within
from dagc.ir.enums import Place, Transport
from dagc.ir.program import (
    Action,
    CollectiveKind,
    CollectiveOp,
    CopyOp,
    ExchangeOp,
    Graph,
    GraphOp,
    KernelOp,
    OpId,
    Program,
)
from dagc.ir.repetition import tested
from dagc.ir.sym import Const, substitute

MOST_OPS = 100  # of an iteration: each is compiled into the kernel


def in_one_kernel(graph: Graph) -> Graph | str:
    """The graph of iterations that one kernel repeats, or why it cannot."""
    found = tested(graph)
    if isinstance(found, str):
        return found
    ops = [op for op in graph.ops if op.action is not Action.END and op.id != found.dropped]
    if len(ops) > MOST_OPS:
        return f"an iteration has {len(ops)} ops, and at most {MOST_OPS} are compiled into one kernel"
    why = next((f"op `{op.name}`: {why}" for op in ops if (why := _refused(graph, op))), "")
    why = why or _shapes(graph, ops)
    if why:
        return why
    order = dict.fromkeys((*graph.order, *pairwise(op.id for op in graph.ops if op.action is not Action.END)))
    return replace(graph, streams=1, order=tuple(order), phases=_phases(graph, [op.id for op in ops]))


def _shapes(graph: Graph, ops: list[GraphOp]) -> str:
    """Why the blocks of the ops cannot be parts of blocks of one shape, as far as it is known when compiling."""
    program, shapes = graph.program, {op.name: _shape(graph.program, op.kernel) for op in ops if op.kernel is not None}
    most = max((prod(shape) for shape in shapes.values() if shape), default=0)
    if not most:
        return "" if shapes else "no op is a kernel"
    shaped = set()
    for op in ops:
        own = op.kernel and within(program, op.kernel)
        shape = shapes.get(op.name)
        if isinstance(own, Within) and shape:
            if own.meets and prod(shape) < most:
                return f"op `{op.name}`: its threads meet, and its blocks have fewer than {most}, those of another op"
            shaped |= {shape} if own.shaped else set()
    return "what ops call asks for the place of a thread, in blocks of different shapes" if len(shaped) > 1 else ""


def _shape(program: Program, op: KernelOp) -> tuple[int, ...]:
    """The size of the block of an op along x, y and z; () if it is not known."""
    launch = kernel_of(program, op)[1].launch
    sizes = launch.block if launch is not None else ()
    known = [substitute(size, {name: Const(value) for name, value in op.tunables}) for size in sizes]
    values = tuple(int(size.value) for size in known if isinstance(size, Const) and isinstance(size.value, int))
    return (*values, 1, 1)[:3] if len(values) == len(known) else ()


def _refused(graph: Graph, op: GraphOp) -> str:
    if op.kernel is not None and op.action is Action.KERNEL:
        found = within(graph.program, op.kernel)
        return found.reason if isinstance(found, Refusal) else ""
    if isinstance(op.op, CopyOp) and op.action is Action.COPY:
        regions = op.op.dst, op.op.src
        if any(graph.program.array(r.array).place is not Place.DEVICE or r.columns is not None for r in regions):
            return "it is not a copy of rows within the memory of the device"
        return "not all ranks run it" if op.op.when is not None else ""
    if not isinstance(op.op, ExchangeOp | CollectiveOp) or op.transport is None or not op.transport.within_kernels:
        able = ", ".join(t.value for t in Transport if t.within_kernels)
        return f"within a kernel, only transport {able} sends messages"
    collective = op.op.collective if isinstance(op.op, CollectiveOp) else None
    if collective is CollectiveKind.REDUCE or (isinstance(op.op, CollectiveOp) and op.op.when is not None):
        return "not all ranks of the program run it, or have its result"
    return ""


def _phases(graph: Graph, ops: list[OpId]) -> tuple[tuple[OpId, ...], ...]:
    needed: dict[OpId, set[OpId]] = {op: set() for op in ops}
    pairs = [(graph.touches[i].end, graph.touches[j].begin) for i, j in graph.hazards]
    for u, v in (*graph.completion, *pairs):
        if v in needed:
            needed[v].add(u)
    out: list[list[OpId]] = []
    for op in ops:
        if out and needed[op].isdisjoint(out[-1]):
            out[-1].append(op)
        else:
            out.append([op])
    return tuple(map(tuple, out))
