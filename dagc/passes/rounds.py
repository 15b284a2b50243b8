"""Consecutive iterations of a graph as one graph: which ops of an iteration must follow which ops of the one before."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from dagc.ir.enums import CodeLang
from dagc.ir.program import Action, Graph, GraphOp, KernelOp, OpId, Touch
from dagc.passes.edges import Edges, Hazards, TooManyConflicts
from dagc.passes.messages import LoweredMessages


def repeated(graph: Graph, rounds: int) -> Graph | None:
    """So many iterations of an unrolled graph: the op `v` of iteration `i` is `v + i * n`, where n ops precede `end`.

    Edges between iterations are those of conflicting accesses, and these: from every op to itself, since both share its
    scratch memory; from every group to all groups of the next iteration, so that groups which wait for other ranks
    never overlap across iterations; the same among host functions, which may share a handle or a workspace that no
    header declares. None where there are too many conflicts to examine.
    """
    n = len(graph.ops) - 1
    edges = Edges(rounds * n + 1)
    groups = [op.id for op in graph.ops if op.action is Action.GROUP]
    calls = _host_functions(graph)
    for turn in range(rounds):
        for u, v in graph.completion:
            if v < n:
                edges.add(OpId(u + turn * n), OpId(v + turn * n))
        if turn:
            for u, v in (*((OpId(op), OpId(op)) for op in range(n)), *product(groups, groups), *product(calls, calls)):
                edges.add(OpId(u + (turn - 1) * n), OpId(v + turn * n))
    ops, touches = _copies(graph, rounds)
    lowered = LoweredMessages(ops, touches, (), {}, graph.staged, (), ())
    try:
        hazards = Hazards(graph.program, lowered, edges)
        hazards.run(infer=True)
    except TooManyConflicts:
        return None
    order = tuple((OpId(u + t * n), OpId(v + t * n)) for t in range(rounds) for u, v in graph.order if v < n)
    return replace(
        graph, ops=ops, touches=touches, completion=edges.completion, order=order,
        hazards=tuple(hazards.ordered), matches=(), folding=None,
    )  # fmt: skip


def _host_functions(graph: Graph) -> list[OpId]:
    """The ops that call a function which enqueues work on a stream, or may do so."""
    kernels = {k.name for k in graph.program.kernels if any(i.code and i.code.lang is CodeLang.CPP for i in k.impls)}
    return [op.id for op in graph.ops if isinstance(op.op, KernelOp) and op.op.kernel in kernels]


def _copies(graph: Graph, rounds: int) -> tuple[tuple[GraphOp, ...], tuple[Touch, ...]]:
    *work, end = graph.ops
    ops = [replace(op, id=OpId(op.id + t * len(work)), name=f"{op.name}#{t}") for t in range(rounds) for op in work]
    touches = [
        replace(touch, begin=OpId(touch.begin + t * len(work)), end=OpId(touch.end + t * len(work)))
        for t in range(rounds)
        for touch in graph.touches
    ]
    return (*ops, replace(end, id=OpId(len(ops)))), tuple(touches)
