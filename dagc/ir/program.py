"""The IR: a `Program` (the text, resolved) and the `Graph` (primitive ops of one lowering).

Program:  one value for every structural choice; loops, branches and compounds expanded; names resolved;
          messages still abstract.
Graph:    messages lowered by their transports; every op is issued by the CPU, on a stream or synchronously.
                    The input of space, proof and emit.
Sizes and by-value arguments are symbolic (`dagc.ir.sym`) in per-rank scalars.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NewType, TypeAlias

from dagc.base.source import NOWHERE, Source, Span, Spanned
from dagc.ir.enums import CodeLang, ElementType, Mode, Pairs, Place, Role, Transport
from dagc.ir.names import mangle
from dagc.ir.sym import Apply, Const, Fn, Sym, Var, show

OpId = NewType("OpId", int)  # index into Graph.ops
Value: TypeAlias = int | float | bool | str
TRANSPORT = "transport"  # the decision for all messages; `OP.transport` is that of one exchange or collective
PUT_WAIT = "put_wait"  # a `PutWait`, as `GRAPH_EDGES`
GRAPH_EDGES = "graph_edges"  # a `GraphEdges`; a program has it only if it is asked for
COLLECTIVES = "collectives"  # the transport of collectives, where a program has exchanges too
WITHIN_HOST = "within_host"  # the transport of messages between ranks of one host
RANK_ORDER = "rank_order"  # a `RankOrder`, as `GRAPH_EDGES`
FIRST_OF_HOST = "hosts.first"  # a variable: the lowest rank of this rank's host
LOOP = "loop"  # the decision of who starts the next run of a `repeat` (`Repetition`)
TEST_EVERY = "test_every"  # how many iterations a device that repeats them does from one test to the next
TESTS = (1, 2, 4, 8, 16, 32)  # its values
SAME = "same"  # its value for that of the exchanges


def shown(value: Value) -> str:
    """A value as `-D NAME=VALUE` takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def declared_name(display: str) -> str:
    """`yr` for `mv[0].yr[1]`: the name in its declaration."""
    return display.rpartition(".")[2].partition("[")[0]


# ---- declarations ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spread:
    """`log(low, high)` or `uniform(low, high)` after `over`: how values of a param are drawn. Both ends are included;
    `low` is not above `high`, and above 0 where it is `log`."""

    log: bool
    low: int | float
    high: int | float

    @property
    def text(self) -> str:
        return f"{'log' if self.log else 'uniform'}({self.low}, {self.high})"


@dataclass(frozen=True, slots=True)
class Param(Spanned):
    """A compile-time value of the program. `over` holds the values after `over`: the sizes to tune for. `files`: the
    pattern of `over files(PATTERN)`, relative to the program's directory; "" without. `spread`: of `over log(...)` and
    `over uniform(...)`."""

    name: str
    value: Value | ElementType
    type: str  # as declared: i64, f64, bool, str, type
    over: tuple[Value, ...] = ()
    files: str = ""
    spread: Spread | None = None

    @property
    def generated(self) -> bool:
        """Whether values of the param can be drawn."""
        return self.spread is not None or bool(self.over) or bool(self.files)


@dataclass(frozen=True, slots=True)
class Scalar(Spanned):
    """A per-rank value, from the set-up. `name` is the display name, indices resolved: `nbr[x,lo]`."""

    name: str
    type: ElementType


@dataclass(frozen=True, slots=True)
class Communicator(Spanned):
    """`comm NAME = split(COLOUR, KEY)`: the ranks of one colour, numbered by key and, where that is equal, by rank.

    A rank whose colour is negative is in none: its `NAME.rank` is -1 and its `NAME.ranks` 0. `everyone`: no colour can
    be negative.
    """

    name: str  # the display name: `row`, `line[x]`
    colour: Sym
    key: Sym
    everyone: bool

    @property
    def rank(self) -> Var:
        """The number of this rank in the communicator."""
        return Var(f"{self.name}.rank")

    @property
    def ranks(self) -> Var:
        """The number of ranks in the communicator of this rank."""
        return Var(f"{self.name}.ranks")

    @property
    def text(self) -> str:
        """`row = split(floor(rank / 4))`."""
        key = "" if self.key == Const(0) else f", {show(self.key)}"
        return f"{self.name} = split({show(self.colour)}{key})"

    @property
    def facts(self) -> tuple[Sym, ...]:
        """The conditions that hold on every rank."""
        least = int(self.everyone)
        return (
            Apply(Fn.GE, (self.rank, Const(least - 1))),
            Apply(Fn.LT, (self.rank, self.ranks)),
            Apply(Fn.GE, (self.ranks, Const(least))),
            Apply(Fn.LE, (self.ranks, Var("ranks"))),
        )


@dataclass(frozen=True, slots=True)
class Array(Spanned):
    """Entries of `dims` are None if unknown (`*`): the length then comes from the set-up."""

    name: str
    type: ElementType
    dims: tuple[Sym | None, ...]
    place: Place
    role: Role | None


@dataclass(frozen=True, slots=True)
class Share:
    """Some neighbours of a message with counts: those at the places `first` to below `stop` of its arrays, None: to the
    last. `arrays`: those of ranks and counts, which tell where their elements are."""

    first: int
    stop: int | None
    arrays: tuple[str, str]

    def apart(self, other: Share) -> bool:
        """Whether the elements of both are known to be different ones."""
        low, high = sorted((self, other), key=lambda share: share.first)
        return self.arrays == other.arrays and low.stop is not None and low.stop <= high.first

    @property
    def text(self) -> str:
        """`send_ranks[2]`, or `send_ranks[3 ..]`."""
        return f"{self.arrays[0]}[{self.first}{' ..' if self.stop is None else ''}]"


@dataclass(frozen=True, slots=True)
class Region:
    """The part of an array that an op touches: all of it, a slice (of the first dimension), or a declared part.

    `start`, `stop` are None for the whole. `part` names a `part` without bounds (declared disjoint, not checked).
    `columns` is a slice of one further dimension: its number (from 0), start and stop. Such a region is not contiguous;
    only copies have it, and it has `start` and `stop`. `share`: of the region, what is of some neighbours of a message,
    in ops of the graph that serve these alone.
    """

    array: str
    start: Sym | None = None
    stop: Sym | None = None
    part: str | None = None
    columns: tuple[int, Sym, Sym] | None = None
    share: Share | None = None

    @property
    def unshared(self) -> Region:
        """With what is of all neighbours."""
        return self if self.share is None else replace(self, share=None)

    @property
    def slices(self) -> tuple[tuple[int, Sym, Sym], ...]:
        """(dimension, start, stop) of each dimension that is sliced: the first, and one more."""
        first = ((0, self.start, self.stop),) if self.start is not None and self.stop is not None else ()
        return first if self.columns is None else (*first, self.columns)

    @property
    def text(self) -> str:
        """`x`, `x[1 .. m]`, or the name of a part without bounds; `x of send_ranks[2]`."""
        if self.share is not None:
            return f"{self.unshared.text} of {self.share.text}"
        if self.start is None or self.stop is None:
            return self.part or self.array
        others = ""
        if self.columns is not None:
            dimension, start, stop = self.columns
            others = ", *" * (dimension - 1) + f", {show(start)} .. {show(stop)}"
        return f"{self.array}[{show(self.start)} .. {show(self.stop)}{others}]"


@dataclass(frozen=True, slots=True)
class Require(Spanned):
    """A condition of the program that each rank checks when it starts."""

    condition: Sym


@dataclass(frozen=True, slots=True)
class Part(Spanned):
    name: str
    region: Region
    bounded: bool


class Device(Enum):
    GPU = "gpu"
    CPU = "cpu"


@dataclass(frozen=True, slots=True)
class Devices:
    """What a rank has: GPUs, and sockets, each a part of its cores. A *unit* is the number of a device among those of
    its kind: of the CPU, 0 stands for all cores, and the sockets follow."""

    gpus: int = 1
    sockets: int = 0

    def units(self, device: Device) -> range:
        return range(self.gpus if device is Device.GPU else 1 + self.sockets)

    @property
    def sides(self) -> int:
        """The memories that arrays `on any` are in: of the host, and of each GPU."""
        return 1 + self.gpus

    @staticmethod
    def side(device: Device, unit: int) -> int:
        """The number of the memory that an op works in: 0 is that of the host."""
        return 1 + unit if device is Device.GPU else 0

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(device_name(d, unit) for d in Device for unit in self.units(d))


def device_name(device: Device, unit: int) -> str:
    """The word of a device: `gpu`, `gpu1`, `cpu`, `socket0`."""
    if device is Device.CPU and unit:
        return f"socket{unit - 1}"
    return f"{device.value}{unit or ''}"


def device_named(name: str) -> tuple[Device, int]:
    """The device of such a word, and its unit."""
    if name.startswith("socket"):
        return Device.CPU, int(name.removeprefix("socket")) + 1
    return Device(name[:3]), int(name[3:] or 0)


DEVICE = "device"  # the name of the choice of the device of an op
DP = "dp"  # the method of `select device` in a dag
AT_RUN_TIME = "any"  # -D OP.device=any: the device is chosen when the program runs


@dataclass(frozen=True, slots=True)
class Formal(Spanned):
    """A formal of a kernel. `mode` is None for by-value scalars; then `dims` is None too."""

    name: str
    type: ElementType
    mode: Mode | None
    dims: tuple[Sym | None, ...] | None  # in the kernel's own scalar formals, and compile-time names


@dataclass(frozen=True, slots=True)
class CodeText(Spanned):
    """Code with its place: a text, or a function of a file (`text` is None), or a whole file (also `function` is None).

    `function` may be qualified (`heat::step`); `arguments` are those of a template: types, or expressions in tunables.
    `file` is the name of a `CodeFile`; a text with a `function` is the body of one that was in a file. `header`: the
    lines of a text before the first of the program's. `restrict`: its arrays are `__restrict__`. `bounds`: the threads
    of a block at most, and the blocks that a multiprocessor holds at least. `literals`: by-value formals that are
    constants of the function.
    """

    lang: CodeLang
    text: str | None
    function: str | None = None
    file: str | None = None
    arguments: tuple[Sym | ElementType, ...] = ()
    header: int = 0
    restrict: bool = False
    bounds: tuple[int, int] | None = None
    literals: tuple[tuple[str, Value], ...] = ()

    def begin(self, source: str) -> int:
        """Where the text begins in that of its file; where it is about what is there, if it is not in it."""
        quotes = -1 if self.function is not None else source.find('"""', self.span.start, self.span.end)
        return self.span.start if quotes < 0 else quotes + 3


@dataclass(frozen=True, slots=True)
class CodeFile:
    """A file in C++ or CUDA that code names, or that such a file includes.

    `path` is its key in `Program.sources`. `name` is relative to the directory of the emitted program's code: files
    keep their relative places, so that they can include one another unchanged.
    """

    name: str
    path: str


LARGEST_GRID = 65535  # blocks of a grid in y and z, on every GPU
LARGEST_GRID_X = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Launch(Spanned):
    """Grid, block and dynamic shared bytes, in formals, compile-time names and tunables (as `Var`). `numbers`: further
    parameters of the kernel, unsigned, with their values. Of a launch that joins several these begin with the ends of
    all but the last `along` an axis of the grid."""

    grid: tuple[Sym, ...]
    block: tuple[Sym, ...]
    shared: Sym | None
    numbers: tuple[tuple[str, Sym], ...] = ()
    along: int = 0


@dataclass(frozen=True, slots=True)
class Tunable(Spanned):
    """A `tune` declared in a kernel or implementation; decided once per op name."""

    name: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Scratch(Spanned):
    """An array declared in an implementation. `const`: `prepare` fills it, and nothing else writes it."""

    name: str
    type: ElementType
    dims: tuple[Sym | None, ...]
    const: bool = False


@dataclass(frozen=True, slots=True)
class Impl(Spanned):
    """One implementation. Expressions hold formals, tunables and file-level compile-time names as `Var`s; file-level
    names with fixed values are already replaced by them."""

    name: str  # "default" if unnamed
    device: Device
    launch: Launch | None
    code: CodeText | None
    tunables: tuple[Tunable, ...]
    scratch: tuple[Scratch, ...]
    requires: tuple[Sym, ...]
    lets: tuple[tuple[str, Sym], ...]
    links: tuple[str, ...]
    prepare: CodeText | None = None  # host code that fills the scratch once
    forms: tuple[str, ...] | None = None  # that it may have (`dagc.forms`); None: all that are legal
    unit: int = 0  # of an op that may have it: the number of the device; in a kernel 0

    @property
    def shares(self) -> bool:
        """Whether ops share what `prepare` fills: it fills the `const` scratch, and each op has the rest to itself."""
        return any(s.const for s in self.scratch)


@dataclass(frozen=True, slots=True)
class Feature(Spanned):
    name: str
    value: Sym | CodeText
    cost: Sym | None


@dataclass(frozen=True, slots=True)
class Select(Spanned):
    """`owner` is the kernel's name, "" at program level, "dag" in the main dag."""

    owner: str
    names: tuple[str, ...]
    method: str
    args: tuple[Sym, ...]


def on_units(impls: Sequence[Impl], devices: Devices) -> Iterator[tuple[Impl, int]]:
    """The implementations on the first device of their kind, then on the second, and so on."""
    units = {device: devices.units(device) for device in Device}
    yield from ((i, unit) for unit in range(max(map(len, units.values()))) for i in impls if unit in units[i.device])


@dataclass(frozen=True, slots=True)
class Kernel(Spanned):
    """`fused`: the calls that it joins, in order (`dagc.forms.fuse`); none of one that the program declares."""

    name: str
    formals: tuple[Formal, ...]
    impls: tuple[Impl, ...]
    tunables: tuple[Tunable, ...]
    requires: tuple[Sym, ...]
    lets: tuple[tuple[str, Sym], ...]
    features: tuple[Feature, ...]
    selects: tuple[Select, ...]
    fused: tuple[FusedCall, ...] = ()

    def impl_of(self, device: Device, variant: str) -> Impl:
        """Its implementation of this name for a device. Raises KeyError if it has none."""
        for impl in self.impls:
            if impl.device is device and impl.name == variant:
                return impl
        raise KeyError(variant)


@dataclass(frozen=True, slots=True)
class FusedCall:
    """One of the calls that a fused kernel joins. `names`: of formals and tunables of its kernel, with the names that
    they have in the fused kernel; others keep theirs."""

    kernel: Kernel
    variant: str
    names: tuple[tuple[str, str], ...]

    @property
    def impl(self) -> Impl:
        return self.kernel.impl_of(Device.GPU, self.variant)


@dataclass(frozen=True, slots=True)
class Decision(Spanned):
    """An open choice. `name` is its name for -D: `transport`, `streams`, `threads[x]`, `yl.block`, `yl.variant`,
    `dense[0].device`, `test.thread`. `structural`: another value may give another graph. `restricts`: another value may
    leave other variants and tunables of kernels, whose `require`s depend on it. `slices`: another value moves bounds of
    slices. values[0] is the default.

    Of one that stays open until the program runs (`dagc.ir.plan`): `axis` is the dimension of the block that it sets,
    "" if none, `variant` the implementation (`KernelOp.answer`) that it belongs to if that is open too, else ""."""

    name: str
    values: tuple[Value, ...]
    chosen: Value
    structural: bool
    restricts: bool = False
    slices: bool = False
    axis: str = ""
    variant: str = ""

    @property
    def counted_apart(self) -> bool:
        """Whether the number of implementations depends on its value."""
        return self.structural or self.restricts


# ---- the graph as written ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Access:
    region: Region
    mode: Mode

    @property
    def keeps(self) -> bool:
        """Whether the op needs the contents that the array had: it reads them, or writes only a piece."""
        return self.mode is not Mode.OUT or self.region.start is not None or self.region.part is not None


@dataclass(frozen=True, slots=True)
class HiddenState(Spanned):
    """A variable that the code of an op uses and no header names: of `__device__` memory, global, or static. `name`: of
    the storage, `::hits`, which cannot be that of an array; variables that pointers may connect share one. `span`: of
    its declaration."""

    name: str
    mode: Mode


# `when`, of ops and messages: the per-rank condition under which a rank runs them; None where all ranks do. Edges,
# streams and synchronisation are as if all did: a rank that skips an op still passes its place in the order.


@dataclass(frozen=True, slots=True)
class OtherVariant:
    """An implementation that an op may use instead of its own: its device, the values of its tunables, and the
    decisions on them (none on a tunable that the call pins)."""

    device: Device
    variant: str
    tunables: tuple[tuple[str, Value], ...]
    choices: tuple[Decision, ...]
    unit: int = 0


@dataclass(frozen=True, slots=True)
class Put:
    """Messages of an exchange, by their numbers, that a kernel writes into the memory of their receivers: what it
    stores to the array of its formal is sent in them. Without messages: a formal to which the text may store in place
    of such a one. `updates`: it may leave elements as they were, which both ends have alike from the start."""

    formal: str
    exchange: str
    messages: tuple[int, ...]
    updates: bool = False


@dataclass(frozen=True, slots=True)
class CallMessages:
    """What the blocks of one of the calls that a launch joins have to do with messages of transport `put`.

    awaits   which of those that the op waits for they wait for, by the places in its list
    counted  whether they must have ended before what the launch sends is said to have arrived
    """

    awaits: tuple[int, ...]
    counted: bool


@dataclass(frozen=True, slots=True)
class KernelOp(Spanned):
    """`args` are in the order of the kernel's formals: a Region for an array formal, a Sym for a by-value one.

    `others`: the further implementations that may be chosen; none where the text or -D names the variant. `placed`: the
    device is chosen when the program runs. Such an op has a stream and is ordered as a GPU op, whatever `device` is;
    on the CPU it runs once all before it on its stream has completed, and the host waits for it. `worker`: on the CPU
    it is enqueued on its stream, and runs in a worker thread; the host does not wait. `states`: what the code uses
    beside the arguments. `pinned`: the tunables that the call gives. `unit`: which of the devices of its kind runs it.
    `puts`: in the graph, the messages that it writes; `awaits`: those that it waits for at its start, each as the
    exchange and the number; `by_call`: of a launch that joins several, what the blocks of each do; if empty, all alike.
    `joined`: of such a launch, what each of its calls accesses.
    """

    name: str  # display name, indices resolved: `pack[x,lo]`
    base: str  # name without indices: decisions are per base name
    kernel: str
    device: Device
    variant: str
    tunables: tuple[tuple[str, Value], ...]
    args: tuple[Region | Sym, ...]
    accesses: tuple[Access, ...]
    stream: int | None = None  # pinned stream
    when: Sym | None = None
    others: tuple[OtherVariant, ...] = ()
    placed: bool = False
    worker: bool = False
    states: tuple[HiddenState, ...] = ()
    pinned: tuple[str, ...] = ()
    unit: int = 0
    puts: tuple[Put, ...] = ()
    awaits: tuple[tuple[str, int], ...] = ()
    by_call: tuple[CallMessages, ...] = ()
    joined: tuple[tuple[Access, ...], ...] = ()

    @property
    def is_promised(self) -> bool:
        """Whether the text says which rows of an array it uses (`touching`)."""
        given = {a for a in self.args if isinstance(a, Region)} | {Region(array) for array in self.passed}
        return not {access.region for access in self.accesses} <= given

    @property
    def passed(self) -> tuple[str, ...]:
        """Arrays on the host whose element it gets by value, as it is when the op is issued."""
        found = (passed_array(arg.name) for arg in self.args if isinstance(arg, Var))
        return tuple(array for array in found if array is not None)

    @property
    def sent(self) -> dict[str, tuple[tuple[str, int], ...]]:
        """By formal, the exchange and the number of each message that it writes; also formals to which its text may
        store in place of these."""
        out: dict[str, tuple[tuple[str, int], ...]] = {}
        for put in self.puts:
            out[put.formal] = (*out.get(put.formal, ()), *((put.exchange, number) for number in put.messages))
        return out

    @property
    def sends(self) -> bool:
        """Whether it writes messages."""
        return any(put.messages for put in self.puts)

    @property
    def elsewhere(self) -> bool:
        """Whether another GPU than the first one runs it."""
        return self.device is Device.GPU and self.unit > 0

    @property
    def side(self) -> int:
        """The memory that it uses, of those of two-sided arrays: 0 the host's, then that of each GPU."""
        return 1 + self.unit if self.device is Device.GPU else 0

    @property
    def on_stream(self) -> bool:
        """Whether the op is issued on a stream."""
        return self.placed or self.worker or self.device is Device.GPU

    @property
    def site(self) -> str:
        """The name of what is chosen for it: that of the op where it is placed; else the base name, which ops in a loop
        share."""
        return self.name if self.placed else self.base

    @property
    def implementation(self) -> str:
        """Its kernel, with the variant if that has a name: `spmv.ell`."""
        return self.kernel if self.variant == "default" else f"{self.kernel}.{self.variant}"

    @property
    def answer(self) -> str:
        """Its implementation among those that may be chosen: with the device in front where that is chosen too."""
        return f"{device_name(self.device, self.unit)}.{self.variant}" if self.placed else self.variant


@dataclass(frozen=True, slots=True)
class CopyOp(Spanned):
    """`gpu copy(dst, src)`: an asynchronous device copy. The places of the arrays give its direction."""

    name: str
    base: str
    dst: Region
    src: Region
    stream: int | None = None
    inserted: bool = False  # by the compiler, for an `any` array
    when: Sym | None = None

    @property
    def accesses(self) -> tuple[Access, ...]:
        return Access(self.src, Mode.IN), Access(self.dst, Mode.OUT)

    @property
    def to_device(self) -> bool:
        """The direction of an inserted copy, from its name."""
        return self.base.endswith("to_device")


@dataclass(frozen=True, slots=True)
class Message(Spanned):
    """One message, both ends. With counts, `to` and `source` are arrays of ranks (array names), or "": all in order.

    Where `when` is false, there is no message, and its slices need not be valid: both peers are negative then, or, with
    counts, the arrays are not read. `shares`: with counts, among how many ops the neighbours are divided: one each, and
    the last has the others.
    """

    label: str  # "" where unnamed in a single-message exchange; else `face[x,lo]`
    send: Region
    to: Sym | str
    send_counts: str | None
    recv: Region
    source: Sym | str
    recv_counts: str | None
    when: Sym | None = None
    shares: int = 1

    def end(self, send: bool) -> tuple[Region, Sym | str, str | None]:
        """Region, peer and counts of one end."""
        if send:
            return self.send, self.to, self.send_counts
        return self.recv, self.source, self.recv_counts

    def region(self, send: bool, share: int | None = None) -> Region:
        """The region of one end; of the neighbours that this op of `shares` has."""
        region, peers, counts = self.end(send)
        if share is None or not isinstance(peers, str) or counts is None:
            return region
        stop = share + 1 if share + 1 < self.shares else None
        return replace(region, share=Share(share, stop, (peers, counts)))


@dataclass(frozen=True, slots=True)
class ExchangeOp(Spanned):
    """`comm`: the name of the communicator whose ranks the peers are; "" for all ranks of the program. `transport`: of
    its arrays on the device, if it has any; `within`: of its messages between ranks of one host, if another. Then it
    is lowered as two ops of the graph, with `pairs`. `split`: each message has a post and a wait of its own; else all
    are posted, and received, by one op."""

    name: str
    base: str
    messages: tuple[Message, ...]
    comm: str = ""
    transport: Transport = Transport.MPI_HOST
    split: bool = True
    within: Transport | None = None
    pairs: Pairs = Pairs.ALL

    @property
    def put(self) -> ExchangeOp | None:
        """What kernels write of it: all, or what stays within hosts, by the name that it has in the graph."""
        if self.within is not Transport.PUT:
            return self if self.transport is Transport.PUT else None
        name = f"{self.name}.{WITHIN_HOST}"
        return replace(self, name=name, transport=self.within, within=None, pairs=Pairs.WITHIN_HOST)

    @property
    def accesses(self) -> tuple[Access, ...]:
        pairs = (((m.send, Mode.IN), (m.recv, Mode.OUT)) for m in self.messages)
        return tuple(Access(*end) for ends in pairs for end in ends)


class CollectiveKind(Enum):
    ALLREDUCE = "allreduce"
    REDUCE = "reduce"
    BCAST = "bcast"
    ALLGATHER = "allgather"
    ALLTOALL = "alltoall"
    ALLTOALLV = "alltoallv"
    BARRIER = "barrier"

    @property
    def reduces(self) -> bool:
        return self in (CollectiveKind.ALLREDUCE, CollectiveKind.REDUCE)

    @property
    def rooted(self) -> bool:
        return self in (CollectiveKind.BCAST, CollectiveKind.REDUCE)


@dataclass(frozen=True, slots=True)
class CollectiveOp(Spanned):
    """`args`: regions (dst, src, count and displacement arrays), and the root as a Sym. `reduce` is the operator.

    `when` is the same on all ranks of the communicator; `comm` and `transport` as in `ExchangeOp`. `within`: of what is
    sent within a host, if another transport; then it is lowered as ops of each host, and of one rank of each
    (`host_comms`), or as an exchange is. `pairs`: which of these it is. `partial`, of a reduction to one rank in
    levels: where the first rank of each host has the result of its host.
    """

    name: str
    base: str
    collective: CollectiveKind
    args: tuple[Region | Sym, ...]
    accesses: tuple[Access, ...]
    reduce: str | None = None
    when: Sym | None = None
    comm: str = ""
    transport: Transport = Transport.MPI_HOST
    within: Transport | None = None
    pairs: Pairs = Pairs.ALL
    partial: Region | None = None

    @property
    def in_levels(self) -> bool:
        """Whether it may be done within each host, and between one rank of each."""
        return (self.collective.reduces or self.collective is CollectiveKind.BCAST) and not self.comm

    @property
    def in_pairs(self) -> bool:
        """Whether it is a message of each rank to each: between hosts by NCCL, it leaves those within to another."""
        return self.collective in (CollectiveKind.ALLGATHER, CollectiveKind.ALLTOALL, CollectiveKind.ALLTOALLV)

    @property
    def regions(self) -> tuple[Region, ...]:
        return tuple(a for a in self.args if isinstance(a, Region))

    @property
    def given(self) -> Region:
        """What each rank gives, or of a reduction its result: it has as many elements on all ranks."""
        return self.regions[0 if self.collective.reduces else -1]

    @property
    def messages(self) -> tuple[Message, ...]:
        """Those of an alltoallv: one, whose peers are all ranks in order. MPI or NCCL has the other collectives."""
        if self.collective is not CollectiveKind.ALLTOALLV:
            return ()
        dst, src, send_counts, recv_counts = self.regions
        return (Message("", src, "", send_counts.array, dst, "", recv_counts.array, span=self.span),)

    @property
    def root(self) -> Sym:
        """The root of a broadcast or of a reduction to one rank."""
        return next((a for a in self.args if not isinstance(a, Region)), Const(0))


_PASSED = "[]"  # after the name of an array: no scalar has such a name


def passed_value(array: str) -> Var:
    """The one element of an array on the host, as the host reads it when it launches a kernel with it."""
    return Var(f"{array}{_PASSED}")


def passed_array(name: str) -> str | None:
    """The array of a variable of `passed_value`; None of others."""
    return name.removesuffix(_PASSED) if name.endswith(_PASSED) else None


Op: TypeAlias = KernelOp | CopyOp | ExchangeOp | CollectiveOp


def host_comms(root: Sym) -> tuple[Communicator, Communicator]:
    """The ranks of each host, and one rank of each: `root` or, on another host, the lowest one. `root` is rank 0 of
    both that it is in."""
    text = "" if root == Const(0) else f"[{show(root)}]"
    key = Apply(Fn.COND, (Apply(Fn.EQ, (Var("rank"), root)), Const(-1), Var("rank")))
    host = Communicator(f"hosts.within{text}", Var(FIRST_OF_HOST), key, True)
    first = Apply(Fn.EQ, (host.rank, Const(0)))
    return host, Communicator(f"hosts.between{text}", Apply(Fn.COND, (first, Const(0), Const(-1))), key, False)


def alike(ops: Iterable[Op]) -> dict[str, str]:
    """For each exchange by `put`, the first one with the same messages, which has the same flags: what waits for a
    message completes before a kernel writes one to the same region (`dagc.space.proof`)."""
    first: dict[ExchangeOp, str] = {}
    puts = (put for op in ops if isinstance(op, ExchangeOp) and (put := op.put) is not None)
    return {op.name: first.setdefault(replace(op, name=""), op.name) for op in puts}


def two_sided(ops: Iterable[Op], arrays: Iterable[Array]) -> frozenset[str]:
    """The `any` arrays of placed ops, and of ops of further GPUs: the program copies between their sides as it runs."""
    anywhere = {a.name for a in arrays if a.place is Place.ANY}
    placed = (op for op in ops if isinstance(op, KernelOp) and (op.placed or op.elsewhere))
    return frozenset(access.region.array for op in placed for access in op.accesses) & anywhere


def blocks(program: Program, op: CopyOp) -> bool:
    """Whether a copy blocks the thread that issues it: between the sides of an `any` array in pageable memory."""
    return op.inserted and program.chose(HostMemory.PAGEABLE)


class End(Enum):
    """The end of an exchange or collective that an edge meets."""

    WHOLE = "whole"
    SEND = "send"
    RECV = "recv"


@dataclass(frozen=True, slots=True)
class EdgeEnd:
    """`message` restricts it to one message of an exchange (by label)."""

    op: str
    end: End = End.WHOLE
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Edge(Spanned):
    """completion: v starts after u has completed; otherwise only issue order (`before`)."""

    u: EdgeEnd
    v: EdgeEnd
    completion: bool = True


@dataclass(frozen=True, slots=True)
class Setup(Spanned):
    """`args`: keyword arguments, evaluated. `decisions`: those that they depend on."""

    file: str
    function: str
    args: tuple[tuple[str, Value], ...]
    decisions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verify(Spanned):
    region: Region
    function: str
    args: tuple[tuple[str, Value], ...]
    rtol: float  # of the largest value of the reference; `atol` is added to it
    nan_equal: bool = False  # NaN is correct where the reference has NaN
    atol: float = 0.0
    runs: int = 1  # of the dag and of the reference, before they are compared
    of: str = ""  # `sum` or `norm`: that of the elements is compared, in place of these

    @property
    def returned(self) -> str:
        """The name of what the reference returns: `y`, or `norm(y)`, a number."""
        return f"{self.of}({self.region.array})" if self.of else self.region.array


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a loop: the value of its variable, the names of its ops."""

    value: int
    ops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Loop(Spanned):
    """An outermost `for` over whole numbers, of the main dag or of a dag that it calls, which `Program.ops` has
    unrolled."""

    variable: str
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Until:
    """The repetition ends when the first element of the array is not zero or, with `bound`, compares so with it."""

    array: str
    fn: Fn = Fn.NE
    bound: Sym = Const(0)


@dataclass(frozen=True, slots=True)
class Program:
    name: str
    path: str
    params: tuple[Param, ...]
    lets: tuple[tuple[str, Sym], ...]  # program-level `let`s by display name (code may use the constant ones)
    enums: tuple[tuple[str, tuple[str, ...]], ...]
    scalars: tuple[Scalar, ...]
    arrays: tuple[Array, ...]
    parts: tuple[Part, ...]
    kernels: tuple[Kernel, ...]
    code: tuple[CodeText, ...]
    features: tuple[Feature, ...]
    selects: tuple[Select, ...]
    requires: tuple[Require, ...]  # those left for run time
    decisions: tuple[Decision, ...]
    ops: tuple[Op, ...]  # in text order
    edges: tuple[Edge, ...]
    explicit: bool  # `edges explicit`
    repeat: Sym | None
    until: Until | None
    setup: Setup | None
    verifies: tuple[Verify, ...]
    sources: Mapping[str, Source] = field(compare=False, repr=False)
    loops: tuple[Loop, ...] = ()
    files: tuple[CodeFile, ...] = ()
    directories: tuple[str, ...] = ()  # where code finds what it includes; named as the files are
    comms: tuple[Communicator, ...] = ()  # in text order; a colour may depend on those before
    constraints: tuple[Sym, ...] = ()  # `require`s on decisions, which are variables in it
    devices: Devices = Devices()
    domain: tuple[Sym, ...] = ()  # `require`s on nothing but params with values after `over`, which are variables in it

    @property
    def host_comms(self) -> tuple[Communicator, ...]:
        """Those of collectives that are done within each host and between them."""
        several = (op for op in self.ops if isinstance(op, CollectiveOp) and op.within is not None)
        return tuple(dict.fromkeys(comm for op in several for comm in host_comms(op.root)))

    def chose(self, value: HostMemory | TransferTiming) -> bool:
        """Whether a decision on transfers, which only programs with `any` arrays have, has this value."""
        return any(d.name == value.decision and d.chosen == value.value for d in self.decisions)

    @property
    def orders_ranks(self) -> bool:
        """Whether the messages of its exchanges of all ranks choose which rank each process runs."""
        chosen = any(d.name == RANK_ORDER and d.chosen == RankOrder.NEIGHBOURS.value for d in self.decisions)
        return chosen and any(isinstance(op, ExchangeOp) and not op.comm for op in self.ops)

    @property
    def graph_edges(self) -> GraphEdges:
        """Those of its CUDA graphs, which it only has with `capture`, or where the device repeats it."""
        chosen = {d.name: d.chosen for d in self.decisions}
        graphs = chosen.get("capture") is True or chosen.get(LOOP) in (
            Repetition.DEVICE.value,
            Repetition.PERSISTENT.value,
        )
        return GraphEdges(chosen.get(GRAPH_EDGES, "full") if graphs else "full")

    @property
    def param_values(self) -> dict[str, Value]:
        """The values of the params by name, as records have them: of a type, its name."""
        return {p.name: p.value.value if isinstance(p.value, ElementType) else p.value for p in self.params}

    @property
    def expected_files(self) -> tuple[str, ...]:
        """The file of each `verify` in the directory of a rank. The first of an array has its name, further ones also
        a number: they differ in part, tolerance or reference."""
        names = [v.region.array for v in self.verifies]
        numbers = (names[: k + 1].count(name) for k, name in enumerate(names))
        return tuple(
            f"expected/{mangle(name)}{'' if n == 1 else f'.{n}'}.npy" for name, n in zip(names, numbers, strict=True)
        )

    @property
    def kernel_ops(self) -> tuple[KernelOp, ...]:
        """The ops that call kernels, in text order."""
        return tuple(op for op in self.ops if isinstance(op, KernelOp))

    @property
    def comm_ops(self) -> tuple[ExchangeOp | CollectiveOp, ...]:
        """The exchanges and collectives, in text order."""
        return tuple(op for op in self.ops if isinstance(op, ExchangeOp | CollectiveOp))

    def array(self, name: str) -> Array:
        """The array of that name."""
        return next(a for a in self.arrays if a.name == name)

    def kernel(self, name: str) -> Kernel:
        """The kernel of that name, which an op calls."""
        return next(k for k in self.kernels if k.name == name)

    def decision(self, name: str) -> Value:
        """The value chosen for a decision. Raises KeyError if there is none of that name."""
        for d in self.decisions:
            if d.name == name:
                return d.chosen
        raise KeyError(name)


# ---- graph ----
# `Graph`: primitive ops of one program, its messages by their transports. Everything the CPU issues is a `GraphOp`.
#
# Edges are as written, without transitive reduction, since the space counts them; `start` is implied, `end` is last.


class Staging(Enum):
    """Where `mpi_host` puts its copies: into the producing and the consuming op, or into ops of their own."""

    FUSED = "fused"
    OPS = "ops"


class HostMemory(Enum):
    """The memory of the host sides of `any` arrays: page-locked memory, whose copies run concurrently with the host, or
    pageable memory, whose copies block the thread that issues them."""

    PINNED = "pinned"
    PAGEABLE = "pageable"

    @property
    def decision(self) -> str:
        return "host_memory"


class TransferTiming(Enum):
    """When a program copies an `any` array between its sides, where it chooses devices at run time: before the op that
    reads it on the other side, or as soon as it is written, if an op reads it there."""

    AT_NEED = "at_need"
    EARLY = "early"

    @property
    def decision(self) -> str:
        return "transfers"


class GraphEdges(Enum):
    """The edges of CUDA graphs to kernels: full, where a kernel is launched after what it depends on has completed;
    programmatic, where it is launched earlier and waits itself; early, where each kernel also lets its dependents be
    launched once all of its blocks run."""

    FULL = "full"
    PROGRAMMATIC = "programmatic"
    EARLY = "early"


class RankOrder(Enum):
    """Which rank each process runs: that of its own number, or so that ranks that send much to each other share a
    host."""

    SAME = "same"
    NEIGHBOURS = "neighbours"


class PutWait(Enum):
    """Where messages of the transport `put` are waited for: in an op of their own, or at the start of the kernels that
    read them."""

    OP = "op"
    READER = "reader"


class Repetition(Enum):
    """Who starts the next run of a `repeat`, and tests `until`: the host, the device within a CUDA graph, or one
    kernel, whose blocks do all ops and wait for each other between them."""

    HOST = "host"
    DEVICE = "device"
    PERSISTENT = "persistent"


class Action(Enum):
    KERNEL = "kernel"  # gpu or cpu
    COPY = "copy"  # gpu; written in the .dag or inserted for an `any` array
    STAGE_OUT = "stage_out"  # gpu: device array -> staging buffer, for mpi_host with staging=ops
    STAGE_IN = "stage_in"  # gpu: staging buffer -> device array
    POST_SEND = "post_send"
    POST_RECV = "post_recv"
    WAIT_SEND = "wait_send"  # one for all messages of an exchange
    WAIT_RECV = "wait_recv"
    POST_COLLECTIVE = "post"
    WAIT_COLLECTIVE = "wait"
    GROUP = "group"  # nccl, peer: one exchange, or collective, as one GPU op; put: the wait for its messages
    FREE = "free"  # gpu; put: ends once all ranks have come there, so that they may write what others receive
    END = "end"

    @property
    def of_messages(self) -> bool:
        """Whether it posts messages of an exchange or receives them: one, or all (`GraphOp.messages`)."""
        return self in (Action.POST_SEND, Action.POST_RECV, Action.WAIT_RECV)


@dataclass(frozen=True, slots=True)
class Staged:
    """A region that is copied between the device and its staging buffer.

    `source`: of what is received, the rank that sends it, if there is one rank. If it is negative, nothing is received
    or copied, and the device keeps its values, as under every other transport; nor is anything sent or copied. With
    `pairs` other than all, also of what is sent, the rank of `comm` that gets it: nothing is copied for other pairs.
    """

    region: Region
    source: Sym | None = None
    pairs: Pairs = Pairs.ALL
    comm: str = ""


@dataclass(frozen=True, slots=True)
class GraphOp:
    """One vertex.

    op       its origin in the Program (None for `end`)
    message  the message it serves: index into op.messages (POST_*, WAIT_RECV, STAGE_* of an exchange), else None; a
             post or wait with None serves all messages
    share    of a message whose neighbours are divided among ops (`Message.shares`), the number of this one, else None
    gpu      whether it is issued on a stream: ops of the GPU, and those of the CPU that a worker thread runs
    staged   what a STAGE_* op copies
    copy_in  regions copied from their staging buffers before the op's own work (fused staging)
    copy_out regions copied to their staging buffers after it (fused staging)
    stream   pinned stream, or None
    """

    id: OpId
    name: str
    gpu: bool
    action: Action
    op: Op | None = None
    message: int | None = None
    share: int | None = None
    staged: Staged | None = None
    copy_in: tuple[Staged, ...] = ()
    copy_out: tuple[Staged, ...] = ()
    stream: int | None = None
    span: Span = field(default=NOWHERE, compare=False)

    @property
    def kernel(self) -> KernelOp | None:
        """The call of a kernel that it is, if it is one."""
        return self.op if isinstance(self.op, KernelOp) else None

    @property
    def placed(self) -> bool:
        """Whether its device is chosen when the program runs, or is a further GPU: neither is captured."""
        return self.kernel is not None and (self.kernel.placed or self.kernel.elsewhere)

    @property
    def sends(self) -> bool:
        """Whether its stream has a part of messages: it moves or stages them, or is a kernel that writes or awaits
        them."""
        kernel, moves = self.kernel, (Action.STAGE_OUT, Action.STAGE_IN, Action.GROUP, Action.FREE)
        own = kernel is not None and bool(kernel.puts or kernel.awaits)
        return self.gpu and (own or self.action in moves or bool(self.copy_in or self.copy_out))

    @property
    def comm(self) -> str:
        """The name of the communicator of an exchange or a collective; "" for all ranks of the program."""
        return self.op.comm if isinstance(self.op, ExchangeOp | CollectiveOp) else ""

    @property
    def transport(self) -> Transport | None:
        """That of an exchange or a collective."""
        return self.op.transport if isinstance(self.op, ExchangeOp | CollectiveOp) else None

    @property
    def pairs(self) -> Pairs:
        """Those whose messages it moves, of an exchange or a collective."""
        return self.op.pairs if isinstance(self.op, ExchangeOp | CollectiveOp) else Pairs.ALL

    @property
    def messages(self) -> tuple[tuple[int, Message], ...]:
        """The messages of an exchange that it serves, with their numbers: one, or all."""
        every = tuple(enumerate(self.op.messages)) if isinstance(self.op, ExchangeOp) else ()
        return every if self.message is None else (every[self.message],)

    @property
    def serves(self) -> tuple[int | None, int | None]:
        """The message and the share of it, equal for a post and its wait."""
        return self.message, self.share

    @property
    def regions(self) -> tuple[Region, ...]:
        """What a post of messages sends or receives into, or a wait has received."""
        sends = self.action is Action.POST_SEND
        return tuple(message.region(sends, self.share) for _, message in self.messages)

    @property
    def in_worker(self) -> bool:
        """Whether it is an op of the CPU that a worker thread runs."""
        kernel = self.kernel
        return kernel is not None and kernel.worker and kernel.device is Device.CPU and not kernel.placed


@dataclass(frozen=True, slots=True)
class Touch:
    """One access and how long it lasts: from the start of op `begin` to the completion of op `end`.

    They differ only for messages: a send buffer is read from its post to its wait.
    `staged`: it accesses the staging buffer of the region, not the array itself.
    """

    begin: OpId
    end: OpId
    region: Region
    mode: Mode
    staged: bool = False


@dataclass(frozen=True, slots=True)
class Graph:
    """`completion` and `order` are pairs (u, v) with u != v; `order` is issue order only.

    transport  of the messages that have none of their own
    streams    how many streams a traversal may use
    staged     regions of device arrays that messages use, each with a staging buffer of its own (mpi_host)
    touches    every access of every op, for hazards
    hazards    pairs of indices into `touches` that conflict, first before second
    matches    (wait, post) pairs: the wait may only be issued after the post (every rank issues the same traversal)
    folding    its meaning, if it has one period of each loop in place of all; `touches` and `hazards`, which
               only proofs need, are empty then
    phases     of the graph that runs, if one kernel repeats it: the ops between two waits of all its blocks, in order
    """

    program: Program
    transport: Transport
    staging: Staging
    streams: int
    ops: tuple[GraphOp, ...]
    completion: tuple[tuple[OpId, OpId], ...]
    order: tuple[tuple[OpId, OpId], ...]
    staged: tuple[Region, ...]
    touches: tuple[Touch, ...]
    hazards: tuple[tuple[int, int], ...]
    matches: tuple[tuple[OpId, OpId], ...]
    folding: Folding | None = None
    phases: tuple[tuple[OpId, ...], ...] = ()

    @property
    def transports(self) -> str:
        """`transport=peer collectives=nccl`: that of all messages, and what differs from it."""
        named = (COLLECTIVES, WITHIN_HOST)
        others = [d for d in self.program.decisions if d.name in named or d.name.endswith(f".{TRANSPORT}")]
        words = [f"{d.name}={d.chosen}" for d in others if d.chosen != SAME]
        return " ".join([f"{TRANSPORT}={self.transport.value}", *words])

    @property
    def unrolled(self) -> Graph:
        """The graph that runs: with every round of every loop."""
        return self if self.folding is None else self.folding.unrolled

    def by_name(self, name: str) -> GraphOp:
        """Raises KeyError if there is none of that name."""
        for op in self.ops:
            if op.name == name:
                return op
        raise KeyError(name)


# ---- folded loops ----


@dataclass(frozen=True, slots=True)
class Segment:
    """Ops of a folded graph that are all issued before those of the next segment.

    ops      ascending; all of a loop's period, or those between two loops
    rounds   per round of the loop the op of the unrolled graph that each of `ops` stands for; one round where `loop` is
             false
    carried  (u, v, distance): v starts after u of this many rounds earlier has completed
    values   of the loop's `variable`, per round that of its first turn
    """

    loop: bool
    ops: tuple[OpId, ...]
    rounds: tuple[tuple[OpId, ...], ...]
    carried: tuple[tuple[OpId, OpId, int], ...] = ()
    variable: str = ""
    values: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Folding:
    """How a folded graph becomes the unrolled one.

    `crossing`: pairs (u, v) of ops of the folded graph in different segments, of which some instance of v starts after
    some instance of u has completed.
    """

    unrolled: Graph
    segments: tuple[Segment, ...]
    crossing: tuple[tuple[OpId, OpId], ...]


def folded_name(names: Sequence[str], values: Sequence[int], variable: str) -> str:
    """`inner[t]` for `inner[0]`, `inner[1]`, ...: a number that follows the loop variable is written as that.

    `values`: of the variable for each of the names.
    """
    words = [re.split(r"(\d+)", name) for name in names]
    if len({(len(w), *w[::2]) for w in words}) > 1:
        return f"{names[0]}.."
    out = []
    for place, word in enumerate(words[0]):
        column = [w[place] for w in words]
        if place % 2 == 0 or len(set(column)) == 1:
            out.append(word)
            continue
        numbers = [int(text) for text in column]
        offset = numbers[0] - values[0]
        if any(number - value != offset for number, value in zip(numbers, values, strict=True)):
            out.append(f"{word}..")
        else:
            out.append(f"{variable}{offset:+d}" if offset else variable)
    return "".join(out)
