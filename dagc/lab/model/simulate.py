"""A simulation of one iteration: the CPU issues entries in order, streams are queues, messages have a duration.

A traversal becomes a list of instructions `moment[target] = max(moment[a] + cost, moment[b] + other cost)`, with one
moment for the CPU, each stream, each event and the last post. All traversals are simulated at once, instruction by
instruction, as arrays (`Batch`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import product
from math import isfinite
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from dagc.base.python import Array, Bools, Numbers, np
from dagc.choice.types import Site
from dagc.ir.choice import Choice
from dagc.ir.program import Action, CopyOp, Graph, GraphOp, OpId, blocks
from dagc.ir.traversal import Entry, Issue, Record, Traversal, Wait
from dagc.lab.settings import plausible

if TYPE_CHECKING:
    Own = Mapping[int, Array]


# Prior costs in seconds: a current GPU and a current CPU (launch 4 us, record 0.3 us).
PRIOR = {
    "launch": 3.5e-6, "latency": 2e-6, "record": 0.3e-6, "event": 1e-6, "query": 0.7e-6, "sync": 2e-6, "post": 1.5e-6,
    "wait": 0.5e-6, "cpu": 1e-6, "graph": 4e-6, "node": 0.8e-6, "worker": 8e-6, "message": 12e-6, "wire": 2e-6,
    "stage": 8e-6, "copy": 5e-6, "kernel": 5e-6, "group": 10e-6, "iteration": 1e-6,
}  # fmt: skip
WORK = frozenset(("cpu", "message", "wire", "stage", "copy", "kernel"))  # costs that grow with the problem size
SENT = frozenset(("message", "wire"))  # of messages


# Moments: the beginning, the CPU, the last post, when the wire is free, a temporary one, when the GPU is free; then
# those of streams, of received messages, of events.
_BEGIN, _NOW, _POSTED, _WIRE, _PASSING, _GPU, _STREAMS = range(7)
# Target, a, b, sums of the costs after a and after b (numbers in `Costs.sums`).
Instruction: TypeAlias = tuple[int, int, int, int, int]


@dataclass(slots=True)
class Costs:
    """All costs, by name; `prior` in seconds. One table for all configurations of a domain.

    sums           sums of costs that instructions add, each as indices of `prior`; the first is empty
    instructions   all instructions, by number; the first does nothing
    streams        labels of all configurations
    messages       the largest number of messages of a configuration
    timed          costs whose prior was measured
    apart          additional cost of one of several alike ops relative to their shared cost: cost -> shared cost
    scale          real ops per simulated op: rounds of loops beyond the first ones are not simulated
    """

    streams: int
    messages: int = 0
    numbers: dict[str, int] = field(default_factory=dict)
    prior: list[float] = field(default_factory=list)
    sums: dict[tuple[int, ...], int] = field(default_factory=lambda: {(): 0})
    scale: float = 1.0
    timed: set[int] = field(default_factory=set)
    apart: dict[int, int] = field(default_factory=dict)
    instructions: dict[Instruction, int] = field(default_factory=lambda: {(_PASSING, _BEGIN, _BEGIN, 0, 0): 0})

    def number(self, kind: str, what: str = "", prior: float | None = None) -> int:
        """The number of a cost; `what` distinguishes costs of one kind (the name of an op). `prior`: of this one, in
        seconds; None: that of its kind."""
        name = f"{kind} {what}".strip()
        if name not in self.numbers:
            self.numbers[name] = len(self.prior)
            self.prior.append((PRIOR[kind] if prior is None else prior) * self.scale)
        return self.numbers[name]

    def instruction(self, target: int, a: int, b: int, *costs: int) -> int:
        """The number of an instruction that adds these costs to both moments."""
        return self.joining(target, a, costs, b, costs)

    def joining(self, target: int, a: int, ours: tuple[int, ...], b: int, theirs: tuple[int, ...]) -> int:
        """The number of an instruction that adds `ours` to a, `theirs` to b."""
        sums = [self.sums.setdefault(costs, len(self.sums)) for costs in (ours, theirs)]
        return self.instructions.setdefault((target, a, b, sums[0], sums[1]), len(self.instructions))

    def work(self) -> list[bool]:
        """Which costs grow with the problem size; the others belong to the machine."""
        return [name.split()[0] in WORK and number not in self.timed for name, number in self.numbers.items()]

    def sent(self) -> list[bool]:
        """Which costs are of messages."""
        return [name.split()[0] in SENT for name in self.numbers]

    @property
    def moments(self) -> int:
        """The number of moments of the instructions."""
        return 1 + max(target for target, *_ in self.instructions)


class Transmission(Enum):
    """When a message of MPI moves."""

    POSTED = "posted"  # from the post of its send on (eager)
    MATCHED = "matched"  # from the later of both posts on (rendezvous)
    WAITED = "waited"  # while the CPU is in a wait (rendezvous, nothing moves outside MPI's calls)


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Properties that costs do not express. `exclusive`: the GPU executes one op at a time; otherwise streams do not
    slow each other down. `parallel`: messages move at the same time, each at full speed; otherwise one after the
    other."""

    messages: Transmission = Transmission.POSTED
    exclusive: bool = False
    parallel: bool = False

    @property
    def on_the_gpu(self) -> tuple[Assumptions, ...]:
        """The other assumption about the GPU, with the same one about messages."""
        return (replace(self, exclusive=not self.exclusive),)

    @property
    def on_messages(self) -> tuple[Assumptions, ...]:
        """The other assumptions about messages, and the same about the GPU."""
        others = (replace(self, messages=m, parallel=p) for m, p in product(Transmission, (False, True)))
        return tuple(other for other in others if other != self)


USUAL = Assumptions()


class Simulator:
    """Turns traversals of one configuration into instructions."""

    def __init__(
        self, graph: Graph, configuration: Choice, costs: Costs, sites: Sequence[Site] = (),
        assumptions: Assumptions = USUAL,
    ) -> None:  # fmt: skip
        """`sites`: the ops whose launch settings differ from candidate to candidate."""
        self.graph, self.assumptions = graph, assumptions
        self._sites = {site.name: site for site in sites}
        self.levels: dict[str, int] = {}  # of these ops, by base name: the number of the cost
        self.captured = configuration.get("capture") is True
        self.costs = costs
        self._iteration = costs.number("iteration", configuration.text)
        self._launch, self._latency = costs.number("launch"), costs.number("latency")
        self._record, self._event_seen = costs.number("record"), costs.number("event")
        self._query, self._sync = costs.number("query"), costs.number("sync")
        self._graph, self._node = costs.number("graph"), costs.number("node")
        bases = Counter(_base(op) for op in graph.ops)
        self._alike = {base for base, number in bases.items() if number > 1}
        copies = ((i, op.op) for i, op in enumerate(graph.ops) if isinstance(op.op, CopyOp))
        self._blocking = frozenset(i for i, op in copies if blocks(graph.program, op))  # never captured
        self._ops = [self._cost_of(op, configuration) for op in graph.ops]
        self._start = costs.instruction(_NOW, _BEGIN, _BEGIN, self._iteration)
        self._capture = costs.instruction(_NOW, _NOW, _NOW, self._graph)
        first = _STREAMS + costs.streams
        moments: dict[_Key | None, int] = {key: first + i for i, key in enumerate(messages_of(graph))}
        self._came = [moments.get(_message(op)) for op in graph.ops]
        pairs = zip(graph.ops, self._came, strict=True)
        self._asks_for_posts = any(op.action in _WAITS and came is None for op, came in pairs)
        sends = zip(graph.ops, self._came, self._ops, strict=True)
        moved = {came: costs[1:] for op, came, costs in sends if op.action is Action.POST_SEND and came}
        self._moving = self._movers()
        # Instructions of each message that does not move when it is posted, by the moment of its arrival.
        self._moved = {came: self._on_the_wire(came, *costs) for came, costs in moved.items()} if self._moving else {}
        self._known: dict[int, tuple[int, ...]] = {}  # by the code of the entry

    def _cost_of(self, op: GraphOp, configuration: Choice) -> tuple[int, ...]:
        """Costs of an op: the duration of a GPU op; the call of a wait, and the duration of the message."""
        transport = "" if op.transport is None else op.transport.value
        base = _base(op)
        site = self._sites.get(base)
        open_ = site.decisions if site is not None else ()
        of_op = ((n, v) for n, v in configuration.decisions if n.startswith(f"{base}.") and n not in open_)
        chosen = " ".join(f"{v}" for n, v in of_op if not n.endswith(".thread"))  # the work is the same in any
        number = self.costs.number
        if op.in_worker:
            return number("worker"), number("cpu", f"{base} {chosen}")
        if op.gpu:
            kind = {Action.COPY: "copy", Action.STAGE_OUT: "stage", Action.STAGE_IN: "stage"}
            kind |= {Action.GROUP: "group", Action.FREE: "group"}
            what = f"{base} {chosen} {transport if op.action in (Action.GROUP, Action.FREE) else ''}"
            what += " pageable" if isinstance(op.op, CopyOp) and blocks(self.graph.program, op.op) else ""
            prior = None
            if site is not None and site.prior and isfinite(site.prior[0]):
                prior = float(plausible(site.prior)[0])
            out = [number(kind.get(op.action, "kernel"), what, prior)]
            if site is not None:
                self.levels[base] = out[0]
                self.costs.timed |= {out[0]} if site.doubts else set()
            if base in self._alike:
                out.append(number("apart", f"{op.name} {what}", 0.0))
                self.costs.apart[out[1]] = out[0]
            return (*out, *(number("stage", staged.region.text) for staged in (*op.copy_in, *op.copy_out)))
        if op.action in _POSTS:
            if op.action is Action.POST_RECV:
                return (number("post", transport),)
            return number("post", transport), number("wire", f"{transport} {base}"), number("message", transport)
        if op.action in _WAITS:
            return number("wait", transport), number("message", f"{transport} {base}")
        return () if op.action is Action.END else (number("cpu", f"{base} {chosen}"),)

    def program(self, traversal: Traversal) -> list[int]:
        """Numbers of its instructions; after the last, moment `END` is the end of the iteration."""
        out = [self._start]
        known, captured, moving = self._known, False, self._moving
        waited = self.assumptions.messages is Transmission.WAITED  # then a message moves before the wait returns
        posts: dict[int, int] = {}  # of messages that have not moved, by the moment of their arrival
        for entry in traversal.entries:
            instructions = known.get(entry.code)
            if instructions is None:
                instructions = known[entry.code] = self._instructions(entry)
            if self.captured:
                on_gpu = entry.stream is not None and entry.op not in self._blocking
                if on_gpu and not captured:
                    out.append(self._capture)
                captured = on_gpu
            if entry.op in moving:
                moved = self._move(entry.op, posts)
                out += [*moved, *instructions] if waited else [*instructions, *moved]
            else:
                out += instructions
        return out

    def _movers(self) -> frozenset[OpId]:
        """The ops at which messages move (rendezvous): posts, and waits. None of them if messages move when posted."""
        if self.assumptions.messages is Transmission.POSTED:
            return frozenset()
        ops = zip(self.graph.ops, self._came, strict=True)
        return frozenset(op.id for op, came in ops if op.action in _WAITS or (op.action in _POSTS and came is not None))

    def _move(self, op: OpId, posts: dict[int, int]) -> list[int]:
        """The messages that move at a post or during a wait (rendezvous): those whose sides are both posted, in the
        order of the posts.

        Ranks are assumed equal: the other side of a message is posted when this rank posts its own.
        """
        action, came = self.graph.ops[op].action, self._came[op]
        if action in _POSTS and came is not None:
            posts[came] = posts.pop(came, 0) + 1
        out: list[int] = []
        if self.assumptions.messages is Transmission.MATCHED or action in _WAITS:
            for moment in [moment for moment, sides in posts.items() if sides == 2]:
                del posts[moment]
                out += self._moved[moment]
        return out

    def _on_the_wire(self, came: int, wire: int, message: int) -> tuple[int, ...]:
        """A message that moves now; at moment `_WIRE` all have left."""
        make = self.costs.instruction
        if self.assumptions.parallel:
            left = make(_PASSING, _NOW, _NOW, wire)
            return left, make(came, _PASSING, _PASSING, message), make(_WIRE, _WIRE, _PASSING)
        return make(_WIRE, _NOW, _WIRE, wire), make(came, _WIRE, _WIRE, message)

    def _instructions(self, entry: Entry) -> tuple[int, ...]:
        make, join = self.costs.instruction, self.costs.joining
        issue = () if self.captured else (make(_NOW, _NOW, _NOW, self._record),)
        match entry:
            case Issue(op, None):
                return self._of_cpu(op)
            case Issue(op, stream) if stream is not None:
                return self._on_stream(op, _STREAMS + stream)
            case Record(event, stream):
                return (*issue, make(self._event(event), _STREAMS + stream, _NOW))
            case Wait(event, stream) if stream is not None:
                queue = _STREAMS + stream
                return (*issue, join(queue, queue, (), self._event(event), (self._event_seen,)))
            case Wait(event, None):
                return (join(_NOW, _NOW, (self._query,), self._event(event), (self._sync,)),)
        raise AssertionError(entry)

    def _on_stream(self, op: int, queue: int) -> tuple[int, ...]:
        """`queue`: the moment of the stream."""
        make, join, numbers = self.costs.instruction, self.costs.joining, self._ops[op]
        blocking = op in self._blocking
        captured = self.captured and not blocking
        launch, begin = ((), self._node) if captured else ((make(_NOW, _NOW, _NOW, self._launch),), self._latency)
        if self.assumptions.exclusive:
            free = join(_PASSING, _NOW, (begin,), _GPU, ())
            done: tuple[int, ...] = (free, make(queue, queue, _PASSING, *numbers), make(_GPU, queue, queue))
        else:
            done = (join(queue, queue, numbers, _NOW, (begin, *numbers)),)
        return (*launch, *done, *((make(_NOW, _NOW, queue),) if blocking else ()))

    def _of_cpu(self, op: int) -> tuple[int, ...]:
        make, numbers, action = self.costs.instruction, self._ops[op], self.graph.ops[op].action
        if action in _WAITS:
            # Ranks are assumed equal: a message arrives some time after the same message of this rank was sent.
            call, message = numbers
            came = self._came[op]
            if came is not None:
                return (make(_NOW, _NOW, came, call),)
            return make(_PASSING, _WIRE, _POSTED, message), make(_NOW, _NOW, _PASSING, call)
        if action not in _POSTS:
            return (make(_NOW, _NOW, _NOW, *numbers),)
        posted = (make(_POSTED, _NOW, _NOW),) if self._asks_for_posts else ()
        done = (make(_NOW, _NOW, _NOW, numbers[0]), *posted)
        if action is Action.POST_RECV:
            return done
        came = self._came[op]
        if came is None:
            return (*done, make(_WIRE, _NOW, _WIRE, numbers[1]))
        eager = self.assumptions.messages is Transmission.POSTED
        return (*done, *self._on_the_wire(came, *numbers[1:])) if eager else done

    def _event(self, event: int) -> int:
        return _STREAMS + self.costs.streams + self.costs.messages + event


_Key: TypeAlias = tuple[str, int, int]  # of a message: exchange, number, share


def messages_of(graph: Graph) -> tuple[_Key, ...]:
    """The messages that a rank sends."""
    keys = (_message(op) for op in graph.ops if op.action is Action.POST_SEND)
    return tuple(dict.fromkeys(key for key in keys if key is not None))


def _base(op: GraphOp) -> str:
    """The common part of the names of alike ops: `pack` of `pack[2]`, `mv.pack` of `mv[0].pack`."""
    return op.kernel.base if op.kernel is not None else op.name.split("[")[0]


def _message(op: GraphOp) -> _Key | None:
    """The message that an op serves; number -1: those that one op posts together."""
    if op.op is None or (op.message is None and not op.action.of_messages):
        return None
    return op.op.name, -1 if op.message is None else op.message, op.share or 0


END = _NOW
_POSTS = (Action.POST_SEND, Action.POST_RECV, Action.POST_COLLECTIVE)
_WAITS = (Action.WAIT_SEND, Action.WAIT_RECV, Action.WAIT_COLLECTIVE)

# ---- many traversals at once ----


NO_OWN: Own = MappingProxyType({})
TOGETHER = 1 << 14  # instructions, of all columns, that are looked up at once: four arrays of this size fit in a cache


class Batch:
    """Programs (`Simulator.program`) in columns, padded with no-ops to equal length."""

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self._held: Numbers = np.zeros((0, 0), dtype=np.int64)  # instruction, traversal; with room for more of both
        self._lengths: list[int] = []  # of the columns
        self._added: list[Sequence[int]] = []  # the columns that are not in it yet
        self._table: Numbers = np.zeros((5, 0), dtype=np.int64)
        self._often: Array = np.zeros((0, 0))
        self._terms: Numbers = np.zeros((0, 1), dtype=np.int64)  # the costs in each sum, padded with one of 0

    def __len__(self) -> int:
        return len(self._lengths) + len(self._added)

    def extend(self, programs: Iterable[Sequence[int]]) -> None:
        """Add columns."""
        self._added += programs

    @property
    def programs(self) -> Numbers:
        """Shape (instructions, columns)."""
        if self._added:
            known, added = len(self._lengths), self._added
            self._lengths += map(len, added)
            longest, total = max(self._lengths), len(self._lengths)
            if longest > len(self._held) or total > self._held.shape[1]:
                self._held = _side_by_side([self._held], longest, 3 * total // 2)
            for column, program in enumerate(added, known):
                self._held[: len(program), column] = program
            self._added = []
        return self._held[:, : len(self._lengths)]

    def keep(self, columns: Numbers) -> None:
        """Drop all other columns."""
        programs = self.programs
        self._lengths = [self._lengths[column] for column in columns]
        self._held = programs[: max(self._lengths, default=0), columns]  # rows of those dropped alone go too

    @classmethod
    def joined(cls, parts: Sequence[tuple[Batch, Any]]) -> Batch:
        """Some columns of each of several batches, whose costs are one object."""
        programs = [batch.programs[:, columns] for batch, columns in parts]
        out = cls(parts[0][0].costs)
        width = sum(p.shape[1] for p in programs)
        out._held = programs[0] if len(parts) == 1 else _side_by_side(programs, max(map(len, programs)), width)
        out._lengths = [len(out._held)] * width
        return out

    def times(self, costs: Array, columns: Any = slice(None), own: Own = NO_OWN) -> Array:
        """When each iteration ends, in seconds, under these costs (one for each of `Costs.prior`).

        Costs of shape (parts, costs) are those of so many parts of the columns, one after the other and of equal size.
        `own`: costs that differ from column to column: their numbers, and an array for each.
        """
        return self._run(costs, self.programs[:, columns], own)[0]

    def paths(self, costs: Array, columns: Any = slice(None), own: Own = NO_OWN) -> tuple[Array, Array]:
        """As `times`, for some columns, with how often each cost lies on the critical path.

        Shapes (columns,) and (columns, costs); the product of the second with the costs is the first.
        """
        programs = self.programs[:, columns]
        target, a, b, ours, theirs = self._instructions
        times, later = self._run(costs, programs, own)
        won = np.where(later, b.take(programs), a.take(programs))  # which of the two moments set the target
        written, moment = target.take(programs), np.full(programs.shape[1], END)
        on_path = np.zeros(programs.shape, dtype=bool)
        for to, came, on in zip(written[::-1], won[::-1], on_path[::-1], strict=True):
            np.equal(to, moment, out=on)
            np.copyto(moment, came, where=on)
        sums, width = len(self.costs.sums), programs.shape[1]
        total = np.where(later, theirs.take(programs), ours.take(programs))
        cells = (np.arange(width) * sums + total)[on_path]
        often = np.bincount(cells, minlength=width * sums).reshape(width, sums).astype(np.float64)
        return times, often @ self._totals

    @property
    def _instructions(self) -> Numbers:
        """Of all instructions: target, a, b, both sums. The table only grows."""
        if self._table.shape[1] != len(self.costs.instructions):
            self._table = np.array(list(self.costs.instructions)).T
        return self._table

    @property
    def _totals(self) -> Array:
        """How often each cost is in each sum: shape (sums, costs)."""
        if self._often.shape != (len(self.costs.sums), len(self.costs.prior)):
            self._often = np.zeros((len(self.costs.sums), len(self.costs.prior)))
            for numbers, row in self.costs.sums.items():
                for number in numbers:
                    self._often[row, number] += 1
        return self._often

    def _sums(self, costs: Array) -> Array:
        """The sums of costs, of each part: shapes (parts, costs), (parts, sums)."""
        if len(self._terms) != len(self.costs.sums):
            most = max(map(len, self.costs.sums))
            self._terms = np.array([[*sorted(s), *[len(self.costs.prior)] * (most - len(s))] for s in self.costs.sums])
        terms = np.append(costs, np.zeros((len(costs), 1)), axis=1)
        # A fixed order of additions, whichever library multiplies matrices.
        return terms[:, self._terms].cumsum(axis=2)[:, :, -1]

    def _run(self, costs: Array, programs: Numbers, own: Own) -> tuple[Array, Bools]:
        """When each iteration ends; of each step, whether its second moment is later than the first.

        Of equal moments the first counts: waiting for an event that has already completed takes no time.
        """
        width = programs.shape[1]
        table = self._instructions
        costs = np.atleast_2d(costs)
        if own:
            costs = np.where(np.isin(np.arange(costs.shape[1]), list(own)), 0.0, costs)
        sums = self._sums(costs)[:, table[3:]]  # shape (parts, 2, instructions)
        part = np.repeat(np.arange(len(sums)) * sums[0].size, width // len(sums))
        column, later = np.arange(width), np.zeros(programs.shape, dtype=bool)
        moments = np.zeros(self.costs.moments * width)
        both = np.empty((2, width))
        one, other = both
        steps = max(1, TOGETHER // max(1, width))
        for begin in range(0, len(programs), steps):
            some = programs[begin : begin + steps]
            places = np.stack([some, some + table.shape[1]], axis=1)  # of both sides of each instruction in a table
            added = sums.take(places + part)
            for number, values in own.items():
                added += self._totals[table[3:], number].take(places) * values
            targets, sources = (table[0] * width).take(some) + column, (table[1:3] * width).take(places) + column
            for to, of, plus, is_later in zip(targets, sources, added, later[begin:], strict=False):
                moments.take(of, out=both, mode="clip")
                np.add(both, plus, out=both)
                np.greater(other, one, out=is_later)
                moments[to] = np.maximum(one, other, out=one)
        return moments[END * width : (END + 1) * width], later


def _side_by_side(parts: Sequence[Numbers], length: int, width: int) -> Numbers:
    """Columns of several tables in one of this shape, filled up with 0 below and at the end."""
    out: Numbers = np.zeros((length, width), dtype=np.int64)
    at = 0
    for part in parts:
        out[: part.shape[0], at : at + part.shape[1]] = part
        at += part.shape[1]
    return out
