"""The description of a name for an editor, as Markdown: its declaration, its resolved types and sizes, and for an op
its hazards and edges, with the reason of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dagc.base.errors import counted
from dagc.base.source import Source
from dagc.editor.names import Declaration, Kind
from dagc.ir import program as ir
from dagc.ir.choice import own_name, site_of
from dagc.ir.enums import Mode
from dagc.ir.sym import show
from dagc.lang.syntax import FORMS, RANKS
from dagc.passes import Analysis
from dagc.passes.edges import EdgeReason, Pair, Why, carried, reasons
from dagc.passes.loops import fold
from dagc.report.picture import accesses, array_size, array_text, detail, kind, stream, touched, verb

_MOST = 8  # lines of a list
_MOST_INSTANCES = 2  # of an op, with all their edges
_MOST_PRIMITIVE = 12  # posts and waits of one exchange
_PLAIN = (Why.MESSAGE, Why.END)  # reasons of edges that every exchange and every last op has
_LONGEST = 400  # characters of a declaration


def keyword(word: str) -> str:
    """The form of the item that a keyword begins, or the meaning of a predefined word; "" for other words."""
    if word in RANKS:
        return f"`{word}` : {RANKS[word]}, in all of them or, as `NAME.{word}`, in a communicator"
    form = FORMS.get("comm" if word == "split" else word)
    return _code(form) if form else ""


@dataclass(frozen=True)
class Described:
    """Describes names of one analysis. `declared`: the text that the declarations point into."""

    analysis: Analysis

    def hover(self, declarations: Sequence[Declaration], texts: dict[str, Source]) -> str:
        """The description of one name; of several declarations (the branches of an `if`), the first is shown in
        full."""
        first = declarations[0]
        parts = [f"**{first.kind.value}** `{first.name}`", _code(_declared(first, texts))]
        if self.analysis.program is not None:
            parts.append(self._facts(first, self.analysis.program))
        if len(declarations) > 1:
            parts.append(f"{counted(len(declarations) - 1, 'more declaration')} of this name")
        return "\n\n".join(part for part in parts if part)

    def _facts(self, meant: Declaration, program: ir.Program) -> str:
        name = meant.name
        match meant.kind:
            case Kind.PARAM:
                return _lines(_param(p) for p in program.params if p.name == name)
            case Kind.LET:
                return _lines(
                    f"`{n} = {show(v)}`" for n, v in program.lets if ir.declared_name(n) == name and not meant.owner
                )
            case Kind.ARRAY if not meant.owner:
                return self._arrays([a for a in program.arrays if ir.declared_name(a.name) == name])
            case Kind.SCALAR:
                return _lines(f"`{s.name}` : {s.type.value}, per rank" for s in program.scalars if _is(s.name, name))
            case Kind.COMM:
                return _lines(_communicator(c) for c in program.comms if _is(c.name, name))
            case Kind.PART:
                return _lines(_part(p) for p in program.parts if _is(p.name, name))
            case Kind.TUNE:
                return _lines(_decision(d) for d in program.decisions if _tunes(d, meant, program))
            case Kind.KERNEL:
                return "\n\n".join(_kernel(k, program) for k in program.kernels if k.name == name)
            case Kind.OP:
                return self._ops(name, meant.owner)
            case _:
                return ""

    # ---- arrays ---------------------------------------------------------------------------------

    def _arrays(self, arrays: Sequence[ir.Array]) -> str:
        rows = [f"`{array_text(array)}`, {_sized(array_size(array))}" for array in arrays]
        program = self.analysis.program
        names = {a.name for a in arrays}
        uses: dict[str, list[str]] = {"written by": [], "read by": []}
        for op in program.ops if program is not None else ():
            modes = {mode for region, mode in accesses(op) if region.array in names}
            if modes - {Mode.IN}:
                uses["written by"].append(op.name)
            if modes - {Mode.OUT}:
                uses["read by"].append(op.name)
        rows += [f"{what} {_some(f'`{n}`' for n in ops)}" for what, ops in uses.items() if ops]
        return _lines(rows, _MOST + 2)

    # ---- ops --------------------------------------------------------------------------------------

    @cached_property
    def _edges(self) -> _Edges | None:
        if self.analysis.graph is None:
            return None
        graph = fold(self.analysis.graph)
        why = reasons(graph)
        of: dict[ir.OpId, list[Pair]] = {}
        for edge, reasons_of_edge in why.items():
            if reasons_of_edge[0].why not in _PLAIN:
                for op in dict.fromkeys(edge):
                    of.setdefault(op, []).append(edge)
        return _Edges(graph, why, carried(graph), of)

    def _ops(self, name: str, owner: str) -> str:
        if self._edges is None:
            return ""
        graph = self._edges.graph
        written = {
            op.name for op in graph.program.ops if ir.declared_name(op.base) == name and ("." in op.base) == bool(owner)
        }
        lowered = [op for op in graph.ops if op.op is not None and op.op.name in written]
        if not lowered:
            return ""
        origins = list(dict.fromkeys(op.op.name for op in lowered if op.op is not None))
        shown = origins if len(origins) <= _MOST_INSTANCES else origins[:1]
        streams = counted(graph.streams, "stream")
        parts = [f"with `{graph.transports}`, {streams}:"]
        for origin in shown:
            primitive = [op for op in lowered if op.op is not None and op.op.name == origin]
            parts += [self._op(op, self._edges) for op in primitive[:_MOST_PRIMITIVE]]
            if len(primitive) > _MOST_PRIMITIVE:
                parts.append(f"and {counted(len(primitive) - _MOST_PRIMITIVE, 'more op')} of `{origin}`")
        if len(shown) < len(origins):
            left = origins[len(shown) :]
            parts.append(f"{counted(len(left), 'more instance')}: {_some(f'`{n}`' for n in left)}")
        return "\n\n".join(parts)

    def _op(self, op: ir.GraphOp, edges: _Edges) -> str:
        what = detail(op)
        head = f"**`{op.name}`** {kind(op)}" + (f", `{what}`" if what else "") + f", {stream(op, edges.graph)}"
        rows = [f"{verb(mode)} `{region.text}`" for region, mode in touched(op)]
        touching = edges.of.get(op.id, ())
        neighbours = [f"after {_edge(e, 0, edges)}" for e in touching if e[1] == op.id]
        neighbours += [f"before {_edge(e, 1, edges)}" for e in touching if e[0] == op.id]
        return "\n\n".join(part for part in (head, _lines(rows), _lines(neighbours, 2 * _MOST)) if part)


@dataclass(frozen=True, slots=True)
class _Edges:
    """Edges of the graph with one round of each loop.

    why    the reasons of each edge
    later  the edges into a later round, with their distance
    of     the edges of each op that are shown: not those that every exchange and every last op has
    """

    graph: ir.Graph
    why: Mapping[Pair, tuple[EdgeReason, ...]]
    later: Mapping[Pair, int]
    of: Mapping[ir.OpId, list[Pair]]


def _edge(edge: Pair, end: int, edges: _Edges) -> str:
    """One edge as seen from the op at its other end."""
    graph, distance = edges.graph, edges.later.get(edge, 0)
    rounds = f" {counted(distance, 'round')} {'later' if end else 'earlier'}" if distance else ""
    reasons = "; ".join(f"{r.why.value}: {r.text}{_at(r, graph.program)}" for r in edges.why[edge][:3])
    only = ", issue order only" if edge in graph.order else ""
    return f"`{graph.ops[edge[end]].name}`{rounds}{only}: {reasons}"


# ---- parts of the text ----------------------------------------------------------------------


def _at(reason: EdgeReason, program: ir.Program) -> str:
    """The place of an edge in the text."""
    if reason.why is not Why.WRITTEN:
        return ""
    line, column = program.sources[reason.spans[0].file].line_column(reason.spans[0].start)
    return f" at {line}:{column}"


def _sized(size: str) -> str:
    number = size.removesuffix(" bytes")
    return f"`{number}` bytes" if number != size else size


def _param(param: ir.Param) -> str:
    value = param.value.value if hasattr(param.value, "value") else param.value
    over = f", tuned over {_some(f'`{v}`' for v in param.over)}" if param.over else ""
    if param.spread is not None:
        over = f", drawn from `{param.spread.text}`"
    return f"`{param.name} = {value}`{over}; override it with `-D {param.name}=VALUE`"


def _communicator(comm: ir.Communicator) -> str:
    who = "all ranks" if comm.everyone else f"the ranks with `{show(comm.colour)} >= 0`"
    return f"`{comm.text}`: {who}, a communicator for each colour"


def _part(part: ir.Part) -> str:
    bounds = "" if part.bounded else ", declared disjoint from the other parts, not checked"
    return f"`{part.name}` is a part of `{part.region.array}`: `{part.region.text}`{bounds}"


def _decision(decision: ir.Decision) -> str:
    values = ", ".join(str(v) for v in decision.values[:_MOST]) + (", ..." if len(decision.values) > _MOST else "")
    return f"`{decision.name}` in {{{values}}}, here `{decision.chosen}`; fix it with `-D {decision.name}=VALUE`"


def _tunes(decision: ir.Decision, meant: Declaration, program: ir.Program) -> bool:
    """Whether it is the decision of a `tune` of the program, or of one of a kernel (its `owner`) for some op."""
    if not meant.owner:
        return _is(decision.name, meant.name)
    bases = {op.base for op in program.kernel_ops if op.kernel == meant.owner}
    return own_name(decision.name) == meant.name and site_of(decision.name) in bases


def _kernel(kernel: ir.Kernel, program: ir.Program) -> str:
    rows = []
    for impl in kernel.impls:
        launch = ""
        if impl.launch is not None:
            grid, block = (", ".join(show(s) for s in sizes) for sizes in (impl.launch.grid, impl.launch.block))
            launch = f": `grid({grid}) block({block})`"
        rows.append(f"{impl.device.value} `{impl.name}`{launch}")
    tunables = [(t, "") for t in kernel.tunables] + [(t, i.name) for i in kernel.impls for t in i.tunables]
    for tunable, impl_name in tunables:
        values = ", ".join(str(v) for v in tunable.values[:_MOST]) + (", ..." if len(tunable.values) > _MOST else "")
        rows.append(f"tune `{tunable.name}` in {{{values}}}" + (f" of `{impl_name}`" if impl_name else ""))
    callers = [op.name for op in program.kernel_ops if op.kernel == kernel.name]
    rows.append(f"called by {_some(f'`{n}`' for n in callers)}" if callers else "never called")
    return _lines(rows)


def _declared(meant: Declaration, texts: dict[str, Source]) -> str:
    """The item as written; of a kernel, dag or op with a block, what stands before the block."""
    if meant.span.file not in texts:
        return ""
    text = texts[meant.span.file].text[meant.whole.start : meant.whole.end]
    if meant.kind in (Kind.KERNEL, Kind.DAG, Kind.IMPL) or (meant.kind is Kind.OP and "{" in text and "(" not in text):
        text = text.partition("{")[0]
    elif meant.kind is Kind.FORMAL and meant.owner:
        text = f"{text}  // of {meant.owner}"
    text = text.strip()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


def _is(display: str, name: str) -> bool:
    return display.partition("[")[0] == name


def _code(text: str) -> str:
    return "```dag\n" + text.replace("```", "` ` `") + "\n```" if text else ""


def _lines(rows: Iterable[str], most: int = _MOST) -> str:
    """A list in Markdown."""
    rows = list(rows)
    shown = [f"- {row}" for row in rows[:most]]
    if len(rows) > most:
        shown.append(f"- {len(rows) - most} more")
    return "\n".join(shown)


def _some(words: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(words))
    left = len(distinct) - _MOST
    return ", ".join(distinct[:_MOST]) + (f" and {left} more" if left > 0 else "")
