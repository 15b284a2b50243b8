"""Which decisions of a program have an effect."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from dagc.base.errors import Diagnostic, Severity
from dagc.ir.choice import Choice, own_name, site_of
from dagc.ir.enums import Transport
from dagc.ir.program import (
    AT_RUN_TIME,
    COLLECTIVES,
    DEVICE,
    GRAPH_EDGES,
    LOOP,
    PUT_WAIT,
    RANK_ORDER,
    SAME,
    TEST_EVERY,
    TRANSPORT,
    WITHIN_HOST,
    Graph,
    GraphEdges,
    PutWait,
    RankOrder,
    Repetition,
    Staging,
    Value,
    device_named,
)
from dagc.ir.repetition import on_device, possible


def configuration_of(graph: Graph) -> Choice:
    """All decisions of the program of a graph that have an effect, `capture` always. `loop` is what is possible."""
    values: dict[str, Value] = {d.name: d.chosen for d in graph.program.decisions}
    values.setdefault("capture", False)
    if LOOP in values:
        values[LOOP] = possible(graph).value
    if TEST_EVERY in values:
        loop = on_device(graph)
        values[TEST_EVERY] = 1 if loop is None else loop.every
    if WITHIN_HOST in values and all(op.within is None for op in graph.program.comm_ops):
        values[WITHIN_HOST] = SAME
    if RANK_ORDER in values and not graph.program.orders_ranks:
        values[RANK_ORDER] = RankOrder.SAME.value
    values["streams"] = graph.streams
    return Choice.of(effective(values))


def transports_of(choices: Mapping[str, Value]) -> set[Value]:
    """The transports of some messages."""
    named = {v for n, v in choices.items() if n == COLLECTIVES or own_name(n) == TRANSPORT}
    return {*named, choices.get(TRANSPORT, Transport.MPI_HOST.value)} - {SAME}


def effective(choices: Mapping[str, Value]) -> dict[str, Value]:
    """The choices that have an effect: those of `in_use`, `staging` only if a transport stages, the transport of
    collectives only if it is another, the place of waits only under `put`, and edges of CUDA graphs only if these exist
    and the edges are not full. What the device repeats is captured, and what one kernel repeats has no such edges.
    `test_every` is of a repeated graph."""
    values = in_use(choices)
    if values.get(LOOP) in (Repetition.DEVICE.value, Repetition.PERSISTENT.value):
        values["capture"] = True
    if values.get(LOOP) != Repetition.DEVICE.value or values.get(TEST_EVERY) == 1:
        values.pop(TEST_EVERY, None)
    if Transport.MPI_HOST.value not in transports_of(values):
        values.pop("staging", None)
    whole = Transport(values.get(TRANSPORT, Transport.MPI_HOST.value))
    if values.get(COLLECTIVES, SAME) in (SAME, whole.of_collectives.value):
        values.pop(COLLECTIVES, None)
    if values.get(WITHIN_HOST, SAME) in (SAME, whole.value) or whole.of_one_host:
        values.pop(WITHIN_HOST, None)
    if Transport.PUT.value not in transports_of(values) or values.get(PUT_WAIT) == PutWait.OP.value:
        values.pop(PUT_WAIT, None)
    if values.get(RANK_ORDER) == RankOrder.SAME.value:
        values.pop(RANK_ORDER)
    kernel = values.get(LOOP) == Repetition.PERSISTENT.value
    if kernel or values.get("capture") is False or values.get(GRAPH_EDGES) == GraphEdges.FULL.value:
        values.pop(GRAPH_EDGES, None)
    return values


# Decisions that may have no effect: their defaults, why, and what gives them one.
NO_EFFECT: Mapping[str, tuple[Value, str, str]] = {
    "staging": (Staging.FUSED.value, "no message passes through the host", "transport=mpi_host"),
    RANK_ORDER: (
        RankOrder.SAME.value,
        "the program has no exchange of all ranks",
        "the order of the processes by mpiexec",
    ),
    PUT_WAIT: (PutWait.OP.value, "no message has the transport put", "transport=put"),
    GRAPH_EDGES: (GraphEdges.FULL.value, "nothing is launched as a CUDA graph", "capture=true"),
    TEST_EVERY: (1, "the device does not repeat the dag", "loop=device"),
}


def without_effect(graphs: Sequence[Graph]) -> tuple[Diagnostic, ...]:
    """A note if decisions of the first graph differ from their defaults and have no effect in any of the graphs."""
    idle = [
        decision
        for decision in graphs[0].program.decisions
        if decision.name in NO_EFFECT and decision.chosen != NO_EFFECT[decision.name][0]
        if not any(decision.name in configuration_of(graph) for graph in graphs)
    ]
    if not idle:
        return ()
    text = "; ".join(f"{one.name}={one.chosen} has no effect, since {NO_EFFECT[one.name][1]}" for one in idle)
    help = f"choose {', '.join(NO_EFFECT[one.name][2] for one in idle)}, or drop it"
    return (Diagnostic("no-effect", text, idle[0].span, help, Severity.NOTE),)


_INDEX = re.compile(r"\[[^\]]*\]")
_ON_DEVICE = re.compile(r"(.+)\.(gpu|cpu)\.\w+")


def in_use(choices: Mapping[str, Value]) -> dict[str, Value]:
    """Without the choices of ops on a device that is not chosen for any op of their name: `c.gpu.variant` where
    `c.device` is the CPU."""
    devices: dict[str, set[Value]] = {}
    for name, value in choices.items():
        if own_name(name) == DEVICE:
            kind = value if value == AT_RUN_TIME else device_named(str(value))[0].value
            devices.setdefault(_INDEX.sub("", site_of(name)), set()).add(kind)

    def used(name: str) -> bool:
        match = _ON_DEVICE.fullmatch(name)
        return match is None or match[1] not in devices or not devices[match[1]].isdisjoint((match[2], AT_RUN_TIME))

    return {name: value for name, value in choices.items() if used(name)}
