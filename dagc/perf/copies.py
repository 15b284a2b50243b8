"""Lower bounds of copies and of messages that a GPU op exchanges: their bytes through memory and over a link between
GPUs, of other ranks or of the same, or to the host."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from dagc.ir.enums import Pairs, Place
from dagc.ir.plan import ArrayValue, values_of
from dagc.ir.program import CopyOp, Device, ExchangeOp, GraphOp, Message, Program, Region
from dagc.ir.sym import Apply, Fn, Sym, UnboundName, evaluate
from dagc.perf.bound import (
    CACHE,
    HOST_LINK,
    LAUNCH,
    LINK,
    MEMORY,
    Ceilings,
    Footprint,
    LowerBound,
    Moved,
    runs,
    seconds_of,
)


def copy_bound(program: Program, op: GraphOp, values: Mapping[str, Any], ceilings: Ceilings) -> LowerBound:
    """Of a copy on a stream, or of the messages of an exchange that a stream works on. Nothing is known of collectives,
    sizes in arrays and peers that are not among the values."""
    known = {**program.param_values, **values}
    if isinstance(op.op, CopyOp):
        return _copied(program, op.op, known, ceilings)
    if not isinstance(op.op, ExchangeOp):
        return LowerBound(unknown="the messages of a collective are not counted")
    if op.pairs is not Pairs.ALL:
        return LowerBound(unknown="which messages stay within a host is not known")
    received = {message.recv: _received(program, message, known) for message in op.op.messages}
    moved = tuple(Moved(region.array, size, size) for region, size in received.items() if size)
    if not moved:
        return LowerBound(unknown="its messages are not known")
    return _longest(moved, max(received.values()) / ceilings.link, LINK, ceilings)


def _copied(program: Program, op: CopyOp, known: Mapping[str, Any], ceilings: Ceilings) -> LowerBound:
    size = bytes_of(program, op.src, known) if runs(op.when, known) else 0
    if not size:
        return LowerBound(unknown="what it copies is not known")
    arrays = [a for a in (op.src.array, op.dst.array) if program.array(a).place is Place.DEVICE or not ceilings.shared]
    moved = tuple(Moved(array, size, size) for array in arrays)
    if len(moved) == 2:
        return _longest(moved, 0.0, LINK, ceilings)
    if ceilings.host_link == math.inf:
        return LowerBound(ceilings.launch, unknown="the speed of the link to the host was not measured")
    return _longest(moved, size / ceilings.host_link, HOST_LINK, ceilings)


def over_links(program: Program) -> dict[str, tuple[ArrayValue, ...]]:
    """For ops by name: what another GPU of the rank writes and is copied to theirs. Only where devices are fixed, and
    no other op of its GPU reads it, which may be issued first."""
    ops, out = {op.name: op for op in program.kernel_ops}, dict[str, tuple[ArrayValue, ...]]()
    for value in values_of(program):
        users = [ops[name] for name in ((value.producer,) if value.producer else ()) + value.readers]
        if value.producer is None or any(op.placed for op in users) or users[0].device is not Device.GPU:
            continue
        units = [op.unit for op in users if op.device is Device.GPU]
        for op in users[1:]:
            if op.device is Device.GPU and op.unit != users[0].unit and units.count(op.unit) == 1:
                out[op.name] = (*out.get(op.name, ()), value)
    return out


def with_links(
    bound: LowerBound, values: tuple[ArrayValue, ...], known: Mapping[str, Any], ceilings: Ceilings
) -> LowerBound:
    """The bound of a launch that these values are copied for, over the link between two GPUs, before it begins."""
    sizes = []
    for value in values if not bound.unknown else ():
        with suppress(UnboundName):
            sizes += [] if value.bytes is None else [(value.array, int(evaluate(value.bytes, known)))]
    copied = sum(size for _, size in sizes) / ceilings.link
    seconds = bound.seconds + copied
    if copied <= bound.seconds:
        return replace(bound, seconds=seconds)
    footprint = Footprint(tuple(Moved(array, size, size) for array, size in sizes))
    return LowerBound(seconds, LINK, footprint, own=bound.seconds)


def _longest(moved: tuple[Moved, ...], over_link: float, link: str, ceilings: Ceilings) -> LowerBound:
    seconds, cached = seconds_of(moved, ceilings)
    footprint, memory = Footprint(moved), CACHE if cached else MEMORY
    return max(
        LowerBound(ceilings.launch, LAUNCH, footprint), LowerBound(over_link, link, footprint),
        LowerBound(seconds, memory, footprint), key=lambda bound: bound.seconds,
    )  # fmt: skip


def _received(program: Program, message: Message, values: Mapping[str, Any]) -> int:
    """Bytes that a rank gets from another one for certain."""
    try:
        if message.recv_counts is not None or isinstance(message.source, str) or not runs(message.when, values):
            return 0
        source = evaluate(message.source, values)
        other = isinstance(source, (int, float)) and 0 <= source != values["rank"]
        return bytes_of(program, message.recv, values) if other else 0
    except (UnboundName, KeyError, ArithmeticError, ValueError, TypeError):
        return 0


def bytes_of(program: Program, region: Region, values: Mapping[str, Any]) -> int:
    """Of a part of an array; 0 if its bounds are not known."""
    array = program.array(region.array)
    dims: list[Sym | None] = list(array.dims)
    for dimension, start, stop in region.slices:
        dims[dimension] = Apply(Fn.SUB, (stop, start))
    size = array.type.size
    try:
        for extent in dims:
            if extent is None or (region.part is not None and not region.slices):
                return 0
            size *= int(evaluate(extent, values))
    except (UnboundName, ArithmeticError, ValueError, TypeError):
        return 0
    return max(0, size)
