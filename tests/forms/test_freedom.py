"""Arrays that do not overlap: the signature that is emitted, results, and kernels that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc.build.mpi import find_mpi
from dagc.build.toolchain import find_cxx
from dagc.emit import emit
from dagc.forms import forms_of, surroundings_of
from dagc.forms.freedom import FREEDOM
from dagc.forms.types import Refusal
from dagc.ir.plan import Plan, Target
from dagc.ir.program import Graph
from dagc.measure.launch import launch
from dagc.perf.geometry import read_accesses
from dagc.setup import run_setup
from dagc.space import Space
from tests.emit.build import graph_of
from tests.emit.together import build_together

DATA = Path(__file__).parent / "data"
SUMS = """program sums
param side : i64 = 37
setup "freedom.py" numbers(side)
scalar n : i64
array a : f32[n, n] in
array y : f32[n] out
kernel sums(y: out f32[n], a: in f32[n, n], n: i64) {
  gpu {
    array seen : f32[n]
    launch grid(ceil(n / 32)) block(32)
    cuda \"\"\"
      const int j = blockIdx.x * 32 + threadIdx.x;
      if (j >= n) return;
      y[j] = seen[j] = 0;
      for (int i = 0; i < n; ++i) y[j] += a[i * n + j] + seen[j];
    \"\"\"
  }
}
dag { one : gpu sums(y, a, n)  two : gpu sums(y, a, n) }
verify y ~ of_columns() rtol 1e-5
"""


def plan(text: str, target: Target, **defines: str) -> Plan:
    graph: Graph = graph_of(text, **defines)
    return Plan(graph, next(iter(Space(graph))), target)


def test_the_signature_of_the_op_that_has_the_form() -> None:
    text = emit(plan(SUMS, Target.CUDA, **{"two.form.freedom": "2"}))["kernels.cu"]
    assert "sums(float* y, const float* a, std::int64_t n, float* seen)" in text
    only = "__restrict__"
    assert f"sums_freedom2(float* {only} y, const float* {only} a, std::int64_t n, float* {only} seen)" in text


@pytest.mark.mpi
@pytest.mark.skipif(find_mpi() is None or find_cxx() is None, reason="needs an MPI and a C++ compiler")
def test_results_are_right_with_the_other_forms(tmp_path: Path) -> None:
    forms = {"two.form.freedom": "2", "two.form.wide": "4", "two.form.coarsen": "2"}
    made = plan(SUMS, Target.HOST, **forms)
    program = build_together({"sums": made}, tmp_path / "bench", flags=("-O0", "-Wall", "-Wextra", "-Werror"))["sums"]
    run_setup(made.graph.program, DATA, 1, 0, tmp_path / "data")
    done = launch([program, "--data", tmp_path / "data", "--seconds", "0.001", "--repeats", "1"], 1, timeout=300)
    assert done.returncode == 0, (done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("formals", "body", "reason"),
    [
        ("y: out f32[n], x: in f32[n], n: i64", "y[0] = x[0]; y[1] = x[0];", ""),
        ("y: out f32[n], x: in f32[n], n: i64", "for (int i = 0; i < n; ++i) y[0] += x[i];", ""),
        ("y: out f32[n], n: i64", "y[0] = 1;", "it has no two arrays of which it writes one"),
        ("y: out f32[n], x: in f32[n], n: i64", "const_cast<float*>(x)[0] = y[0] = 1;", "`const_cast`: it may write"),
    ],
)
def test_kernels_that_are_refused(formals: str, body: str, reason: str) -> None:
    arguments = "y, x, n" if "x:" in formals else "y, n"
    program = graph_of(
        f"program one\nscalar n : i64\narray x : f32[n] in\narray y : f32[n] out\nkernel k({formals}) {{\n"
        f'gpu {{ launch grid(1) block(1) cuda """ {body} """ }} }}\ndag {{ a : gpu k({arguments}) }}'
    ).program
    found = dict(forms_of(program.kernels[0], program.kernels[0].impls[0], surroundings_of(program)))[FREEDOM]
    assert (found.reason if isinstance(found, Refusal) else "").startswith(reason)
    assert isinstance(found, Refusal) == bool(reason)


def test_searches_leave_it_out_where_no_load_follows_a_store() -> None:
    found = {"float a = x[0]; y[0] += x[1] + a;": "it loads nothing after a store", "y[0] = x[0]; y[1] = x[0];": ""}
    for body, reason in found.items():
        program = graph_of(
            "program one\nscalar n : i64\narray x : f32[n] in\narray y : f32[n] out\n"
            "kernel k(y: out f32[n], x: in f32[n], n: i64) "
            f'{{ gpu {{ launch grid(1) block(1) cuda """ {body} """ }} }}\n'
            "dag { a : gpu k(y, x, n) }"
        ).program
        assert FREEDOM.unproven(program.kernels[0].impls[0]) == reason


def test_models_keep_sums_in_registers() -> None:
    program = plan(SUMS, Target.CUDA, **{"two.form.freedom": "2"}).program
    one, two = (read_accesses(program, op).accesses for op in program.kernel_ops)
    inside = [{(a.array, a.store) for a in accesses if a.loops} for accesses in (one, two)]
    assert inside == [{("a", False), ("y", True)}, {("a", False)}]
