"""`explore --simulate`: times that SimGrid predicts for many ranks, from what recorded traces say of single entries.

An actor simulates the CPU of each rank, and one each of its streams (`templates/simgrid/simulate.cpp`). Calls, kernels
and copies take the times of the traces in the results file (`traced.py`), messages what the platform gives. Work that
fills a GPU delays later kernels on other streams; else streams of a rank do not slow each other down.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import TimeoutExpired
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias
from xml.etree import ElementTree as ET

from dagc.base import children
from dagc.base.errors import DagcError, MissingTool, RunFailed, UsageError, counted
from dagc.base.resources import resource
from dagc.base.sample import Sample
from dagc.base.signals import ENDLESS, Deadline
from dagc.build.builder import Build, build
from dagc.build.toolchain import has_library
from dagc.ir.enums import Pairs, Transport
from dagc.ir.program import (
    FIRST_OF_HOST,
    Action,
    CollectiveKind,
    CollectiveOp,
    CopyOp,
    ExchangeOp,
    Graph,
    GraphOp,
    KernelOp,
    Message,
    Program,
    Setup,
    Share,
    Value,
    blocks,
    shown,
)
from dagc.ir.sym import evaluate
from dagc.lab.candidate import Candidate
from dagc.lab.engine import Summary
from dagc.lab.orders import Orders
from dagc.perf.bound import bytes_of, runs
from dagc.setup import values_of_ranks
from dagc.space.loops import unroll
from dagc.store.results import Results
from dagc.study.decisions import SearchRequest
from dagc.study.traced import EntryTimes, is_shared, without_indices

SHOWN = 6  # ranks of a cycle of waits
ROUNDS, MESSAGES = 4, 250_000  # iterations of each traversal, fewer where they would have more messages
SLOW, EACH = 5.0, 25e-6  # what is announced, and of each message: seconds
INSTALL = "apt-get install libsimgrid-dev"
_KINDS = {
    Action.POST_SEND: "send", Action.POST_RECV: "receive", Action.WAIT_SEND: "sent", Action.WAIT_RECV: "received",
    Action.GROUP: "exchange", Action.POST_COLLECTIVE: "begin", Action.WAIT_COLLECTIVE: "end",
}  # fmt: skip
EAGER = 65536  # bytes up to which an allreduce sends all in each round
Scalars: TypeAlias = Mapping[str, Any]


class Factors(NamedTuple):
    """How many times what traces and the platform say calls of the CPU, work, and bytes of messages count."""

    calls: float = 1.0
    work: float = 1.0
    messages: float = 1.0

    @property
    def line(self) -> str:
        return f"factors {self.calls:.9g} {self.work:.9g} {self.messages:.9g}"


@dataclass(slots=True)
class SimulatedMachine:
    """Measures candidates by the simulation of `ranks` ranks on a platform."""

    domain: Orders
    platform: Path
    simulator: Path
    problem: Path
    missing: dict[int, str]  # spaces that are not simulated, and why
    factors: Factors = Factors()
    deadline: Deadline = ENDLESS
    seconds: dict[Candidate, float] = field(default_factory=dict)

    def measure(self, candidate: Candidate) -> Sample:
        """Always the same value. Ranks that wait for each other for ever are a failure, with the cycle, and so is what
        is not predicted before the deadline."""
        if candidate.space in self.missing:
            return Sample(failure=self.missing[candidate.space])
        if candidate not in self.seconds:
            try:
                (self.seconds[candidate],) = self.run([self.line(candidate)])
            except RunFailed as why:
                return Sample(failure=why.first)
        return Sample(self.seconds[candidate], iterations=1)

    def line(self, candidate: Candidate) -> str:
        """Its traversal, for `run`."""
        _, traversal = unroll(self.domain.spaces[candidate.space].graph, candidate.traversal)
        return f"{candidate.space} " + ";".join(" ".join(map(str, entry.row)) for entry in traversal.entries)

    def run(self, lines: Sequence[str], factors: Sequence[Factors] = ()) -> list[float]:
        """Seconds of an iteration of each traversal, all with each of the factors in turn, else with those of the
        machine; raises as `hosts`, and RunFailed if ranks wait for each other."""
        every = [text for one in factors or (self.factors,) for text in (one.line, *lines)]
        return [float(line.split()[0]) for line in self._answers(every)]

    def hosts(self) -> list[int]:
        """The first rank on the host of each rank. Raises UsageError for a platform that SimGrid refuses."""
        return [int(word) for word in self._answers(["hosts"])[0].split()]

    def ranks(self, space: int) -> list[int]:
        """The rank of each process for the fewest bytes between hosts, by the messages of a space."""
        return [int(word) for word in self._answers([f"near {space}"])[0].split()]

    def _answers(self, lines: Sequence[str]) -> list[str]:
        command: list[str | Path] = [self.simulator, self.platform, self.problem, "--log=root.thres:error"]
        try:
            text = "".join(f"{line}\n" for line in lines)
            done = children.run(command, text=text, seconds=self.deadline.timeout)
        except TimeoutExpired:
            raise RunFailed(OUT_OF_TIME) from None
        out = done.stdout.splitlines()
        if len(out) == sum(not line.startswith("factors") for line in lines) and done.returncode == 0:
            return out
        if out and out[-1].startswith("deadlock"):
            raise RunFailed(deadlock_text(out[-1]))
        said = [_BEFORE.sub("", line) for line in done.stderr.splitlines() if line.strip()]
        raise UsageError(f"SimGrid cannot use {self.platform}: {said[0] if said else 'it says nothing'}", _PLATFORM)


def deadlock_text(line: str) -> str:
    """What the simulator says of ranks that wait for ever, in words: `deadlock RANK PEER MESSAGE EXCHANGE; ...`."""
    steps = [step.split() for step in line.removeprefix("deadlock").split(";") if step.strip()]
    waits = [
        f"rank {rank} waits for rank {peer} (`{exchange}`, message {int(m) + 1})" for rank, peer, m, exchange in steps
    ]
    if len(waits) > SHOWN:
        waits[SHOWN - 1 : -1] = [f"... ({len(waits) - SHOWN} more)"]
    if steps[-1][1] != steps[0][0]:
        return f"deadlock: {', '.join(waits)}, which has ended"
    return f"deadlock of {counted(len(steps), 'rank')} in a cycle: {', '.join(waits)}"


OUT_OF_TIME = "not predicted within --time"


class Late(UsageError):
    """The set-up takes longer than the command may."""


_BEFORE = re.compile(
    r"^\[[^\]]*\] .*?\[[^\]]*\] "
)  # of a message of SimGrid: the time, the place in its code, the category
_PLATFORM = "write one with `dagc platform -n RANKS`, or as https://simgrid.org/doc/latest/Platform.html describes"


def simulated(
    request: SearchRequest, program: Program, domain: Orders, results: Results, scratch: Path
) -> SimulatedMachine:
    """Runs the set-up for all ranks. Raises DagcErrors: without SimGrid, for a platform that cannot be used, and for
    set-ups that all refuse."""
    options, ranks, deadline = request.options, request.options.ranks, request.deadline
    scratch.mkdir(exist_ok=True)
    platform, problem = readable(Path(str(options.simulate))), scratch / "problem"
    machine = SimulatedMachine(domain, platform, compiled(scratch), problem, {})
    machine.problem.write_text(problem_text((), EntryTimes({}, {}), [[{}] * ranks]))
    hosts = machine.hosts()
    machine.deadline = deadline
    times, graphs = EntryTimes.of(domain, results), [space.graph.unrolled for space in domain.spaces]
    known: dict[Setup | None, list[Scalars] | DagcError] = {}
    total = ranks * len({graph.program.setup for graph in graphs})
    with request.display.phase("setting up the ranks", total, "rank") as phase:

        def advance() -> None:
            phase.advance()
            if deadline.over:
                help = "allow more; arrays that the set-up returns as functions are not computed here"
                raise Late(f"--time is over while {counted(ranks, 'rank')} are set up", help)

        for one in (graph.program for graph in graphs):
            if one.setup not in known:
                known[one.setup] = _scalars(one, request, advance)
    every = [known[graph.program.setup] for graph in graphs]
    refused = [error for error in every if isinstance(error, DagcError)]
    if len(refused) == len(every):
        raise refused[0]
    scalars = [[] if isinstance(values, DagcError) else values for values in every]
    text = problem_text(graphs, times, scalars, hosts=hosts)
    number = most_messages(text)
    rounds = max(1, min(ROUNDS, MESSAGES // max(1, number)))
    if number * rounds * EACH > SLOW:
        said = f"{counted(rounds, 'iteration')} of {counted(number, 'message')}"
        request.display.say(f"each prediction simulates {said}: about {number * rounds * EACH:.0f} s")
    machine.problem.write_text(text.replace(f"rounds {ROUNDS}\n", f"rounds {rounds}\n", 1))
    near = {i: machine.ranks(i) for i, g in enumerate(graphs) if g.program.orders_ranks and scalars[i]}
    if near:
        machine.problem.write_text(problem_text(graphs, times, scalars, rounds, hosts=hosts, orders=near))
    for index, (graph, values) in enumerate(zip(graphs, every, strict=True)):
        if isinstance(values, DagcError):
            machine.missing[index] = values.first
        elif (lacking := _without_time(graph, times)) is not None:
            machine.missing[index] = f"no recorded trace has op `{lacking}`"
    return machine


def _scalars(program: Program, request: SearchRequest, done: Callable[[], None]) -> list[Scalars] | DagcError:
    """Those of each rank, with the params; why the set-up refuses them."""
    messages = [m for op in program.ops if isinstance(op, ExchangeOp | CollectiveOp) for m in op.messages]
    ends = [end for message in messages for send in (True, False) for end in message.end(send)[1:]]
    names = {name for name in ends if isinstance(name, str) and name}  # of ranks and counts in arrays
    options, folder = request.options, request.text.path.parent
    try:
        every = values_of_ranks(program, folder, options.ranks, options.seed, names, done)
    except Late:
        raise
    except DagcError as error:
        return error
    return [{**program.param_values, **values} for values in every]


@dataclass(frozen=True, slots=True)
class ScaleStep:
    """A search for a number of ranks."""

    ranks: int
    machine: SimulatedMachine
    done: Summary[Candidate]


def scaling(domain: Orders, steps: Sequence[ScaleStep]) -> tuple[str, ...]:
    """A table by number of ranks: the time of the best; the time of the first number as a share of it; what the best of
    the first number loses; and the decisions that differ from those of the number before."""
    rows = [("ranks", "us", "of the first", "its best loses", "fastest")]
    first, before = steps[0].done, dict[str, Value]()
    for step in steps:
        done = step.done
        if done.best is None:
            rows.append((str(step.ranks), "-", "-", "-", "; ".join(reason for reason, _ in done.reasons[:1])))
            continue
        chosen = dict(domain.configuration(done.best).decisions)
        new = [f"{name}={shown(value)}" for name, value in chosen.items() if before.get(name) != value]
        again = step.machine.measure(first.best) if first.best is not None else Sample(failure="there is none")
        loss = "not possible" if again.failure else f"{again.value / done.value - 1:.1%}"
        share = f"{first.value / done.value:.1%}"
        rows.append((str(step.ranks), f"{done.value * 1e6:.2f}", share, loss, " ".join(new) or "the same decisions"))
        before = chosen
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    return tuple("  ".join([*(f"{c:>{w}}" for c, w in zip(row, widths, strict=False)), row[-1]]) for row in rows)


def problem_text(
    graphs: Sequence[Graph],
    times: EntryTimes,
    scalars: Sequence[Sequence[Scalars]],
    rounds: int = ROUNDS,
    hosts: Sequence[int] = (),
    orders: Mapping[int, Sequence[int]] = MappingProxyType({}),
) -> str:
    """What the simulator reads. `scalars`: by graph, of each rank, with the params; `hosts`: the first process on the
    host of each; `orders`: by the number of a graph, the rank of each process, where it has not that of its number."""
    ranks = max(map(len, scalars))
    lines = [f"ranks {ranks} rounds {rounds}", f"calls {_seconds(times, 'record', 'wait', 'sync')}"]
    lines.append(f"wakes {times.stream_wakes:.9g} {times.cpu_wakes:.9g}")
    number = 0
    for index, (graph, of_ranks) in enumerate(zip(graphs, scalars, strict=False)):
        order = orders.get(index, ())
        values, groups = with_communicators(graph.program, of_ranks, _by_rank(hosts or range(ranks), order))
        numbered: dict[str, list[tuple[int, list[int]]]] = {}
        for name, of_name in groups.items():
            numbered[name] = list(enumerate(of_name, number))
            number += len(of_name)
            lines += [f"group {len(group)} {' '.join(map(str, group))}" for group in of_name]
        lines += [
            "space",
            *([f"order {' '.join(map(str, order))}"] if order else []),
            *(_sends(graph.program, of_ranks) if graph.program.orders_ranks else ()),
            *_ops(graph, times),
            *_of_ranks(graph, values, numbered),
        ]
    return "\n".join(lines) + "\n"


def most_messages(text: str) -> int:
    """How many messages an iteration of a space has, of that with the most."""
    out, members = 0, {"-1": int(text.split(maxsplit=2)[1])}
    for space in text.split("\nspace\n"):
        lines = space.splitlines()
        kinds = [line.split()[1] for line in lines if line.startswith("op ")]
        posts = [f"{n} " for n, kind in enumerate(kinds) if kind in ("send", "exchange", "begin")]
        sent, rounds = (tuple(f"{what} {post}" for post in posts) for what in ("message", "round"))
        number = sum(line.split(" ", 5)[4] != "-1" for line in lines if line.startswith(sent))
        number += sum(members[line.split(" ", 3)[2]] for line in lines if line.startswith(rounds))
        groups = (line.split(maxsplit=2)[1] for line in lines if line.startswith("group "))  # of the next space
        members |= {str(n): int(size) for n, size in enumerate(groups, len(members) - 1)}
        out = max(out, number)
    return out


def _by_rank(hosts: Sequence[int], order: Sequence[int]) -> Sequence[int]:
    """The first rank on the host of each rank."""
    if not order:
        return hosts
    first: dict[int, int] = {}
    return [first.setdefault(host, rank) for rank, host in sorted(zip(order, hosts, strict=True))]


def readable(path: Path) -> Path:
    """The platform file, if it is XML. Raises UsageError."""
    try:
        ET.parse(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", "give a platform file of SimGrid") from None
    except ET.ParseError as error:
        line, column = error.position
        raise UsageError(f"{path}:{line}:{column + 1}: not XML: {str(error).partition(':')[0]}", _PLATFORM) from None
    return path.resolve()


def compiled(scratch: Path) -> Path:
    """The compiled simulator. Raises MissingTool without SimGrid."""
    if not has_library("simgrid"):
        raise MissingTool("--simulate needs SimGrid, which is not installed", INSTALL)
    source = scratch / "simulate.cpp"
    source.write_text(resource("templates/simgrid/simulate.cpp").read_text(encoding="utf-8"), encoding="utf-8")
    order = Build([source], include=(resource("templates/runtime"),), libraries=("simgrid",), warnings_as_errors=False)
    return build(order, scratch / "simulate")


def _without_time(graph: Graph, times: EntryTimes) -> str | None:
    """The first op that the traces do not have."""
    for op in graph.ops:
        on_stream = op.gpu and op.action is not Action.GROUP
        if op.action is not Action.END and (op.name not in times.calls or (on_stream and op.name not in times.work)):
            return op.name
    return None


def _seconds(times: EntryTimes, *names: str) -> str:
    return " ".join(f"{times.calls.get(name, 0.0):.9g}" for name in names)


def _ops(graph: Graph, times: EntryTimes) -> Iterator[str]:
    for op in graph.ops:
        blocking = isinstance(op.op, CopyOp) and blocks(graph.program, op.op)
        kind = _KINDS.get(op.action) or ("blocking" if blocking else _on_gpu(graph, op, times))
        call, work = times.calls.get(op.name, 0.0), times.work.get(op.name, 0.0)
        if blocking:
            call = 0.0  # the call lasts as long as the copy
        if op.action is Action.GROUP or op.action is Action.END:
            work = 0.0  # the messages alone
        if kind == "on_cpu":
            call, work = 0.0, call
        name = op.op.name.replace(" ", "") if op.op is not None else "-"
        name += "" if op.pairs is Pairs.ALL else f".{op.pairs.value}"
        mover = "cpu" if op.transport is Transport.MPI_HOST else "link"
        yield f"op {kind} {call:.9g} {work:.9g} {op.pairs.value} {mover} {name}"


def _on_gpu(graph: Graph, op: GraphOp, times: EntryTimes) -> str:
    if not op.gpu:
        return "on_cpu"
    if not is_shared(graph, op):
        return "on_stream"
    return "fills" if without_indices(op.name) in times.fills else "shares"


Groups: TypeAlias = Mapping[str, Sequence[tuple[int, Sequence[int]]]]  # by communicator, with their numbers


def with_communicators(
    program: Program, scalars: Sequence[Scalars], hosts: Sequence[int]
) -> tuple[list[dict[str, Any]], dict[str, list[list[int]]]]:
    """The values of each rank with its places in the communicators, those of hosts too; by name, the ranks of each."""
    out = [{**values, FIRST_OF_HOST: first} for values, first in zip(scalars, hosts, strict=False)]
    groups: dict[str, list[list[int]]] = {}
    for comm in (*program.comms, *program.host_comms):
        by_colour: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for rank, values in enumerate(out):
            values |= {comm.rank.name: -1, comm.ranks.name: 0}
            if (colour := int(evaluate(comm.colour, values))) >= 0:
                by_colour[colour].append((int(evaluate(comm.key, values)), rank))
        groups[comm.name] = [[rank for _, rank in sorted(members)] for members in by_colour.values()]
        for group in groups[comm.name]:
            for place, rank in enumerate(group):
                out[rank] |= {comm.rank.name: place, comm.ranks.name: len(group)}
    return out, groups


def _of_ranks(graph: Graph, scalars: Sequence[Scalars], groups: Groups) -> Iterator[str]:
    """The messages of each op and rank, and the ranks on which it does nothing."""
    for op in graph.ops:
        if op.kernel is not None and op.kernel.awaits:
            raise UsageError(f"`{op.name}`: kernels that wait for messages are not simulated", "predict put_wait=op")
        of_op = groups[op.comm] if op.comm else [(-1, range(len(scalars)))]
        if isinstance(op.op, CollectiveOp) and op.pairs is not Pairs.ALL and op.op.in_pairs and not op.op.messages:
            for _, members in of_op if scalars else ():
                yield from _each_to_each(graph.program, op, members, scalars)
        elif isinstance(op.op, CollectiveOp) and op.action in _KINDS and not op.op.messages:
            for number, members in of_op if scalars else ():
                given = [bytes_of(graph.program, r, scalars[members[0]]) for r in op.op.regions[-1:]]
                for distance, size in rounds_of(op.op.collective, max(given, default=0), len(members)):
                    yield f"round {op.id} {number} {distance} {size}"
        when = op.op.when if isinstance(op.op, KernelOp | CopyOp | CollectiveOp) else None
        messages = tuple(enumerate(op.op.messages)) if isinstance(op.op, CollectiveOp) else op.messages
        for rank, values in enumerate(scalars):
            if not runs(when, values):
                yield f"idle {op.id} {rank}"
        for rank, group in [(rank, of[1]) for of in of_op for rank in of[1]]:
            for number, message in messages if op.action in _KINDS else ():
                if runs(message.when, scalars[rank]) and runs(when, scalars[rank]):
                    place = None if op.share is None else message.region(op.action is Action.POST_SEND, op.share).share
                    for to, size, source in _ends(
                        graph.program, message, scalars[rank], group if op.comm else None, place
                    ):
                        yield f"message {op.id} {rank} {number} {to} {size} {source}"


def _sends(program: Program, scalars: Sequence[Scalars]) -> Iterator[str]:
    """What decides the order of the ranks, as in a program: each rank's messages in exchanges of all ranks."""
    exchanges = (op for op in program.ops if isinstance(op, ExchangeOp) and not op.comm)
    for message in (message for op in exchanges for message in op.messages):
        for rank, values in enumerate(scalars):
            ends = _ends(program, message, values, None) if runs(message.when, values) else ()
            yield from (f"sends {rank} {to} {size}" for to, size, _ in ends if to >= 0)


def _each_to_each(program: Program, op: GraphOp, members: Sequence[int], scalars: Sequence[Scalars]) -> Iterator[str]:
    """The messages of an allgather or alltoall; the simulator leaves those of the pairs of the op."""
    assert isinstance(op.op, CollectiveOp)
    parts = len(members) if op.op.collective is CollectiveKind.ALLTOALL else 1
    for rank in members if runs(op.op.when, scalars[members[0]]) else ():
        size = bytes_of(program, op.op.given, scalars[rank]) // parts
        yield from (f"message {op.id} {rank} 0 {other} {size} {other}" for other in members)


def _ends(
    program: Program, message: Message, values: Scalars, group: Sequence[int] | None, share: Share | None = None
) -> Iterator[tuple[int, int, int]]:
    """Receiver, bytes and sender: of a message both, with ranks in arrays one after the other, the other end -1.
    `group`: the ranks whose numbers in a communicator the peers are, if it is not that of all; `share`: of which of
    the peers."""
    if not isinstance(message.to, str) and not isinstance(message.source, str):
        to, source = (_member(group, int(evaluate(peer, values))) for peer in (message.to, message.source))
        yield to, bytes_of(program, message.send, values), source
        return
    for send in (True, False):
        region, peers, counts = message.end(send)
        size = program.array(region.array).type.size
        each = values[str(counts)]
        some = slice(None) if share is None else slice(share.first, share.stop)
        named = values[str(peers)] if peers else range(len(each))
        for peer, count in zip(named[some], each[some], strict=True):
            if count or peers:  # of an alltoallv most may be empty
                end = _member(group, int(peer))
                yield (end, int(count) * size, -1) if send else (-1, int(count) * size, end)


def _member(group: Sequence[int] | None, number: int) -> int:
    return number if group is None or number < 0 else group[number]


def rounds_of(kind: CollectiveKind, size: int, ranks: int) -> list[tuple[int, int]]:
    """Distance and bytes of the messages of each rank, round by round, of what it gives: the distance doubles (Hensgen,
    Finkel and Manber). Of a large sum or broadcast the ranks share the parts, and gather them (Rabenseifner). An
    alltoall sends half of it in each round (Bruck)."""
    distances = [1 << k for k in range((ranks - 1).bit_length())]
    match kind:
        case CollectiveKind.BARRIER:
            return [(d, 0) for d in distances]
        case CollectiveKind.ALLGATHER:
            return [(d, min(d, ranks - d) * size) for d in distances]
        case CollectiveKind.ALLTOALL:
            return [(d, size // 2) for d in distances]
    if size <= EAGER:
        return [(d, size) for d in distances]
    parts = [(d, size // (2 * d)) for d in distances]
    return [*parts, *reversed(parts)]
