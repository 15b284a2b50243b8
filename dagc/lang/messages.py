"""Exchanges and collectives."""

from __future__ import annotations

from dagc.base.errors import counted
from dagc.base.source import Span
from dagc.ir import program as ir
from dagc.ir.enums import ElementType, Mode, Place, Role
from dagc.ir.program import CollectiveKind
from dagc.ir.sym import Const, Sym, show
from dagc.lang import ast
from dagc.lang.evaluate import branch, turns
from dagc.lang.frames import Frame, GraphOut, OpEntry
from dagc.lang.kernels import wrong_place
from dagc.lang.regions import overlap, same, storage
from dagc.lang.scope import ScalarKind, Scope, Storage, did_you_mean, listing

REDUCTIONS = ("sum", "prod", "min", "max")
_FORMS = {
    CollectiveKind.ALLREDUCE: ("dst", "src", "operator"),
    CollectiveKind.BCAST: ("buffer", "root"),
    CollectiveKind.ALLTOALLV: ("dst", "src", "send_counts", "recv_counts"),
    CollectiveKind.BARRIER: (),
}


# ---- exchanges ----------------------------------------------------------------------------------


def exchange(out: GraphOut, frame: Frame, item: ast.Exchange, entry: OpEntry, base: str) -> ir.ExchangeOp:
    """An exchange with its messages. Goes on after errors in single messages."""
    entry.exchange = True
    scope = Scope(parent=frame.ev.scope)
    inner = Frame(
        type(frame.ev)(frame.ctx, scope, frame.ev.loops),
        frame.declared,
        frame.ops,
        frame.prefix,
        frame.base,
        frame.stack,
    )
    messages: list[tuple[ir.Message, ast.Message]] = []
    _items(out, inner, item.items, entry, messages)
    report = frame.ctx.report
    if not messages and not report.failed:
        report.fail(
            "empty-exchange", f"exchange `{entry.display}` has no message", item.span, "add `send ... recv ...`"
        )
    if len(messages) > 1:
        for message, node in messages:
            if not message.label:
                help = "write `name : send ...`, indexed by the loop variables"
                report.error("unnamed-message", "of several messages each needs a name", node.span, help)
    _check_disjoint(frame, messages)
    return ir.ExchangeOp(entry.display, base, tuple(m for m, _ in messages), span=item.span)


def _items(
    out: GraphOut,
    frame: Frame,
    items: tuple[ast.Item, ...],
    entry: OpEntry,
    messages: list[tuple[ir.Message, ast.Message]],
) -> None:
    report = frame.ctx.report
    for item in items:
        with report.guard():
            if isinstance(item, ast.For):
                for ev in turns(frame.ev, item):
                    _items(out, frame.turn(ev), item.items, entry, messages)
            elif isinstance(item, ast.If):
                _items(out, frame, branch(frame.ev, item), entry, messages)
            elif isinstance(item, ast.Let):
                frame.declarer.declare(item)
            elif isinstance(item, ast.Message):
                frame.ctx.expand_op(item.span)
                messages.append((_with_labels(out, frame, item, entry), item))
            else:
                wrong_place(report, item, "in an exchange")


def _with_labels(out: GraphOut, frame: Frame, item: ast.Message, entry: OpEntry) -> ir.Message:
    label = _label(frame, item, entry) if item.name else ""
    report = frame.ctx.report
    if (item.send_counts is None) is not (item.recv_counts is None):
        help = "write `counts` after both, or after neither"
        report.fail("one-sided-counts", "one end has counts, the other has none", item.span, help)
    send, recv = _buffer(frame, item.send), _buffer(frame, item.recv)
    if send.array.type is not recv.array.type:
        report.error(
            "type-mismatch",
            f"`{send.label}` holds {send.array.type.value}, `{recv.label}` {recv.array.type.value}",
            item.recv.span,
            "send and receive one type",
            ((recv.array.span, "declared here"),),
        )
    if item.send_counts is None:
        _check_equal_size(frame, send, recv, item)
    to, send_counts = _peers(out, frame, entry.display, item.to, item.send_counts, send)
    source, recv_counts = _peers(out, frame, entry.display, item.source, item.recv_counts, recv)
    out.use(frame, entry.display, send, Mode.IN, item.send.span)
    out.use(frame, entry.display, recv, Mode.OUT, item.recv.span)
    return ir.Message(label, send.region, to, send_counts, recv.region, source, recv_counts, span=item.span)


def _label(frame: Frame, item: ast.Message, entry: OpEntry) -> str:
    assert item.name is not None
    ref, report = item.name, frame.ctx.report
    index = ref.trailers[0] if len(ref.trailers) == 1 and isinstance(ref.trailers[0], ast.Index) else None
    if ref.trailers and index is None:
        help = "write `name` or `name[i]`"
        report.fail("bad-op-name", "the name of a message is a word, or a word with indices", ref.span, help)
    key, text = frame.ev.key(index.items, index.span) if index else ((), "")
    label = f"{ref.name}[{text}]" if index else ref.name
    family = entry.labels.setdefault(ref.name, {})
    if key in family or (bool(key) is not bool(next(iter(family), key))):
        report.fail(
            "duplicate-name",
            f"message `{label}` is there already",
            ref.span,
            "index it by the loop variables, or choose another name",
        )
    family[key] = label
    return label


def _buffer(frame: Frame, ref: ast.Ref) -> Storage:
    """What is sent or received: an array with one side, and with bounds."""
    buffer = storage(frame.ev, ref)
    report = frame.ctx.report
    related = ((buffer.array.span, "declared here"),)
    if buffer.array.place is Place.ANY:
        help = "declare it on device, host or pinned"
        report.fail("place-mismatch", f"`{buffer.label}` is `on any`; messages need one place", ref.span, help, related)
    if buffer.dims is None:
        help = "pack it into an array, or send the array itself"
        report.fail(
            "size-mismatch", f"part `{buffer.label}` has no bounds, so it is no message", ref.span, help, related
        )
    return buffer


def _check_equal_size(frame: Frame, send: Storage, recv: Storage, item: ast.Message) -> None:
    """Every rank runs the same line, so constant sizes of both ends must agree."""
    sizes = [_elements(s) for s in (send, recv)]
    if all(isinstance(s, Const) for s in sizes) and sizes[0] != sizes[1] and None not in sizes:
        have, want = (show(s) for s in sizes if s is not None)
        frame.ctx.report.error(
            "size-mismatch",
            f"`{send.label}` has {counted(have, 'element')}, but `{recv.label}` has {want}",
            item.recv.span,
            "receive into an array of the size that is sent",
            ((send.array.span, "declared here"),),
        )


def _elements(actual: Storage) -> Sym | None:
    total = 1
    for dim in actual.dims or ():
        if not isinstance(dim, Const) or not isinstance(dim.value, int):
            return None
        total *= dim.value
    return Const(total)


def _peers(
    out: GraphOut, frame: Frame, op: str, peer: ast.Expr, counts: ast.Ref | None, buffer: Storage
) -> tuple[Sym | str, str | None]:
    """One rank (an expression), or arrays of ranks and counts."""
    if counts is None:
        if isinstance(peer, ast.Ref) and peer.name not in frame.ev.loops:
            entry = frame.ev.scope.find(peer.name)
            if entry and any(isinstance(b.value, Storage) for b in entry[0].instances.values()):
                help = f"add `counts ...`, or name a scalar instead of the array `{peer.name}`"
                frame.ctx.report.fail("type-mismatch", "an array of ranks needs counts", peer.span, help)
        return frame.ev.settled(peer, (ScalarKind.INT,)), None
    if not isinstance(peer, ast.Ref):
        help = "name an array of ranks"
        frame.ctx.report.fail("type-mismatch", "with counts, the ranks are an array", peer.span, help)
    ranks = _index_array(out, frame, op, peer)
    many = _index_array(out, frame, op, counts)
    assert ranks.dims
    assert many.dims
    if ranks.dims[0] is not None and many.dims[0] is not None and same(ranks.dims[0], many.dims[0]) is False:
        frame.ctx.report.error(
            "size-mismatch",
            f"`{ranks.label}` has {counted(show(ranks.dims[0]), 'rank')}, but `{many.label}` has"
            f" {counted(show(many.dims[0]), 'count')}",
            counts.span,
            "give each rank one count",
        )
    return ranks.array.name, many.array.name


def _index_array(out: GraphOut, frame: Frame, op: str, ref: ast.Ref) -> Storage:
    """An array of ranks or counts: i32 on the host, given by the set-up."""
    buffer = storage(frame.ev, ref)
    array = buffer.array
    wrong = ""
    if array.type is not ElementType.I32:
        wrong = f"holds {array.type.value}, not i32"
    elif array.place not in (Place.HOST, Place.PINNED):
        wrong = f"is on the {array.place.value}, not on the host"
    elif array.role not in (Role.CONST, Role.IN):
        wrong = "is not given by the set-up"
    elif buffer.dims is None or len(buffer.dims) != 1 or buffer.region.start is not None:
        wrong = "is not a whole array of one dimension"
    if wrong:
        frame.ctx.report.fail(
            "bad-peers",
            f"`{buffer.label}` {wrong}",
            ref.span,
            f"declare `array {array.name} : i32[...] on host const`",
            ((array.span, "declared here"),),
        )
    out.use(frame, op, buffer, Mode.IN, ref.span)
    return buffer


def _check_disjoint(frame: Frame, messages: list[tuple[ir.Message, ast.Message]]) -> None:
    """What is received may not overlap anything else of the exchange: all its messages are on the way at once."""
    buffers: dict[str, list[tuple[ir.Region, bool, Span]]] = {}
    for message, node in messages:
        for region, received, span in ((message.send, False, node.send.span), (message.recv, True, node.recv.span)):
            for other, other_received, other_span in buffers.get(region.array, ()):
                if (received or other_received) and overlap(region, other, frame.ctx.facts):
                    frame.ctx.report.error(
                        "overlapping-messages",
                        f"`{region.array}` is received into while another message of the exchange uses it",
                        span,
                        "use another array, or disjoint parts",
                        ((other_span, "also used here"),),
                    )
                    return
            buffers.setdefault(region.array, []).append((region, received, span))


# ---- collectives --------------------------------------------------------------------------------


def collective(out: GraphOut, frame: Frame, item: ast.Collective, name: str, base: str) -> ir.CollectiveOp:
    """allreduce, bcast, alltoallv or barrier. May give up (Skip)."""
    report = frame.ctx.report
    callee = item.call.callee
    known = [k.value for k in CollectiveKind]
    if callee.name not in known or callee.trailers:
        help = did_you_mean(callee.name, known, f"there are {', '.join(known)}, and `exchange {{...}}`")
        report.fail("unknown-name", f"unknown collective `{callee.name}`", callee.span, help)
    kind = CollectiveKind(callee.name)
    form = _FORMS[kind]
    args = [a for a in item.call.args if not isinstance(a, ast.Named)]
    if len(item.call.args) != len(form) or len(args) != len(form):
        help = f"write `{kind.value}({', '.join(form)})`"
        report.fail(
            "wrong-arity",
            f"`{kind.value}` takes {counted(len(form), 'argument')}, not {len(item.call.args)}",
            item.call.span,
            help,
        )
    build = {
        CollectiveKind.ALLREDUCE: _allreduce, CollectiveKind.BCAST: _bcast, CollectiveKind.ALLTOALLV: _alltoallv,
    }  # fmt: skip
    if kind is CollectiveKind.BARRIER:
        return ir.CollectiveOp(name, base, kind, (), (), span=item.span)
    regions, accesses, reduce = build[kind](out, frame, name, args)
    return ir.CollectiveOp(name, base, kind, regions, accesses, reduce, span=item.span)


_Built = tuple[tuple[ir.Region | Sym, ...], tuple[ir.Access, ...], str | None]


def _array(frame: Frame, arg: ast.Expr) -> tuple[Storage, Span]:
    if not isinstance(arg, ast.Ref):
        frame.ctx.report.fail("type-mismatch", "an array is wanted here", arg.span, "name an array")
    return _buffer(frame, arg), arg.span


def _allreduce(out: GraphOut, frame: Frame, name: str, args: list[ast.Expr]) -> _Built:
    report = frame.ctx.report
    (dst, dst_span), (src, src_span) = _array(frame, args[0]), _array(frame, args[1])
    operator = args[2]
    if not isinstance(operator, ast.Ref) or operator.trailers or operator.name not in REDUCTIONS:
        report.fail("bad-reduction", "this is no reduction", operator.span, f"choose from {listing(REDUCTIONS)}")
    _check_alike(frame, dst, src, src_span)
    if dst.array.type is ElementType.BOOL:
        help = "use i32"
        report.fail("type-mismatch", "truth values are not reduced", dst_span, help)
    if dst.region == src.region:
        accesses: tuple[ir.Access, ...] = (out.use(frame, name, dst, Mode.INOUT, dst_span),)
    else:
        _refuse_overlap(frame, dst, src, src_span)
        accesses = (
            out.use(frame, name, dst, Mode.OUT, dst_span),
            out.use(frame, name, src, Mode.IN, src_span),
        )
    return (dst.region, src.region), accesses, operator.name


def _bcast(out: GraphOut, frame: Frame, name: str, args: list[ast.Expr]) -> _Built:
    buffer, span = _array(frame, args[0])
    root = frame.ev.settled(args[1], (ScalarKind.INT,))
    return (buffer.region, root), (out.use(frame, name, buffer, Mode.INOUT, span),), None


def _alltoallv(out: GraphOut, frame: Frame, name: str, args: list[ast.Expr]) -> _Built:
    (dst, dst_span), (src, src_span) = _array(frame, args[0]), _array(frame, args[1])
    if dst.array.type is not src.array.type:
        _check_alike(frame, dst, src, src_span)
    _refuse_overlap(frame, dst, src, src_span)
    counts = []
    for arg in args[2:]:
        if not isinstance(arg, ast.Ref):
            frame.ctx.report.fail("type-mismatch", "an array of counts is wanted here", arg.span, "name an array")
        counts.append(_index_array(out, frame, name, arg).region)
    accesses = (out.use(frame, name, dst, Mode.OUT, dst_span), out.use(frame, name, src, Mode.IN, src_span))
    frame.ctx.not_used_yet(
        "`alltoallv`", args[0].span, "no code is made of it yet; an exchange with counts does the same"
    )
    return (dst.region, src.region, *counts), accesses, None


def _check_alike(frame: Frame, dst: Storage, src: Storage, span: Span) -> None:
    report = frame.ctx.report
    if dst.array.type is not src.array.type:
        report.fail(
            "type-mismatch",
            f"`{dst.label}` holds {dst.array.type.value}, `{src.label}` {src.array.type.value}",
            span,
            "use one type",
        )
    for have, want in zip(src.dims or (), dst.dims or (), strict=False):
        if have is not None and want is not None and same(have, want) is False:
            report.fail(
                "size-mismatch",
                f"`{src.label}` has size {show(have)}, but `{dst.label}` has {show(want)}",
                span,
                "use arrays of one size",
            )


def _refuse_overlap(frame: Frame, dst: Storage, src: Storage, span: Span) -> None:
    if overlap(dst.region, src.region, frame.ctx.facts):
        help = "pass the same array twice, or two arrays"
        frame.ctx.report.error("aliased-arguments", f"`{src.label}` overlaps `{dst.label}`", span, help)
