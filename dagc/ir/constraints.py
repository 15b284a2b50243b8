"""Conditions on choices: whether one holds, and how many combinations satisfy several; and what a program checks
when it starts: by-value arguments that may not fit their formals, and what ranks must have alike; and which
decisions of a program have an effect."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from dagc.base.errors import Diagnostic, Severity
from dagc.ir import program as ir
from dagc.ir import sym
from dagc.ir.choice import Choice, own_name, site_of
from dagc.ir.enums import ElementType, Transport
from dagc.ir.repetition import on_device, possible
from dagc.ir.sym import Apply, Const, Fn, Sym, Var, free

Assignment: TypeAlias = Mapping[str, ir.Value]
MOST_PARTIAL = 100_000  # assignments that a count keeps at a time

MOST_THREADS = 1024  # of a block


@dataclass(frozen=True, slots=True)
class Constraint:
    """`holds` is called as soon as all of `names` are assigned. `work`: nodes that it evaluates."""

    names: frozenset[str]
    holds: Callable[[Assignment], bool]
    work: int


def condition(expr: Sym, holds: Callable[[Sym, Assignment], bool]) -> Constraint:
    """The condition for an expression, which `holds` evaluates."""
    return Constraint(free(expr), lambda env: holds(expr, env), nodes(expr))


def nodes(expr: Sym) -> int:
    """The size of an expression."""
    return 1 + sum(nodes(a) for a in expr.args) if isinstance(expr, Apply) else 1


def may_hold(expr: Sym, env: Assignment) -> bool:
    """Whether a condition of the program is not certainly false; other names in it have unknown values."""
    try:
        settled = sym.substitute(expr, {name: Const(value) for name, value in env.items()})
    except (ArithmeticError, ValueError, TypeError):
        return False
    return not isinstance(settled, Const) or bool(settled.value)


def of_launch(kernel: ir.Kernel, impl: ir.Impl, names: Collection[str]) -> list[Constraint]:
    """What the tunables `names` of an implementation must satisfy: the `require`s on nothing but these and the machine,
    and that the launch has a block that a GPU accepts."""
    block = () if impl.launch is None else impl.launch.block
    fits = Constraint(frozenset().union(*map(free, block)), lambda env: block_fits(block, env), sum(map(nodes, block)))
    return [*(condition(c, _holds) for c in decidable(kernel, impl, names)), *([fits] if block else [])]


def decidable(kernel: ir.Kernel, impl: ir.Impl, names: Collection[str]) -> list[Sym]:
    """The `require`s on nothing but these tunables and the machine."""
    return [c for c in (*kernel.requires, *impl.requires) if all(n in names or n[:3] == "hw." for n in free(c))]


def _holds(expr: Sym, env: Assignment) -> bool:
    """False only if it is certainly false; conditions on the machine may hold."""
    try:
        return bool(sym.evaluate(expr, env))
    except sym.UnboundName:
        return True
    except (ArithmeticError, ValueError, TypeError):
        return False


def block_fits(block: Sequence[Sym], env: Assignment) -> bool:
    """Whether a block has 1 to 1024 threads, as far as is known."""
    threads = 1
    for size in block:
        try:
            value = sym.evaluate(size, env)
        except (sym.UnboundName, ArithmeticError, ValueError, TypeError):
            return True
        if not isinstance(value, int) or value < 1:
            return False
        threads *= value
    return threads <= MOST_THREADS


class TooManyAssignments(Exception):
    """A count would have to keep more than MOST_PARTIAL assignments at a time."""


def assignments(candidates: Mapping[str, Sequence[ir.Value]], constraints: Sequence[Constraint]) -> int:
    """The number of combinations that satisfy all constraints. Those that agree in the names that later constraints
    ask for are counted together, so many names that few constraints connect cost little.

    Raises TooManyAssignments.
    """
    names = list(candidates)
    place = {name: k for k, name in enumerate(names)}
    due: list[list[Constraint]] = [[] for _ in (*names, "")]
    last = dict.fromkeys(names, -1)  # the place after which a name is not asked for
    for each in constraints:
        asked = [name for name in each.names if name in place]
        at = max((place[name] for name in asked), default=-1)
        due[at].append(each)  # those on no name at the end of the list
        last |= {name: max(at, last[name]) for name in asked}
    if not all(each.holds({}) for each in due[-1]):
        return 0
    counts: dict[tuple[tuple[str, ir.Value], ...], int] = {(): 1}
    for k, name in enumerate(names):
        new: dict[tuple[tuple[str, ir.Value], ...], int] = {}
        for known, count in counts.items():
            for value in candidates[name]:
                env = {**dict(known), name: value}
                if all(each.holds(env) for each in due[k]):
                    kept = tuple((n, v) for n, v in env.items() if last[n] > k)
                    new[kept] = new.get(kept, 0) + count
        if len(new) > MOST_PARTIAL:
            raise TooManyAssignments
        counts = new
    return sum(counts.values())


# ---- values of ranks ----

Range = tuple[int, int]
_RANKS = -1, 2**31 - 1  # -1: in no communicator


def may_not_hold(program: ir.Program, formal: ir.Formal, arg: Sym) -> bool:
    """Whether the formal's type may be too small for a value of a rank; constants have been compared."""
    if isinstance(arg, Const) or (isinstance(arg, Var) and ir.passed_array(arg.name) is not None):
        return False  # of the formal's type
    if formal.type is ElementType.F32:
        return not (isinstance(arg, Var) and any(s.name == arg.name and s.type.size < 8 for s in program.scalars))
    if not formal.type.is_integer or formal.type is ElementType.I64:
        return False
    known = {s.name: s.type.range for s in program.scalars if s.type.is_integer}
    have, (low, high) = _range(arg, known), formal.type.range
    return have is None or have[0] < low or have[1] > high


def _range(expr: Sym, known: dict[str, Range]) -> Range | None:
    """The least and the largest value of an integer; None if it is not known."""
    if isinstance(expr, Const):
        return (expr.value, expr.value) if type(expr.value) is int else None
    if isinstance(expr, Var):
        return _RANKS if expr.name.rpartition(".")[2] in ("rank", "ranks") else known.get(expr.name)
    if expr.fn is Fn.MOD and isinstance(expr.args[1], Const) and type(expr.args[1].value) is int:
        divisor = expr.args[1].value
        return (0, divisor - 1) if divisor > 0 else (divisor + 1, 0)
    parts = [_range(a, known) for a in expr.args[expr.fn is Fn.COND :]]
    found = [p for p in parts if p is not None]
    if len(found) < len(parts):
        return None
    lows, highs = zip(*found, strict=True)
    match expr.fn:
        case Fn.ADD:
            return sum(lows), sum(highs)
        case Fn.SUB:
            return lows[0] - highs[1], highs[0] - lows[1]
        case Fn.MUL:
            ends = [a * b for a, b in product(*found)]
            return min(ends), max(ends)
        case Fn.NEG:
            return -highs[0], -lows[0]
        case Fn.MIN:
            return min(lows), min(highs)
        case Fn.MAX:
            return max(lows), max(highs)
        case Fn.COND:
            return min(lows), max(highs)
    return None


def alike(program: ir.Program) -> Iterator[tuple[ir.CollectiveOp, str, Sym | ir.Region]]:
    """What must be equal on all ranks that take part in a collective, and may differ: roots, and numbers of rows. A
    region stands for the number of its elements."""
    for op in program.comm_ops:
        if not isinstance(op, ir.CollectiveOp):
            continue
        if op.collective.rooted and _differs(op.root):
            yield op, "root", op.root
        if op.collective not in (ir.CollectiveKind.ALLTOALLV, ir.CollectiveKind.BARRIER):
            region = op.given
            array = program.array(region.array)
            if region.start is not None and region.stop is not None:
                if _differs(rows := Apply(Fn.SUB, (region.stop, region.start))):
                    yield op, "number of rows", rows
            elif any(d is None or _differs(d) for d in array.dims):
                yield op, "number of elements", region


def _differs(expr: Sym) -> bool:
    """Whether a value may be another on another rank."""
    return any(name.rpartition(".")[2] != "ranks" and name[:3] != "hw." for name in free(expr))


def configuration_of(graph: ir.Graph) -> Choice:
    """All decisions of the program of a graph that have an effect, `capture` always. `loop` is what is possible."""
    values: dict[str, ir.Value] = {d.name: d.chosen for d in graph.program.decisions}
    values.setdefault("capture", False)
    if ir.LOOP in values:
        values[ir.LOOP] = possible(graph).value
    if ir.TEST_EVERY in values:
        loop = on_device(graph)
        values[ir.TEST_EVERY] = 1 if loop is None else loop.every
    if ir.WITHIN_HOST in values and all(op.within is None for op in graph.program.comm_ops):
        values[ir.WITHIN_HOST] = ir.SAME
    if ir.RANK_ORDER in values and not graph.program.orders_ranks:
        values[ir.RANK_ORDER] = ir.RankOrder.SAME.value
    values["streams"] = graph.streams
    return Choice.of(effective(values))


def transports_of(choices: Mapping[str, ir.Value]) -> set[ir.Value]:
    """The transports of some messages."""
    named = {v for n, v in choices.items() if n == ir.COLLECTIVES or own_name(n) == ir.TRANSPORT}
    return {*named, choices.get(ir.TRANSPORT, Transport.MPI_HOST.value)} - {ir.SAME}


def effective(choices: Mapping[str, ir.Value]) -> dict[str, ir.Value]:
    """The choices that have an effect: those of `in_use`, `staging` only if a transport stages, the transport of
    collectives only if it is another, the place of waits only under `put`, and edges of CUDA graphs only if these exist
    and the edges are not full. What the device repeats is captured, and what one kernel repeats has no such edges.
    `test_every` is of a repeated graph."""
    values = in_use(choices)
    if values.get(ir.LOOP) in (ir.Repetition.DEVICE.value, ir.Repetition.PERSISTENT.value):
        values["capture"] = True
    if values.get(ir.LOOP) != ir.Repetition.DEVICE.value or values.get(ir.TEST_EVERY) == 1:
        values.pop(ir.TEST_EVERY, None)
    if Transport.MPI_HOST.value not in transports_of(values):
        values.pop("staging", None)
    whole = Transport(values.get(ir.TRANSPORT, Transport.MPI_HOST.value))
    if values.get(ir.COLLECTIVES, ir.SAME) in (ir.SAME, whole.of_collectives.value):
        values.pop(ir.COLLECTIVES, None)
    if values.get(ir.WITHIN_HOST, ir.SAME) in (ir.SAME, whole.value) or whole.of_one_host:
        values.pop(ir.WITHIN_HOST, None)
    if Transport.PUT.value not in transports_of(values) or values.get(ir.PUT_WAIT) == ir.PutWait.OP.value:
        values.pop(ir.PUT_WAIT, None)
    if values.get(ir.RANK_ORDER) == ir.RankOrder.SAME.value:
        values.pop(ir.RANK_ORDER)
    kernel = values.get(ir.LOOP) == ir.Repetition.PERSISTENT.value
    if kernel or values.get("capture") is False or values.get(ir.GRAPH_EDGES) == ir.GraphEdges.FULL.value:
        values.pop(ir.GRAPH_EDGES, None)
    return values


# Decisions that may have no effect: their defaults, why, and what gives them one.
NO_EFFECT: Mapping[str, tuple[ir.Value, str, str]] = {
    "staging": (ir.Staging.FUSED.value, "no message passes through the host", "transport=mpi_host"),
    ir.RANK_ORDER: (
        ir.RankOrder.SAME.value,
        "the program has no exchange of all ranks",
        "the order of the processes by mpiexec",
    ),
    ir.PUT_WAIT: (ir.PutWait.OP.value, "no message has the transport put", "transport=put"),
    ir.GRAPH_EDGES: (ir.GraphEdges.FULL.value, "nothing is launched as a CUDA graph", "capture=true"),
    ir.TEST_EVERY: (1, "the device does not repeat the dag", "loop=device"),
}


def without_effect(graphs: Sequence[ir.Graph]) -> tuple[Diagnostic, ...]:
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


def in_use(choices: Mapping[str, ir.Value]) -> dict[str, ir.Value]:
    """Without the choices of ops on a device that is not chosen for any op of their name: `c.gpu.variant` where
    `c.device` is the CPU."""
    devices: dict[str, set[ir.Value]] = {}
    for name, value in choices.items():
        if own_name(name) == ir.DEVICE:
            kind = value if value == ir.AT_RUN_TIME else ir.device_named(str(value))[0].value
            devices.setdefault(_INDEX.sub("", site_of(name)), set()).add(kind)

    def used(name: str) -> bool:
        match = _ON_DEVICE.fullmatch(name)
        return match is None or match[1] not in devices or not devices[match[1]].isdisjoint((match[2], ir.AT_RUN_TIME))

    return {name: value for name, value in choices.items() if used(name)}
