"""`dagc show --format html`: every op and edge with its reason, the text beside it, and no markup from the text."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from dagc import api
from dagc.base.source import Source, Span
from dagc.cli.main import main
from dagc.ir.enums import Mode
from dagc.ir.program import Graph, GraphOp
from dagc.passes.edges import HAZARDS, Why, carried, reasons
from dagc.passes.loops import fold
from dagc.recipes.show import page
from dagc.report.picture import as_dot, as_svg, as_text
from tests.graphs import make_graph

SAMPLES = Path(__file__).parents[2] / "samples"
FILES = sorted(SAMPLES.glob("*/*.dag"))
HEAT = SAMPLES / "heat/heat.dag"
MARKUP = (
    "</script></style></svg><img src=x onerror=alert(1) id=\"a\">' onload='x' --> ]]> &lt; `x` {{ 7*7 }} \u202e\x1b[2J"
)


class Elements(HTMLParser):
    """What is on a page: elements and attributes, ids, links within it, words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: Counter[tuple[str, ...]] = Counter()
        self.ids: Counter[str] = Counter()
        self.links: set[str] = set()
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.update([(tag,), *((tag, name) for name, _ in attrs)])
        values = dict(attrs)
        if "id" in values:
            self.ids[str(values["id"])] += 1
        self.links |= {str(v) for k in ("data-about", "data-of", "data-line") if (v := values.get(k))}
        self.links |= {str(v)[1:] for k, v in values.items() if k == "href" and str(v).startswith("#")}
        self.links |= set(str(values.get("data-ends", "")).split())

    def handle_data(self, data: str) -> None:
        self.words.append(data)


# ---- reasons --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_edge_has_a_reason(path: Path) -> None:
    """And a hazard's is true: both ops touch the array, the one as it is said before the other."""
    graph = api.load_graph(path)
    why = reasons(graph)
    assert why.keys() == {*graph.completion, *graph.order}
    assert all(why.values())
    touched = {(t.end, t.region, t.mode is Mode.IN) for t in graph.touches}
    for (u, v), found in why.items():
        assert {r.why for r in found} != {Why.ROUNDS}
        for reason in found:
            if reason.why in HAZARDS:
                assert reason.first is not None
                assert reason.second is not None
                assert reason.first.array == reason.second.array
                assert (u, reason.first, reason.why is Why.WAR) in touched
                assert f"`{graph.ops[u].name}`" in reason.text
                assert f"`{graph.ops[v].name}`" in reason.text
                assert reason.spans
    inferred = not graph.program.explicit
    if inferred:  # without edges in the text, each comes from a hazard, a message, or the end
        plain = {r.why for found in why.values() for r in found}
        assert plain <= {*HAZARDS, Why.MESSAGE, Why.END, Why.WRITTEN}


def test_reasons_of_rounds() -> None:
    graph = fold(api.load_graph(HEAT))
    assert graph.folding is not None
    why, later = reasons(graph), carried(graph)
    assert why.keys() >= later.keys() | set(graph.completion)
    first, inner = (graph.by_name(name).id for name in ("first[t]", "inner[t]"))
    assert later[first, inner] == 1
    assert {r.why for r in why[first, inner]} == {Why.WAR, Why.RAW}


def test_folded_drawings() -> None:
    """The edges into the next round are in each of them."""
    graph = fold(api.load_graph(HEAT))
    assert "inner[t] (1 round earlier)" in as_text(graph)
    assert as_text(graph).splitlines()[0].endswith(", one round of each loop")
    assert len(re.findall(r"constraint=false", as_dot(graph))) == len(carried(graph))
    assert as_svg(graph).count('stroke-dasharray="2 3"') == len(carried(graph))


# ---- the page -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["spmv", "heat", "halo3d", "port"])
def test_all_ops_edges_and_lines_are_there(name: str) -> None:
    """Of files of code, which the program names, nothing is shown."""
    path = SAMPLES / name / f"{name}.dag"
    graph = api.load_graph(path)
    text = api.show(path, format="html")
    found = Elements(text)
    ids = found.ids
    assert {f"all-op-{op.id}" for op in graph.ops} <= ids.keys()
    assert sum(i.startswith("all-edge-") for i in ids) == len(graph.completion) + len(graph.order)
    lines = len(path.read_text().splitlines())
    assert {f"s0-{n}" for n in range(1, lines + 1)} == {i for i in ids if re.match(r"s\d+-", i)}
    assert found.links <= ids.keys()
    assert set(ids.values()) == {1}
    assert "".join(found.words).count(path.read_text().splitlines()[0]) == 1
    folded = fold(graph)
    assert sum(i.startswith("one-op-") for i in ids) == (len(folded.ops) if folded is not graph else 0)
    assert not re.search(r"(?:src|href)=.?(?:https?:)?//", text.replace("http://www.w3.org", ""))


def test_it_says_what_an_engineer_asks(tmp_path: Path) -> None:
    assert main(["show", str(SAMPLES / "spmv/spmv.dag"), "--format", "html", "-o", str(tmp_path / "p.html")]) == 0
    words = " ".join("".join(Elements((tmp_path / "p.html").read_text()).words).split())
    assert "wait_recv writes the staging buffer of x_r , then yr reads it" in words.replace("x_r,", "x_r ,")
    assert "y_r : f32[n] on device, 4 * n bytes" in words
    assert "any of 2 streams" in words
    assert "thread_per_row of thread_per_row, warp_per_row" in words
    assert "64 of 64, 128, 256, 512" in words


def _with_text(graph: Graph, text: str) -> Graph:
    """With `text` in its path, its name, its source, and the names of its ops (which have no backquotes)."""
    path = f"/{text}/a.dag"
    source = Source(path, f"// {text}\nprogram p\n")
    ops = tuple(
        GraphOp(
            op.id,
            op.name + (text.replace("`", "") if op.name != "end" else ""),
            op.gpu,
            op.action,
            span=Span(0, 3, path),
        )
        for op in graph.ops
    )
    program = replace(graph.program, name=text, path=path, sources={path: source})
    return replace(graph, program=program, ops=ops)


def test_a_hostile_text_is_inert() -> None:
    graph = make_graph([("a", True), ("b", False), ("c", True)], [("a", "b")], order=[("a", "c")])
    clean, hostile = (page(_with_text(graph, text)) for text in ("word", MARKUP))
    assert Elements(hostile).found == Elements(clean).found
    for end in ("</script", "</style", "</svg"):
        assert hostile.count(end) == clean.count(end)
    assert "\x1b" not in hostile
    assert "\u202e" not in hostile


def test_a_graph_that_is_too_large_is_listed(tmp_path: Path) -> None:
    """In seconds, and as a page that a browser can open."""
    path = tmp_path / "long.dag"
    path.write_text(
        "program long\nlet k = 2000\narray a : f32[8] inout\n"
        'kernel f(a: inout f32[8]) { gpu { launch grid(1) block(8) cuda """a[threadIdx.x] += 1;""" } }\n'
        "dag { for t in 0..k { x[t] : gpu f(a) } }\n"
    )
    text = api.show(path, format="html")
    assert "too many edges, to draw" in text
    assert 'id="one-op-0"' in text  # one round is drawn, and shown first
    assert text.index('<option value="one">') < text.index('<option value="all">')
    assert len(text) < 4_000_000


def test_a_page_of_many_edges_is_small(tmp_path: Path) -> None:
    """Each post precedes each wait: 20 000 edges, of which the page has some, and says how many it lacks."""
    path = tmp_path / "many.dag"
    path.write_text(
        "program many\nscalar p : i32\nfor i in 0..100 { array a[i], b[i] : f32[8] inout }\n"
        "dag { x : mpi exchange { for i in 0..100 { m[i] : send a[i] to p  recv b[i] from p } } }\n"
    )
    text = api.show(path, {"transport": "mpi_cuda"}, format="html")
    assert len(text) < 8_000_000
    assert re.search(r"\d{5} more edges are not listed", text)
    assert Elements(text).links <= Elements(text).ids.keys()


def test_fold_changes_what_is_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(HEAT), "--fold", "--quiet"]) == 0
    assert "inner[t]" in capsys.readouterr().out
    text = api.show(HEAT, format="html", folded=True)
    assert text.index('<option value="one">') < text.index('<option value="all">')
