"""A simulation of one iteration: the CPU issues entry by entry, streams are queues, messages take a while.

A traversal is translated once into a straight program over *moments* (of the CPU, of each stream, event and post). Each
instruction is `moment = max(moment a + cost, moment b + cost)`, so that thousands of traversals are simulated together,
under many assumptions about the costs at once. All ranks run the same traversal, so a partner has posted when one
has posted oneself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from dagc.graph import Action, Graph, GraphOp
from dagc.results import Configuration
from dagc.traversal import Issue, Record, Sync, Traversal, Wait

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

# What is assumed before anything is measured: microseconds (a current GPU and a current CPU), and how uncertain that is
# (standard deviation of the logarithm): what the driver does is known, what the program does is not.
PRIOR: dict[str, tuple[float, float]] = {
    "nothing": (0.0, 0.0),
    "iteration": (1.0, 0.5),  # the loop around, per configuration
    "launch": (3.5, 0.3),  # the CPU issues a kernel
    "latency": (2.0, 0.5),  # until the GPU has it
    "gap": (1.0, 0.5),  # between two kernels of one stream
    "record": (0.3, 0.5),  # the CPU issues a record, or a wait of a stream
    "hop": (1.0, 0.7),  # a stream goes on after an event of another
    "sync": (2.0, 0.5),  # the CPU goes on after an event
    "post": (1.5, 0.7),
    "wait": (1.0, 0.7),  # what a wait costs even where all has arrived
    "progress": (4.0, 1.0),  # what a message needs the CPU to be waiting for
    "message": (8.0, 1.0),  # what it does not
    "cpu": (1.0, 1.0),
    "kernel": (5.0, 1.0),
    "copy": (3.0, 0.7),
    "group": (10.0, 1.0),
    "graph": (5.0, 0.5),  # the CPU launches a captured stretch
    "node": (0.8, 0.5),  # a kernel in it starts
}

_POSTS = (Action.POST_SEND, Action.POST_RECV, Action.POST_COLLECTIVE)
_WAITS = (Action.WAIT_SEND, Action.WAIT_RECV, Action.WAIT_COLLECTIVE)

# Target, first source and its cost, second source and its cost.
Instruction: TypeAlias = tuple[int, int, int, int, int]
_SCRATCH, _CPU = 0, 1


@dataclass(slots=True)
class Costs:
    """The costs that can occur, by name: one table for all configurations of a domain. Number 0 costs nothing."""

    numbers: dict[str, int] = field(default_factory=lambda: {"nothing": 0})
    prior: list[float] = field(default_factory=lambda: [0.0])  # microseconds
    spread: list[float] = field(default_factory=lambda: [0.0])  # standard deviation of the logarithm

    def number(self, kind: str, what: str = "") -> int:
        """The number of a cost; `what` tells equal kinds apart (the name of an op)."""
        name = f"{kind} {what}".strip()
        if name not in self.numbers:
            self.numbers[name] = len(self.prior)
            self.prior.append(PRIOR[kind][0])
            self.spread.append(PRIOR[kind][1])
        return self.numbers[name]


class Translator:
    """Translates traversals of one configuration into instructions."""

    def __init__(self, graph: Graph, configuration: Configuration, costs: Costs) -> None:
        self.graph = graph
        self.captured = configuration.get("capture") is True
        number, transport = costs.number, graph.transport.value
        self.iteration = number("iteration", configuration.text)
        names = ("launch", "latency", "gap", "record", "hop", "sync", "graph", "node")
        self.cost = {name: number(name) for name in names}
        self.ops = [self._costs_of(op, transport, configuration, costs) for op in graph.ops]
        self.posts = [self._posts_of(op) for op in graph.ops]

    @staticmethod
    def _costs_of(op: GraphOp, transport: str, configuration: Configuration, costs: Costs) -> tuple[int, ...]:
        """Of a GPU op the parts of its duration; of a wait the call, the progress and the message; of others the call.

        Ops that a loop of the program made share their costs.
        """
        number, base = costs.number, op.name.split("[")[0]
        if op.gpu:
            chosen = "".join(f" {v}" for n, v in configuration.decisions if n.startswith(f"{base}."))
            copies = [number("copy", array.split("[")[0]) for array in (*op.copy_in, *op.copy_out)]
            if op.action in (Action.STAGE_OUT, Action.STAGE_IN):
                return (number("copy", (op.staged or base).split("[")[0]),)
            kind = "group" if op.action is Action.GROUP else "copy" if op.action is Action.COPY else "kernel"
            return (number(kind, f"{base}{chosen} {transport if kind == 'group' else ''}"), *copies)
        exchange = op.op.name.split("[")[0] if op.op is not None else base
        if op.action in _POSTS:
            return (number("post", f"{op.action.value} {transport}"),)
        if op.action in _WAITS:
            what = f"{op.action.value} {exchange} {transport}"
            return number("wait", f"{op.action.value} {transport}"), number("progress", what), number("message", what)
        return () if op.action is Action.END else (number("cpu", base),)

    def _posts_of(self, op: GraphOp) -> tuple[int, ...]:
        """The posts that a wait waits for: of its message, or of all messages of its exchange."""
        if op.action not in _WAITS:
            return ()
        return tuple(
            other.id
            for other in self.graph.ops
            if other.action in _POSTS and other.op is op.op and (op.message is None or other.message == op.message)
        )

    def translate(self, traversal: Traversal) -> list[Instruction]:
        """The instructions of one iteration; the moment of the CPU after the last is its time."""
        return _Translation(self).run(traversal)


class _Translation:
    """One traversal under translation: which moment stands for which stream, event and post."""

    def __init__(self, translator: Translator) -> None:
        self.t, self.cost = translator, translator.cost
        self.out: list[Instruction] = []
        self.moments: dict[tuple[str, int], int] = {}
        self.stretch = False

    def moment(self, kind: str, number: int) -> int:
        return self.moments.setdefault((kind, number), len(self.moments) + 2)

    def add(self, target: int, *costs: int) -> None:
        self.out += [(target, target, c, target, c) for c in costs]

    def later(self, target: int, a: int, cost_a: int, b: int, cost_b: int) -> None:
        self.out.append((target, a, cost_a, b, cost_b))

    def run(self, traversal: Traversal) -> list[Instruction]:
        self.add(_CPU, self.t.iteration)
        for entry in traversal.entries:
            on_gpu = not isinstance(entry, Sync) and entry.stream is not None
            if on_gpu and self.t.captured and not self.stretch:
                self.add(_CPU, self.cost["graph"])
            self.stretch = on_gpu
            match entry:
                case Issue(op, None):
                    self.host(op)
                case Issue(op, stream) if stream is not None:
                    self.gpu(op, self.moment("stream", stream))
                case Record(event, stream):
                    self.issue_record()
                    self.later(self.moment("event", event), self.moment("stream", stream), 0, _CPU, 0)
                case Wait(event, stream):
                    self.issue_record()
                    at = self.moment("stream", stream)
                    self.later(at, at, 0, self.moment("event", event), self.cost["hop"])
                case Sync(event):
                    self.later(_CPU, _CPU, 0, self.moment("event", event), 0)
                    self.add(_CPU, self.cost["sync"])
        return self.out

    def issue_record(self) -> None:
        if not self.t.captured:
            self.add(_CPU, self.cost["record"])

    def host(self, op: int) -> None:
        costs, posts = self.t.ops[op], self.t.posts[op]
        if not posts:
            self.add(_CPU, *costs)
            if self.t.graph.ops[op].action in _POSTS:
                self.later(self.moment("post", op), _CPU, 0, _CPU, 0)
            return
        call, progress, message = costs
        for post in posts:
            self.later(_CPU, _CPU, 0, self.moment("post", post), message)
        self.add(_CPU, call, progress)

    def gpu(self, op: int, stream: int) -> None:
        if self.t.captured:
            self.later(stream, stream, self.cost["node"], _CPU, self.cost["node"])
        else:
            self.add(_CPU, self.cost["launch"])
            self.later(stream, stream, self.cost["gap"], _CPU, self.cost["latency"])
        self.add(stream, *self.t.ops[op])


class Batch:
    """Translated traversals, simulated together."""

    CHUNK = 256  # traversals at a time: their moments fit into a cache

    def __init__(self, programs: Sequence[Sequence[Instruction]]) -> None:
        import numpy as np

        length = max((len(p) for p in programs), default=0)
        padding = (_SCRATCH, _SCRATCH, 0, _SCRATCH, 0)
        flat = [[*p, *[padding] * (length - len(p))] for p in programs]
        # Shape (5, length, traversals).
        self.code: Array = np.array(flat, np.int32).reshape(len(programs), length, 5).transpose(2, 1, 0).copy()
        self.moments = int(self.code[0].max(initial=1)) + 1

    def __len__(self) -> int:
        return int(self.code.shape[2])

    def run(self, costs: Array) -> Array:
        """Times in microseconds, shape (traversals, m), for m assumptions about the costs, shape (costs, m)."""
        import numpy as np

        costs = np.ascontiguousarray(costs, np.float32)
        out = np.empty((len(self), costs.shape[1]), np.float32)
        for begin in range(0, len(self), self.CHUNK):
            chunk = self.code[:, :, begin : begin + self.CHUNK]
            out[begin : begin + self.CHUNK] = self._run(chunk, costs)
        return out

    def _run(self, code: Array, costs: Array) -> Array:
        import numpy as np

        number = code.shape[2]
        columns = np.arange(number, dtype=np.int32)
        at = np.zeros((self.moments * number, costs.shape[1]), np.float32)
        for target, a, cost_a, b, cost_b in zip(*code, strict=True):
            first = at[a * number + columns] + costs[cost_a]
            at[target * number + columns] = np.maximum(first, at[b * number + columns] + costs[cost_b])
        return at[_CPU * number + columns]
