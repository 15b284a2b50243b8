"""Why each edge of a graph is there: written, a hazard between two accesses, or the order inside a message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from dagc.base.source import Span
from dagc.ir.enums import Mode
from dagc.ir.program import Action, Graph, GraphOp, OpId, Region, Touch
from dagc.passes.edges import entering, leaving
from dagc.passes.messages import lower_messages

Pair: TypeAlias = tuple[OpId, OpId]


class Why(Enum):
    """The kind of a reason; the text is used in reports."""

    WRITTEN = "written"
    RAW = "RAW"
    WAR = "WAR"
    WAW = "WAW"
    MESSAGE = "message"
    END = "end"
    ROUNDS = "rounds"  # the rounds of a loop and what stands around it are issued one after the other


HAZARDS = frozenset((Why.RAW, Why.WAR, Why.WAW))


@dataclass(frozen=True, slots=True)
class EdgeReason:
    """One reason for an edge u -> v.

    text   a sentence: "`pack` writes `x_send`, then `x.send` reads it"
    first  of a hazard: the region that u accesses, and `second` the region that v accesses
    spans  places in the text: the edge as written, or the two ops
    """

    why: Why
    text: str
    spans: tuple[Span, ...] = ()
    first: Region | None = None
    second: Region | None = None


def reasons(graph: Graph) -> dict[Pair, tuple[EdgeReason, ...]]:
    """The reasons of every edge: of completion, of issue order, and in a folded graph of those that are carried from
    one round to a later one. At least one each. Reasons of a folded edge are those of its first instance.
    """
    if graph.folding is None:
        return _unfolded(graph)
    return _folded(graph, _unfolded(graph.folding.unrolled))


def carried(graph: Graph) -> Mapping[Pair, int]:
    """The edges of a folded graph that lead into a later round, with their shortest distance in rounds."""
    out: dict[Pair, int] = {}
    for segment in graph.folding.segments if graph.folding is not None else ():
        for u, v, distance in segment.carried:
            out[u, v] = min(distance, out.get((u, v), distance))
    return out


# ---- without folding ------------------------------------------------------------------------


def _unfolded(graph: Graph) -> dict[Pair, tuple[EdgeReason, ...]]:
    reasons: dict[Pair, dict[EdgeReason, None]] = {edge: {} for edge in (*graph.completion, *graph.order)}
    for edge, reason in (*_written(graph), *_hazards(graph)):
        if edge in reasons:
            reasons[edge].setdefault(reason)
    for (u, v), known in reasons.items():
        if not known:
            known[_otherwise(graph.ops[u], graph.ops[v])] = None
    return {edge: tuple(known) for edge, known in reasons.items()}


def _written(graph: Graph) -> Iterator[tuple[Pair, EdgeReason]]:
    """Edges of the text. One edge between exchanges stands for several."""
    ends = lower_messages(graph.program, graph.transport, graph.staging).ends if graph.program.edges else {}
    for edge in graph.program.edges:
        source = graph.program.sources[edge.span.file]
        words = " ".join(source.text[edge.span.start : edge.span.end].split())
        reason = EdgeReason(Why.WRITTEN, f"`{words}`", (edge.span,))
        for u in leaving(ends[edge.u.op], edge.u):
            for v in entering(ends[edge.v.op], edge.v):
                yield (u, v), reason


def _hazards(graph: Graph) -> Iterator[tuple[Pair, EdgeReason]]:
    for i, j in graph.hazards:
        a, b = graph.touches[i], graph.touches[j]
        u, v = graph.ops[a.end], graph.ops[b.begin]
        yield (a.end, b.begin), _hazard(a, b, u, v)


def _hazard(a: Touch, b: Touch, u: GraphOp, v: GraphOp) -> EdgeReason:
    writes, reads = a.mode is not Mode.IN, b.mode is not Mode.OUT
    why = Why.RAW if writes and reads else Why.WAW if writes else Why.WAR
    first, second = ("writes" if writes else "reads"), ("reads" if why is Why.RAW else "writes")
    buffer = "the staging buffer of " if a.staged else ""
    then = "it" if a.region == b.region else f"`{b.region.text}`, which may share elements with it"
    text = f"`{u.name}` {first} {buffer}`{a.region.text}`, then `{v.name}` {second} {then}"
    return EdgeReason(why, text, (u.span, v.span), a.region, b.region)


def _otherwise(u: GraphOp, v: GraphOp) -> EdgeReason:
    """An edge that neither the text nor a hazard has brought."""
    if u.action is v.action is Action.GROUP:
        text = (
            f"`{u.name}` and `{v.name}` are on different NCCL communicators, whose groups run in one order on all GPUs"
        )
        return EdgeReason(Why.MESSAGE, text, (u.span, v.span))
    if v.action is Action.END:
        return EdgeReason(Why.END, f"the iteration ends after `{u.name}`")
    return EdgeReason(Why.MESSAGE, f"inside the exchange or collective, `{u.name}` comes before `{v.name}`", (u.span,))


# ---- folded ---------------------------------------------------------------------------------


def _folded(graph: Graph, unrolled: Mapping[Pair, tuple[EdgeReason, ...]]) -> dict[Pair, tuple[EdgeReason, ...]]:
    """Of each folded edge the reasons of its first instance."""
    assert graph.folding is not None
    image = {
        instance: op
        for segment in graph.folding.segments
        for ops in segment.rounds
        for op, instance in zip(segment.ops, ops, strict=True)
    }
    wanted = {*graph.completion, *graph.order, *graph.folding.crossing, *carried(graph)}
    out: dict[Pair, tuple[EdgeReason, ...]] = {}
    for (u, v), known in sorted(unrolled.items()):
        edge = (image[u], image[v])
        if edge in wanted:
            out.setdefault(edge, known)
    between = (EdgeReason(Why.ROUNDS, "ops before, in and after a loop are issued in that order"),)
    return {edge: out.get(edge, between) for edge in sorted(wanted)}
