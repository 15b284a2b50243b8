"""What reports and editors say of an op, of an access and of an array."""

from __future__ import annotations

from collections.abc import Sequence

from dagc.ir import program as ir
from dagc.ir.enums import Mode
from dagc.ir.sym import Const, Sym, show


def accesses(op: ir.Op) -> list[tuple[ir.Region, Mode]]:
    """The regions that an op of the program reads and writes."""
    if isinstance(op, ir.KernelOp | ir.CollectiveOp):
        return [(a.region, a.mode) for a in op.accesses]
    if isinstance(op, ir.CopyOp):
        return [(op.dst, Mode.OUT), (op.src, Mode.IN)]
    return [pair for m in op.messages for pair in ((m.send, Mode.IN), (m.recv, Mode.OUT))]


def touched(op: ir.GraphOp) -> list[tuple[ir.Region, Mode]]:
    """The regions that one primitive op reads and writes: of a post or wait for one message, only those of that."""
    if op.op is None:
        return []
    if op.staged is not None:
        return [(op.staged.region, Mode.IN if op.action is ir.Action.STAGE_OUT else Mode.OUT)]
    if isinstance(op.op, ir.ExchangeOp) and op.message is not None:
        message = op.op.messages[op.message]
        return [(message.send, Mode.IN) if op.action is ir.Action.POST_SEND else (message.recv, Mode.OUT)]
    return accesses(op.op)


def stream(op: ir.GraphOp, graph: ir.Graph) -> str:
    """On which streams an op may be issued."""
    if not op.gpu:
        return "no stream: the CPU issues it"
    worker = ", in a worker thread" if op.in_worker else ""
    if op.stream is not None:
        return f"stream {op.stream}{worker}"
    return ("one stream" if graph.streams == 1 else f"any of {graph.streams} streams") + worker


def size_in_bytes(dims: Sequence[Sym], size: int) -> str:
    """`dims` elements of `size` bytes each: a number, or a product."""
    number, words = size, []
    for dim in dims:
        if isinstance(dim, Const) and isinstance(dim.value, int):
            number *= dim.value
        else:
            words.append(f"({show(dim)})" if not show(dim).isidentifier() else show(dim))
    return f"{' * '.join([str(number), *words])} bytes"


def array_text(array: ir.Array) -> str:
    """`x : f32[n] on device in`."""
    dims = ", ".join("*" if d is None else show(d) for d in array.dims)
    role = f" {array.role.value}" if array.role is not None else ""
    return f"{array.name} : {array.type.value}[{dims}] on {array.place.value}{role}"


def array_size(array: ir.Array) -> str:
    """Its size, or where that comes from."""
    known = [d for d in array.dims if d is not None]
    if len(known) < len(array.dims):
        return "length from the set-up"
    return size_in_bytes(known, array.type.size)


def verb(mode: Mode) -> str:
    """What an op does to a region."""
    return {Mode.IN: "reads", Mode.OUT: "writes", Mode.INOUT: "reads and writes"}[mode]
