"""`loop=kernel`: iterations that one kernel repeats, and where its blocks wait for each other.

Its phases follow one another, and all blocks wait between two of them: an op begins a phase where it depends on one of
the phase before. So the order is that of the text, on one stream, and there is one traversal. After an iteration all
blocks wait, and read what is tested.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from dagc.forms.types import Refusal
from dagc.forms.within import within
from dagc.ir.enums import Place
from dagc.ir.program import Action, CopyOp, Graph, GraphOp, OpId
from dagc.ir.repetition import tested

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
    if why or not ops:
        return why or "an iteration has no op"
    order = dict.fromkeys((*graph.order, *pairwise(op.id for op in graph.ops if op.action is not Action.END)))
    return replace(graph, streams=1, order=tuple(order), phases=_phases(graph, [op.id for op in ops]))


def _refused(graph: Graph, op: GraphOp) -> str:
    if op.kernel is not None and op.action is Action.KERNEL:
        found = within(graph.program, op.kernel)
        return found.reason if isinstance(found, Refusal) else ""
    if isinstance(op.op, CopyOp) and op.action is Action.COPY:
        regions = op.op.dst, op.op.src
        if any(graph.program.array(r.array).place is not Place.DEVICE or r.columns is not None for r in regions):
            return "it is not a copy of rows within the memory of the device"
        return "not all ranks run it" if op.op.when is not None else ""
    return "messages are not sent within a kernel"


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

