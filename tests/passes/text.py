"""Small programs as text, lowered."""

from __future__ import annotations

from dagc.base.errors import Diagnostic
from dagc.base.source import Source
from dagc.ir.program import Graph, Program
from dagc.lang.lower import lower, parse_with_includes
from dagc.passes import build_graph, graph_with_diagnostics

KERNELS = '''
kernel fill(y: out f32[8]) {
  gpu { launch grid(1) block(8) cuda """y[threadIdx.x] = 1;""" }
}
kernel sum(y: accumulate f32[8], x: in f32[8]) {
  gpu { launch grid(1) block(8) cuda """atomicAdd(&y[threadIdx.x], x[threadIdx.x]);""" }
}
kernel add(y: inout f32[8], x: in f32[8]) {
  gpu { launch grid(1) block(8) cuda """y[threadIdx.x] += x[threadIdx.x];""" }
}
'''


def program(dag: str, arrays: str, **choices: str) -> Program:
    """`dag` is the body of the graph, `arrays` a line of declarations; kernels: fill(y), sum(y, x), add(y, x)."""
    source = Source("small.dag", f"program small\n{arrays}\n{KERNELS}\ndag {{\n{dag}\n}}\n")
    return lower(parse_with_includes(source), choices)


def graph(dag: str, arrays: str, **choices: str) -> Graph:
    return build_graph(program(dag, arrays, **choices))


def findings(dag: str, arrays: str, **choices: str) -> tuple[Diagnostic, ...]:
    found, diagnostics = graph_with_diagnostics(program(dag, arrays, **choices))
    assert found is None
    return diagnostics


def edges(graph: Graph) -> set[str]:
    """Completion edges as `u -> v`, those into `end` left out."""
    names = [op.name for op in graph.ops]
    return {f"{names[u]} -> {names[v]}" for u, v in graph.completion if names[v] != "end"}
