"""The program as text after each stage of a compilation (`dagc compile --print-after`): equal input, equal text.

A stage is named after the pass that it follows. Its text has what the next stage reads, one item a line, in the order
of the program's text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from dagc.base.errors import UsageError
from dagc.ir import program as ir
from dagc.ir.plan import Plan, Target
from dagc.ir.sym import Sym, show
from dagc.ir.traversal import Traversal
from dagc.passes.messages import LoweredMessages, lower_messages
from dagc.report.picture import array_text, as_text, detail, kind


class Stage(Enum):
    """In the order of a compilation; the value is the name for `--print-after`."""

    LOWER = "lower"
    MESSAGES = "messages"
    EDGES = "edges"
    TRAVERSAL = "traversal"
    PLAN = "plan"


CONTRACTS = {
    Stage.LOWER: "names resolved, loops expanded, every structural choice made; messages as written",
    Stage.MESSAGES: "messages as posts, waits, copies or groups, and what each op accesses, how long",
    Stage.EDGES: "edges as written and inferred, every pair of conflicting accesses ordered",
    Stage.TRAVERSAL: "one implementation: the issue order with streams, event records and waits, before the proof",
    Stage.PLAN: "the proved implementation with every other choice: all that emission reads",
}


def stages(names: str) -> frozenset[Stage]:
    """The stages of `--print-after lower,edges`; `all`: every stage. Raises UsageError."""
    known = {stage.value: stage for stage in Stage}
    asked = [name.strip() for name in names.split(",") if name.strip()]
    for name in asked:
        if name != "all" and name not in known:
            raise UsageError(f"--print-after {name}: not a stage", f"choose from {', '.join(known)}, all")
    return frozenset(Stage if "all" in asked else (known[name] for name in asked))


@dataclass(frozen=True, slots=True)
class Printer:
    """Writes the text of the stages that were asked for."""

    stages: frozenset[Stage]
    write: Callable[[str], None]

    def after_lowering(self, program: ir.Program) -> None:
        """The program before its messages are lowered."""
        self._print(Stage.LOWER, lambda: program_lines(program))

    def after_edges(self, graph: ir.Graph) -> None:
        """The graph, and what it was made from."""
        whole = graph.unrolled
        self._print(Stage.MESSAGES, lambda: message_lines(lower_messages(whole.program, whole.staging)))
        self._print(Stage.EDGES, lambda: edge_lines(graph))

    def after_choosing(self, graph: ir.Graph, traversal: Traversal) -> None:
        """One implementation of the graph."""
        self._print(Stage.TRAVERSAL, lambda: traversal_lines(graph, traversal))

    def after_proof(self, plan: Plan) -> None:
        """The plan that is emitted."""
        self._print(Stage.PLAN, lambda: plan_lines(plan))

    def _print(self, stage: Stage, lines: Callable[[], Iterable[str]]) -> None:
        if stage in self.stages:
            self.write(f"; after {stage.value}: {CONTRACTS[stage]}\n" + "".join(f"{line}\n" for line in lines()) + "\n")


NOTHING_PRINTED = Printer(frozenset(), lambda _: None)


# ---- the program ------------------------------------------------------------------------------------


def program_lines(program: ir.Program) -> Iterator[str]:
    """Declarations, ops, and the edges that the text has."""
    yield f"program {program.name}"
    yield from (f"  param {p.name} : {p.type} = {_value(p.value)}" for p in program.params)
    yield from (f"  let {name} = {show(value)}" for name, value in program.lets)
    yield from (f"  comm {c.text}" for c in (*program.comms, *program.host_comms))
    yield from (f"  scalar {s.name} : {s.type.value}" for s in program.scalars)
    yield from (f"  array {array_text(array)}" for array in program.arrays)
    yield from (f"  part {p.name} = {p.region.text}{'' if p.bounded else ' (without bounds)'}" for p in program.parts)
    yield from (f"  require {show(require.condition)}" for require in program.requires)
    for decision in program.decisions:
        values = ", ".join(map(ir.shown, decision.values))
        yield f"  choice {decision.name} = {ir.shown(decision.chosen)} of {{{values}}}"
    for op in program.ops:
        yield from _op_lines(op)
    yield from (f"  edge {_edge(edge)}" for edge in program.edges)
    if program.repeat is not None:
        until = f" until {program.until.array}" if program.until is not None else ""
        yield f"  repeat {show(program.repeat)}{until}"
    yield from (f"  verify {f'{v.of} of ' * bool(v.of)}{v.region.text} by {v.function}" for v in program.verifies)


def _value(value: object) -> str:
    return str(getattr(value, "value", str(value).lower() if isinstance(value, bool) else value))


def _op_lines(op: ir.Op) -> Iterator[str]:
    condition = getattr(op, "when", None)
    when = f" if {show(condition)}" if condition is not None else ""
    match op:
        case ir.KernelOp():
            chosen = "".join(f" {name}={ir.shown(value)}" for name, value in op.tunables)
            stream = f" on stream {op.stream}" if op.stream is not None else ""
            args = ", ".join(a.text if isinstance(a, ir.Region) else show(a) for a in op.args)
            yield f"  {op.name} : {op.device.value} {op.kernel}.{op.variant}({args}){chosen}{stream}{when}"
            yield from (f"    {a.mode.value} {a.region.text}" for a in op.accesses)
        case ir.CopyOp():
            yield f"  {op.name} : gpu copy({op.dst.text}, {op.src.text}){' inserted' if op.inserted else ''}{when}"
        case ir.CollectiveOp():
            args = ", ".join(a.text if isinstance(a, ir.Region) else show(a) for a in op.args)
            reduce = f" {op.reduce}" if op.reduce else ""
            yield f"  {op.name} : mpi {op.collective.value}{reduce}({args}){_on(op.comm)}{when}"
        case ir.ExchangeOp():
            yield f"  {op.name} : mpi exchange{_on(op.comm)}"
            yield from (f"    {_message(message)}" for message in op.messages)


def _on(comm: str) -> str:
    return f" on {comm}" if comm else ""


def _message(message: ir.Message) -> str:
    label = f"{message.label} : " if message.label else ""
    send, recv = (_end(*message.end(send), "to" if send else "from") for send in (True, False))
    when = f" if {show(message.when)}" if message.when is not None else ""
    return f"{label}send {send}, recv {recv}{when}"


def _end(region: ir.Region, peer: Sym | str, counts: str | None, word: str) -> str:
    return (
        f"{region.text} {word} {peer if isinstance(peer, str) else show(peer)}{f' counts {counts}' if counts else ''}"
    )


def _edge(edge: ir.Edge) -> str:
    return f"{_edge_end(edge.u)} {'->' if edge.completion else 'before'} {_edge_end(edge.v)}"


def _edge_end(end: ir.EdgeEnd) -> str:
    message = f".{end.message}" if end.message else ""
    return f"{end.op}{message}{'' if end.end is ir.End.WHOLE else f'.{end.end.value}'}"


# ---- primitive ops, their edges, an implementation, a plan --------------------------------------------


def message_lines(lowered: LoweredMessages) -> Iterator[str]:
    """Primitive ops with their accesses; the edges inside one op of the program; waits with the posts they match."""
    touched: dict[ir.OpId, list[str]] = {}
    for touch in lowered.touches:
        until = f" until {lowered.ops[touch.end].name}" if touch.end != touch.begin else ""
        where = " (staging buffer)" if touch.staged else ""
        touched.setdefault(touch.begin, []).append(f"    {touch.mode.value} {touch.region.text}{where}{until}")
    for op in lowered.ops:
        what = detail(op)
        yield f"  {kind(op)} {op.name} : {op.action.value}{f' [{what}]' if what else ''}"
        yield from touched.get(op.id, ())
    yield from (f"  edge {lowered.ops[u].name} -> {lowered.ops[v].name}" for u, v in lowered.inner)
    yield from (f"  match {lowered.ops[wait].name} with {lowered.ops[post].name}" for wait, post in lowered.matches)


def edge_lines(graph: ir.Graph) -> Iterator[str]:
    """Ops with their predecessors (`dagc show`), and each conflict that these edges order."""
    yield from as_text(graph).splitlines()
    for first, second in graph.hazards:
        a, b = graph.touches[first], graph.touches[second]
        yield (
            f"  conflict {graph.ops[a.begin].name} {a.mode.value} {a.region.text}"
            f" before {graph.ops[b.begin].name} {b.mode.value} {b.region.text}"
        )


def traversal_lines(graph: ir.Graph, traversal: Traversal) -> Iterator[str]:
    """One entry a line: what `--traversal FILE` reads."""
    yield from (entry.text(graph) for entry in traversal.entries)


def plan_lines(plan: Plan) -> Iterator[str]:
    """The target, every choice, what stays open until the program runs, and the entries."""
    yield f"target {plan.target.value}{f' {plan.arch}' if plan.target is Target.CUDA else ''}"
    yield from (f"choice {name}={ir.shown(value)}" for name, value in plan.decisions)
    yield from (f"open {t.name} of {{{', '.join(map(ir.shown, t.values))}}}" for t in plan.open)
    yield from traversal_lines(plan.graph, plan.traversal)
