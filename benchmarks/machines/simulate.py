"""A machine that executes traversals: an event-driven simulation of one rank, all ranks being alike.

It shares no code and no assumptions with the model of `dagc explore` (dagc.lab.model): kernels share the GPU or exclude
each other, streams have queues of limited depth, copies have engines of their own, messages are eager or rendezvous and
move with or without the help of the CPU, and some pairs of ops disturb each other. Times are in microseconds.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dagc.ir.choice import Choice
from dagc.ir.program import Action, Graph
from dagc.ir.traversal import Issue, Record, Traversal, Wait

_STAGED = (Action.COPY, Action.STAGE_IN, Action.STAGE_OUT)


@dataclass(frozen=True, slots=True)
class Machine:
    """Costs of one machine for one program.

    launch, record, wait  what the CPU takes to issue a kernel, an event record, a stream wait
    latency               from the issue of a kernel until it can start
    event                 from the completion of an event until a stream that waits for it goes on
    sync                  from the completion of an event until the CPU that waits for it goes on
    gap                   between two kernels of one stream
    depth                 entries that a stream's queue holds; the CPU waits where it is full
    exclusive             one kernel at a time; otherwise kernels share the GPU by their `demand` (1: all of it)
    engines               copies do not need the GPU's processors
    work, demand          per op: duration when alone, share of the GPU that it can use
    post, call            what the CPU takes to post, and to return from a wait for, a message
    network, bytes_us     latency of a message, and what it takes on the wire, per message
    eager                 the message leaves when it is posted; otherwise when both sides are ready
    progress              messages move by themselves; otherwise only while the CPU is in a wait
    serial                messages of a rank share the wire one after the other
    unexpected            cost of a message that came before its receive was posted, as a share of its time on the wire
    stage                 copy between device and host of a message, as a share of its time on the wire
    grouped               of an exchange as one GPU op: its share of the time on the wire, by transport
    graph, node           issue of a captured region, and of each entry in it on the GPU
    quirks                (op, other op, factor - 1): what the time is multiplied by where the first is issued first
    slowed                (op, other op) -> factor - 1: how much slower the first runs while the second does; of several
                          others the largest counts
    reused                (op, other op) -> share of its work that an op saves if the other was the last that started
                          before it
    disturbed             factor - 1: how much slower kernels run while a message moves, and a message that starts while
                          the GPU is busy
    heat, throttled       microseconds of work of all streams in an iteration, after which the GPU is slower by this
                          factor - 1
    """

    launch: float
    record: float
    wait: float
    latency: float
    event: float
    sync: float
    gap: float
    depth: int
    exclusive: bool
    engines: bool
    work: dict[str, float]
    demand: dict[str, float]
    post: float
    call: float
    network: float
    wire: float
    eager: bool
    progress: bool
    serial: bool
    unexpected: float
    stage: float
    grouped: dict[str, float]
    graph: float
    node: float
    quirks: tuple[tuple[str, str, float], ...]
    slowed: Mapping[tuple[str, str], float] = field(default_factory=dict)
    reused: Mapping[tuple[str, str], float] = field(default_factory=dict)
    disturbed: float = 0.0
    heat: float = math.inf
    throttled: float = 0.0


@dataclass(slots=True)
class _Item:
    """An entry in a stream's queue. `need` is the event that a wait waits for, `event` the one that a record sets."""

    arrival: float
    work: float = 0.0
    demand: float = 0.0  # 0: needs no processors (a copy engine)
    event: int = -1
    need: int = -1
    name: str = ""  # of the op


@dataclass(slots=True)
class _Gpu:
    machine: Machine
    now: float = 0.0
    queues: list[deque[_Item]] = field(default_factory=list)
    free: list[float] = field(default_factory=list)  # per stream: when its last kernel was done
    running: dict[int, list[float]] = field(default_factory=dict)  # stream -> [work left, demand]
    events: dict[int, float] = field(default_factory=dict)
    moving: list[tuple[float, float]] = field(default_factory=list)  # of messages: from, until
    last: str = ""  # the op that started last
    worked: float = 0.0  # of all streams

    def advance(self, until: float, event: int = -1, room: int = -1) -> float:
        """Run until this moment, or until the event is done (stream `room` has a free place); the moment reached."""
        machine, queues, running = self.machine, self.queues, self.running
        while True:
            following = self._start()
            if event in self.events:
                return self.events[event]
            if room >= 0 and len(queues[room]) < machine.depth:
                return self.now
            speeds = self._slowness()
            for stream, (left, _) in running.items():
                following = min(following, self.now + left * speeds[stream])
            if machine.disturbed and running:  # speeds change where messages begin or end to move
                following = min([following, *(t for span in self.moving for t in span if t > self.now + 1e-9)])
            if following > until:
                following = until
            if following == math.inf:
                return self.now  # nothing left to do
            passed = following - self.now
            for stream in list(running):
                state = running[stream]
                state[0] -= passed / speeds[stream]
                self.worked += passed
                if state[0] <= 1e-9:
                    del running[stream]
                    queues[stream].popleft()
                    self.free[stream] = following
            self.now = max(self.now, following)
            if self.now >= until:
                self._start()
                return self.now

    def _slowness(self) -> dict[int, float]:
        """How many times as long as alone what runs takes now, by stream."""
        machine, running = self.machine, self.running
        demand = sum(d for _, d in running.values())
        names = {stream: self.queues[stream][0].name for stream in running}
        common = 1.0 + machine.throttled * (self.worked > machine.heat)
        if machine.disturbed and any(begin <= self.now + 1e-9 < end for begin, end in self.moving):
            common += machine.disturbed
        out = {}
        for stream, (_, wanted) in running.items():
            others = (machine.slowed.get((names[stream], n), 0.0) for s, n in names.items() if s != stream)
            shared = demand if demand > 1.0 and wanted > 0.0 else 1.0
            out[stream] = shared * common * (1.0 + max(others, default=0.0))
        return out

    def _start(self) -> float:
        """Start and finish what can be now; when the next thing happens that is not the end of a kernel."""
        machine, now = self.machine, self.now + 1e-9
        again, following = True, math.inf
        while again:
            again, following = False, math.inf
            for stream, queue in enumerate(self.queues):
                while queue and stream not in self.running:
                    item = queue[0]
                    ready = item.arrival
                    if item.need >= 0:
                        done = self.events.get(item.need)
                        if done is None:
                            break
                        ready = max(ready, done + machine.event)
                    elif item.event < 0:
                        ready = max(ready, self.free[stream] + machine.gap)
                    if ready > now:
                        following = min(following, ready)
                        break
                    if item.need < 0 and item.event < 0:
                        if machine.exclusive and item.demand > 0 and any(d > 0 for _, d in self.running.values()):
                            break
                        saved = machine.reused.get((item.name, self.last), 0.0)
                        self.running[stream], self.last = [item.work * (1 - saved), item.demand], item.name
                        break
                    if item.event >= 0:
                        self.events[item.event] = max(self.now, self.free[stream])
                    queue.popleft()
                    again = True
        return following


@dataclass(slots=True)
class _Message:
    posted_send: float = math.inf
    posted_recv: float = math.inf
    done: float = math.inf


class Execution:
    """Traversals of one configuration on one machine."""

    def __init__(self, machine: Machine, graph: Graph, configuration: Choice) -> None:
        self.machine, self.graph = machine, graph
        self.captured = configuration.get("capture") is True
        self.ops = graph.ops
        self.kind = [op.name.split("[")[0] for op in graph.ops]
        self.places = {op.name: op.id for op in graph.ops}
        self.keys = [(id(op.op), op.message) for op in graph.ops]
        self.quirks = [
            (self.places[a], self.places[b], factor)
            for a, b, factor in machine.quirks
            if a in self.places and b in self.places
        ]

    def time(self, traversal: Traversal) -> float:
        """Microseconds of an iteration."""
        machine, captured = self.machine, False
        gpu = _Gpu(machine)
        for _ in range(self.graph.streams):
            gpu.queues.append(deque())
            gpu.free.append(-1e9)
        messages: dict[Any, _Message] = {}
        now, wire, events = 0.0, [0.0], 0
        for entry in traversal.entries:
            on_gpu = entry.stream is not None
            if self.captured and on_gpu and not captured:
                now += machine.graph
            captured = self.captured and on_gpu
            if entry.waits and entry.stream is None:
                now = max(now + machine.record, gpu.advance(math.inf, event=int(entry.event)) + machine.sync)
            elif isinstance(entry, Issue) and entry.stream is None:
                now = self._host(int(entry.op), now, messages, wire, gpu)
            else:
                stream = int(entry.stream)  # type: ignore[arg-type]
                if isinstance(entry, Issue):
                    cost, item = machine.launch, self._item(int(entry.op), now)
                elif isinstance(entry, Record):
                    cost, item = machine.record, _Item(now, event=events)
                    events += 1
                else:
                    assert isinstance(entry, Wait)
                    cost, item = machine.wait, _Item(now, need=int(entry.event))
                if captured:
                    item.arrival = now + machine.node
                else:
                    if len(gpu.queues[stream]) >= machine.depth:
                        gpu.advance(now)
                        now = max(now, gpu.advance(math.inf, room=stream))
                    now += cost
                    item.arrival = now + (machine.latency if isinstance(entry, Issue) else 0.0)
                gpu.queues[stream].append(item)
        return now * self._quirks(traversal)

    def _item(self, op: int, now: float) -> _Item:
        machine, at = self.machine, self.ops[op]
        name, kind = at.name, self.kind[op]
        if at.action is Action.GROUP:
            messages = len(getattr(at.op, "messages", ())) or 1
            work = machine.network + machine.grouped[self.graph.transport.value] * machine.wire * messages
            return _Item(now, work, 0.1, name=name)
        if at.action in (Action.STAGE_IN, Action.STAGE_OUT):
            return _Item(now, machine.stage * machine.wire + 1.0, 0.0 if machine.engines else 1.0, name=name)
        work = machine.work.get(name, machine.work.get(kind, 1.0))
        demand = machine.demand.get(name, machine.demand.get(kind, 1.0))
        if at.action is Action.COPY:
            return _Item(now, work, 0.0 if machine.engines else 1.0, name=name)
        staged = len(at.copy_in) + len(at.copy_out)
        return _Item(now, work + staged * (machine.stage * machine.wire + 1.0), demand, name=name)

    def _host(self, op: int, now: float, messages: dict[Any, _Message], wire: list[float], gpu: _Gpu) -> float:
        machine, at = self.machine, self.ops[op]
        action, key = at.action, self.keys[op]
        if action is Action.POST_RECV:
            messages.setdefault(key, _Message()).posted_recv = now + machine.post
            return now + machine.post
        if action is Action.POST_SEND:
            message = messages.setdefault(key, _Message())
            message.posted_send = now + machine.post
            if machine.eager:
                self._move(message, message.posted_send, wire, gpu)
            return now + machine.post
        if action is Action.WAIT_SEND:
            mine = [m for (owner, _), m in messages.items() if owner == key[0]]
            self._progress(mine, now, wire, gpu)
            if machine.eager:
                return now + machine.call
            return max(now, *(m.done for m in mine)) + machine.call
        if action is Action.WAIT_RECV:
            message = messages[key]
            self._progress([m for (owner, _), m in messages.items() if owner == key[0]], now, wire, gpu)
            late = machine.eager and message.posted_recv > message.done
            return max(now, message.done) + machine.call + late * machine.unexpected * machine.wire
        if action is Action.END:
            return max(now, gpu.advance(math.inf)) if any(gpu.queues) or gpu.running else now
        return now + machine.work.get(at.name, machine.work.get(self.kind[op], 1.0))

    def _progress(self, messages: list[_Message], now: float, wire: list[float], gpu: _Gpu) -> None:
        """The CPU is in a wait: rendezvous messages that both sides have posted move, or have moved by themselves."""
        if self.machine.eager:
            return
        waiting = [m for m in messages if m.done == math.inf and max(m.posted_send, m.posted_recv) < math.inf]
        for message in sorted(waiting, key=lambda m: max(m.posted_send, m.posted_recv)):
            ready = max(message.posted_send, message.posted_recv) + self.machine.network
            self._move(message, ready if self.machine.progress else max(now, ready), wire, gpu)

    def _move(self, message: _Message, start: float, wire: list[float], gpu: _Gpu) -> None:
        machine = self.machine
        begin = max(start, wire[0]) if machine.serial else start
        wire[0] = begin + machine.wire
        if machine.disturbed:
            gpu.advance(begin)
            wire[0] += machine.disturbed * machine.wire * bool(gpu.running)
            gpu.moving.append((begin, wire[0]))
        message.done = wire[0] + machine.network

    def _quirks(self, traversal: Traversal) -> float:
        if not self.quirks:
            return 1.0
        place = {int(e.op): i for i, e in enumerate(traversal.entries) if isinstance(e, Issue)}
        out = 1.0
        for first, second, factor in self.quirks:
            if place[first] < place[second]:
                out *= 1 + factor
        return out
