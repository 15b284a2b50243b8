"""The items of dags: ops, compounds, loops."""

from __future__ import annotations

from dagc import ir
from dagc.errors import counted
from dagc.ir import Device
from dagc.lang import ast
from dagc.lang.lower_calls import array_argument, by_value, check_place, pinned_stream
from dagc.lang.lower_calls import kernel_op as lower_kernel_op
from dagc.lang.lower_eval import Evaluator
from dagc.lang.lower_expand import branch, turns
from dagc.lang.lower_features import select
from dagc.lang.lower_frames import Frame, GraphOut, OpEntry, OpScope, words
from dagc.lang.lower_kernels import declare_formal, lower_formals, wrong_place
from dagc.lang.lower_messages import collective, exchange
from dagc.lang.lower_regions import check_sizes, overlap, storage
from dagc.lang.lower_report import Skip, did_you_mean, listing
from dagc.lang.lower_scope import Scope, Storage
from dagc.lang.lower_values import kind_of_type


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
        found = select(frame.ev, item, "dag", names)
        if found is not None:
            out.selects.append(found)
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
    elif item.kind is ast.OpKind.DAG:
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
    if item.kind is not ast.OpKind.GPU:
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
    out.use(frame, name, src, ast.Mode.IN, args[1].span)
    out.use(frame, name, dst, ast.Mode.OUT, args[0].span)
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
        if end.array.place is ast.Place.ANY:
            help = "drop the copy: copies of `on any` arrays are made where they are needed"
            report.fail("place-mismatch", f"`{end.label}` is `on any`", arg.span, help)
        check_place(frame, end, Device.GPU, arg.span)
    if ast.Place.DEVICE not in (dst.array.place, src.array.place):
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


def _narrowed(frame: Frame, actual: Storage, formal: ir.Formal, arg: ast.Expr) -> ast.Mode | None:
    """The mode inside the compound; an `in` formal may not be passed on to be written."""
    if actual.mode is ast.Mode.IN and formal.mode is not ast.Mode.IN:
        help = "make the formal `inout` or `out`"
        frame.ctx.report.error(
            "written-in", f"`{actual.label}` is an `in` formal of this dag, but is written", arg.span, help
        )
    return formal.mode


def _check_formal_sizes(inner: Frame, dag: ast.SubDag, actuals: list[tuple[ir.Formal, Storage, ast.Expr]]) -> None:
    """Sizes in the header, evaluated with the actual scalars, against the actual arrays."""
    from dagc.lang.lower_decls import dimension

    dims_of = {n.name: group.dims for group in dag.formals for n in group.names}
    for formal, actual, arg in actuals:
        wanted = tuple(dimension(inner.ev, d) for d in dims_of[formal.name] or ())
        related = ((formal.span, "declared here"),)
        check_sizes(inner.ev, actual, wanted, f"formal `{formal.name}`", arg.span, related)
