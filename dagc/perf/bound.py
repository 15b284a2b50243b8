"""Lower bounds of the times of launches, copies and messages: the roofline of Williams et al. (CACM 52(4), 2009) with
measured ceilings.

A launch takes at least as long as the machine takes to start one, and as the fastest kernels of the probe
(`templates/probe/ceilings.cu`) take to move its bytes. The bytes are those of the distinct elements that it must read
and write (`dagc.perf.footprint`), whatever its blocks and forms are. An array that is used again and again may stay in
a cache, so it is moved at the speed that was measured for arrays of its size. Copies, and messages that a GPU op
exchanges, move their bytes through memory and over a link between GPUs, of other ranks or of the same, or to the host.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from typing import Any

import sympy as sp

from dagc.cuda.accesses import Accesses
from dagc.cuda.expressions import MemoryAccess, symbol
from dagc.cuda.syntax import NotUnderstood
from dagc.forms import kernel_of
from dagc.forms.fuse import calls_of
from dagc.forms.wide import WIDE
from dagc.ir.choice import AS_WRITTEN, FORM
from dagc.ir.enums import Mode, Pairs, Place
from dagc.ir.plan import AXES, ArrayValue, values_of
from dagc.ir.program import CopyOp, Device, ExchangeOp, Graph, GraphOp, KernelOp, Message, OpId, Program, Region
from dagc.ir.sym import Apply, Fn, Sym, UnboundName, Var, evaluate
from dagc.ir.traversal import Traversal
from dagc.perf.footprint import Elements, Uncounted, elements_of, executions_of, together
from dagc.perf.geometry import Geometry, read_accesses, tunable
from dagc.perf.hardware import Hardware


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What the machine can do at most.

    streams     bytes of arrays that are read and written again and again, and the bytes per second that are moved then
    operations  pairs of a multiplication and an addition per second
    launch      seconds from the start of a launch to that of the next one that depends on it
    wait        seconds that the CPU waits longer than a launch takes
    shared      whether a launch can use the whole machine, so that all launches share its speed
    source      where the figures are from
    link        bytes per second from one GPU to another; infinite where there is none, or one that is not known
    host_link   bytes per second between pinned memory of the host and a GPU, infinite if not known
    """

    streams: tuple[tuple[float, float], ...]
    launch: float = 0.0
    wait: float = 0.0
    source: str = ""
    shared: bool = False
    operations: float = math.inf
    link: float = math.inf
    host_link: float = math.inf

    @staticmethod
    def of_table(table: Mapping[str, Any], source: str) -> Ceilings:
        """From what `dagc.measure.machine` measures. Raises ValueError for anything else."""
        try:
            streams = tuple((float(size), float(speed)) for size, speed in table["streams"])
            launch, wait = float(table["launch"]), float(table["wait"])
            higher = [float(table.get(name, math.inf)) for name in ("operations", "link", "host_link")]
            out = Ceilings(streams, launch, wait, source, bool(table["shared"]), *higher)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not the ceilings of a machine: {error}") from None
        numbers = (*(n for pair in streams for n in pair), out.launch + 1, out.wait + 1)
        if not (streams and all(speed > 0 for speed in higher)) or not all(0 < n < math.inf for n in numbers):
            raise ValueError("not the ceilings of a machine: a number is out of range")
        return out

    @staticmethod
    def of_hardware(hardware: Hardware) -> Ceilings | None:
        """From a descriptor with the fastest kernels measured on such a GPU; None from any other."""
        measured = hardware.measured
        if measured is None or not measured.stream_bytes_per_second:
            return None
        memory, cache = measured.stream_bytes_per_second, measured.l2_bytes_per_cycle * hardware.clock
        streams = ((float(hardware.l2_bytes), max(cache, memory)), (float(hardware.l2_bytes + 1), memory))
        return Ceilings(streams, measured.graph_launch_seconds, 0.0, f"the descriptor of {hardware.name}", True,
            LANES * hardware.multiprocessors * max(hardware.clock, measured.highest_clock),
        )  # fmt: skip

    def raised(self, other: Ceilings | None) -> Ceilings:
        """The higher of the speeds of both."""
        if other is None:
            return self
        sizes = sorted({size for size, _ in (*self.streams, *other.streams)})
        return replace(
            self, streams=tuple((size, max(self.speed(size), other.speed(size))) for size in sizes),
            launch=min(self.launch, other.launch), wait=min(self.wait, other.wait),
            operations=_higher(self.operations, other.operations), link=_higher(self.link, other.link),
            host_link=_higher(self.host_link, other.host_link),
        )  # fmt: skip

    def speed(self, size: float) -> float:
        """Bytes per second of arrays of `size` bytes: the highest that was measured of any as large, or larger."""
        smaller = max((s for s, _ in self.streams if s <= size), default=0.0)
        return max(speed for s, speed in self.streams if s >= smaller)

    def cached(self, size: float) -> bool:
        """Whether arrays of this size are moved clearly faster than the largest."""
        return self.speed(size) > CLEARLY * self.speed(math.inf)


def _higher(one: float, other: float) -> float:
    """Of two speeds, of which infinite ones are not known."""
    return max((speed for speed in (one, other) if speed < math.inf), default=math.inf)


CLEARLY = 1.25
LANES = 128  # threads that a multiprocessor issues an instruction for in a cycle: four schedulers, a warp each


@dataclass(frozen=True, slots=True)
class Moved:
    """Of one array: bytes of the distinct elements that are read or written, and the bytes that move for that."""

    array: str
    size: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a launch must move. `uncounted`: arrays of which nothing could be counted, with the reason. `widest`: bytes
    of the widest access; `threads` of the launch; `elements` that it writes, else reads, at least. `apart`: an array
    whose elements neighbouring threads access far apart, and how far; "" if there is none. `operations` on loaded
    values, at least."""

    moved: tuple[Moved, ...]
    uncounted: tuple[tuple[str, str], ...] = ()
    widest: int = 0
    threads: int = 0
    elements: int = 0
    apart: tuple[str, int] = ("", 0)
    operations: int = 0

    @property
    def bytes(self) -> int:
        return sum(m.bytes for m in self.moved)


MEMORY, CACHE, LAUNCH, ARITHMETIC = "memory", "cache", "launch", "arithmetic"
LINK, HOST_LINK = "link", "link to the host"


@dataclass(frozen=True, slots=True)
class LowerBound:
    """Seconds that an op takes at least, and why: MEMORY and so on; "" if `unknown` says why nothing is known. `own`:
    those of the seconds that a launch takes after what it waits for has come over a link."""

    seconds: float = 0.0
    why: str = ""
    footprint: Footprint = field(default_factory=lambda: Footprint(()))
    unknown: str = ""
    own: float = 0.0


def runs(when: Sym | None, values: Mapping[str, Any]) -> bool:
    """Whether a condition of the program holds for certain."""
    try:
        return when is None or bool(evaluate(when, values))
    except (UnboundName, ArithmeticError, ValueError, TypeError):
        return False


def bound_of(program: Program, op: KernelOp, values: Mapping[str, Any], ceilings: Ceilings) -> LowerBound:
    """`values`: of per-rank scalars. A kernel whose text cannot be read has the bound of a launch."""
    if not runs(op.when, {**program.param_values, **values}):
        return LowerBound(unknown="it may not run")
    try:
        footprint = footprint_of(program, op, values)
    except (NotUnderstood, Uncounted) as error:
        return LowerBound(ceilings.launch, unknown=str(error.args[0]))
    if not footprint.threads:
        return LowerBound(unknown="nothing is launched")
    seconds, cached = seconds_of(footprint.moved, ceilings)
    work = footprint.operations / 2 / ceilings.operations
    if work > max(seconds, ceilings.launch):
        return LowerBound(work, ARITHMETIC, footprint)
    if not footprint.moved:
        return LowerBound(ceilings.launch, "", footprint, "; ".join(f"{a}: {why}" for a, why in footprint.uncounted))
    if seconds < ceilings.launch:
        return LowerBound(ceilings.launch, LAUNCH, footprint)
    return LowerBound(seconds, CACHE if cached else MEMORY, footprint)


def seconds_of(moved: Iterable[Moved], ceilings: Ceilings) -> tuple[float, bool]:
    """Seconds to move this at least, and whether a cache may serve it. What arrays of some size and larger ones move,
    passes at most at the speed of this size; the sum of their times would be too long, since caches and memory work at
    the same time."""
    ordered = sorted(moved, key=lambda m: -m.size)
    total, longest = 0, (0.0, False)
    for one in ordered:
        total += one.bytes
        longest = max(longest, (total / ceilings.speed(one.size), ceilings.cached(one.size)))
    return longest


# ---- what a launch moves ------------------------------------------------------------------------


def footprint_of(program: Program, op: KernelOp, values: Mapping[str, Any]) -> Footprint:
    """Of the kernel as it is written, since its forms must move the same; `threads` are those of the form. Of an op
    that joins calls, that of all: of an array that several access, what one of them moves, since others may access the
    same elements. Raises NotUnderstood, Uncounted (a size that is not known)."""
    every = [_footprint_of(program, call, values) for call in calls_of(program, op)]
    moved: dict[str, Moved] = {}
    for one in (m for each in every for m in each.moved):
        moved[one.array] = max(one, moved.get(one.array, one), key=lambda m: m.bytes)
    return Footprint(
        tuple(moved.values()), tuple(dict.fromkeys(u for each in every for u in each.uncounted)),
        max(each.widest for each in every), sum(each.threads for each in every), sum(each.elements for each in every),
        max((each.apart for each in every), key=lambda apart: apart[1]), sum(each.operations for each in every),
    )  # fmt: skip


def _footprint_of(program: Program, op: KernelOp, values: Mapping[str, Any]) -> Footprint:
    written_as = replace(op, tunables=tuple((n, v) for n, v in op.tunables if not n.startswith(FORM)))
    accesses = read_accesses(program, written_as, {n: v for n, v in written_as.tunables if isinstance(v, int)})
    numbers, shape = _numbers(program, written_as, values)
    kernel, _ = kernel_of(program, op)
    formals = {f.name: (f, arg) for f, arg in zip(kernel.formals, op.args, strict=True) if isinstance(arg, Region)}
    moved: dict[str, Moved] = {}
    uncounted: dict[str, str] = {}
    elements = 0
    for name, (formal, region) in formals.items():
        mine = [a for a in accesses.accesses if a.array == name and not a.shared]
        loads, stores, why = _counted(mine, formal.mode, numbers, shape)
        read, written = together(loads), together(stores)
        elements = max(elements, written // formal.type.size)
        if mine and not read + written:
            uncounted[name] = why
        if read + written:
            one = Moved(region.array, max(read, written), read + written)
            moved[region.array] = max(one, moved.get(region.array, one), key=lambda m: m.bytes)
    lanes = dict(op.tunables).get(WIDE.tunable, AS_WRITTEN)
    sizes = [a.size for a in accesses.accesses if not a.shared]
    threads = _threads_of(program, op, values)
    most = elements or max((m.size // max(sizes) for m in moved.values()), default=0)
    return Footprint(
        tuple(moved.values()), tuple(uncounted.items()), max(sizes, default=0) * int(lanes), threads, most,
        _apart(accesses, numbers, shape), _operations(accesses, numbers, shape),
    )  # fmt: skip


def threads_of(program: Program, op: KernelOp, values: Mapping[str, Any]) -> int:
    """The threads of a launch, of an op that joins calls those of all. Raises Uncounted (a size that is not known, code
    on the host)."""
    if kernel_of(program, op)[1].launch is None:
        raise Uncounted("code on the host launches it")
    return sum(_threads_of(program, call, values) for call in calls_of(program, op))


def _threads_of(program: Program, op: KernelOp, values: Mapping[str, Any]) -> int:
    return math.prod(_numbers(program, op, values)[1].values())


def _numbers(
    program: Program, op: KernelOp, values: Mapping[str, Any]
) -> tuple[dict[sp.Symbol, sp.Expr], dict[str, int]]:
    """The values of the names in a kernel's text, and the shape of the launch. Raises Uncounted."""
    geometry = Geometry(program, op)
    of_program = {n: v for n, v in (*program.param_values.items(), *values.items()) if isinstance(v, (int, float))}
    known = {symbol(n): sp.sympify(v) for n, v in of_program.items()}
    settings = {n: sp.Integer(v) for n, v in op.tunables if isinstance(v, int)}
    known |= {tunable(n): v for n, v in settings.items()}
    for size, axis in zip(geometry.impl.launch.block if geometry.impl.launch else (), AXES, strict=False):
        if isinstance(size, Var) and size.name in settings:
            known[symbol(f"blockDim_{axis}")] = settings[size.name]
    numbers = known | {formal: value.subs(known) for formal, value in geometry.sizes.items()}
    shape = {}
    for name, sizes in (("blockDim", geometry.block), ("gridDim", geometry.grid)):
        for axis, expression in zip(AXES, sizes, strict=True):
            number = expression.subs(known)  # it is in the names of the program, as formals may be called
            if not (number.is_number and number.is_finite):
                raise Uncounted(f"{', '.join(sorted(map(str, number.free_symbols)))}: not known")
            shape[f"{name}_{axis}"] = int(number)
    return numbers, shape


def _counted(
    accesses: Sequence[MemoryAccess], mode: Mode | None, values: Mapping[sp.Symbol, sp.Expr], shape: Mapping[str, int]
) -> tuple[list[Elements], list[Elements], str]:
    """The elements that loads and stores of an array touch, and why others could not be counted. A load of what the
    kernel itself may have stored moves nothing for certain."""
    loads: list[Elements] = []
    stores: list[Elements] = []
    why, stored = "", mode is Mode.OUT
    for access in accesses:
        if not access.store and (stored or _stored_in_loop(access, accesses)):
            continue
        stored |= access.store
        try:
            (stores if access.store else loads).append(elements_of(access, values, shape))
        except Uncounted as error:
            why = error.args[0]
    return loads, stores, why or "what it reads may have been written by the launch itself"


def _stored_in_loop(load: MemoryAccess, accesses: Sequence[MemoryAccess]) -> bool:
    """Whether an earlier iteration may have stored what a load reads."""
    return any(a.store and a.loops and load.loops and a.loops[0] == load.loops[0] for a in accesses)


def _operations(accesses: Accesses, values: Mapping[sp.Symbol, sp.Expr], shape: Mapping[str, int]) -> int:
    total = 0
    for loops, surely, count in accesses.sure_work:
        with suppress(Uncounted):
            total += count * executions_of(loops, surely, values, shape)
    return total


def _apart(accesses: Accesses, values: Mapping[sp.Symbol, sp.Expr], shape: Mapping[str, int]) -> tuple[str, int]:
    """The array of which neighbouring threads access elements farthest apart, and how many elements that is."""
    x = next((symbol(f"threadIdx_{a}") for a in AXES if shape[f"blockDim_{a}"] > 1), None)
    worst = ("", 1)
    for access in accesses.accesses:
        if x is None or access.shared or not access.known or access.surely is None:
            continue
        stride = sp.expand(access.address.subs(values)).coeff(x, 1)
        if stride.is_Integer and abs(int(stride)) > worst[1]:
            worst = (access.array, abs(int(stride)))
    return worst if worst[0] else ("", 0)


# ---- whole programs -----------------------------------------------------------------------------


def path_of(
    graph: Graph, traversal: Traversal | None, seconds: Mapping[OpId, float], wait: float
) -> tuple[float, tuple[OpId, ...]]:
    """The longest chain of ops that wait for each other, by edges or on one stream (without a traversal by edges), in
    seconds, and its ops. `seconds`: of ops (others take none); `wait`: more, where the CPU waits for a stream and a
    stream for the CPU after that."""
    before: dict[OpId, set[OpId]] = {op.id: set() for op in graph.ops}
    for u, v in graph.completion:
        before[v].add(u)
    last: dict[int, OpId] = {}
    for entry in traversal.entries if traversal is not None else ():
        if entry.op is not None and entry.stream is not None:
            if entry.stream in last:
                before[entry.op].add(last[entry.stream])
            last[entry.stream] = entry.op
    ends: dict[OpId, tuple[float, OpId | None]] = {}
    waited: set[OpId] = set()  # ops of the CPU behind one of a stream
    for op in TopologicalSorter(before).static_order():
        gpu = graph.ops[op].gpu
        if not gpu and any(graph.ops[u].gpu or u in waited for u in before[op]):
            waited.add(op)
        starts = ((ends[u][0] + (wait if gpu and u in waited else 0.0), u) for u in before[op])
        begin, origin = max(starts, default=(0.0, None))
        ends[op] = begin + seconds.get(op, 0.0), origin
    at: OpId | None = max(ends, key=lambda op: ends[op][0], default=None)
    total, chain = (0.0 if at is None else ends[at][0]), []
    while at is not None:
        chain.append(at)
        at = ends[at][1]
    return total, tuple(reversed(chain))


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
