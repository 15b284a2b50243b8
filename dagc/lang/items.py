"""The items of a dag: ops, exchanges, collectives, compounds, loops, edges."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias, TypeVar

from dagc.base.errors import counted
from dagc.base.source import Span
from dagc.ir import program as ir
from dagc.ir.enums import ElementType, Mode, OpKind, Place, Role
from dagc.ir.linear import Facts
from dagc.ir.program import CollectiveKind, Device, EdgeEnd, End
from dagc.ir.regions import Regions, near
from dagc.ir.sym import Apply, Const, Fn, Sym, Var, apply, free, show
from dagc.lang import ast
from dagc.lang.calls import array_argument, by_value, check_place, pinned_stream
from dagc.lang.calls import kernel_op as lower_kernel_op
from dagc.lang.declarations import check_sizes, dimension, same, select, storage
from dagc.lang.evaluate import Evaluator, branches, turns
from dagc.lang.frames import Frame, GraphOut, OpEntry, OpScope, on, words
from dagc.lang.held import decided, of_device, refuse
from dagc.lang.kernels import declare_formal, lower_formals, wrong_place
from dagc.lang.scope import Key, ScalarKind, Scope, Skip, Storage, kind_of_type, listing, there_are

T = TypeVar("T")
Trailers: TypeAlias = tuple[ast.Member | ast.Index, ...]

# ---- exchanges and collectives ----

REDUCTIONS = ("sum", "prod", "min", "max")
_FORMS = {
    CollectiveKind.ALLREDUCE: ("dst", "src", "operator"),
    CollectiveKind.REDUCE: ("dst", "src", "operator", "root"),
    CollectiveKind.BCAST: ("buffer", "root"),
    CollectiveKind.ALLGATHER: ("dst", "src"),
    CollectiveKind.ALLTOALL: ("dst", "src"),
    CollectiveKind.ALLTOALLV: ("dst", "src", "send_counts", "recv_counts"),
    CollectiveKind.BARRIER: (),
}


# ---- exchanges ----------------------------------------------------------------------------------


def exchange(out: GraphOut, frame: Frame, item: ast.Exchange, entry: OpEntry) -> ir.ExchangeOp:
    """An exchange with its messages. Continues after errors in single messages."""
    entry.exchange = True
    comm, frame = on(frame, item.comm)
    scope = Scope(parent=frame.ev.scope)
    inner = frame.turn(type(frame.ev)(frame.ctx, scope, frame.ev.loops))
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
                report.error("unnamed-message", "each of several messages needs a name", node.span, help)
    _check_disjoint(frame, messages)
    name = comm.name if comm is not None else ""
    split, every = _split(frame, item, [message for message, _ in messages])
    return ir.ExchangeOp(entry.display, entry.base, every, name, split=split, span=item.span)


_MOST_SHARES = 64  # ops for the neighbours of a message


def _split(frame: Frame, item: ast.Exchange, messages: list[ir.Message]) -> tuple[bool, tuple[ir.Message, ...]]:
    """Whether each message has ops of its own; and the messages, those with counts with the number of their ops."""
    if item.split is None:
        return True, tuple(messages)
    report, what = frame.ctx.report, "the number of ops of messages"
    value = frame.ev.constant(item.split, what, (ScalarKind.INT, ScalarKind.BOOL), structural=True)
    counted_ones = [message for message in messages if message.send_counts is not None]
    if isinstance(value, bool):
        if value and counted_ones and len(messages) == 1:
            help = "write a number: `split 4` has an op for each of the first three neighbours, and one for the others"
            report.warning("no-effect", "messages with counts share a post and a wait", item.split.span, help)
        return value, tuple(messages)
    assert isinstance(value, int)
    if not 1 <= value <= _MOST_SHARES:
        help = f"write 1 to {_MOST_SHARES}: each neighbour has its ops, and the last op those that are left"
        report.fail("bad-size", f"{value} ops for the neighbours of a message", item.split.span, help)
    return value > 1, tuple(replace(m, shares=value) if m in counted_ones else m for m in messages)


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
                for taken, condition in branches(frame.ev, item):
                    _items(out, frame.under(condition), taken, entry, messages)
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
        report.fail("one-sided-counts", "one end has counts, the other does not", item.span, help)
    send, recv = (_buffer(frame, end, strided=item.send_counts is None) for end in (item.send, item.recv))
    if send.array.type is not recv.array.type:
        message = f"`{send.label}` holds {send.array.type.value}, `{recv.label}` {recv.array.type.value}"
        help = "send and receive the same type"
        report.error("type-mismatch", message, item.recv.span, help, ((recv.array.span, "declared here"),))
    if item.send_counts is None:
        _check_equal_size(frame, send, recv, item)
    to, send_counts = _peers(out, frame, entry.display, item.to, item.send_counts, send)
    source, recv_counts = _peers(out, frame, entry.display, item.source, item.recv_counts, recv)
    arrived = recv
    sending = frame.under(_is_rank(to))
    if send.region.columns is not None:
        send = _packed(out, sending, entry, label, send, item, outwards=True)
    if recv.region.columns is not None:
        recv = _packed(out, frame, entry, label, recv, item, outwards=False)
    out.use(sending, entry.display, send, Mode.IN, item.send.span)
    out.use(frame, entry.display, recv, Mode.OUT, item.recv.span, arriving=frame.under(_is_rank(source)))
    if recv is not arrived:
        _unpack(out, frame, entry, label, arrived, recv, source, item)
    when = frame.condition
    if when is not None:
        to, source = (p if isinstance(p, str) else apply(Fn.COND, when, p, Const(-1)) for p in (to, source))
    return ir.Message(label, send.region, to, send_counts, recv.region, source, recv_counts, when, span=item.span)


def _is_rank(peer: Sym | str) -> Sym | None:
    """The condition under which a peer such as `c ? p : -1` is a rank, where its text says so; None: maybe always."""
    if isinstance(peer, Const):
        return Const(False) if isinstance(peer.value, int) and peer.value < 0 else None
    if not isinstance(peer, Apply) or peer.fn is not Fn.COND:
        return None
    test, *values = peer.args
    taken, other = (_is_rank(v) for v in values)
    if other == Const(False):
        return test if taken is None else apply(Fn.AND, test, taken)
    if taken == Const(False):
        return apply(Fn.NOT, test) if other is None else apply(Fn.AND, apply(Fn.NOT, test), other)
    return None


def _packed(
    out: GraphOut, frame: Frame, entry: OpEntry, label: str, end: Storage, item: ast.Message, *, outwards: bool
) -> Storage:
    """The buffer for an end of a message that is not contiguous. What is sent is copied into it before the exchange."""
    ref = item.send if outwards else item.recv
    report = frame.ctx.report
    if end.array.place is not Place.DEVICE:
        help = "declare it on the device, or pack it in a cpu kernel"
        related = ((end.array.span, "declared here"),)
        report.fail(
            "place-mismatch", f"`{end.label}` is not contiguous, and not on the device", ref.span, help, related
        )
    out.packed = out.packed or ("this message is not contiguous", item.span)
    key = entry.base, label, outwards, end.region
    if key not in out.buffers:
        name, _ = _of_message(entry, label, "send" if outwards else "recv")
        out.buffers[key] = _new_buffer(frame, name, end, ref.span)
    buffer = out.buffers[key]
    if outwards:
        name, base = _of_message(entry, label, "pack")
        out.use(frame, name, end, Mode.IN, ref.span)
        out.use(frame, name, buffer, Mode.OUT, ref.span)
        frame.ctx.expand_op(item.span)
        out.ops.append(ir.CopyOp(name, base, buffer.region, end.region, when=frame.condition, span=item.span))
    return buffer


def _new_buffer(frame: Frame, name: str, end: Storage, span: Span) -> Storage:
    dims = tuple(end.dims or ())
    array = ir.Array(name, end.array.type, dims, Place.DEVICE, None, span=span)
    frame.declared.arrays.append(array)
    frame.ctx.used.add(name)
    return Storage(array, ir.Region(name), dims, name)


def _of_message(entry: OpEntry, label: str, what: str) -> tuple[str, str]:
    """The name and the base name of what is added for a message: `halo[0].face[x].pack`, and `halo.face.pack` without
    indices."""
    message = label or "message"
    return f"{entry.display}.{message}.{what}", f"{entry.base}.{message.partition('[')[0]}.{what}"


def _unpack(
    out: GraphOut,
    frame: Frame,
    entry: OpEntry,
    label: str,
    end: Storage,
    buffer: Storage,
    source: Sym | str,
    item: ast.Message,
) -> None:
    """Copies what was received to its place, after the exchange; a rank without a sender keeps its values."""
    assert not isinstance(source, str)
    there = apply(Fn.GE, source, Const(0))
    inner = frame if isinstance(there, Const) and there.value else frame.under(there)
    name, base = _of_message(entry, label, "unpack")
    out.use(inner, name, buffer, Mode.IN, item.recv.span)
    out.use(inner, name, end, Mode.OUT, item.recv.span)
    frame.ctx.expand_op(item.span)
    entry.after.append(ir.CopyOp(name, base, end.region, buffer.region, when=inner.condition, span=item.span))


def _label(frame: Frame, item: ast.Message, entry: OpEntry) -> str:
    assert item.name is not None
    ref = item.name
    key, label = frame.indexed(ref, "a message")
    family = entry.labels.setdefault(ref.name, {})
    if key in family or (bool(key) is not bool(next(iter(family), key))):
        help = "index it by the loop variables, or choose another name"
        frame.ctx.report.fail("duplicate-name", f"message `{label}` is declared twice", ref.span, help)
    family[key] = label
    return label


def _buffer(frame: Frame, ref: ast.Ref, strided: bool = False) -> Storage:
    """The region sent or received: in one place, and with bounds."""
    buffer = storage(frame.ev, ref, strided)
    report = frame.ctx.report
    related = ((buffer.array.span, "declared here"),)
    if buffer.array.place is Place.ANY:
        help = "declare it on device, host or pinned"
        report.fail("place-mismatch", f"`{buffer.label}` is `on any`; messages need one place", ref.span, help, related)
    if buffer.dims is None:
        help = "pack it into an array, or send the array itself"
        message = f"part `{buffer.label}` has no bounds, so it cannot be sent or received"
        report.fail("size-mismatch", message, ref.span, help, related)
    return buffer


def _check_equal_size(frame: Frame, send: Storage, recv: Storage, item: ast.Message) -> None:
    """All ranks run the same text, so constant sizes of both ends must agree."""
    sizes = [_elements(s) for s in (send, recv)]
    if all(isinstance(s, Const) for s in sizes) and sizes[0] != sizes[1] and None not in sizes:
        have, want = (show(s) for s in sizes if s is not None)
        message = f"`{send.label}` has {counted(have, 'element')}, but `{recv.label}` has {want}"
        help = "receive into an array of the size that is sent"
        frame.ctx.report.error("size-mismatch", message, item.recv.span, help, ((send.array.span, "declared here"),))


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
        have, want = counted(show(ranks.dims[0]), "rank"), counted(show(many.dims[0]), "count")
        message = f"`{ranks.label}` has {have}, but `{many.label}` has {want}"
        frame.ctx.report.error("size-mismatch", message, counts.span, "use as many counts as ranks")
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
        wrong = "is not given by the set-up, which fixes ranks and counts before the dag runs"
    elif buffer.dims is None or len(buffer.dims) != 1 or buffer.region.start is not None:
        wrong = "is not a whole array of one dimension"
    if wrong:
        message = f"`{buffer.label}` {wrong}"
        help = f"declare `array {array.name} : i32[...] on host const`"
        if array.role not in (Role.CONST, Role.IN):
            help += "; where ops compute counts, send as many elements as there may be, with the count among them"
        frame.ctx.report.fail("bad-peers", message, ref.span, help, ((array.span, "declared here"),))
    out.use(frame, op, buffer, Mode.IN, ref.span)
    return buffer


_End: TypeAlias = tuple[ir.Region, bool, Span]  # region, whether received, place
_MOST_PAIRS = 200_000  # of slices of messages that are compared in one program


def _check_disjoint(frame: Frame, messages: list[tuple[ir.Message, ast.Message]]) -> None:
    """A receive buffer must not overlap any other buffer of the exchange: all its messages are in flight at once."""
    buffers: dict[str, dict[tuple[ir.Region, int], _End]] = {}
    for message, node in messages:
        for region, received, span in ((message.send, False, node.send.span), (message.recv, True, node.recv.span)):
            ends = buffers.setdefault(region.array, {})
            ends.setdefault((region, len(ends) if received else -1), (region, received, span))  # sends may be alike
    for array, ops in buffers.items():
        used = list(ops.values())
        for first, second in (sorted(pair) for pair in near([region for region, _, _ in used])):
            frame.ctx.compared += 1
            (a, received, span), (b, other_received, other_span) = used[first], used[second]
            if frame.ctx.compared > _MOST_PAIRS:
                text = f"the messages of exchanges use too many slices of `{array}` to compare"
                help = "use fewer messages, or ranks and counts in arrays: one message to many ranks"
                frame.ctx.report.fail("too-many-ops", text, other_span, help)
            if (received or other_received) and Regions(frame.ctx.facts).overlap(a, b):
                text = f"`{array}` is received into while another message of the exchange uses it"
                help, related = _how_to_separate(a, b, frame.ctx.facts), ((span, "also used here"),)
                frame.ctx.report.error("overlapping-messages", text, other_span, help, related)
                return


def _how_to_separate(a: ir.Region, b: ir.Region, facts: Facts) -> str:
    """The help for two regions of one array that may overlap: where a `require` would separate them, that one."""
    other = "use another array, or disjoint parts"
    if a.start is None or a.stop is None or b.start is None or b.stop is None or a == b:
        return other
    ends = (Const(0), a.start, a.stop), (Const(0), b.start, b.stop)
    within = [apply(Fn.LE, *pair) for bounds in ends for pair in itertools.pairwise(bounds)]
    comparisons = facts.given(within).disjoint_if((a.start, a.stop), (b.start, b.stop))
    if not comparisons:
        return other
    condition = show(comparisons[0])
    return f"write `require {condition}` if that always holds (it is checked when the program starts); else {other}"


# ---- collectives --------------------------------------------------------------------------------


def collective(out: GraphOut, frame: Frame, item: ast.Collective, name: str, base: str) -> ir.CollectiveOp:
    """One of `CollectiveKind`. May raise Skip."""
    report = frame.ctx.report
    callee = item.call.callee
    known = [k.value for k in CollectiveKind]
    if callee.name not in known or callee.trailers:
        help = report.did_you_mean(callee.name, known, f"there are {', '.join(known)}, and `exchange {{...}}`")
        report.fail("unknown-name", f"unknown collective `{callee.name}`", callee.span, help)
    kind = CollectiveKind(callee.name)
    form = _FORMS[kind]
    args = [a for a in item.call.args if not isinstance(a, ast.Named)]
    if len(item.call.args) != len(form) or len(args) != len(form):
        help = f"write `{kind.value}({', '.join(form)})`"
        message = f"`{kind.value}` takes {counted(len(form), 'argument')}, not {len(item.call.args)}"
        report.fail("wrong-arity", message, item.call.span, help)
    build = {
        CollectiveKind.ALLREDUCE: _reduction, CollectiveKind.REDUCE: _reduction, CollectiveKind.BCAST: _bcast,
        CollectiveKind.ALLGATHER: _of_all_ranks, CollectiveKind.ALLTOALL: _of_all_ranks,
        CollectiveKind.ALLTOALLV: _alltoallv,
    }  # fmt: skip
    comm, members = on(frame, item.comm)
    _check_condition(frame, item, name, comm)
    frame, on_name = members, comm.name if comm is not None else ""
    if kind is CollectiveKind.BARRIER:
        return ir.CollectiveOp(name, base, kind, (), (), when=frame.condition, comm=on_name, span=item.span)
    regions, accesses, reduce = build[kind](out, frame, name, args, comm)
    return ir.CollectiveOp(name, base, kind, regions, accesses, reduce, frame.condition, on_name, span=item.span)


def _check_condition(frame: Frame, item: ast.Collective, name: str, comm: ir.Communicator | None) -> None:
    """The condition of a collective must be the same on all ranks of its communicator. May raise Skip."""
    when, same = frame.condition, {"ranks"} if comm is None else {"ranks", comm.ranks.name}
    if when is None or free(when) <= same:
        return
    whole = "all ranks" if comm is None else f"all ranks of `{comm.name}`"
    message = f"{whole} take part in `{name}`, but only those with `{show(when)}` would run it"
    help = "move it out of the `if`, or declare a communicator of these ranks: `comm NAME = split(CONDITION ? 0 : -1)`"
    frame.ctx.report.fail("conditional-collective", message, item.span, help)


_Built = tuple[tuple[ir.Region | Sym, ...], tuple[ir.Access, ...], str | None]


def _array(frame: Frame, arg: ast.Expr) -> tuple[Storage, Span]:
    return _buffer(frame, _named(frame, arg, "an array")), arg.span


def _named(frame: Frame, arg: ast.Expr, what: str, help: str = "name an array") -> ast.Ref:
    if not isinstance(arg, ast.Ref):
        frame.ctx.report.fail("type-mismatch", f"{what} is expected here", arg.span, help)
    return arg


def _reduction(out: GraphOut, frame: Frame, name: str, args: list[ast.Expr], comm: ir.Communicator | None) -> _Built:
    """To all ranks or, with a root, to that: elsewhere the result keeps its elements."""
    report = frame.ctx.report
    (dst, dst_span), (src, src_span) = _array(frame, args[0]), _array(frame, args[1])
    operator = args[2]
    if not isinstance(operator, ast.Ref) or operator.trailers or operator.name not in REDUCTIONS:
        help = f"choose from {listing(REDUCTIONS)}"
        if isinstance(operator, ast.Ref) and operator.name in ("maxloc", "minloc"):
            help = (
                f"reduce i64 by {operator.name[:3]}: the value in the upper 32 bits, the index in the lower ones; the"
                " bits of an f32 that is not negative are ordered as its values"
            )
        report.fail("bad-reduction", "this is not a reduction", operator.span, help)
    _check_alike(frame, dst, src, src_span)
    if dst.array.type is ElementType.BOOL:
        help = "use i32"
        report.fail("type-mismatch", "booleans cannot be reduced", dst_span, help)
    root = [frame.ev.settled(arg, (ScalarKind.INT,)) for arg in args[3:]]
    there = frame.under(_is_root(comm, *root)) if root else frame
    given = out.use(frame, name, src, Mode.IN, src_span)
    out.use(there, name, dst, Mode.OUT, dst_span)
    if dst.region == src.region:
        accesses: tuple[ir.Access, ...] = (ir.Access(dst.region, Mode.INOUT),)
    else:
        _refuse_overlap(frame, dst, src, src_span, "pass the same array twice, or two arrays")
        accesses = (ir.Access(dst.region, Mode.INOUT if root else Mode.OUT), given)
    return (dst.region, src.region, *root), accesses, operator.name


def _is_root(comm: ir.Communicator | None, root: Sym) -> Sym:
    return apply(Fn.EQ, Var("rank") if comm is None else comm.rank, root)


def _bcast(out: GraphOut, frame: Frame, name: str, args: list[ast.Expr], comm: ir.Communicator | None) -> _Built:
    """Only the root needs contents before."""
    buffer, span = _array(frame, args[0])
    root = frame.ev.settled(args[1], (ScalarKind.INT,))
    out.use(frame.under(_is_root(comm, root)), name, buffer, Mode.IN, span)
    out.use(frame, name, buffer, Mode.OUT, span)
    return (buffer.region, root), (ir.Access(buffer.region, Mode.INOUT),), None


def _of_all_ranks(
    out: GraphOut, frame: Frame, name: str, args: list[ast.Expr], _comm: ir.Communicator | None
) -> _Built:
    """The sizes are compared when the program starts, since they depend on the number of ranks."""
    (dst, dst_span), (src, src_span) = _array(frame, args[0]), _array(frame, args[1])
    if dst.array.type is not src.array.type:
        _check_alike(frame, dst, src, src_span)
    _refuse_overlap(frame, dst, src, src_span, "use two arrays, or parts that do not overlap")
    accesses = (out.use(frame, name, dst, Mode.OUT, dst_span), out.use(frame, name, src, Mode.IN, src_span))
    return (dst.region, src.region), accesses, None


def _alltoallv(out: GraphOut, frame: Frame, name: str, args: list[ast.Expr], comm: ir.Communicator | None) -> _Built:
    regions, accesses, _ = _of_all_ranks(out, frame, name, args, comm)
    named = (_named(frame, arg, "an array of counts") for arg in args[2:])
    counts = [_index_array(out, frame, name, ref).region for ref in named]
    return (*regions, *counts), accesses, None


def _check_alike(frame: Frame, dst: Storage, src: Storage, span: Span) -> None:
    report = frame.ctx.report
    if dst.array.type is not src.array.type:
        message = f"`{dst.label}` holds {dst.array.type.value}, `{src.label}` {src.array.type.value}"
        report.fail("type-mismatch", message, span, "use one type")
    for have, want in zip(src.dims or (), dst.dims or (), strict=False):
        if have is not None and want is not None and same(have, want) is False:
            message = f"`{src.label}` has size {show(have)}, but `{dst.label}` has {show(want)}"
            report.fail("size-mismatch", message, span, "use arrays of the same size")


def _refuse_overlap(frame: Frame, dst: Storage, src: Storage, span: Span, help: str) -> None:
    if Regions(frame.ctx.facts).overlap(dst.region, src.region):
        frame.ctx.report.error("aliased-arguments", f"`{src.label}` overlaps `{dst.label}`", span, help)


# ---- edges ----


def lower_edges(out: GraphOut) -> tuple[ir.Edge, ...]:
    """All edges, after all ops are known. Continues after errors."""
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
    at = ((edges[key].span, "first given here"),) if key in edges else ()
    message = f"the edge from `{u.op}` to `{v.op}` is given twice"
    report.advise("duplicate-edge", key in edges, message, item.span, "drop one", related=at)
    if key in edges:
        return
    edges[key] = ir.Edge(u, v, completion, span=item.span)


def _ends(frame: Frame, ref: ast.Ref) -> list[EdgeEnd]:
    """What a reference in an edge names: an op, an end of an exchange, or all ops of a compound."""
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
            frame.ctx.report.fail("bad-edge", f"`{entry.display}` is not an exchange: it has no ends", ref.span, help)
        end, trailers = End(trailers[0].name), trailers[1:]
    if trailers:
        help = f"write `{entry.display}`"
        frame.ctx.report.fail("bad-edge", f"`{entry.display}` has nothing of this name", trailers[0].span, help)
    return [EdgeEnd(name, end, message) for name in entry.names]


def _entry(frame: Frame, scope: OpScope, ref: ast.Ref) -> tuple[OpEntry, Trailers]:
    report = frame.ctx.report
    if ref.name not in scope.families:
        known = scope.families
        help = report.did_you_mean(ref.name, known, there_are(known) if known else "the dag has no ops")
        report.fail("unknown-name", f"unknown op `{ref.name}`", ref.span, help)
    return _instance(frame, scope.families[ref.name], ref.name, ref.trailers, ref.span)


def _message(frame: Frame, entry: OpEntry, trailers: Trailers) -> tuple[str, Trailers]:
    member = trailers[0]
    assert isinstance(member, ast.Member)
    if member.name not in entry.labels:
        known = [*entry.labels, "send", "recv"]
        help = frame.ctx.report.did_you_mean(member.name, known, there_are(known))
        message = f"exchange `{entry.display}` has no message `{member.name}`"
        frame.ctx.report.fail("unknown-name", message, member.span, help)
    return _instance(frame, entry.labels[member.name], f"{entry.display}.{member.name}", trailers[1:], member.span)


def _instance(frame: Frame, family: Mapping[Key, T], name: str, trailers: Trailers, span: Span) -> tuple[T, Trailers]:
    """The op or message that the index at the start of the trailers selects, and the other trailers."""
    key: Key = ()
    text, rest = "", trailers
    if trailers and isinstance(trailers[0], ast.Index):
        key, text = frame.ev.key(trailers[0].items, trailers[0].span)
        rest = trailers[1:]
    if key not in family:
        what = f"there is no `{name}[{text}]`" if text else f"`{name}` needs an index"
        frame.ctx.report.fail("bad-index", what, span, there_are(map(str, family.values())))
    return family[key], rest


# ---- items ----


def lower_items(out: GraphOut, frame: Frame, items: tuple[ast.Item, ...], main: bool) -> None:
    """Lower the items of a dag in text order. Continues after errors."""
    for item in items:
        with frame.ctx.report.guard():
            try:
                _item(out, frame, item, main)
            except Skip:  # of an op, or of the values of a loop or the condition of an `if`: its ops are missing
                out.doubtful |= words(item)
                out.any_doubtful |= isinstance(item, ast.Op) and _unknown_array(frame, item)
                raise


def _unknown_array(frame: Frame, item: ast.Op) -> bool:
    """Whether an argument is an unknown name: the op may write any array."""
    given = (a.value if isinstance(a, ast.Named) else a for a in item.call.args)
    names = {a.name for a in given if isinstance(a, ast.Ref)} - {"rank", "ranks", "hw"}
    return any(frame.ev.scope.find(name) is None and name not in frame.ev.loops for name in names)


def _item(out: GraphOut, frame: Frame, item: ast.Item, main: bool) -> None:
    """May raise Skip."""
    if isinstance(item, ast.For):
        _loop(out, frame, item, main)
    elif isinstance(item, ast.If) and (ref := of_device(frame, item.test)) is not None:
        for taken, below in decided(out, frame, item, ref):
            lower_items(out, below, taken, main)
    elif isinstance(item, ast.If):
        for taken, condition in branches(frame.ev, item):
            lower_items(out, frame.under(condition), taken, main)
    elif isinstance(item, (ast.Op, ast.Exchange, ast.Collective)):
        before = frame.ctx.report.errors
        _op(out, frame, item)
        if frame.ctx.report.errors != before:
            out.doubtful |= words(item)
    elif isinstance(item, ast.Edge):
        frame.ctx.expand(item.span)
        out.edges.append((item, frame))
    else:
        _other(out, frame, item, main)


def _loop(out: GraphOut, frame: Frame, item: ast.For, main: bool) -> None:
    """All turns; of an outermost loop over whole numbers also which ops each turn has. Further variables are loops
    inside that of the first."""
    variable = item.bindings[0].name
    kept: list[ir.Turn] | None = None if frame.turns else []
    for ev in turns(frame.ev, item):
        before = len(out.ops)
        lower_items(out, frame.turn(ev), item.items, main)
        value = ev.loops[variable][0]
        if kept is not None and isinstance(value, Const) and type(value.value) is int:
            names = tuple(op.name for op in out.ops[before:])
            if kept and kept[-1].value == value.value:
                names = (*kept.pop().ops, *names)
            kept.append(ir.Turn(value.value, names))
    if kept:
        out.loops.append(ir.Loop(variable, tuple(kept), span=item.span))


def _other(out: GraphOut, frame: Frame, item: ast.Item, main: bool) -> None:
    report = frame.ctx.report
    if isinstance(item, ast.EdgesExplicit) and main:
        out.explicit = item
    elif isinstance(item, ast.EdgesExplicit):
        help = "write it in the main dag; it applies to all dags"
        report.error("wrong-place-of-item", "`edges explicit` is not allowed in a compound", item.span, help)
    elif isinstance(item, ast.Fuse) and main:
        if item.word and item.names != ("none",):
            help = f"write `fuse {{{item.names[0]}}}`"
            report.fail("unknown-name", "a list of launches has braces", item.span, help)
        if out.fuse is not None and out.fuse is not item:
            at = ((out.fuse.span, "the first is here"),)
            report.error("duplicate-item", "a second `fuse` in a dag", item.span, "write one list", at)
        out.fuse = item
    elif isinstance(item, ast.Select) and main:
        names = set(frame.ctx.choices) | {"device", "variant"}
        selection = select(frame.ev, item, "dag", names)
        if selection is not None:
            out.selects.append(selection)
    elif isinstance(item, (ast.Let, ast.Array, ast.Part)):
        if isinstance(item, ast.Array) and item.role is not None and not main:
            help = f"drop `{item.role.value}`, or declare the array at program level"
            report.error("wrong-place-of-item", "an array of a compound is scratch and has no role", item.span, help)
        frame.declarer.declare(item)
    else:
        wrong_place(report, item, "in a dag")


def _op(out: GraphOut, frame: Frame, item: ast.Op | ast.Exchange | ast.Collective) -> None:
    entry = frame.enter_op(item.name)
    op: ir.Op
    copies = isinstance(item, ast.Op) and item.call.callee.name == "copy"
    if frame.held is not None and (copies or not isinstance(item, ast.Op)):
        refuse(frame, f"the device decides whether `{entry.display}` runs, which is no kernel", item.span)
    if isinstance(item, ast.Exchange):
        op = exchange(out, frame, item, entry)
    elif isinstance(item, ast.Collective):
        op = collective(out, frame, item, entry.display, entry.base)
    elif item.kind is OpKind.DAG:
        _compound(out, frame, item, entry)
        return
    elif item.call.callee.name == "copy" and not item.call.callee.trailers:
        op = _copy(out, frame, item, entry.display, entry.base)
    else:
        op = lower_kernel_op(out, frame, item, entry.display, entry.base)
    entry.names.append(entry.display)
    out.ops += [op, *entry.after]


# ---- copies -----------------------------------------------------------------------------------------


def _copy(out: GraphOut, frame: Frame, item: ast.Op, name: str, base: str) -> ir.CopyOp:
    report = frame.ctx.report
    args = [a for a in item.call.args if not isinstance(a, ast.Named)]
    if item.kind is not OpKind.GPU:
        help = "write `gpu copy(dst, src)`"
        report.fail("missing-implementation", "`copy` is a gpu op", item.call.span, help)
    if len(args) != 2 or len(item.call.args) != 2:
        help = "write `copy(dst, src)`"
        report.fail("wrong-arity", f"`copy` takes 2 arguments, not {len(item.call.args)}", item.call.span, help)
    named = (_named(frame, arg, "an array", "name an array or a part of one") for arg in args)
    dst, src = (storage(frame.ev, ref, strided=True) for ref in named)
    _check_copy(frame, item, args, dst, src)
    out.use(frame, name, src, Mode.IN, args[1].span)
    out.use(frame, name, dst, Mode.OUT, args[0].span)
    stream = pinned_stream(frame, item)
    return ir.CopyOp(name, base, dst.region, src.region, stream, when=frame.condition, span=item.span)


def _check_copy(frame: Frame, item: ast.Op, args: list[ast.Expr], dst: Storage, src: Storage) -> None:
    report = frame.ctx.report
    if dst.array.type is not src.array.type:
        message = f"`{src.label}` holds {src.array.type.value}, `{dst.label}` {dst.array.type.value}"
        help = "copy between arrays of the same type"
        report.fail("type-mismatch", message, args[1].span, help, ((dst.array.span, "declared here"),))
    for end, arg in ((dst, args[0]), (src, args[1])):
        if end.array.place is Place.ANY:
            help = "drop the copy: `on any` arrays are copied automatically where needed"
            report.fail("place-mismatch", f"`{end.label}` is `on any`", arg.span, help)
        check_place(frame, end, Device.GPU, arg.span)
    if (
        dst.region.columns is not None
        and src.region.columns is not None
        and dst.region.columns[0] != src.region.columns[0]
    ):
        help = "copy through an array of the slice's size"
        report.error("bad-index", "the ends of this copy are slices of different dimensions", item.call.span, help)
    if Place.DEVICE not in (dst.array.place, src.array.place):
        help = "use one array, or copy in a cpu kernel"
        report.error("place-mismatch", "neither end of this copy is on the device", item.call.span, help)
    if dst.dims is not None:
        check_sizes(frame.ev, src, dst.dims, f"`{dst.label}`", args[1].span, ((dst.array.span, "declared here"),))
    else:
        help = "give the part bounds"
        report.error("size-mismatch", f"part `{dst.label}` has no bounds, so it cannot be copied", args[0].span, help)
    if Regions(frame.ctx.facts).overlap(dst.region, src.region):
        report.error(
            "aliased-arguments", f"`{dst.label}` is copied onto itself", item.call.span, "copy to another array"
        )


# ---- compounds --------------------------------------------------------------------------------------


def _compound(out: GraphOut, frame: Frame, item: ast.Op, entry: OpEntry) -> None:
    """Lower the items of a called dag in its own scope, with the prefix of the call."""
    callee, report = item.call.callee, frame.ctx.report
    if callee.name not in out.dags or callee.trailers:
        help = report.did_you_mean(callee.name, out.dags, there_are(out.dags) if out.dags else "there is no named dag")
        if callee.name in out.kernels:
            help = f"`{callee.name}` is a kernel: write `: gpu {callee.name}(...)`"
        report.fail("unknown-name", f"unknown dag `{callee.name}`", callee.span, help)
    dag = out.dags[callee.name]
    related = ((dag.name_span, "declared here"),)
    out.called.add(callee.name)
    if callee.name in frame.stack:
        report.fail("recursive-dag", f"dag `{callee.name}` calls itself", item.span, "write a loop", related)
    if item.stream is not None:
        help = "pin the ops inside"
        report.fail("bad-stream", "a compound does not run on a stream", item.stream.span, help)
    scope = Scope(parent=frame.ctx.program)
    inner = Frame(
        Evaluator(frame.ctx, scope), frame.declared, OpScope(), f"{entry.display}.", f"{entry.base}.",
        (*frame.stack, callee.name), frame.when, frame.turns, frame.held,
    )  # fmt: skip
    _bind(frame, inner, item, dag)
    entry.inner = inner.ops
    before = len(out.ops)
    lower_items(out, inner, dag.items, main=False)
    entry.names += [op.name for op in out.ops[before:]]


def _bind(frame: Frame, inner: Frame, item: ast.Op, dag: ast.SubDag) -> None:
    """Bind the formals of a dag to the actual arguments of a call."""
    report = frame.ctx.report
    # The header is evaluated in its own scope, where by-value formals are variables.
    header = Evaluator(frame.ctx, Scope(parent=frame.ctx.program))
    formals = lower_formals(header, dag.formals)
    if len(item.call.args) != len(formals) or any(isinstance(a, ast.Named) for a in item.call.args):
        message = f"dag `{dag.name}` takes {counted(len(formals), 'argument')}, not {len(item.call.args)}"
        help = f"pass {listing([f.name for f in formals], 12)}"
        report.fail("wrong-arity", message, item.call.span, help, ((dag.name_span, "declared here"),))
    nodes = {n.name: n for group in dag.formals for n in group.names}
    actuals: list[tuple[ir.Formal, Storage, ast.Expr]] = []
    failed = False
    for formal, arg in zip(formals, item.call.args, strict=True):
        assert not isinstance(arg, ast.Named)
        try:
            if formal.dims is None:
                declare_formal(inner.ev, nodes[formal.name], by_value(frame, formal, arg))
                inner.ev.scope.kinds[formal.name] = kind_of_type(formal.type)
                continue
            actual = array_argument(frame, formal, arg)
            mode = _narrowed(frame, actual, formal, arg)
            bound = Storage(actual.array, actual.region, actual.dims, actual.label, mode)
            declare_formal(inner.ev, nodes[formal.name], bound)
            actuals.append((formal, actual, arg))
        except Skip:
            failed = True
    if failed:
        raise Skip
    _check_formal_sizes(inner, dag, actuals)


def _narrowed(frame: Frame, actual: Storage, formal: ir.Formal, arg: ast.Expr) -> Mode | None:
    """The mode inside the compound. An `in` formal must not be passed to a formal that is written."""
    if actual.mode is Mode.IN and formal.mode is not Mode.IN:
        help = "make the formal `inout` or `out`"
        frame.ctx.report.error(
            "written-in", f"`{actual.label}` is an `in` formal of this dag, but is written", arg.span, help
        )
    return formal.mode


def _check_formal_sizes(inner: Frame, dag: ast.SubDag, actuals: list[tuple[ir.Formal, Storage, ast.Expr]]) -> None:
    """Sizes in the header, evaluated with the actual scalars, against those of the actual arrays."""
    dims_of = {n.name: group.dims for group in dag.formals for n in group.names}
    for formal, actual, arg in actuals:
        wanted = tuple(dimension(inner.ev, d) for d in dims_of[formal.name] or ())
        related = ((formal.span, "declared here"),)
        check_sizes(inner.ev, actual, wanted, f"formal `{formal.name}`", arg.span, related)
