"""Pictures of the DAG: every op and every edge is in each of them, whatever their names."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from dagc import api
from dagc.base.errors import UsageError
from dagc.report.picture import as_dot, as_svg, as_text, kind
from tests.graphs import make_graph

SAMPLES = Path(__file__).parents[2] / "samples"
FILES = sorted(SAMPLES.glob("*/*.dag"))
SVG = "{http://www.w3.org/2000/svg}"


def _svg(text: str) -> ET.Element:
    return ET.fromstring(text)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_svg_has_all_ops_and_edges(path: Path) -> None:
    graph = api.load_graph(path)
    root = _svg(api.show(path, format="svg"))
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert {op.name for op in graph.ops} | {"start"} <= set(texts)
    entered = {v for _, v in graph.completion}
    arrows = [e for e in root.iter(f"{SVG}path") if e.get("marker-end")]
    assert len(arrows) == len(graph.completion) + len(graph.order) + len(graph.ops) - len(entered)
    assert sum(e.get("stroke-dasharray") is not None for e in arrows) == len(graph.order)


def test_svg_boxes_are_inside_and_apart() -> None:
    root = _svg(api.show(SAMPLES / "halo3d/halo3d.dag", format="svg"))
    width, height = float(root.get("width", "")), float(root.get("height", ""))
    boxes = [
        tuple(float(e.get(name, "")) for name in ("x", "y", "width", "height"))
        for e in root.iter(f"{SVG}rect")
        if e.get("rx")
    ]
    assert len(boxes) == 33
    for i, (x, y, w, h) in enumerate(boxes):
        assert x >= 0
        assert y >= 0
        assert x + w <= width
        assert y + h <= height
        assert all(x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y for x2, y2, w2, h2 in boxes[i + 1 :]), (
            "boxes overlap"
        )


AWKWARD = make_graph([('a"b\\c', True), ("x<&>y", False), ("u", True)], [('a"b\\c', "x<&>y")], order=[("u", "x<&>y")])


def test_names_are_escaped() -> None:
    assert {'a"b\\c', "x<&>y"} <= {element.text for element in _svg(as_svg(AWKWARD)).iter(f"{SVG}text")}
    assert 'n0 [label="a\\"b\\\\c"' in as_dot(AWKWARD)
    assert 'n1 [label="x<&>y"' in as_dot(AWKWARD)


def test_dot() -> None:
    lines = as_dot(AWKWARD).splitlines()
    assert (lines[0], lines[-1]) == ('digraph "test" {', "}")
    assert {"  start -> n0;", "  start -> n2;", "  n0 -> n1;"} <= set(lines)
    assert "  n2 -> n1 [style=dashed];" in lines
    assert "  start -> n1;" not in lines
    # Outside of quoted strings there is nothing but identifiers and punctuation.
    for line in lines:
        bare = re.sub(r'"(?:\\.|[^"\\])*"', "", line)
        assert '"' not in bare


def test_text_names_what_each_op_waits_for() -> None:
    lines = as_text(AWKWARD).splitlines()
    assert lines[0] == "test: 5 vertices with start and end, 5 edges; transport=mpi_cuda streams=2"
    assert lines[2].split() == ["cpu", "x<&>y", "after", 'a"b\\c,', "u", "(issue", "order", "only)"]
    spmv = api.show(SAMPLES / "spmv/spmv.dag")
    assert re.search(r"gpu +pack +after start +\[gather, then x_send to the host\]", spmv)
    assert re.search(r"mpi +wait_send +after post_recv, post_send", spmv)
    assert re.search(r"gpu +yr +after wait_recv +\[spmv\.thread_per_row, first x_r to the device\]", spmv)


def test_kinds() -> None:
    graph = api.load_graph(SAMPLES / "tridiag/tridiag.dag")
    assert kind(graph.by_name("stage2")) == "cpu"
    assert kind(graph.by_name("stage1[0]")) == "gpu"
    assert kind(graph.ops[-1]) == "end"
    assert kind(api.load_graph(SAMPLES / "spmv/spmv.dag").by_name("post_send")) == "mpi"


def test_unknown_format() -> None:
    with pytest.raises(UsageError, match="unknown format png"):
        api.show(SAMPLES / "spmv/spmv.dag", format="png")


@pytest.mark.parametrize("transport", ["nccl", "peer"])
def test_a_grouped_exchange_says_what_it_moves(transport: str) -> None:
    text = as_text(api.load_graph(SAMPLES / "spmv/spmv.dag", {"transport": transport}))
    assert f"transport={transport}" in text
    assert "[x_send to x_r]" in text
