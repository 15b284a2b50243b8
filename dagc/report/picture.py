"""The DAG as text, Graphviz dot, or SVG (drawn here: no Graphviz needed)."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from dagc.base.errors import counted
from dagc.ir.program import Action, CopyOp, ExchangeOp, Graph, GraphOp, KernelOp
from dagc.ir.sym import show

_FILL = {"gpu": "#d9ead3", "mpi": "#cfe2f3", "cpu": "#fff2cc", "end": "#eeeeee"}
_LABEL = {"gpu": "GPU (asynchronous, on a stream)", "mpi": "MPI", "cpu": "CPU", "end": "start, end"}


def kind(op: GraphOp) -> str:
    """gpu, mpi, cpu or end."""
    if op.action is Action.END:
        return "end"
    if op.gpu:
        return "gpu"
    return "cpu" if op.action is Action.KERNEL else "mpi"


def detail(op: GraphOp) -> str:
    """The op's action in a few words: the kernel, the copy, the message's array, and fused copies."""
    words = []
    if isinstance(op.op, KernelOp):
        words.append(op.op.kernel if op.op.variant == "default" else f"{op.op.kernel}.{op.op.variant}")
    elif isinstance(op.op, CopyOp):
        words.append(f"{op.op.dst.array} <- {op.op.src.array}")
    elif op.staged is not None:
        words.append(op.staged.region.text)
    elif isinstance(op.op, ExchangeOp) and op.message is not None:
        message = op.op.messages[op.message]
        words.append((message.send if op.action is Action.POST_SEND else message.recv).array)
    elif isinstance(op.op, ExchangeOp) and op.action is Action.GROUP:
        words += list(dict.fromkeys(f"{m.send.text} to {m.recv.text}" for m in op.op.messages))
    asked = op.op.messages[op.message] if isinstance(op.op, ExchangeOp) and op.message is not None else op.op
    when = getattr(asked, "when", None)
    words += [f"if {show(when)}"] if when is not None else []
    words += [f"then {staged.region.text} to the host" for staged in op.copy_out]
    words += [f"first {staged.region.text} to the device" for staged in op.copy_in]
    return ", ".join(words)


def as_text(graph: Graph) -> str:
    """One line per op, in file order: kind, name, action, predecessors."""
    names = [op.name for op in graph.ops]
    before: dict[int, list[str]] = {op.id: [] for op in graph.ops}
    for u, v in graph.completion:
        before[v].append(names[u])
    for u, v in graph.order:
        before[v].append(f"{names[u]} (issue order only)")
    width = max(len(name) for name in names)
    lines = [
        f"{graph.program.name}: {len(graph.ops) + 1} vertices with start and end, "
        f"{counted(len(graph.completion) + _starts(graph), 'edge')}; transport={graph.transport.value}"
        + (f" staging={graph.staging.value}" if graph.staged else "")
        + f" streams={graph.streams}"
    ]
    for op in graph.ops:
        what = detail(op)
        after = ", ".join(before[op.id]) or "start"
        lines.append(f"  {kind(op):3}  {op.name:{width}}  after {after}" + (f"   [{what}]" if what else ""))
    return "\n".join(lines) + "\n"


def _starts(graph: Graph) -> int:
    """Edges out of `start`, which is implied."""
    return len(graph.ops) - len({v for _, v in graph.completion})


def as_dot(graph: Graph) -> str:
    """Graphviz: completion edges solid, issue order dashed."""
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
    entered = {v for _, v in graph.completion}
    lines += [f"  start -> n{op.id};" for op in graph.ops if op.id not in entered]
    lines += [f"  n{u} -> n{v};" for u, v in graph.completion]
    lines += [f"  n{u} -> n{v} [style=dashed];" for u, v in graph.order]
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


# ---- SVG -------------------------------------------------------------------------------

_ROW, _GAP, _HEIGHT, _MARGIN = 78, 22, 40, 20
_TIP = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0 L8 4 L0 8 z" fill="#555"/></marker></defs>'
)


@dataclass(frozen=True, slots=True)
class _Box:
    x: float
    y: float
    width: float


def as_svg(graph: Graph) -> str:
    """Layers by longest path from start; an edge over several layers has its own lane in each of them."""
    start = len(graph.ops)
    entered = {v for _, v in graph.completion}
    edges = [(start, int(op.id), False) for op in graph.ops if op.id not in entered]
    edges += [(int(u), int(v), False) for u, v in graph.completion] + [(int(u), int(v), True) for u, v in graph.order]
    labels = {int(op.id): (op.name, detail(op)) for op in graph.ops} | {start: ("start", "")}
    kinds = {int(op.id): kind(op) for op in graph.ops} | {start: "end"}
    boxes, lanes, width, height = _layout(labels, edges)
    out = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height + 30:.0f}" '
            f'viewBox="0 0 {width:.0f} {height + 30:.0f}" font-family="Helvetica, Arial, sans-serif">'
        ),
        _TIP,
        f'<rect width="100%" height="100%" fill="white"/><title>{escape(graph.program.name)}</title>',
    ]
    for (u, v, dashed), between in zip(edges, lanes, strict=True):
        style = ' stroke-dasharray="5 4"' if dashed else ""
        path = _curve(boxes[u], [boxes[lane] for lane in between], boxes[v])
        out.append(f'<path d="{path}" fill="none" stroke="#555" stroke-width="1.2"{style} marker-end="url(#tip)"/>')
    for n, text in labels.items():
        out += _box_lines(boxes[n], text, kinds[n])
    return "\n".join([*out, *_legend(set(kinds.values()), height), "</svg>", ""])


def _curve(first: _Box, lanes: list[_Box], last: _Box) -> str:
    """Leaves and enters boxes and lanes vertically, so that it stays between the boxes of a layer."""
    half = _HEIGHT / 2
    x, y = first.x, first.y + half
    path = [f"M{x:.1f} {y:.1f}"]
    stops = [point for lane in lanes for point in ((lane.x, lane.y - half), (lane.x, lane.y + half))]
    for to_x, to_y in [*stops, (last.x, last.y - half)]:
        bend = (to_y - y) / 2
        path.append(f"C{x:.1f} {y + bend:.1f} {to_x:.1f} {to_y - bend:.1f} {to_x:.1f} {to_y:.1f}")
        x, y = to_x, to_y
    return " ".join(path)


def _box_lines(box: _Box, text: tuple[str, str], kind_: str) -> list[str]:
    name, what = text
    radius, lift = (_HEIGHT / 2 if kind_ == "end" else 6), (-3 if what else 4)
    out = [
        (
            f'<rect x="{box.x - box.width / 2:.1f}" y="{box.y - _HEIGHT / 2:.1f}" width="{box.width:.1f}" '
            f'height="{_HEIGHT}" rx="{radius}" fill="{_FILL[kind_]}" stroke="#444"/>'
        ),
        f'<text x="{box.x:.1f}" y="{box.y + lift:.1f}" text-anchor="middle" font-size="13">{escape(name)}</text>',
    ]
    if what:
        style = 'text-anchor="middle" font-size="10" fill="#555"'
        out.append(f'<text x="{box.x:.1f}" y="{box.y + 12:.1f}" {style}>{escape(what)}</text>')
    return out


def _legend(kinds: set[str], height: float) -> list[str]:
    out, x = [], float(_MARGIN)
    for key in ("gpu", "mpi", "cpu"):
        if key in kinds:
            out.append(f'<rect x="{x}" y="{height + 4:.0f}" width="14" height="14" fill="{_FILL[key]}" stroke="#444"/>')
            out.append(f'<text x="{x + 20}" y="{height + 15:.0f}" font-size="11">{_LABEL[key]}</text>')
            x += 40 + 6.2 * len(_LABEL[key])
    return out


def _layout(
    labels: dict[int, tuple[str, str]], edges: list[tuple[int, int, bool]]
) -> tuple[dict[int, _Box], list[list[int]], float, float]:
    """Boxes of nodes and of lanes (negative ids), the lanes of each edge, width, height."""
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
    place: dict[int, float] = {}
    for depth in range(max(layer.values()) + 1):
        row = [n for n in layer if layer[n] == depth]
        row.sort(key=lambda n: (sum(place[u] for u in before[n]) / len(before[n]) if before[n] else 0.0, n))
        x = -(sum(sizes[n] for n in row) + _GAP * (len(row) - 1)) / 2
        for n in row:
            place[n] = x + sizes[n] / 2
            x += sizes[n] + _GAP
    left = min(place[n] - sizes[n] / 2 for n in place)
    right = max(place[n] + sizes[n] / 2 for n in place)
    boxes = {n: _Box(place[n] - left + _MARGIN, layer[n] * _ROW + _MARGIN + _HEIGHT / 2, sizes[n]) for n in place}
    return boxes, lanes, right - left + 2 * _MARGIN, max(layer.values()) * _ROW + _HEIGHT + 2 * _MARGIN


def _layers(labels: dict[int, tuple[str, str]], edges: list[tuple[int, int, bool]]) -> dict[int, int]:
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
