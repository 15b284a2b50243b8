"""Whether the device can run the iterations of a `repeat` one after another, and what tells it that they end.

All ops of an iteration must be issued on streams, and the value that `until` compares must be one that the device
reads. Ranks that exchange messages must end together: they do if the value is the result of an op that gives all of
them the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dagc.ir import program as ir
from dagc.ir.enums import Mode, Place, Transport

ALIKE = frozenset(("allreduce", "bcast"))  # collectives whose result is the same on all ranks


@dataclass(frozen=True, slots=True)
class Tested:
    """What the device compares after an iteration.

    region   of one element; None: there is no `until`
    shared   whether the value is the same on all ranks
    dropped  a copy to the host that `until` alone reads, which the device needs not
    every    how many iterations follow one another between two tests of whether they go on
    kept     the arrays that are kept meanwhile: iterations until the condition held are done again from their values
    """

    region: ir.Region | None = None
    shared: bool = True
    dropped: ir.OpId | None = None
    every: int = 1
    kept: tuple[str, ...] = ()


def wanted(program: ir.Program) -> ir.Repetition:
    """The value of `loop` that is chosen."""
    return next((ir.Repetition(d.chosen) for d in program.decisions if d.name == ir.LOOP), ir.Repetition.HOST)


def wants_device(program: ir.Program) -> bool:
    """Whether `loop=device` or `loop=persistent` is chosen."""
    return wanted(program) is not ir.Repetition.HOST


def possible(graph: ir.Graph) -> ir.Repetition:
    """Who repeats the dag: of `loop=persistent` and `loop=device` what is possible."""
    if on_device(graph) is None:
        return ir.Repetition.HOST
    return ir.Repetition.PERSISTENT if graph.unrolled.phases else ir.Repetition.DEVICE


def on_device(graph: ir.Graph) -> Tested | None:
    """What the device tests if it repeats the dag: that is chosen, and possible."""
    found = tested(graph) if wants_device(graph.program) else ""
    return None if isinstance(found, str) else found


def tested(graph: ir.Graph) -> Tested | str:
    """What the device tests, or why the host must repeat the dag."""
    graph = graph.unrolled
    if graph.program.repeat is None:
        return "the dag has no `repeat`"
    why = next(_of_host(graph), "")
    found = why or _value(graph)
    if isinstance(found, str):
        return found
    arrays = kept(graph) if found.region is not None else ()
    return found if isinstance(arrays, str) else replace(found, every=every(graph.program), kept=arrays)


def every(program: ir.Program) -> int:
    """The value of `test_every` that is chosen."""
    return next((int(d.chosen) for d in program.decisions if d.name == ir.TEST_EVERY), 1)


def kept(graph: ir.Graph) -> tuple[str, ...] | str:
    """The arrays of which an iteration may read what it has not written, and which it changes, or why it cannot be done
    again from their values. Whatever else it reads it has written, or nothing writes."""
    program = graph.program
    put = next((op for op in program.ops if isinstance(op, ir.ExchangeOp) and op.put is not None), None)
    if put is not None:
        return f"`{put.name}` is written by other ranks, which may have begun again before"
    arrays = {array.name for array in program.arrays}
    read: dict[str, None] = {}
    changed: set[str] = set()
    settled: set[ir.Region] = set()
    for touch in sorted(graph.touches, key=lambda t: (t.begin, t.mode is not Mode.IN)):
        op, region = graph.ops[touch.begin], touch.region
        if touch.mode is not Mode.IN:
            changed.add(region.array)
            if region.array not in arrays:
                return f"op `{op.name}` changes the variable `{region.array.removeprefix('::')}`"
        if touch.mode is Mode.OUT:
            writer = op.op
            sure = not isinstance(writer, ir.CollectiveOp) or (writer.collective.value in ALIKE and not writer.comm)
            if (
                isinstance(writer, ir.KernelOp | ir.CopyOp | ir.CollectiveOp)
                and writer.when is None
                and sure
                and not program.explicit
            ):
                settled.add(region)
        elif settled.isdisjoint((region, ir.Region(region.array))):
            read[region.array] = None
    return tuple(name for name in read if name in changed)


def _of_host(graph: ir.Graph) -> Iterator[str]:
    """What of an iteration the device cannot do."""
    at_run_time = ir.two_sided(graph.program.ops, graph.program.arrays)
    for op in graph.ops:
        if op.action is ir.Action.END:
            continue
        if not op.gpu or op.in_worker:
            yield f"op `{op.name}` runs on the host"
        elif op.placed:
            yield f"op `{op.name}` may run on the host"
        elif op.transport is Transport.NCCL:
            yield f"op `{op.name}` uses NCCL, which may add functions of the host to a graph"
        elif isinstance(op.op, ir.CopyOp) and ir.blocks(graph.program, op.op):
            yield f"the copy `{op.name}` keeps the host waiting"
    yield from (f"`{t.region.array}` is on either side" for t in graph.touches if t.region.array in at_run_time)


def changes_tested(graph: ir.Graph, test: Tested) -> bool:
    """Whether the first phase of an iteration may change what is tested after the one before."""
    changed = {t.region.array for t in graph.touches if t.begin in graph.phases[0] and t.mode is not Mode.IN}
    return test.region is not None and test.region.array in changed


def _value(graph: ir.Graph) -> Tested | str:
    until = graph.program.until
    if until is None:
        return Tested()
    array = graph.program.array(until.array)
    writer = _last_writer(graph, ir.Region(array.name))
    if writer is None:
        return f"no op is known to write `{array.name}` last"
    dropped, region = None, ir.Region(array.name)
    if isinstance(writer.op, ir.CopyOp) and writer.op.when is None and _of_device(graph, writer.op.src):
        source = _last_writer(graph, writer.op.src)
        if source is None or source.id < writer.id:
            region = writer.op.src
            dropped = writer.id if _only_tested(graph, array.name, writer) else None
            writer = source if source is not None else writer
    if region.array == array.name and array.place is not Place.PINNED:
        return f"`{array.name}` is on the host"
    op = writer.op
    shared = isinstance(op, ir.CollectiveOp) and op.collective.value in ALIKE and not op.comm and op.when is None
    return Tested(region, shared, dropped)


def _of_device(graph: ir.Graph, region: ir.Region) -> bool:
    return graph.program.array(region.array).place is Place.DEVICE and region.columns is None


def _last_writer(graph: ir.Graph, region: ir.Region) -> ir.GraphOp | None:
    """The op that comes last of those that may write the array of a region: another part of it counts, too. None if
    there is none, or if edges may order several other than the text does."""
    found = {t.end for t in graph.touches if t.region.array == region.array and t.mode is not Mode.IN and not t.staged}
    return graph.ops[max(found)] if found and not (graph.program.explicit and len(found) > 1) else None


def _only_tested(graph: ir.Graph, array: str, writer: ir.GraphOp) -> bool:
    """Whether nothing but `until` reads an array: no op, no `verify`, and no application."""
    program = graph.program
    read = any(t.region.array == array and t.begin != writer.id for t in graph.touches)
    verified = any(v.region.array == array for v in program.verifies)
    return program.array(array).role is None and not read and not verified
