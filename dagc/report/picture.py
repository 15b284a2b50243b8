"""The DAG as text, Graphviz dot, or SVG (drawn here: no Graphviz needed)."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from dagc.graph import Action, Graph, GraphOp
from dagc.ir import CopyOp, ExchangeOp, KernelOp

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
    """What the op does, in a few words: the kernel, the copy, the message's array, and fused copies."""
    words = []
    if isinstance(op.op, KernelOp):
        words.append(op.op.kernel if op.op.variant == "default" else f"{op.op.kernel}.{op.op.variant}")
    elif isinstance(op.op, CopyOp):
        words.append(f"{op.op.dst.array} <- {op.op.src.array}")
    elif op.staged is not None:
        words.append(op.staged)
    elif isinstance(op.op, ExchangeOp) and op.message is not None:
        message = op.op.messages[op.message]
        words.append((message.send if op.action is Action.POST_SEND else message.recv).array)
    words += [f"then {array} to the host" for array in op.copy_out]
    words += [f"first {array} to the device" for array in op.copy_in]
    return ", ".join(words)


def as_text(graph: Graph) -> str:
    """One line an op, in file order: kind, name, what it does, what it waits for."""
    names = [op.name for op in graph.ops]
    before: dict[int, list[str]] = {op.id: [] for op in graph.ops}
    for u, v in graph.completion:
        before[v].append(names[u])
    for u, v in graph.order:
        before[v].append(f"{names[u]} (issue order only)")
    width = max(len(name) for name in names)
    lines = [
        f"{graph.program.name}: {len(graph.ops) + 1} vertices with start and end, "
        f"{len(graph.completion) + _starts(graph)} edges; transport={graph.transport.value}"
        + (f" staging={graph.staging.value}" if graph.mirrors else "")
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


@dataclass(frozen=True, slots=True)
class _Box:
    x: float
    y: float
    width: float


def as_svg(graph: Graph) -> str:
    """Layers by longest path from start; the order in a layer follows the mean place of the predecessors."""
    start = len(graph.ops)
    entered = {v for _, v in graph.completion}
    edges = [(start, int(op.id), False) for op in graph.ops if op.id not in entered]
    edges += [(int(u), int(v), False) for u, v in graph.completion] + [(int(u), int(v), True) for u, v in graph.order]
    labels = {int(op.id): (op.name, detail(op)) for op in graph.ops} | {start: ("start", "")}
    kinds = {int(op.id): kind(op) for op in graph.ops} | {start: "end"}
    boxes, width, height = _layout(labels, edges)
    out = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height + 30:.0f}" '
            f'viewBox="0 0 {width:.0f} {height + 30:.0f}" font-family="Helvetica, Arial, sans-serif">'
        ),
        (
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0 0 L8 4 L0 8 z" fill="#555"/></marker></defs>'
        ),
        f'<rect width="100%" height="100%" fill="white"/><title>{escape(graph.program.name)}</title>',
    ]
    for u, v, dashed in edges:
        a, b = boxes[u], boxes[v]
        x1, y1, x2, y2 = a.x, a.y + _HEIGHT / 2, b.x, b.y - _HEIGHT / 2
        bend = (y2 - y1) / 2
        style = ' stroke-dasharray="5 4"' if dashed else ""
        out.append(
            f'<path d="M{x1:.1f} {y1:.1f} C{x1:.1f} {y1 + bend:.1f} {x2:.1f} {y2 - bend:.1f} {x2:.1f} {y2:.1f}" '
            f'fill="none" stroke="#555" stroke-width="1.2"{style} marker-end="url(#tip)"/>'
        )
    for n, (name, what) in labels.items():
        box = boxes[n]
        radius = _HEIGHT / 2 if kinds[n] == "end" else 6
        out.append(
            f'<rect x="{box.x - box.width / 2:.1f}" y="{box.y - _HEIGHT / 2:.1f}" width="{box.width:.1f}" '
            f'height="{_HEIGHT}" rx="{radius}" fill="{_FILL[kinds[n]]}" stroke="#444"/>'
        )
        lift = -3 if what else 4
        out.append(
            f'<text x="{box.x:.1f}" y="{box.y + lift:.1f}" text-anchor="middle" font-size="13">{escape(name)}</text>'
        )
        if what:
            out.append(
                f'<text x="{box.x:.1f}" y="{box.y + 12:.1f}" text-anchor="middle" font-size="10" fill="#555">'
                f"{escape(what)}</text>"
            )
    x = float(_MARGIN)
    for key in ("gpu", "mpi", "cpu"):
        if key in kinds.values():
            out.append(f'<rect x="{x}" y="{height + 4:.0f}" width="14" height="14" fill="{_FILL[key]}" stroke="#444"/>')
            out.append(f'<text x="{x + 20}" y="{height + 15:.0f}" font-size="11">{_LABEL[key]}</text>')
            x += 40 + 6.2 * len(_LABEL[key])
    return "\n".join([*out, "</svg>", ""])


def _layout(
    labels: dict[int, tuple[str, str]], edges: list[tuple[int, int, bool]]
) -> tuple[dict[int, _Box], float, float]:
    before: dict[int, list[int]] = {n: [] for n in labels}
    for u, v, _ in edges:
        before[v].append(u)
    after: dict[int, list[int]] = {n: [] for n in labels}
    for u, v, _ in edges:
        after[u].append(v)
    layer = dict.fromkeys(labels, 0)
    left_over = {n: len(before[n]) for n in labels}
    ready = [n for n in labels if not before[n]]
    for n in ready:  # grows while it is read: a topological order
        for v in after[n]:
            layer[v] = max(layer[v], layer[n] + 1)
            left_over[v] -= 1
            if not left_over[v]:
                ready.append(v)
    sizes = {n: 24 + max(7.6 * len(name), 5.6 * len(what)) for n, (name, what) in labels.items()}
    rows: dict[int, list[int]] = {}
    for n in labels:
        rows.setdefault(layer[n], []).append(n)
    place: dict[int, float] = {}
    for depth_ in sorted(rows):
        row = rows[depth_]
        row.sort(key=lambda n: (sum(place[u] for u in before[n]) / len(before[n]) if before[n] else 0.0, n))
        total = sum(sizes[n] for n in row) + _GAP * (len(row) - 1)
        x = -total / 2
        for n in row:
            place[n] = x + sizes[n] / 2
            x += sizes[n] + _GAP
    left = min(place[n] - sizes[n] / 2 for n in labels)
    right = max(place[n] + sizes[n] / 2 for n in labels)
    boxes = {n: _Box(place[n] - left + _MARGIN, layer[n] * _ROW + _MARGIN + _HEIGHT / 2, sizes[n]) for n in labels}
    return boxes, right - left + 2 * _MARGIN, max(layer.values()) * _ROW + _HEIGHT + 2 * _MARGIN
