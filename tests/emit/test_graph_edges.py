"""Edges of CUDA graphs to kernels: full, programmatic, or with an early start of what depends on a kernel."""

from __future__ import annotations

import pytest

from dagc import api
from dagc.emit import emit
from dagc.ir.plan import Plan, Target
from dagc.ir.program import GRAPH_EDGES
from dagc.lab.configurations import configurations, open_decisions
from dagc.space import Space
from dagc.study.decisions import with_automatic
from tests.emit.build import SPMV, graph_of

WAIT, START = "dagc::wait_for_dependencies();", "dagc::let_dependents_start();"
PROGRAM = """
program pair
param n : i32 = 64
array a : f64[n] on device out
array b : f64[n] on device out
{code}
kernel first(a: out f64[n]) {{
  gpu {{
    launch grid(1) block(n)
    cuda \"\"\" a[threadIdx.x] = threadIdx.x; \"\"\"
  }}
}}
kernel second(b: out f64[n], a: in f64[n]) {{
  gpu {{
    launch grid(1) block(n)
    cuda \"\"\" b[threadIdx.x] = {read}; \"\"\"
  }}
}}
dag {{
  write : gpu first(a)
  copy_ : gpu second(b, a)
}}
"""
PLAIN = "a[threadIdx.x]"


def kernels(target: Target = Target.CUDA, read: str = PLAIN, code: str = "", **defines: str) -> str:
    graph = graph_of(PROGRAM.format(read=read, code=code), **{"capture": "true", **defines})
    return emit(Plan(graph, Space(graph).first(), target))["kernels.cu"]


def body_of(text: str, kernel: str) -> list[str]:
    """The statements that dagc writes at the start of a kernel."""
    return text.split(f"void {kernel}(", 1)[1].split("#line", 1)[0].split("{", 1)[1].split("\n")


def test_a_kernel_waits_before_its_text_and_then_lets_others_start() -> None:
    programmatic, early = kernels(graph_edges="programmatic"), kernels(graph_edges="early")
    for kernel in ("first", "second"):
        assert [s.strip() for s in body_of(programmatic, kernel)] == ["", WAIT, ""]
        assert [s.strip() for s in body_of(early, kernel)] == ["", WAIT, START, ""]
    assert "waiting_kernels(first, second);" in early


@pytest.mark.parametrize(
    ("target", "defines"),
    [
        (Target.CUDA, {}),
        (Target.CUDA, {"graph_edges": "full"}),
        (Target.CUDA, {"graph_edges": "early", "capture": "false"}),
        (Target.HOST, {"graph_edges": "early"}),
    ],
)
def test_without_graphs_and_on_the_host_no_kernel_waits(target: Target, defines: dict[str, str]) -> None:
    assert "dagc::wait" not in kernels(target, **defines)


def test_a_kernel_whose_loads_may_precede_its_wait_has_full_edges() -> None:
    text = kernels(read=f"__ldg(&{PLAIN})", graph_edges="early")
    assert "waiting_kernels(first);" in text
    helper = 'cuda """ __device__ double of(const double* a) { return __ldg(a); } """'
    assert "dagc::wait" not in kernels(read="of(a + threadIdx.x)", code=helper, graph_edges="early")
    free = kernels(read=f"1; b[threadIdx.x] += {PLAIN}", **{"graph_edges": "early", "copy_.form.freedom": "2"})
    assert "__restrict__" in free
    assert "waiting_kernels(first);" in free


def test_edges_are_choices_of_captured_programs_alone() -> None:
    program = api.load(SPMV)
    opened = open_decisions(program, ["capture", GRAPH_EDGES], ())
    found, _ = configurations(opened, lambda choices: api.load_graph(SPMV, choices))
    assert [(c.configuration["capture"], c.configuration.get(GRAPH_EDGES)) for c in found] == [
        (False, None),
        (True, None),
        (True, "programmatic"),
        (True, "early"),
    ]
    captured = {GRAPH_EDGES: opened[GRAPH_EDGES]}
    fixed, _ = configurations(captured, lambda choices: api.load_graph(SPMV, {**choices, "capture": True}))
    assert [c.configuration.get(GRAPH_EDGES) for c in fixed] == [None, "programmatic", "early"]


def test_a_search_opens_them_where_it_searches_graphs() -> None:
    program = graph_of(PROGRAM.format(read=PLAIN, code="")).program
    assert with_automatic(program, {"capture": (False, True)}, {"transport"})[0][GRAPH_EDGES] == ("full", "early")
    for captured, closed in (((False,), set()), ((False, True), {GRAPH_EDGES})):
        assert GRAPH_EDGES not in with_automatic(program, {"capture": captured}, {"transport", *closed})[0]
