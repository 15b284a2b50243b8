"""Views of `iteration.hpp` and of the runner's ops: each entry of a traversal with a comment and its steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dagc.emit.cxx import cxx_string
from dagc.emit.declared import WriteView, writes
from dagc.emit.render import dag_text
from dagc.emit.steps import Call, Step, Steps
from dagc.emit.table import Begin, End, plain, with_capture_regions
from dagc.ir.graph import Action, Graph, GraphOp
from dagc.ir.program import CollectiveOp, CopyOp, ExchangeOp, KernelOp, Region
from dagc.ir.sym import Sym
from dagc.ir.traversal import Entry, Issue, Record, Sync, Traversal, Wait


@dataclass(frozen=True, slots=True)
class CudaCall:
    """A call of the CUDA runtime whose status is checked."""

    function: str
    args: str
    kind: str = "cuda"


@dataclass(frozen=True, slots=True)
class EntryView:
    comment: str
    steps: tuple[Step | CudaCall, ...]


@dataclass(frozen=True, slots=True)
class CaptureRegionView:
    """Entries that are captured in a CUDA graph; `origin` is the stream that it is launched on."""

    number: int
    origin: int
    entries: tuple[EntryView, ...]
    comment: str


@dataclass(frozen=True, slots=True)
class IterationView:
    streams: int
    events: int
    entries: tuple[EntryView, ...]
    regions: tuple[CaptureRegionView, ...]
    uses_program: bool


@dataclass(frozen=True, slots=True)
class TableOpView:
    name: str
    text: str
    gpu: str
    comment: str
    steps: tuple[Step, ...]
    uses_stream: bool
    uses_program: bool
    kernel: bool
    writes: tuple[WriteView, ...]


def iteration_view(graph: Graph, traversal: Traversal, steps: Steps, capture: bool = False) -> IterationView:
    """Raises DagcError for ops that cannot be emitted yet."""
    placed = [p.step for p in (with_capture_regions if capture else plain)(traversal)]
    flat = [step for step in placed if not isinstance(step, Begin | End)]
    recorded = _what_events_mean(graph, flat)
    streams = [e.stream for e in flat if not isinstance(e, Sync) and e.stream is not None]
    events = [e.event for e in flat if isinstance(e, Record)]
    entries: list[EntryView] = []
    regions: list[CaptureRegionView] = []
    at = 0
    while at < len(placed):
        step = placed[at]
        if isinstance(step, Begin):
            inside = [e for e in placed[at + 1 : at + 1 + step.length] if not isinstance(e, Begin | End)]
            names = ", ".join(graph.ops[e.op].name for e in inside if isinstance(e, Issue))
            views = tuple(_entry(graph, e, steps, recorded) for e in inside)
            regions.append(CaptureRegionView(step.region, step.origin, views, names))
            launch = Call(f"p.graph[{step.region}].launch", f"p.stream[{step.origin}]")
            entries.append(EntryView(f"stretch {step.region} on stream {step.origin}: {names}", (launch,)))
            at += step.length + 2
        else:
            assert not isinstance(step, End)
            entries.append(_entry(graph, step, steps, recorded))
            at += 1
    return IterationView(
        streams=max(streams, default=-1) + 1,
        events=max(events, default=-1) + 1,
        entries=tuple(entries),
        regions=tuple(regions),
        uses_program=any(e.steps for e in entries),
    )


def table_ops(graph: Graph, steps: Steps) -> tuple[TableOpView, ...]:
    """One view per op, in the order of the graph."""
    out = []
    for op in graph.ops:
        work = steps.of(op, "stream")
        out.append(
            TableOpView(
                name=op.name,
                text=titled(op),
                gpu="true" if op.gpu else "false",
                comment=describe(op),
                steps=work,
                uses_stream=op.gpu,
                uses_program=bool(work),
                kernel=op.action is Action.KERNEL,
                writes=writes(steps.layout, op),
            )
        )
    return tuple(out)


def _what_events_mean(graph: Graph, entries: Sequence[Entry]) -> dict[int, str]:
    """Per event, the op that was last in its stream when it was recorded."""
    last: dict[int, str] = {}
    out: dict[int, str] = {}
    for entry in entries:
        if isinstance(entry, Issue) and entry.stream is not None:
            last[entry.stream] = graph.ops[entry.op].name
        elif isinstance(entry, Record):
            out.setdefault(entry.event, last.get(entry.stream, "nothing"))
    return out


def _entry(graph: Graph, entry: Entry, steps: Steps, recorded: dict[int, str]) -> EntryView:
    match entry:
        case Issue(op, stream):
            where = "" if stream is None else f" on stream {stream}"
            work = steps.of(graph.ops[op], f"p.stream[{stream}]")
            begin = (Call("dagc::begin_op", cxx_string(titled(graph.ops[op]))),) if work else ()
            return EntryView(describe(graph.ops[op], where), (*begin, *work))
        case Record(event, stream):
            call = CudaCall("cudaEventRecord", f"p.event[{event}], p.stream[{stream}]")
            return EntryView(f"event {event}: after {recorded[event]} on stream {stream}", (call,))
        case Wait(event, stream):
            call = CudaCall("cudaStreamWaitEvent", f"p.stream[{stream}], p.event[{event}], 0")
            return EntryView(f"stream {stream} waits for event {event}: {recorded.get(event, '')}", (call,))
        case Sync(event):
            of = recorded.get(event, "")
            waits = Call("dagc::begin_op", cxx_string(f"`sync(e{event})`, which waits for `{of}`"))
            call = CudaCall("cudaEventSynchronize", f"p.event[{event}]")
            return EntryView(f"the CPU waits for event {event}: {of}", (waits, call))


def titled(op: GraphOp) -> str:
    """What messages of the running program call an op: "op `spmv` (kernel `csr.warp`)"."""
    kernel = f" (kernel `{_kernel(op.op)}`)" if op.action is Action.KERNEL and isinstance(op.op, KernelOp) else ""
    return f"op `{op.name}`{kernel}"


def _kernel(op: KernelOp) -> str:
    return op.kernel if op.variant == "default" else f"{op.kernel}.{op.variant}"


def describe(op: GraphOp, where: str = "") -> str:
    """`pack on stream 0: gather(x_send, x_l, send_index, n_send)`."""
    what = _what(op)
    staged = [f"{s.region.text} from its staging buffer" for s in op.copy_in]
    staged += [f"{s.region.text} to its staging buffer" for s in op.copy_out]
    tail = "".join(f"; copies {s}" for s in staged)
    return f"{op.name}{where}{': ' if what else ''}{what}{tail}"


def _what(op: GraphOp) -> str:
    match op.op:
        case KernelOp() as k:
            return f"{_kernel(k)}({', '.join(_arg(a) for a in k.args)})"
        case CopyOp() as c:
            return f"copy({_arg(c.dst)}, {_arg(c.src)})"
        case ExchangeOp() as x if op.message is not None:
            return _message(op, x)
        case ExchangeOp():
            return "all messages" if op.action is Action.GROUP else f"all sends of {op.op.name}"
        case CollectiveOp() as c:
            return f"{c.collective.value}({', '.join([*(_arg(a) for a in c.args), *([c.reduce] if c.reduce else [])])})"
        case _:
            return "all is done" if op.action is Action.END else ""


def _message(op: GraphOp, exchange: ExchangeOp) -> str:
    assert op.message is not None
    message = exchange.messages[op.message]
    sending = op.action in (Action.POST_SEND, Action.STAGE_OUT)
    region, peer = (message.send, message.to) if sending else (message.recv, message.source)
    return f"{_arg(region)} {'to' if sending else 'from'} {peer if isinstance(peer, str) else dag_text(peer)}"


def _arg(arg: Region | Sym) -> str:
    if not isinstance(arg, Region):
        return dag_text(arg)
    if arg.part is not None:
        return arg.part
    return arg.array if arg.start is None else f"{arg.array}[{dag_text(arg.start)} .. {dag_text(arg.stop)}]"
