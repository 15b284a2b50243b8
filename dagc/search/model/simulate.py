"""A simulation of one iteration: the CPU issues entry by entry, streams are queues, messages take a while.

Every time is a sum of costs along the path that it waited for, so it comes with the number of times that each cost lies
on that path. That makes fitting the costs to measurements a sequence of linear problems (`dagc.search.model.fit`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from dagc.graph import Action, Graph
from dagc.results import Configuration
from dagc.traversal import Issue, Record, Sync, Traversal, Wait

if TYPE_CHECKING:
    import numpy as np

# Microseconds, before anything is measured: a current GPU and a current CPU (launch 4 us, record 0.3 us).
PRIOR = {
    "launch": 3.5, "latency": 2.0, "record": 0.3, "sync": 2.0, "post": 1.5, "wait": 0.5, "cpu": 1.0, "graph": 4.0,
    "node": 0.8, "message": 12.0, "stage": 8.0, "copy": 5.0, "kernel": 5.0, "group": 10.0, "iteration": 1.0,
}  # fmt: skip


@dataclass(slots=True)
class Costs:
    """The costs that can occur, by name; `prior` in microseconds. One table for all configurations of a domain."""

    numbers: dict[str, int] = field(default_factory=dict)
    prior: list[float] = field(default_factory=list)

    def number(self, kind: str, what: str = "") -> int:
        """The number of a cost; `what` tells equal kinds apart (the name of an op)."""
        name = f"{kind} {what}".strip()
        if name not in self.numbers:
            self.numbers[name] = len(self.prior)
            self.prior.append(PRIOR[kind])
        return self.numbers[name]


# The costs (by number, repeated) that a time is the sum of, as a linked list: lists share their tails. Plain tuples: a
# search makes millions of them.
Path: TypeAlias = "tuple[int, Path] | None"
# Microseconds, and their path.
Moment: TypeAlias = tuple[float, Path]


class Simulator:
    """Simulates traversals of one configuration under given costs."""

    def __init__(self, graph: Graph, configuration: Configuration, costs: Costs) -> None:
        self.graph = graph
        self.captured = configuration.get("capture") is True
        transport = graph.transport.value
        self.costs = costs
        self._iteration = costs.number("iteration", configuration.text)
        self._launch, self._latency = costs.number("launch"), costs.number("latency")
        self._record, self._sync = costs.number("record"), costs.number("sync")
        self._graph, self._node = costs.number("graph"), costs.number("node")
        self._ops = [self._cost_of(op, transport, configuration) for op in graph.ops]
        self._posts = [i for i, op in enumerate(graph.ops) if op.action in _POSTS]

    def _cost_of(self, op: object, transport: str, configuration: Configuration) -> tuple[int, ...]:
        """Costs of an op: of a GPU op its duration; of a wait the call, and the time that the message takes."""
        from dagc.graph import GraphOp

        assert isinstance(op, GraphOp)
        base = op.name.split("[")[0]
        chosen = " ".join(f"{v}" for n, v in configuration.decisions if n.startswith(f"{base}."))
        number = self.costs.number
        if op.gpu:
            kind = {Action.COPY: "copy", Action.STAGE_OUT: "stage", Action.STAGE_IN: "stage", Action.GROUP: "group"}
            out = [
                number(
                    kind.get(op.action, "kernel"), f"{base} {chosen} {transport if op.action is Action.GROUP else ''}"
                )
            ]
            return (*out, *(number("stage", array) for array in (*op.copy_in, *op.copy_out)))
        if op.action in _POSTS:
            return (number("post", transport),)
        if op.action in _WAITS:
            return number("wait", transport), number("message", f"{transport} {base}")
        return () if op.action is Action.END else (number("cpu", base),)

    def run(self, traversal: Traversal, costs: Sequence[float]) -> Moment:
        """When the iteration ends, in microseconds."""
        now = _add((0.0, None), costs, self._iteration)
        streams: dict[int, Moment] = {}
        events: dict[int, Moment] = {}
        posted: Moment = (0.0, None)
        stretch = False
        for entry in traversal.entries:
            on_gpu = not isinstance(entry, Sync) and entry.stream is not None
            if on_gpu and self.captured and not stretch:
                now = _add(now, costs, self._graph)
            stretch = on_gpu
            match entry:
                case Issue(op, None):
                    numbers = self._ops[op]
                    action = self.graph.ops[op].action
                    if action in _POSTS:
                        now = posted = _add(now, costs, *numbers)
                    elif action in _WAITS:
                        now = _add(_later(now, _add(posted, costs, numbers[1])), costs, numbers[0])
                    else:
                        now = _add(now, costs, *numbers)
                case Issue(op, stream) if stream is not None:
                    if self.captured:
                        ready = _add(now, costs, self._node)
                    else:
                        now = _add(now, costs, self._launch)
                        ready = _add(now, costs, self._latency)
                    start = _later(streams.get(stream, now), ready)
                    streams[stream] = _add(start, costs, *self._ops[op])
                case Record(event, stream):
                    now = now if self.captured else _add(now, costs, self._record)
                    events[event] = _later(streams.get(stream, now), now)
                case Wait(event, stream):
                    now = now if self.captured else _add(now, costs, self._record)
                    streams[stream] = _later(streams.get(stream, now), events[event])
                case Sync(event):
                    now = _add(_later(now, events[event]), costs, self._sync)
        return now


_POSTS = (Action.POST_SEND, Action.POST_RECV, Action.POST_COLLECTIVE)
_WAITS = (Action.WAIT_SEND, Action.WAIT_RECV, Action.WAIT_COLLECTIVE)


def _add(moment: Moment, costs: Sequence[float], *numbers: int) -> Moment:
    at, path = moment
    for number in numbers:
        at += costs[number]
        path = (number, path)
    return at, path


def _later(a: Moment, b: Moment) -> Moment:
    return b if b[0] > a[0] else a


def counts(paths: Iterable[Path], width: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """How often each cost lies on each path; shape (paths, width)."""
    import numpy as np

    listed = list(paths)
    out = np.zeros((len(listed), width))
    for row, path in enumerate(listed):
        while path is not None:
            number, path = path
            out[row, number] += 1
    return out
