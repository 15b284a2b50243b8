"""Small rewritings (pragmas, indices, stores, signatures, orders of blocks): results, texts, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc.base.source import Source
from dagc.build.mpi import find_mpi
from dagc.build.toolchain import find_cxx
from dagc.emit import emit
from dagc.forms import forms_of, kernel_of, surroundings_of
from dagc.forms.types import Refusal
from dagc.ir.plan import Plan, Target
from dagc.ir.program import Graph
from dagc.lang.lower import lower, parse_with_includes
from dagc.measure.launch import launch
from dagc.setup import run_setup
from dagc.space import Space
from tests.emit.build import graph_of
from tests.emit.together import build_together
from tests.forms.compared import DATA, FLAGS, Compared

SIGNATURE = {"bounds": 2048, "freedom": 2}
ALL = {"index": 2, "stream": 2, "pragma": 8, **SIGNATURE}
ORDERS: tuple[dict[str, int], ...] = ({"columns": 4}, {"strided": 4}, {"persist": 4}, {"columns": 2, "coarsen": 2})
ROWS = Compared(
    "small", ("powers",), "n * m", "x, n, m",
    ({}, ALL, {"wide": 4, **ALL}, {"wide": 2, "strided": 2, **ALL}, {"wide": 4, "columns": 2, "persist": 4}, *ORDERS),
)  # fmt: skip
TURNED = Compared("small", ("turned",), "n * m", "x, n, m", ({}, ALL, {**ALL, "strided": 8}, *ORDERS))
SHARED = Compared(
    "small", ("swapped",), "n * m", "x, n, m", ({}, {"index": 2, "stream": 2}, {**SIGNATURE, "strided": 2}, *ORDERS)
)
SIZES = [(1, 1), (2, 3), (5, 4), (8, 8), (12, 7), (33, 6), (64, 9), (36, 16), (130, 33)]


@pytest.mark.mpi
@pytest.mark.skipif(find_mpi() is None or find_cxx() is None, reason="needs an MPI and a C++ compiler")
@pytest.mark.parametrize("compared", [ROWS, TURNED, SHARED], ids=["rows", "turned", "shared"])
def test_results_are_equal_at_every_remainder(compared: Compared, tmp_path: Path) -> None:
    compared.check(tmp_path, [{"side": side, "width": width} for side, width in SIZES])


def text_of(graph: Graph, site: str) -> str:
    (op,) = (op for op in graph.program.kernel_ops if op.site == site)
    code = kernel_of(graph.program, op)[1].code
    assert code is not None
    return code.text or ""


def test_the_text_of_indices_and_stores() -> None:
    text = text_of(TURNED.graph(), "turned_1")
    assert "#pragma unroll 8\n        for (long k = l;" in text
    assert "#pragma unroll 8\n      while (back > j) --back;" in text
    assert "__stcs(&y[static_cast<unsigned>(i * m + j)], most);  // a comment" in text
    assert "__stcs(&y[static_cast<unsigned>(i * m + j)], back + x[static_cast<unsigned>(i * m + m - 1 - j)]);" in text
    wide = text_of(ROWS.graph(), "powers_2")
    assert "dagc::stream<4>(&y[static_cast<unsigned>(i * m + j)], sum);" in wide


def test_the_orders_of_blocks() -> None:
    graph = SHARED.graph()
    assert "const unsigned block_y = blockIdx.y + part * gridDim.y;" in text_of(graph, "swapped_4")
    assert "const unsigned block_x = 4 * blockIdx.x + part;" in text_of(graph, "swapped_3")
    persistent = text_of(graph, "swapped_5")
    assert "for (unsigned block_y = blockIdx.y; block_y < blocks_y; block_y += gridDim.y) {" in persistent
    assert "if (block_y > blockIdx.y) __syncthreads();" in persistent


LITERALS = """program literals
param side : i64 = 37
setup "small.py" square(side)
array a : f32[side, side] in
array y : f32[side] out
kernel sums(y: out f32[n], a: in f32[n, n], n: i64) {
  gpu {
    launch grid(ceil(n / 32)) block(32)
    cuda \"\"\"
      const int j = blockIdx.x * 32 + threadIdx.x;
      if (j >= n) return;
      float sum = 0;
      for (int i = 0; i < n; ++i) sum += a[i * n + j];
      y[j] = sum;
    \"\"\"
  }
}
dag { one : gpu sums(y, a, side) }
verify y ~ of_columns() rtol 1e-5
"""


@pytest.mark.mpi
@pytest.mark.skipif(find_mpi() is None or find_cxx() is None, reason="needs an MPI and a C++ compiler")
def test_sizes_of_a_call_are_constants_of_its_function(tmp_path: Path) -> None:
    graph = graph_of(LITERALS, **{"one.form.literals": "2", "one.form.bounds": "1024", "one.form.wide": "2"})
    plans = {target: Plan(graph, next(iter(Space(graph))), target) for target in (Target.CUDA, Target.HOST)}
    text = emit(plans[Target.CUDA])["kernels.cu"]

    assert "void __launch_bounds__(32, 32) sums(float* y, const float* a, std::int64_t) {" in text
    assert "constexpr std::int64_t n = 37;" in text
    program = build_together({"one": plans[Target.HOST]}, tmp_path / "bench", flags=FLAGS)["one"]
    run_setup(graph.program, DATA, 1, 0, tmp_path / "data")
    done = launch([program, "--data", tmp_path / "data", "--seconds", "0.001", "--repeats", "1"], 1, timeout=300)
    assert done.returncode == 0, (done.stdout, done.stderr)


# Body of a kernel with `y`, `x`, `m` and `n : i64`, launched with grid(ceil(n / 32)) block(32): the reason, the line.
INDEX = "const int i = blockIdx.x * 32 + threadIdx.x;\nif (i >= n) return;\n"
REFUSED = {
    ("index", INDEX + "y[i] = x[i * n];"): ("no `require` of the kernel shows that an array has at most 2^32", None),
    ("stream", INDEX + "y[i] = x[i];\nx[0] + y[0];"): ("`y` is used by more than stores of its elements", 3),
    ("stream", INDEX + "y[i] += x[i];"): ("`y` is used by more than stores of its elements", 2),
    ("stream", INDEX + "float* at = y + i;\n*at = x[i];"): ("`y` is used by more than stores of its elements", 2),
    ("stream", INDEX + "set(y, x[i]);"): ("`y` is used by more than stores of its elements", 2),
    ("stream", INDEX + "const float a = x[i];"): ("it stores in no array that it only writes", None),
    ("pragma", INDEX + "y[i] = x[i];"): ("it has no inner loop whose end is known only when it runs", None),
    ("pragma", INDEX + "for (int k = 0; k < 4; ++k) y[i] += x[k];"): ("it has no inner loop whose end is known", None),
    ("columns", INDEX + "y[i] = x[i];"): ("the grid has no two axes with blocks", None),
    ("strided", INDEX + "__syncthreads();\ny[i] = x[i];"): ("a thread may return before the `__syncthreads`", 1),
    ("persist", 'asm("nop;");\ny[0] = x[0];'): ("inline PTX is not read", 0),
    ("stream", 'asm("nop;");\ny[0] = x[0];'): ("inline PTX is not read", 0),
    ("freedom", 'asm("nop;");\ny[0] = x[0];'): ("inline PTX is not read", 0),
    ("bounds", 'asm("nop;");\ny[0] = x[0];'): ("inline PTX is not read", 0),
    ("literals", INDEX.replace("n)", "m)") + "y[i] = x[i];"): ("its text uses no size of a grid or an array", None),
    ("literals", INDEX + "n -= 1;\ny[i] = x[i] + n;"): ("its text uses no size of a grid or an array", None),
}


def one(body: str, requires: str = "") -> Graph:
    return graph_of(
        "program one\nscalar n, m : i64\narray x : f32[n * n] in\narray y : f32[n * n] out\n"
        'cuda """ __device__ inline void set(float* y, float a) { y[0] += a; } """\n'
        f"kernel k(y: out f32[n * n], x: in f32[n * n], n: i64, m: i64) {{\n{requires}\n"
        f'gpu {{ launch grid(ceil(n / 32)) block(32) cuda """{body}""" }} }}\ndag {{ a : gpu k(y, x, n, m) }}'
    )


def legal(graph: Graph, form: str) -> tuple[int, ...] | Refusal:
    kernel = graph.program.kernels[0]
    found = forms_of(kernel, kernel.impls[0], surroundings_of(graph.program))
    return {each.name: values for each, values in found}[form]


@pytest.mark.parametrize(("form", "body"), REFUSED)
def test_a_kernel_is_refused_with_the_line(form: str, body: str) -> None:
    found = legal(one(body), form)
    assert isinstance(found, Refusal)
    reason, line = REFUSED[form, body]
    assert (found.reason[: len(reason)], found.line) == (reason, line)


@pytest.mark.parametrize(
    ("requires", "allowed"),
    [
        ("require n * n <= 4294967296", True), ("require 4294967297 > n * n && n > 3", True),
        ("require n <= 65536", True), ("require n * n <= 4294967297", False),
        ("require n <= 65537", False), ("require n * m <= 100", False),
        ("require n >= 100", False), ("require n * n - 10 <= 4294967286", True),
    ],
)  # fmt: skip
def test_what_bounds_indices(requires: str, allowed: bool) -> None:
    assert isinstance(legal(one(INDEX + "y[i * n] = x[i];", requires), "index"), tuple) == allowed


def test_forms_that_do_not_pay_are_searched_where_the_kernel_lists_them() -> None:
    text = (DATA / "small.dag").read_text().replace("KERNELS", "1")
    text += "array y : f32[n * m] on pinned\ndag { a : gpu powers(y, x, n, m)  b : cpu same(apart, y, y, n * m) }"
    listed = text.replace("  tune bx in {32, 64}", "  tune bx in {32, 64}\n  forms {strided}")
    for source, opened in ((text, {"wide", "coarsen"}), (listed, {"strided"})):
        program = lower(parse_with_includes(Source("test.dag", source)), forms=True)
        assert {d.name.removeprefix("a.form.") for d in program.decisions if "form." in d.name} == opened
