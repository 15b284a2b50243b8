"""The transport of each exchange and collective: one for all, another for collectives, or one of its own.

`transport` holds for all messages of device arrays. A program with exchanges and collectives of them also has
`collectives`, and each of these ops a decision of its own, `OP.transport`, which exists only where -D or `--open` gives
it: a space with all of them would be large, and one with two is what most programs need. `within_host`, of messages
between ranks of one host, exists where it is asked for, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from dagc.base.source import Span
from dagc.ir import program as ir
from dagc.ir.choice import qualified
from dagc.ir.enums import Place, Transport
from dagc.ir.regions import between_devices
from dagc.ir.sym import Fn, apply
from dagc.lang.scope import WORDS, Context


def own_transports(ops: Sequence[ir.Op], arrays: Sequence[ir.Array]) -> dict[str, str]:
    """Names of ops without indices, and of the transport that -D may give each."""
    return {op.base: qualified(op.base, ir.TRANSPORT) for op in between_devices(ops, arrays)}


def choose_transports(ctx: Context, ops: Sequence[ir.Op], arrays: Sequence[ir.Array], span: Span) -> None:
    """Enter `collectives`, and `OP.transport` where -D gives it. One that no op follows is fixed."""
    messages = between_devices(ops, arrays)
    if ir.WITHIN_HOST in ctx.defines and ir.WITHIN_HOST not in ctx.choices:
        ctx.choose(ir.WITHIN_HOST, WORDS[ir.WITHIN_HOST], span, fixed=True).structural = True
    own = own_transports(ops, arrays)
    for op in messages:
        if (name := own[op.base]) in ctx.defines and name not in ctx.choices:
            ctx.choose(name, WORDS[ir.TRANSPORT], op.span, fixed=True).structural = True
    left = [op for op in messages if own[op.base] not in ctx.choices]
    both = len({isinstance(op, ir.CollectiveOp) for op in messages}) == 2
    whole = ctx.choices[ir.TRANSPORT]
    if ir.COLLECTIVES not in ctx.choices and (both or ir.COLLECTIVES in ctx.defines):
        searched = [value for value in whole.decision().values if value in WORDS[ir.COLLECTIVES]]
        values = (ir.SAME, *searched) if len(searched) > 1 else (ir.SAME,)
        given = ir.COLLECTIVES in ctx.defines
        ctx.choose(ir.COLLECTIVES, WORDS[ir.COLLECTIVES] if given else values, span, fixed=not both)
    others = ctx.choices.get(ir.COLLECTIVES)
    if others is not None:
        others.structural = True
        if not any(isinstance(op, ir.CollectiveOp) for op in left):
            others.chosen, others.fixed = ir.SAME, True
    follow = [op for op in left if isinstance(op, ir.ExchangeOp) or others is None or others.chosen == ir.SAME]
    if messages and not follow:
        whole.chosen, whole.fixed = _transport(ctx, messages[0]).value, True


def with_transports(ctx: Context, program: ir.Program, span: Span) -> ir.Program:
    """The program, each exchange and collective with its transport, or its two, and with the arrays that these need. A
    warning at `span` says that `within_host` changes nothing."""
    arrays = {array.name: array for array in program.arrays}
    ops = tuple(_with_transport(ctx, op, arrays) for op in program.ops)
    given = ctx.choices.get(ir.WITHIN_HOST)
    two = [op for op in ops if isinstance(op, ir.ExchangeOp | ir.CollectiveOp) and op.within is not None]
    if given is not None:
        message = f"{ir.WITHIN_HOST}={given.chosen} changes nothing: no message of device arrays has two transports"
        help = "choose a transport between hosts: mpi_host, mpi_cuda or nccl, the last for all-to-all and gathers"
        ctx.report.advise("no-effect", given.chosen != ir.SAME and not two, message, span, help)
    return replace(program, ops=ops, arrays=tuple(arrays.values()))


def _with_transport(ctx: Context, op: ir.Op, arrays: dict[str, ir.Array]) -> ir.Op:
    """Adds what it needs to `arrays`."""
    if not isinstance(op, ir.ExchangeOp | ir.CollectiveOp):
        return op
    transport, within = _transport(ctx, op), ctx.choices.get(ir.WITHIN_HOST)
    two = isinstance(op, ir.ExchangeOp) or op.in_levels or (op.in_pairs and transport is Transport.NCCL)
    one = transport.of_one_host or not two or any(arrays[a.region.array].place is not Place.DEVICE for a in op.accesses)
    op = replace(op, transport=transport)
    if within is None or within.chosen == ir.SAME or one:
        return op
    chosen = Transport(str(within.chosen))
    if isinstance(op, ir.ExchangeOp):
        return replace(op, within=chosen)
    if op.collective is not ir.CollectiveKind.REDUCE:
        return replace(op, within=chosen.of_collectives)
    partial = _partial(op, arrays)
    return op if partial is None else replace(op, within=chosen.of_collectives, partial=partial)


def _partial(op: ir.CollectiveOp, arrays: dict[str, ir.Array]) -> ir.Region | None:
    """Where the first rank of a host has the result of its host. Ops of one name share it. None if the size is not
    known."""
    region = op.regions[0]
    result, bounds = arrays[region.array], (region.start, region.stop)
    first = result.dims[0] if bounds == (None, None) else apply(Fn.SUB, *(b for b in reversed(bounds) if b is not None))
    made = replace(result, dims=(first, *result.dims[1:]), role=None)
    if region.part is not None or None in made.dims:
        return None
    for number in count():
        name = f"{op.base}.of_host{f'.{number}' if number else ''}"
        if arrays.setdefault(name, replace(made, name=name)) == replace(made, name=name):
            return ir.Region(name)
    raise AssertionError


def _transport(ctx: Context, op: ir.ExchangeOp | ir.CollectiveOp) -> Transport:
    """From the decision of the op, else that of collectives, else that of all."""
    names = [qualified(op.base, ir.TRANSPORT), *([ir.COLLECTIVES] if isinstance(op, ir.CollectiveOp) else [])]
    chosen = (ctx.choices[name].chosen for name in (*names, ir.TRANSPORT) if name in ctx.choices)
    transport = Transport(next(value for value in chosen if value != ir.SAME))
    return transport.of_collectives if isinstance(op, ir.CollectiveOp) else transport
