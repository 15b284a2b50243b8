"""The items of a dag: ops, compounds, loops, edges."""

from __future__ import annotations

from dagc.base.errors import counted
from dagc.base.source import Span
from dagc.ir import program as ir
from dagc.ir.enums import Mode, OpKind, Place
from dagc.ir.program import Device, EdgeEnd, End
from dagc.lang import ast
from dagc.lang.calls import array_argument, by_value, check_place, pinned_stream
from dagc.lang.calls import kernel_op as lower_kernel_op
from dagc.lang.declarations import dimension, select
from dagc.lang.evaluate import Evaluator, branch, turns
from dagc.lang.frames import Frame, GraphOut, OpEntry, OpScope, words
from dagc.lang.kernels import declare_formal, lower_formals, wrong_place
from dagc.lang.messages import collective, exchange
from dagc.lang.regions import check_sizes, overlap, storage
from dagc.lang.scope import Scope, Skip, Storage, did_you_mean, kind_of_type, listing

# ---- edges ----


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


# ---- items ----


def lower_items(out: GraphOut, frame: Frame, items: tuple[ast.Item, ...], main: bool) -> None:
    """Lower the items of a dag in text order. Goes on after errors."""
    for item in items:
        with frame.ctx.report.guard():
            if isinstance(item, ast.For):
                for ev in turns(frame.ev, item):
                    lower_items(out, frame.turn(ev), item.items, main)
            elif isinstance(item, ast.If):
                lower_items(out, frame, branch(frame.ev, item), main)
            elif isinstance(item, (ast.Op, ast.Exchange, ast.Collective)):
                before = frame.ctx.report.errors
                try:
                    _op(out, frame, item)
                finally:
                    if frame.ctx.report.errors != before:
                        out.doubtful |= words(item)
            elif isinstance(item, ast.Edge):
                frame.ctx.expand(item.span)
                out.edges.append((item, frame))
            else:
                _other(out, frame, item, main)


def _other(out: GraphOut, frame: Frame, item: ast.Item, main: bool) -> None:
    report = frame.ctx.report
    if isinstance(item, ast.EdgesExplicit) and main:
        out.explicit = item
    elif isinstance(item, ast.EdgesExplicit):
        help = "say it in the main dag; it holds for all"
        report.error("wrong-place-of-item", "`edges explicit` cannot stand in a compound", item.span, help)
    elif isinstance(item, ast.Select) and main:
        names = set(frame.ctx.choices) | {"device", "variant"}
        selection = select(frame.ev, item, "dag", names)
        if selection is not None:
            out.selects.append(selection)
    elif isinstance(item, (ast.Let, ast.Array, ast.Part)):
        if isinstance(item, ast.Array) and item.role is not None and not main:
            help = f"drop `{item.role.value}`, or declare the array at program level"
            report.error("wrong-place-of-item", "an array of a compound is scratch; it takes no role", item.span, help)
        frame.declarer.declare(item)
    else:
        wrong_place(report, item, "in a dag")


def _op(out: GraphOut, frame: Frame, item: ast.Op | ast.Exchange | ast.Collective) -> None:
    entry, base = frame.enter_op(item.name)
    op: ir.Op
    if isinstance(item, ast.Exchange):
        op = exchange(out, frame, item, entry, base)
    elif isinstance(item, ast.Collective):
        op = collective(out, frame, item, entry.display, base)
    elif item.kind is OpKind.DAG:
        _compound(out, frame, item, entry, base)
        return
    elif item.call.callee.name == "copy" and not item.call.callee.trailers:
        op = _copy(out, frame, item, entry.display, base)
    else:
        op = lower_kernel_op(out, frame, item, entry.display, base)
    entry.names.append(entry.display)
    out.ops.append(op)


# ---- copies -----------------------------------------------------------------------------------------


def _copy(out: GraphOut, frame: Frame, item: ast.Op, name: str, base: str) -> ir.CopyOp:
    report = frame.ctx.report
    args = [a for a in item.call.args if not isinstance(a, ast.Named)]
    if item.kind is not OpKind.GPU:
        help = "write `gpu copy(dst, src)`"
        report.fail("missing-implementation", "`copy` is a gpu op", item.call.span, help)
    if len(args) != 2 or len(item.call.args) != 2:
        report.fail(
            "wrong-arity",
            f"`copy` takes 2 arguments, not {len(item.call.args)}",
            item.call.span,
            "write `copy(dst, src)`",
        )
    ends = []
    for arg in args:
        if not isinstance(arg, ast.Ref):
            report.fail("type-mismatch", "an array is wanted here", arg.span, "name an array or a part of one")
        ends.append(storage(frame.ev, arg))
    dst, src = ends
    _check_copy(frame, item, args, dst, src)
    out.use(frame, name, src, Mode.IN, args[1].span)
    out.use(frame, name, dst, Mode.OUT, args[0].span)
    stream = pinned_stream(frame, item, Device.GPU)
    return ir.CopyOp(name, base, dst.region, src.region, stream, span=item.span)


def _check_copy(frame: Frame, item: ast.Op, args: list[ast.Expr], dst: Storage, src: Storage) -> None:
    report = frame.ctx.report
    if dst.array.type is not src.array.type:
        report.fail(
            "type-mismatch",
            f"`{src.label}` holds {src.array.type.value}, `{dst.label}` {dst.array.type.value}",
            args[1].span,
            "copy between arrays of one type",
            ((dst.array.span, "declared here"),),
        )
    for end, arg in ((dst, args[0]), (src, args[1])):
        if end.array.place is Place.ANY:
            help = "drop the copy: copies of `on any` arrays are made where they are needed"
            report.fail("place-mismatch", f"`{end.label}` is `on any`", arg.span, help)
        check_place(frame, end, Device.GPU, arg.span)
    if Place.DEVICE not in (dst.array.place, src.array.place):
        report.error(
            "place-mismatch",
            "neither end of this copy is on the device",
            item.call.span,
            "use one array, or copy in a cpu kernel",
        )
    if dst.dims is not None:
        check_sizes(frame.ev, src, dst.dims, f"`{dst.label}`", args[1].span, ((dst.array.span, "declared here"),))
    else:
        help = "give the part bounds"
        report.error("size-mismatch", f"part `{dst.label}` has no bounds, so it cannot be copied", args[0].span, help)
    if overlap(dst.region, src.region, frame.ctx.facts):
        report.error(
            "aliased-arguments", f"`{dst.label}` is copied onto itself", item.call.span, "copy to another array"
        )


# ---- compounds --------------------------------------------------------------------------------------


def _compound(out: GraphOut, frame: Frame, item: ast.Op, entry: OpEntry, base: str) -> None:
    """Lower the items of a called dag in a scope of their own; their names get the call's as prefix."""
    callee, report = item.call.callee, frame.ctx.report
    if callee.name not in out.dags or callee.trailers:
        help = did_you_mean(
            callee.name, out.dags, f"there are {listing(out.dags)}" if out.dags else "there is no named dag"
        )
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
        report.fail("bad-stream", "a compound runs on no stream of its own", item.stream.span, help)
    scope = Scope(parent=frame.ctx.program)
    inner = Frame(
        Evaluator(frame.ctx, scope),
        frame.declared,
        OpScope(),
        f"{entry.display}.",
        f"{base}.",
        (*frame.stack, callee.name),
    )
    _bind(frame, inner, item, dag)
    entry.inner = inner.ops
    before = len(out.ops)
    lower_items(out, inner, dag.items, main=False)
    entry.names += [op.name for op in out.ops[before:]]


def _bind(frame: Frame, inner: Frame, item: ast.Op, dag: ast.SubDag) -> None:
    """Bind the formals of a dag to the actual arguments of a call."""
    report = frame.ctx.report
    # The header is read in a scope of its own, where by-value formals are variables.
    header = Evaluator(frame.ctx, Scope(parent=frame.ctx.program))
    formals = lower_formals(header, dag.formals)
    if len(item.call.args) != len(formals) or any(isinstance(a, ast.Named) for a in item.call.args):
        report.fail(
            "wrong-arity",
            f"dag `{dag.name}` takes {counted(len(formals), 'argument')}, not {len(item.call.args)}",
            item.call.span,
            f"pass {listing([f.name for f in formals], 12)}",
            ((dag.name_span, "declared here"),),
        )
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
            actual = array_argument(frame, formal, arg, None)
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
    """The mode inside the compound; an `in` formal may not be passed on to be written."""
    if actual.mode is Mode.IN and formal.mode is not Mode.IN:
        help = "make the formal `inout` or `out`"
        frame.ctx.report.error(
            "written-in", f"`{actual.label}` is an `in` formal of this dag, but is written", arg.span, help
        )
    return formal.mode


def _check_formal_sizes(inner: Frame, dag: ast.SubDag, actuals: list[tuple[ir.Formal, Storage, ast.Expr]]) -> None:
    """Sizes in the header, evaluated with the actual scalars, against the actual arrays."""
    dims_of = {n.name: group.dims for group in dag.formals for n in group.names}
    for formal, actual, arg in actuals:
        wanted = tuple(dimension(inner.ev, d) for d in dims_of[formal.name] or ())
        related = ((formal.span, "declared here"),)
        check_sizes(inner.ev, actual, wanted, f"formal `{formal.name}`", arg.span, related)
