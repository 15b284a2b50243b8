"""`dagc show --format html`: the DAG, why each edge is there, and the text, as one page that loads nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from dagc.base.errors import counted
from dagc.base.source import Source, Span
from dagc.ir import program as ir
from dagc.ir.plan import answers_of
from dagc.ir.sym import show
from dagc.passes.edges import HAZARDS, EdgeReason, Why, reasons
from dagc.report.pages import environment
from dagc.report.picture import (
    LABEL,
    Drawing,
    EdgeStyle,
    array_size,
    array_text,
    detail,
    drawing,
    edges_of,
    kind,
    stream,
    touched,
    verb,
)

MOST_DRAWN = 1500  # ops of a picture
MOST_EDGES = 3000  # of a picture, and on a page
MOST_TOUCHED = 50  # accesses of one op
_LINES = {EdgeStyle.COMPLETION: "completion", EdgeStyle.ORDER: "order", EdgeStyle.CARRIED: "carried"}


@dataclass(frozen=True, slots=True)
class TextPlace:
    """A place of the text: `anchor` is that of its line."""

    anchor: str
    text: str


@dataclass(frozen=True, slots=True)
class ReasonView:
    """`label` is short: RAW, written; `look` its class in the style sheet; `parts`: (whether it is code, text)."""

    label: str
    look: str
    parts: tuple[tuple[bool, str], ...]
    places: tuple[TextPlace, ...]


@dataclass(frozen=True, slots=True)
class EdgeView:
    """`note`: of an edge that is not plain completion, as seen from v."""

    id: str
    u: str
    v: str
    u_id: str
    v_id: str
    note: str
    reasons: tuple[ReasonView, ...]

    @property
    def seen_from_u(self) -> str:
        return self.note.replace("earlier", "later")


@dataclass(frozen=True, slots=True)
class OpView:
    id: str
    name: str
    kind: str
    kind_text: str
    detail: str
    stream: str
    place: TextPlace | None
    accesses: tuple[tuple[str, str, str, str], ...]  # verb, region, declaration of the array, size
    more: int  # accesses that are not among them
    settings: tuple[tuple[str, str], ...]
    before: tuple[EdgeView, ...]
    after: tuple[EdgeView, ...]
    left: int  # edges that are not among them


@dataclass(frozen=True, slots=True)
class GraphView:
    """One picture with its tables. `drawn` is None for one that is too large; `left`: edges that the table lacks."""

    id: str
    title: str
    summary: str
    drawn: Drawing | None
    arrows: tuple[str, ...]  # for each arrow of the picture the id of its edge, "" for one out of `start`
    looks: tuple[str, ...]  # and the class of its line
    ops: tuple[OpView, ...]
    edges: tuple[EdgeView, ...]
    left: int


@dataclass(frozen=True, slots=True)
class LineView:
    """`parts`: (class, text); `op`: whether an op begins here."""

    number: int
    anchor: str
    op: bool
    parts: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class SourceView:
    path: str
    lines: tuple[LineView, ...]


class Anchors:
    """Anchors of lines: `s0-12` is line 12 of the first file."""

    def __init__(self, sources: Mapping[str, Source]) -> None:
        self._sources = sources
        self._numbers = {path: number for number, path in enumerate(sources)}

    def line(self, path: str, number: int) -> str:
        return f"s{self._numbers[path]}-{number}"

    def place(self, span: Span) -> TextPlace | None:
        """None for an op that is not in the text: `end`, inserted copies of the compiler."""
        source = self._sources.get(span.file)
        if source is None:
            return None
        line, column = source.line_column(span.start)
        several = f"{source.path.rpartition('/')[2]}:" if len(self._sources) > 1 else ""
        return TextPlace(self.line(span.file, line), f"{several}{line}:{column}")


def graph_view(graph: ir.Graph, name: str, title: str, anchors: Anchors) -> GraphView:
    """The view of one graph for the page. `name` distinguishes the ids of several graphs."""
    lines = edges_of(graph)
    why = reasons(graph)
    edges = {
        (u, v, line): EdgeView(
            f"{name}-edge-{number}", graph.ops[u].name, graph.ops[v].name, f"{name}-op-{u}", f"{name}-op-{v}", note,
            tuple(_reason(r, anchors) for r in why[ir.OpId(u), ir.OpId(v)]),
        )
        for number, ((u, v, line), note) in enumerate(islice(lines.items(), MOST_EDGES))
    }  # fmt: skip
    before: dict[int, list[EdgeView]] = {}
    after: dict[int, list[EdgeView]] = {}
    left: Counter[int] = Counter()
    for u, v, line in lines:
        if (edge := edges.get((u, v, line))) is None:
            left.update((u, v))
        else:
            after.setdefault(u, []).append(edge)
            before.setdefault(v, []).append(edge)
    arrays = {array.name: array for array in graph.program.arrays}
    ops = tuple(
        _op(op, graph, name, anchors, arrays, before.get(op.id, ()), after.get(op.id, ()), left[op.id])
        for op in graph.ops
    )
    drawn = drawing(graph) if len(ops) <= MOST_DRAWN and len(edges) == len(lines) else None
    arrows = drawn.arrows if drawn is not None else ()
    return GraphView(
        name, title, _summary(graph, lines), drawn,
        tuple("" if a.u is None else edges[a.u, a.v, a.line].id for a in arrows), tuple(_LINES[a.line] for a in arrows),
        ops, tuple(edges.values()), len(lines) - len(edges),
    )  # fmt: skip


def as_page(program: ir.Program, graphs: Sequence[GraphView], sources: Sequence[SourceView], version: str) -> str:
    """The page; the first of `graphs` is shown first."""
    return environment().get_template("dag.html.j2").render(
        program=program, graphs=graphs, sources=sources, version=version, legend=list(LABEL.items()),
        most_drawn=MOST_DRAWN,
    )  # fmt: skip


def _summary(graph: ir.Graph, lines: Mapping[tuple[int, int, EdgeStyle], str]) -> str:
    words = [counted(len(graph.ops), "op"), counted(len(lines), "edge"), graph.transports.replace("=", " ")]
    if graph.staged:
        words.append(f"staging {graph.staging.value}")
    return ", ".join([*words, counted(graph.streams, "stream")])


def _reason(reason: EdgeReason, anchors: Anchors) -> ReasonView:
    look = "hazard" if reason.why in HAZARDS else "written" if reason.why is Why.WRITTEN else "plain"
    places = (anchors.place(span) for span in reason.spans)
    parts = tuple((number % 2 == 1, part) for number, part in enumerate(reason.text.split("`")) if part)
    return ReasonView(reason.why.value, look, parts, tuple(dict.fromkeys(p for p in places if p is not None)))


def _op(
    op: ir.GraphOp,
    graph: ir.Graph,
    name: str,
    anchors: Anchors,
    arrays: Mapping[str, ir.Array],
    before: Sequence[EdgeView],
    after: Sequence[EdgeView],
    left: int,
) -> OpView:
    regions = touched(op)
    shown = []
    for region, mode in regions[:MOST_TOUCHED]:
        array = arrays[region.array]
        shown.append((verb(mode), region.text, array_text(array), array_size(array)))
    return OpView(
        f"{name}-op-{op.id}", op.name, kind(op), LABEL[kind(op)], detail(op), stream(op, graph),
        anchors.place(op.span), tuple(shown), len(regions) - len(shown), _settings(op, graph.program),
        tuple(before), tuple(after), left,
    )  # fmt: skip


def _settings(op: ir.GraphOp, program: ir.Program) -> tuple[tuple[str, str], ...]:
    """Launch, variant and tunables of a kernel."""
    if not isinstance(op.op, ir.KernelOp):
        return ()
    called = op.op
    kernel = program.kernel(called.kernel)
    impl = next(i for i in kernel.impls if i.name == called.variant and i.device is called.device)
    out = [("kernel", called.kernel)]
    variants = answers_of(program, called)
    if len(variants) > 1:
        out.append(("variant", f"{called.answer} of {', '.join(variants)}"))
    if impl.launch is not None:
        out.append(("grid", ", ".join(show(s) for s in impl.launch.grid)))
        out.append(("block", ", ".join(show(s) for s in impl.launch.block)))
    values = {t.name: t.values for t in (*kernel.tunables, *impl.tunables)}
    for tunable, chosen in called.tunables:
        among = ", ".join(str(v) for v in values.get(tunable, ())[:12])
        out.append((f"tune {tunable}", f"{chosen} of {among}" if among else str(chosen)))
    return tuple(out)
