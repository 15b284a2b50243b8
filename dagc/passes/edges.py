"""Edges of the graph: those inside exchanges, those written, and, unless `edges explicit`, those inferred."""

from __future__ import annotations

from dagc.base.errors import Diagnostic
from dagc.ir.graph import Action
from dagc.ir.program import EdgeEnd, End, OpId, Program
from dagc.passes.hazards import Hazards, TooManyConflicts, undecided, unordered
from dagc.passes.messages import Ends, Lowered
from dagc.passes.reach import Edges


def written(program: Program, lowered: Lowered, findings: list[Diagnostic]) -> Edges | None:
    """Edges inside exchanges, and those of the text. A cycle becomes a diagnostic, and None."""
    edges = Edges(len(lowered.ops))
    for u, v in lowered.inner:
        edges.add(u, v)
    for edge in program.edges:
        for u in leaving(lowered.ends[edge.u.op], edge.u):
            for v in entering(lowered.ends[edge.v.op], edge.v):
                if edge.completion:
                    edges.add(u, v)
                else:
                    edges.add_order(u, v)
    return None if _has_cycle(program, lowered, edges, findings) else edges


def connect(
    program: Program, lowered: Lowered, edges: Edges, findings: list[Diagnostic]
) -> tuple[tuple[int, int], ...]:
    """Order all hazards, by edges inferred unless `edges explicit`, and add the edges into `end`.

    Gives the hazards as pairs of touches, the one that comes first first. What has no order becomes a diagnostic, as
    does a cycle of inferred edges with `before`.
    """
    hazards: tuple[tuple[int, int], ...] = ()
    try:
        analysis = Hazards(program, lowered, edges)
        analysis.run(infer=not program.explicit)
    except TooManyConflicts as error:
        findings.append(_too_many(lowered, error))
    else:
        hazards = tuple(analysis.ordered)
        unordered(program, lowered, analysis.unordered, findings)
        undecided(lowered, analysis, findings)
        _has_cycle(program, lowered, edges, findings)
    end = OpId(len(lowered.ops) - 1)
    followed = {u for u, _ in edges.completion}
    for op in lowered.ops:
        if op.action is not Action.END and op.id not in followed:
            edges.add(op.id, end)
    return hazards


def _too_many(lowered: Lowered, error: TooManyConflicts) -> Diagnostic:
    first = next(t for t in lowered.touches if t.region.array == error.array)
    return Diagnostic(
        "too-many-ops",
        f"array `{error.array}` {error.why}",
        lowered.ops[first.begin].span,
        "use several arrays, or fewer and larger ops, and write edges in text order",
    )


def leaving(ends: Ends, end: EdgeEnd) -> list[OpId]:
    """The lowered ops that an edge out of `end` leaves: the last ones."""
    tables = {End.SEND: (ends.last_send,), End.RECV: (ends.last_recv,), End.WHOLE: (ends.last_send, ends.last_recv)}
    return _pick(tables[end.end], end.message)


def entering(ends: Ends, end: EdgeEnd) -> list[OpId]:
    """The lowered ops that an edge into `end` enters: the first ones."""
    tables = {End.SEND: (ends.first_send,), End.RECV: (ends.first_recv,), End.WHOLE: (ends.first_send, ends.first_recv)}
    return _pick(tables[end.end], end.message)


def _pick(tables: tuple[dict[str, OpId], ...], message: str | None) -> list[OpId]:
    found = [op for table in tables for label, op in table.items() if message is None or label == message]
    return list(dict.fromkeys(found))


def _has_cycle(program: Program, lowered: Lowered, edges: Edges, findings: list[Diagnostic]) -> bool:
    cycle = edges.cycle()
    if cycle:
        findings.append(_cycle(program, lowered, cycle))
    return bool(cycle)


def _cycle(program: Program, lowered: Lowered, cycle: list[OpId]) -> Diagnostic:
    names = [lowered.ops[op].name for op in cycle]
    span = lowered.ops[cycle[0]].span
    written = {op.op.name for op in (lowered.ops[i] for i in cycle) if op.op is not None}
    for edge in program.edges:  # point at an edge of the cycle where one was written
        if edge.u.op in written and edge.v.op in written:
            span = edge.span
            break
    return Diagnostic(
        "cycle",
        "these ops wait for each other: " + " -> ".join(f"`{n}`" for n in [*names, names[0]]),
        span,
        "remove or turn one of the edges",
    )
