"""What recorded traces say of single entries of traversals, for `explore --simulate`."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import fmean, median

from dagc.base.errors import UsageError
from dagc.ir.choice import VARIANT, Choice, own_name
from dagc.ir.enums import Place
from dagc.ir.plan import Target
from dagc.ir.program import Action, CopyOp, ExchangeOp, Graph, GraphOp, KernelOp, shown
from dagc.ir.traversal import Entry, Record, Traversal, Wait
from dagc.lab.candidate import ConfiguredSpace
from dagc.lab.orders import Orders
from dagc.perf.bound import threads_of
from dagc.perf.footprint import Uncounted
from dagc.perf.hardware import load_hardware
from dagc.space.loops import unroll
from dagc.store.results import Results, TraceSpan
from dagc.study.limits import scalars_of

WAITS = (Action.WAIT_SEND, Action.WAIT_RECV, Action.WAIT_COLLECTIVE)
SHOWN = 6  # decisions in a message
SHORT = 0.5  # of the time in which two overlap: what ends so soon after the first has waited for it
_INDEX = re.compile(r"\[[^\]]*\]")


@dataclass(frozen=True, slots=True)
class EntryTimes:
    """Seconds of the entries of recorded traversals: of the CPU, by op, and by kind for those without one; of the work
    of each op on its stream. Medians over ranks and traces; of waits for messages the least of all, which has not
    waited, of posts of messages that of the op with the least.

    stream_wakes  until a stream goes on that has run out of work
    cpu_wakes     until the CPU goes on that waits for an event
    fills         ops whose work fills the GPU, without indices: other kernels that are ready later begin after it. They
                  launch more threads than the GPU holds, or traces show it
    """

    calls: Mapping[str, float]
    work: Mapping[str, float]
    stream_wakes: float = 0.0
    cpu_wakes: float = 0.0
    fills: frozenset[str] = frozenset()

    @classmethod
    def of(cls, domain: Orders, results: Results) -> EntryTimes:
        """Also from configurations whose launch settings are not searched. Raises UsageError for a file without traces
        of these ops."""
        traced = list(_traced(domain, results))
        fills = filling(traced) | larger_than_the_gpu(domain, results)
        calls: dict[str, list[float]] = defaultdict(list)
        work: dict[str, list[float]] = defaultdict(list)
        exchanges: dict[str, list[float]] = defaultdict(list)  # these wait for the other ranks, too
        wakes = Wakes([], [], [])
        for one in traced:
            wakes.add(one.spans, one.traversal)
            for span in one.spans:
                op = one.op(span)
                calls[op.name if op else _kind(one.traversal.entries[span.position])].append(span.end - span.begin)
                if op is not None and not math.isnan(span.gpu_end):
                    work[op.name].append(one.own_work(span, fills))
                    if isinstance(op.op, ExchangeOp):
                        exchanges[without_indices(op.name)].append(work[op.name][-1])
        ops = [op for space in domain.spaces for op in space.graph.unrolled.ops]
        waits = {op.name for op in ops if op.action in WAITS}
        calls["sync"] = wakes.seen or [0.0]  # those that wait take `cpu_wakes`
        least = min((time for name in waits for time in calls.get(name, ())), default=0.0)
        of_calls = {name: least if name in waits else median(times) for name, times in calls.items()}
        for action in (Action.POST_SEND, Action.POST_RECV):  # a longer one copies a message to its own rank
            posts = {op.name for op in ops if op.action is action} & of_calls.keys()
            of_calls |= dict.fromkeys(posts, min((of_calls[name] for name in posts), default=0.0))
        own = {name: min(exchanges.get(without_indices(name), (median(times),))) for name, times in work.items()}
        streams, cpu = (max(0.0, fmean(times)) if times else 0.0 for times in (wakes.of_streams, wakes.of_cpu))
        return cls(of_calls, own, streams, cpu, fills)


@dataclass(frozen=True, slots=True)
class TracedRank:
    """A traced run of one rank."""

    graph: Graph
    traversal: Traversal
    spans: Sequence[TraceSpan]
    kernels: Sequence[TraceSpan] = field(init=False)  # those on the GPU that may wait for each other

    def __post_init__(self) -> None:
        shared = [s for s in self.spans if (op := self.op(s)) is not None and is_shared(self.graph, op)]
        object.__setattr__(self, "kernels", [s for s in shared if not math.isnan(s.gpu_end)])

    def op(self, span: TraceSpan) -> GraphOp | None:
        number = self.traversal.entries[span.position].op
        return None if number is None else self.graph.ops[number]

    def name(self, span: TraceSpan) -> str:
        op = self.op(span)
        return without_indices(op.name) if op is not None else ""

    def own_work(self, span: TraceSpan, fills: frozenset[str]) -> float:
        """Without the time in which it waited for earlier work that fills the GPU."""
        if span not in self.kernels:
            return span.gpu_end - span.gpu_begin
        before = [o.gpu_end for o in self.kernels if o.gpu_begin < span.gpu_begin and self.name(o) in fills]
        return span.gpu_end - max([span.gpu_begin, *(end for end in before if end < span.gpu_end)])


def without_indices(name: str) -> str:
    return _INDEX.sub("", name)


def is_shared(graph: Graph, op: GraphOp) -> bool:
    """Whether its work takes the processors of the GPU: a kernel, or a copy within the device. Copies over a link have
    engines of their own."""
    if isinstance(op.op, CopyOp):
        return op.gpu and {graph.program.array(r.array).place for r in (op.op.src, op.op.dst)} == {Place.DEVICE}
    return op.gpu and op.kernel is not None


def _traced(domain: Orders, results: Results) -> Iterator[TracedRank]:
    by_number = {each.id: each for each in results.implementations}
    graphs = {number: _graph_of(domain, by_number[number].configuration) for number in results.traces}
    if not any(graphs.values()):
        raise _untraced(domain, [by_number[number].configuration for number in results.traces])
    for number, spans in results.traces.items():
        folded = graphs[number]
        if folded is None:
            continue
        graph, traversal = unroll(folded, by_number[number].order(folded))
        for rank in sorted({span.rank for span in spans}):
            yield TracedRank(graph, traversal, [span for span in spans if span.rank == rank])


def _graph_of(domain: Orders, configuration: Choice) -> Graph | None:
    """The graph of the space of a configuration, else of one whose ops and variants are the same; None without any."""
    index = domain.number(configuration)
    spaces = domain.spaces if index is None else domain.spaces[index : index + 1]
    return next((s.graph for s in spaces if index is not None or not _differing(s, configuration)), None)


def _differing(space: ConfiguredSpace, configuration: Choice) -> list[str]:
    """The decisions on ops and variants whose values differ."""
    settings = {d.name for d in space.graph.program.decisions if not d.structural and own_name(d.name) != VARIANT}
    names = {*space.configuration, *configuration} - settings - {"capture"}
    return sorted(n for n in names if space.configuration.get(n) != configuration.get(n))


def require_traces(results: Results) -> None:
    """Raises UsageError for a file without traces."""
    if not results.traces:
        help = (
            "continue it with --resume, without --no-trace, and with more --time if that ended it: traces are made last"
        )
        raise UsageError("the results have no trace", help)


def _untraced(domain: Orders, traced: Sequence[Choice]) -> UsageError:
    nearest = min((_differing(space, one), one) for one in traced for space in domain.spaces)
    names, one = nearest[0][:SHOWN], nearest[1]
    kept = ", ".join(f"{n}={shown(v)}" if (v := one.get(n)) is not None else f"no {n}" for n in names)
    return UsageError(
        f"the results have traces only of configurations that are not searched: {kept}",
        "search these too, with -D or --open, or record what is searched",
    )


def larger_than_the_gpu(domain: Orders, results: Results) -> frozenset[str]:
    """Ops that launch more threads than fit on the GPU of the results at once, if it is known by name."""
    machine = results.runs[-1].machine if results.runs else None
    try:
        gpu = load_hardware(machine.gpus[0]) if machine is not None and machine.gpus else None
    except UsageError:
        gpu = None
    if machine is None or gpu is None or machine.target != Target.CUDA.value:
        return frozenset()
    most, values = gpu.multiprocessors * gpu.max_threads_per_multiprocessor, scalars_of(results)[0]
    first: dict[str, tuple[Graph, KernelOp]] = {}
    for graph in (space.graph.unrolled for space in domain.spaces):
        for op in graph.ops:
            if op.gpu and isinstance(op.op, KernelOp):
                first.setdefault(without_indices(op.name), (graph, op.op))
    out = set()
    for name, (graph, kernel) in first.items():
        with suppress(Uncounted):  # a size that is not known
            out |= {name} if threads_of(graph.program, kernel, values) > most else set()
    return frozenset(out)


def filling(traced: Sequence[TracedRank]) -> frozenset[str]:
    """Ops with later work that began while theirs was under way, and ended just after it, more often than before."""
    votes: dict[str, int] = defaultdict(int)
    for one in traced:
        for first in one.kernels:
            for later in one.kernels:
                if first.gpu_begin < later.gpu_begin < first.gpu_end:
                    after, together = later.gpu_end - first.gpu_end, first.gpu_end - later.gpu_begin
                    votes[one.name(first)] += (after > 0) - (after <= 0) if after < SHORT * together else 0
    return frozenset(name for name, vote in votes.items() if vote > 0)


@dataclass(frozen=True, slots=True)
class Wakes:
    """How late work begins on a stream that has run out of it, and the CPU goes on after an event that it awaits; and
    how long it takes to see one that has happened."""

    of_streams: list[float]
    of_cpu: list[float]
    seen: list[float]

    def add(self, spans: Sequence[TraceSpan], traversal: Traversal) -> None:
        """The traced entries of one rank."""
        ends: dict[int, float] = defaultdict(lambda: -math.inf)  # of the last work of each stream
        recorded: dict[int, float] = {}
        for span in sorted(spans, key=lambda span: span.position):
            entry = traversal.entries[span.position]
            if entry.op is not None and not math.isnan(span.gpu_end):
                if span.end > ends[entry.stream or 0]:
                    self.of_streams.append(span.gpu_begin - span.end)
                ends[entry.stream or 0] = span.gpu_end
            elif isinstance(entry, Record):
                recorded[entry.event] = ends[entry.stream]
            elif isinstance(entry, Wait) and entry.stream is not None:
                ends[entry.stream] = max(ends[entry.stream], recorded[entry.event])
            elif isinstance(entry, Wait) and recorded[entry.event] > span.begin:
                self.of_cpu.append(span.end - recorded[entry.event])
            elif isinstance(entry, Wait):
                self.seen.append(span.end - span.begin)


def _kind(entry: Entry) -> str:
    return "record" if isinstance(entry, Record) else "sync" if entry.stream is None else "wait"
