"""The configurations of a program: values of all decisions except the order and the streams of its ops.

Each configuration has its own graph and its own space of traversals. A search opens some decisions; the others keep the
value given by the program or by -D.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from dagc.base.errors import ProgramError, Severity, UsageError
from dagc.base.source import Span
from dagc.ir.choice import Choice, own_name, qualified
from dagc.ir.constraints import configuration_of, effective
from dagc.ir.enums import Transport
from dagc.ir.program import (
    AT_RUN_TIME,
    DEVICE,
    GRAPH_EDGES,
    LOOP,
    PUT_WAIT,
    RANK_ORDER,
    SAME,
    TEST_EVERY,
    TESTS,
    TRANSPORT,
    WITHIN_HOST,
    Device,
    ExchangeOp,
    Graph,
    GraphEdges,
    Program,
    PutWait,
    RankOrder,
    Repetition,
    Value,
    device_name,
    device_named,
)
from dagc.ir.regions import between_devices

# Decisions of a runner's table, which need no library of their own.
IN_TABLES = frozenset(("capture", LOOP, TEST_EVERY))
IN_LIBRARY = (LOOP, Repetition.PERSISTENT.value)  # but this one does
LATE = "not built and checked within the time limit (--time)"
MOST = 64  # default limit on the number of programs of a search: each is compiled before it


@dataclass(frozen=True, slots=True)
class Configured:
    """A configuration and its graph. `defines`: the -D values that select it."""

    configuration: Choice
    defines: Mapping[str, Value]
    graph: Graph


@dataclass(frozen=True, slots=True)
class Rejected:
    """A combination that the program rejects, the reason, and the place in the program that gives it; None: it was not
    lowered, for want of time."""

    defines: Mapping[str, Value]
    reason: str
    span: Span | None


def renamed(choices: Mapping[str, Value], opened: Iterable[str]) -> Mapping[str, Value]:
    """Further GPUs, and sockets, numbered in the order in which the ops name them. Those of a kind are taken as equal,
    so choices that become the same are one. Unchanged if an op is fixed to one: its device is not `opened`."""
    units = {n: device_named(str(v)) for n, v in choices.items() if own_name(n) == DEVICE and v != AT_RUN_TIME}
    further = {name: device for name, device in units.items() if device[1]}
    if not further.keys() <= set(opened):
        return choices
    order: dict[Device, dict[int, int]] = {device: {} for device in Device}
    for device, unit in further.values():
        order[device].setdefault(unit, len(order[device]) + 1)
    return {**choices, **{name: device_name(d, order[d][unit]) for name, (d, unit) in further.items()}}


def open_decisions(program: Program, opened: Iterable[str], fixed: Iterable[str]) -> dict[str, tuple[Value, ...]]:
    """Name -> values of the decisions to search, in program order. `fixed`: names of decisions that -D fixes.

    `opened` holds names. `all` stands for every decision that is not fixed and has several values, except those that
    are opened by name only (`by_name`). `NAME=V1,V2` opens only these values.
    Raises UsageError for a name that is not a decision, or a value that the decision does not have.
    """
    values = by_name(program) | {d.name: d.values for d in program.decisions}
    chosen: dict[str, tuple[Value, ...]] = {}
    closed = set(fixed)
    for text in opened:
        name, equals, some = text.partition("=")
        if name == "all":
            more = [d for d in program.decisions if d.name not in closed | IN_TABLES | {GRAPH_EDGES}]
            chosen |= {d.name: d.values for d in more if len(d.values) > 1}
            continue
        if name not in values:
            raise UsageError(f"unknown decision `{name}`", f"one of: {', '.join(sorted(values))}, all")
        if name in closed:
            raise UsageError(f"`{name}` is both opened and fixed", f"drop -D {name}=... or --open {name}")
        chosen[name] = _some(name, values[name], some) if equals else values[name]
    return {n: chosen[n] for n in values if n in chosen}


def by_name(program: Program) -> dict[str, tuple[Value, ...]]:
    """The decisions that a program has if they are asked for: those of CUDA graphs, `loop` if it repeats, the transport
    of each exchange and collective with arrays on the device, that of messages within a host, and the order of the
    ranks if they exchange messages."""
    ops = between_devices(program.ops, program.arrays)
    transports = tuple(transport.value for transport in Transport)
    edges = tuple(edge.value for edge in GraphEdges)
    loop: dict[str, tuple[Value, ...]] = {}
    if program.repeat is not None:
        loop = {LOOP: tuple(one.value for one in Repetition), TEST_EVERY: TESTS}
    each = {qualified(op.base, TRANSPORT): transports for op in ops}
    puts = any(isinstance(op, ExchangeOp) for op in ops)
    within = (SAME, *(one.value for one in Transport if one.of_one_host and (puts or one.of_collectives is one)))
    divided = any(isinstance(op, ExchangeOp) or op.in_levels or op.in_pairs for op in ops)
    hosts = {WITHIN_HOST: within} if divided else {}
    exchanges = any(isinstance(op, ExchangeOp) and not op.comm for op in program.ops)
    orders = {RANK_ORDER: tuple(order.value for order in RankOrder)} if exchanges else {}
    waits = {PUT_WAIT: tuple(wait.value for wait in PutWait)} if puts else {}
    return {"capture": (False, True), GRAPH_EDGES: edges, **loop, **hosts, **orders, **waits, **each}


def _some(name: str, values: Sequence[Value], text: str) -> tuple[Value, ...]:
    by_text = {str(v).lower(): v for v in values}
    wanted = [word.strip().lower() for word in text.split(",") if word.strip()]
    for word in wanted:
        if word not in by_text:
            raise UsageError(f"`{name}` cannot be {word}", f"one of: {', '.join(by_text)}")
    return tuple(by_text[w] for w in dict.fromkeys(wanted))


def configurations(
    opened: Mapping[str, Sequence[Value]],
    build: Callable[[dict[str, Value]], Graph],
    most: int = MOST,
    promising: Callable[[Mapping[str, Value]], bool] = lambda choices: True,
    late: Callable[[Mapping[str, Value]], bool] = lambda choices: False,
) -> tuple[tuple[Configured, ...], tuple[Rejected, ...]]:
    """The `promising` combinations of the opened decisions, each configuration once up to names of equal devices, and
    those that the program rejects.

    `build` lowers the program under the given choices; those that are `late` are not lowered. The configuration with
    all defaults comes first. Raises UsageError if more than `most` programs would be compiled, or if none is left.
    """
    distinct = list(filter(promising, combinations(opened)))
    if (programs := compiled(distinct)) > most:
        raise UsageError(
            f"{programs} programs, more than {most}: each is compiled before the search",
            "open fewer decisions, some of their values only (--open yl.block=64,128), or raise --max-configurations",
        )
    by_configuration: dict[frozenset[tuple[str, Value]], Configured] = {}
    refused: list[Rejected] = []
    for choices in distinct:
        if late(choices):
            refused.append(Rejected(choices, LATE, None))
            continue
        try:
            graph = build(choices)
        except ProgramError as error:
            first = next(d for d in error.diagnostics if d.severity is Severity.ERROR)
            refused.append(Rejected(choices, first.message, first.span))
            continue
        own = configuration_of(graph)
        key = frozenset(renamed(own, opened).items())
        by_configuration.setdefault(key, Configured(own, choices, graph))
    if not by_configuration:
        raise UsageError(
            f"no configuration is left: {refused[0].reason}", "open other decisions, or fix others with -D"
        )
    return tuple(by_configuration.values()), tuple(refused)


def compiled(choices: Iterable[Mapping[str, Value]]) -> int:
    """The number of programs that are compiled for these combinations."""
    return len({frozenset(filter(in_library, one.items())) for one in choices})


def in_library(decision: tuple[str, Value]) -> bool:
    """Whether a library is compiled for each value of a decision."""
    return decision[0] not in IN_TABLES or decision == IN_LIBRARY


def combinations(opened: Mapping[str, Sequence[Value]]) -> list[dict[str, Value]]:
    """All combinations of the opened decisions, each configuration once."""
    names = list(opened)
    every = [dict(zip(names, values, strict=True)) for values in product(*opened.values())]
    return list({frozenset(effective(c).items()): c for c in reversed(every)}.values())[::-1]
