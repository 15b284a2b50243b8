"""Edges: references to ops, to ends of exchanges, and to compounds."""

from __future__ import annotations

from dagc import ir
from dagc.ir import EdgeEnd, End
from dagc.lang import ast
from dagc.lang.lower_frames import Frame, GraphOut, OpEntry, OpScope
from dagc.lang.lower_report import did_you_mean, listing
from dagc.source import Span


def lower_edges(out: GraphOut) -> tuple[ir.Edge, ...]:
    """All edges, once every op is known. Goes on after errors."""
    edges: dict[tuple[EdgeEnd, EdgeEnd, bool], ir.Edge] = {}
    for item, frame in out.edges:
        with frame.ctx.report.guard():
            groups = [[e for ref in group for e in _ends(frame, ref)] for group in item.groups]
            for i, arrow in enumerate(item.arrows):
                for u in groups[i]:
                    for v in groups[i + 1]:
                        _enter(frame, edges, item, u, v, arrow)
    return tuple(edges.values())


def _enter(
    frame: Frame,
    edges: dict[tuple[EdgeEnd, EdgeEnd, bool], ir.Edge],
    item: ast.Edge,
    u: EdgeEnd,
    v: EdgeEnd,
    arrow: ast.Arrow,
) -> None:
    frame.ctx.expand(item.span)
    report = frame.ctx.report
    if u == v or (u.op == v.op and End.WHOLE in (u.end, v.end)):
        report.fail("self-edge", f"an edge from `{u.op}` to itself", item.span, "name two different ops")
    if u.op == v.op and u.message == v.message:
        help = "drop the edge: an exchange posts all its messages before it waits"
        report.fail("self-edge", f"an edge between the ends of one exchange, `{u.op}`", item.span, help)
    completion = arrow is ast.Arrow.COMPLETION
    key = (u, v, completion)
    if key in edges:
        at = ((edges[key].span, "first said here"),)
        report.warning("duplicate-edge", f"the edge from `{u.op}` to `{v.op}` is said twice", item.span, "drop one", at)
        return
    edges[key] = ir.Edge(u, v, completion, span=item.span)


def _ends(frame: Frame, ref: ast.Ref) -> list[EdgeEnd]:
    """What a reference in an edge names: one op, an end of an exchange, or all ops of a compound."""
    entry, trailers = _entry(frame, frame.ops, ref)
    while entry.inner is not None and trailers and isinstance(trailers[0], ast.Member):
        member = trailers[0]
        inner = ast.Ref(member.name, trailers[1:], span=member.span)
        entry, trailers = _entry(frame, entry.inner, inner)
    message: str | None = None
    if entry.exchange and trailers and isinstance(trailers[0], ast.Member) and trailers[0].name not in ("send", "recv"):
        message, trailers = _message(frame, entry, trailers)
    end = End.WHOLE
    if trailers and isinstance(trailers[0], ast.Member) and trailers[0].name in ("send", "recv"):
        if not entry.exchange:
            help = "name the op alone"
            frame.ctx.report.fail("bad-edge", f"`{entry.display}` is no exchange, so it has no ends", ref.span, help)
        end, trailers = End(trailers[0].name), trailers[1:]
    if trailers:
        help = f"write `{entry.display}`"
        frame.ctx.report.fail("bad-edge", f"`{entry.display}` has nothing of this name", trailers[0].span, help)
    return [EdgeEnd(name, end, message) for name in entry.names]


def _entry(frame: Frame, scope: OpScope, ref: ast.Ref) -> tuple[OpEntry, tuple[ast.Member | ast.Index, ...]]:
    report = frame.ctx.report
    if ref.name not in scope.families:
        known = scope.families
        help = did_you_mean(ref.name, known, f"there are {listing(known)}" if known else "the dag has no ops")
        report.fail("unknown-name", f"unknown op `{ref.name}`", ref.span, help)
    family = scope.families[ref.name]
    trailers = ref.trailers
    key: tuple[int, ...] = ()
    text = ""
    if trailers and isinstance(trailers[0], ast.Index):
        key, text = frame.ev.key(trailers[0].items, trailers[0].span)
        trailers = trailers[1:]
    if key not in family:
        _bad_index(frame, ref.name, text, [e.display for e in family.values()], ref.span)
    return family[key], trailers


def _message(
    frame: Frame, entry: OpEntry, trailers: tuple[ast.Member | ast.Index, ...]
) -> tuple[str, tuple[ast.Member | ast.Index, ...]]:
    member = trailers[0]
    assert isinstance(member, ast.Member)
    if member.name not in entry.labels:
        known = [*entry.labels, "send", "recv"]
        help = did_you_mean(member.name, known, f"there are {listing(known)}")
        message = f"exchange `{entry.display}` has no message `{member.name}`"
        frame.ctx.report.fail("unknown-name", message, member.span, help)
    family = entry.labels[member.name]
    key: tuple[int, ...] = ()
    text = ""
    rest = trailers[1:]
    if rest and isinstance(rest[0], ast.Index):
        key, text = frame.ev.key(rest[0].items, rest[0].span)
        rest = rest[1:]
    if key not in family:
        _bad_index(frame, f"{entry.display}.{member.name}", text, list(family.values()), member.span)
    return family[key], rest


def _bad_index(frame: Frame, name: str, text: str, known: list[str], span: Span) -> None:
    what = f"there is no `{name}[{text}]`" if text else f"`{name}` needs an index"
    frame.ctx.report.fail("bad-index", what, span, f"there are {listing(known)}")
