"""The DAG as text, Graphviz dot, or SVG (drawn here: no Graphviz needed); texts about ops for reports and editors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from html import escape

from dagc.base.errors import counted
from dagc.ir import program as ir
from dagc.ir.enums import Mode
from dagc.ir.program import Action, CollectiveOp, CopyOp, ExchangeOp, Graph, GraphOp, KernelOp, device_name
from dagc.ir.sym import Const, Sym, show
from dagc.passes.edges import carried

_FILL = {"gpu": "#d9ead3", "mpi": "#cfe2f3", "cpu": "#fff2cc", "end": "#eeeeee"}
LABEL = {"gpu": "GPU (asynchronous, on a stream)", "mpi": "MPI", "cpu": "CPU", "end": "start, end"}


def kind(op: GraphOp) -> str:
    """gpu, mpi, cpu or end."""
    if op.action is Action.END:
        return "end"
    if op.gpu and not op.in_worker:
        return "gpu"
    return "cpu" if op.action is Action.KERNEL else "mpi"


def detail(op: GraphOp) -> str:
    """The op's action in a few words: the kernel, the copy, the message's array, and fused copies."""
    words = []
    if isinstance(op.op, KernelOp):
        words.append(op.op.implementation)
        if op.op.placed:
            others = (device_name(other.device, other.unit) for other in op.op.others)
            devices = dict.fromkeys((device_name(op.op.device, op.op.unit), *others))
            words[-1] = f"{op.op.kernel} on {' or '.join(devices)}"
        words += ["in a worker thread"] if op.in_worker else []
    elif isinstance(op.op, CopyOp):
        words.append(f"{op.op.dst.array} <- {op.op.src.array}")
    elif op.staged is not None:
        words.append(op.staged.region.text)
    elif op.action.of_messages:
        words += list(dict.fromkeys(r.text if r.share is not None else r.array for r in op.regions))
    elif isinstance(op.op, ExchangeOp) and op.action is Action.GROUP:
        words += list(dict.fromkeys(f"{m.send.text} to {m.recv.text}" for m in op.op.messages))
    if isinstance(op.op, ExchangeOp | CollectiveOp) and op.op.comm and op.staged is None:
        words.append(f"on {op.op.comm}")
    asked = op.op.messages[op.message] if isinstance(op.op, ExchangeOp) and op.message is not None else op.op
    when = getattr(asked, "when", None)
    words += [f"if {show(when)}"] if when is not None else []
    words += [f"then {staged.region.text} to the host" for staged in op.copy_out]
    words += [f"first {staged.region.text} to the device" for staged in op.copy_in]
    return ", ".join(words)


class EdgeStyle(Enum):
    """How an edge orders its ops; the text is used in the pictures."""

    COMPLETION = "completion"
    ORDER = "issue order only"
    CARRIED = "carried"  # in a folded graph: into a later round of the loop


def edges_of(graph: Graph) -> dict[tuple[int, int, EdgeStyle], str]:
    """Every edge with its note: the distance of a carried edge, or that it orders issue only.

    In a folded graph, an edge between ops outside and inside of a loop stands for one from or to some round.
    """
    completion = dict.fromkeys(graph.completion)
    if graph.folding is not None:
        completion.update(dict.fromkeys(graph.folding.crossing))
    out = {(int(u), int(v), EdgeStyle.COMPLETION): "" for u, v in sorted(completion)}
    out |= {
        (int(u), int(v), EdgeStyle.ORDER): EdgeStyle.ORDER.value for u, v in graph.order if (u, v) not in completion
    }
    for (u, v), distance in sorted(carried(graph).items()):
        out[int(u), int(v), EdgeStyle.CARRIED] = f"{counted(distance, 'round')} earlier"
    return out


def as_text(graph: Graph) -> str:
    """One line per op, in file order: kind, name, action, predecessors."""
    names = [op.name for op in graph.ops]
    before: dict[int, list[str]] = {op.id: [] for op in graph.ops}
    edges = edges_of(graph)
    for (u, v, _), note in edges.items():
        before[v].append(names[u] + (f" ({note})" if note else ""))
    width = max(len(name) for name in names)
    entered = {v for _, v, line in edges if line is EdgeStyle.COMPLETION}
    count = sum(line is not EdgeStyle.ORDER for _, _, line in edges) + len(graph.ops) - len(entered)
    lines = [
        f"{graph.program.name}: {len(graph.ops) + 1} vertices with start and end, "
        f"{counted(count, 'edge')}; {graph.transports}"
        + (f" staging={graph.staging.value}" if graph.staged else "")
        + f" streams={graph.streams}"
        + (", one round of each loop" if graph.folding is not None else "")
    ]
    for op in graph.ops:
        what = detail(op)
        after = ", ".join(before[op.id]) or "start"
        lines.append(f"  {kind(op):3}  {op.name:{width}}  after {after}" + (f"   [{what}]" if what else ""))
    return "\n".join(lines) + "\n"


_DOT = {
    EdgeStyle.COMPLETION: "",
    EdgeStyle.ORDER: " [style=dashed]",
    EdgeStyle.CARRIED: " [style=dotted, constraint=false]",
}


def as_dot(graph: Graph) -> str:
    """Graphviz: completion edges solid, issue order dashed, edges into a later round of a loop dotted."""
    lines = [
        f'digraph "{_quoted(graph.program.name)}" {{',
        "  rankdir=TB;",
        '  node [shape=box, style="rounded,filled"];',
    ]
    lines.append(f'  start [shape=ellipse, fillcolor="{_FILL["end"]}"];')
    for op in graph.ops:
        what = detail(op)
        label = _quoted(op.name) + (f"\\n{_quoted(what)}" if what else "")
        lines.append(f'  n{op.id} [label="{label}", fillcolor="{_FILL[kind(op)]}"];')
    edges = edges_of(graph)
    entered = {v for _, v, line in edges if line is EdgeStyle.COMPLETION}
    lines += [f"  start -> n{op.id};" for op in graph.ops if op.id not in entered]
    lines += [f"  n{u} -> n{v}{_DOT[line]};" for u, v, line in edges]
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


# ---- layout ------------------------------------------------------------------------------

_ROW, _GAP, _MARGIN = 78, 22, 20
HEIGHT = 40  # of a box


@dataclass(frozen=True, slots=True)
class Box:
    """A vertex: its middle, its width, its text. `op` is None for `start`."""

    op: int | None
    name: str
    detail: str
    kind: str
    x: float
    y: float
    width: float

    @property
    def left(self) -> float:
        return self.x - self.width / 2

    @property
    def top(self) -> float:
        return self.y - HEIGHT / 2


@dataclass(frozen=True, slots=True)
class DrawnEdge:
    """An edge; `u` is None for one out of `start`. `path` is that of an SVG."""

    u: int | None
    v: int
    line: EdgeStyle
    path: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """Boxes in layers by the longest path from start; an edge over several layers has its own lane in each of them."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    arrows: tuple[DrawnEdge, ...]


def drawing(graph: Graph) -> Drawing:
    """The positions of all boxes and edges."""
    start = len(graph.ops)
    edges = list(edges_of(graph))
    entered = {v for _, v, line in edges if line is EdgeStyle.COMPLETION}
    forward = [(start, int(op.id), EdgeStyle.COMPLETION) for op in graph.ops if op.id not in entered]
    forward += [edge for edge in edges if edge[2] is not EdgeStyle.CARRIED]
    labels = {int(op.id): (op.name, detail(op)) for op in graph.ops} | {start: ("start", "")}
    kinds = {int(op.id): kind(op) for op in graph.ops} | {start: "end"}
    places, lanes, width, height = _layout(labels, forward)
    arrows = [
        DrawnEdge(None if u == start else u, v, line, _curve(places[u], [places[lane] for lane in between], places[v]))
        for (u, v, line), between in zip(forward, lanes, strict=True)
    ]
    back = [(u, v) for u, v, line in edges if line is EdgeStyle.CARRIED]
    arrows += [DrawnEdge(u, v, EdgeStyle.CARRIED, _return(places[u], places[v], k)) for k, (u, v) in enumerate(back)]
    if back:
        width += _BULGE + _BETWEEN * min(len(back), _RETURNS)
    boxes = tuple(
        Box(None if n == start else n, *text, kinds[n], places[n].x, places[n].y, places[n].width)
        for n, text in labels.items()
    )
    return Drawing(width, height, boxes, tuple(arrows))


@dataclass(frozen=True, slots=True)
class _Place:
    x: float
    y: float
    width: float


_BULGE, _BETWEEN, _RETURNS = 40, 9, 8  # of the arrows that lead back, on the right of the boxes


def _return(u: _Place, v: _Place, number: int) -> str:
    """From the right side of one box to that of another, or of the same."""
    x, y, to_x, to_y = u.x + u.width / 2, u.y + 6, v.x + v.width / 2, v.y - 6
    right = max(x, to_x) + _BULGE + _BETWEEN * (number % _RETURNS)
    return f"M{x:.1f} {y:.1f} C{right:.1f} {y:.1f} {right:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"


def _curve(first: _Place, lanes: list[_Place], last: _Place) -> str:
    """Leaves and enters boxes and lanes vertically, so that it stays between the boxes of a layer."""
    half = HEIGHT / 2
    x, y = first.x, first.y + half
    path = [f"M{x:.1f} {y:.1f}"]
    stops = [point for lane in lanes for point in ((lane.x, lane.y - half), (lane.x, lane.y + half))]
    for to_x, to_y in [*stops, (last.x, last.y - half)]:
        bend = (to_y - y) / 2
        path.append(f"C{x:.1f} {y + bend:.1f} {to_x:.1f} {to_y - bend:.1f} {to_x:.1f} {to_y:.1f}")
        x, y = to_x, to_y
    return " ".join(path)


def _layout(
    labels: dict[int, tuple[str, str]], edges: list[tuple[int, int, EdgeStyle]]
) -> tuple[dict[int, _Place], list[list[int]], float, float]:
    """Places of nodes and of lanes (negative ids), the lanes of each edge, width, height."""
    layer = _layers(labels, edges)
    sizes = {n: 24 + max(7.6 * len(name), 5.6 * len(what)) for n, (name, what) in labels.items()}
    before: dict[int, list[int]] = {n: [] for n in labels}
    lanes: list[list[int]] = []
    for u, v, _ in edges:
        between = []
        above = u
        for depth in range(layer[u] + 1, layer[v]):
            lane = -1 - len(sizes)
            layer[lane], sizes[lane], before[lane] = depth, 6.0, [above]
            between.append(lane)
            above = lane
        before[v].append(above)
        lanes.append(between)
    rows: list[list[int]] = [[] for _ in range(max(layer.values()) + 1)]
    for n, depth in layer.items():
        rows[depth].append(n)
    place: dict[int, float] = {}
    for row in rows:
        row.sort(key=lambda n: (sum(place[u] for u in before[n]) / len(before[n]) if before[n] else 0.0, n))
        x = -(sum(sizes[n] for n in row) + _GAP * (len(row) - 1)) / 2
        for n in row:
            place[n] = x + sizes[n] / 2
            x += sizes[n] + _GAP
    left = min(place[n] - sizes[n] / 2 for n in place)
    right = max(place[n] + sizes[n] / 2 for n in place)
    places = {n: _Place(place[n] - left + _MARGIN, layer[n] * _ROW + _MARGIN + HEIGHT / 2, sizes[n]) for n in place}
    return places, lanes, right - left + 2 * _MARGIN, max(layer.values()) * _ROW + HEIGHT + 2 * _MARGIN


def _layers(labels: dict[int, tuple[str, str]], edges: list[tuple[int, int, EdgeStyle]]) -> dict[int, int]:
    """Longest path from start, in a topological order."""
    after: dict[int, list[int]] = {n: [] for n in labels}
    waiting = dict.fromkeys(labels, 0)
    for u, v, _ in edges:
        after[u].append(v)
        waiting[v] += 1
    layer = dict.fromkeys(labels, 0)
    ready = [n for n in labels if not waiting[n]]
    for n in ready:  # grows while it is read
        for v in after[n]:
            layer[v] = max(layer[v], layer[n] + 1)
            waiting[v] -= 1
            if not waiting[v]:
                ready.append(v)
    return layer


# ---- SVG ---------------------------------------------------------------------------------

_TIP = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0 L8 4 L0 8 z" fill="#555"/></marker></defs>'
)
_DASHES = {
    EdgeStyle.COMPLETION: "",
    EdgeStyle.ORDER: ' stroke-dasharray="5 4"',
    EdgeStyle.CARRIED: ' stroke-dasharray="2 3"',
}


def as_svg(graph: Graph) -> str:
    """A picture that stands alone: issue order dashed, edges into a later round of a loop dotted."""
    drawn = drawing(graph)
    width, height = drawn.width, drawn.height
    out = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height + 30:.0f}" '
            f'viewBox="0 0 {width:.0f} {height + 30:.0f}" font-family="Helvetica, Arial, sans-serif">'
        ),
        _TIP,
        f'<rect width="100%" height="100%" fill="white"/><title>{escape(graph.program.name)}</title>',
    ]
    for arrow in drawn.arrows:
        style = f'stroke="#555" stroke-width="1.2"{_DASHES[arrow.line]} marker-end="url(#tip)"'
        out.append(f'<path d="{arrow.path}" fill="none" {style}/>')
    for box in drawn.boxes:
        out += _box_lines(box)
    return "\n".join([*out, *_legend({box.kind for box in drawn.boxes}, height), "</svg>", ""])


def _box_lines(box: Box) -> list[str]:
    radius, lift = (HEIGHT / 2 if box.kind == "end" else 6), (-3 if box.detail else 4)
    out = [
        (
            f'<rect x="{box.left:.1f}" y="{box.top:.1f}" width="{box.width:.1f}" '
            f'height="{HEIGHT}" rx="{radius}" fill="{_FILL[box.kind]}" stroke="#444"/>'
        ),
        f'<text x="{box.x:.1f}" y="{box.y + lift:.1f}" text-anchor="middle" font-size="13">{escape(box.name)}</text>',
    ]
    if box.detail:
        style = 'text-anchor="middle" font-size="10" fill="#555"'
        out.append(f'<text x="{box.x:.1f}" y="{box.y + 12:.1f}" {style}>{escape(box.detail)}</text>')
    return out


def _legend(kinds: set[str], height: float) -> list[str]:
    out, x = [], float(_MARGIN)
    for key in ("gpu", "mpi", "cpu"):
        if key in kinds:
            out.append(f'<rect x="{x}" y="{height + 4:.0f}" width="14" height="14" fill="{_FILL[key]}" stroke="#444"/>')
            out.append(f'<text x="{x + 20}" y="{height + 15:.0f}" font-size="11">{LABEL[key]}</text>')
            x += 40 + 6.2 * len(LABEL[key])
    return out


# ---- ops, accesses and arrays in words -------------------------------------------------------------


def accesses(op: ir.Op) -> list[tuple[ir.Region, Mode]]:
    """The regions that an op of the program reads and writes."""
    if isinstance(op, ir.KernelOp | ir.CollectiveOp):
        return [(a.region, a.mode) for a in op.accesses]
    if isinstance(op, ir.CopyOp):
        return [(op.dst, Mode.OUT), (op.src, Mode.IN)]
    return [pair for m in op.messages for pair in ((m.send, Mode.IN), (m.recv, Mode.OUT))]


def touched(op: ir.GraphOp) -> list[tuple[ir.Region, Mode]]:
    """The regions that one primitive op reads and writes: of a post or wait for one message, only those of that."""
    if op.op is None:
        return []
    if op.staged is not None:
        return [(op.staged.region, Mode.IN if op.action is ir.Action.STAGE_OUT else Mode.OUT)]
    if op.action.of_messages:
        mode = Mode.IN if op.action is ir.Action.POST_SEND else Mode.OUT
        return [(region, mode) for region in op.regions]
    return accesses(op.op)


def stream(op: ir.GraphOp, graph: ir.Graph) -> str:
    """The streams on which an op may be issued."""
    if not op.gpu:
        return "no stream: the CPU issues it"
    worker = ", in a worker thread" if op.in_worker else ""
    if op.stream is not None:
        return f"stream {op.stream}{worker}"
    return ("one stream" if graph.streams == 1 else f"any of {graph.streams} streams") + worker


def size_in_bytes(dims: Sequence[Sym], size: int) -> str:
    """`dims` elements of `size` bytes each: a number, or a product."""
    number, words = size, []
    for dim in dims:
        if isinstance(dim, Const) and isinstance(dim.value, int):
            number *= dim.value
        else:
            words.append(f"({show(dim)})" if not show(dim).isidentifier() else show(dim))
    return f"{' * '.join([str(number), *words])} bytes"


def array_text(array: ir.Array) -> str:
    """`x : f32[n] on device in`."""
    dims = ", ".join("*" if d is None else show(d) for d in array.dims)
    role = f" {array.role.value}" if array.role is not None else ""
    return f"{array.name} : {array.type.value}[{dims}] on {array.place.value}{role}"


def array_size(array: ir.Array) -> str:
    """The size of an array, or the source of the size."""
    known = [d for d in array.dims if d is not None]
    if len(known) < len(array.dims):
        return "length from the set-up"
    return size_in_bytes(known, array.type.size)


def verb(mode: Mode) -> str:
    """The verb for the access of an op to a region."""
    verbs = {Mode.IN: "reads", Mode.OUT: "writes", Mode.INOUT: "reads and writes", Mode.ACCUMULATE: "adds to"}
    return verbs[mode]
