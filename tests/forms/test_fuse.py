"""Launches fused: results as those of separate launches, the count, races, what is refused and what is emitted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagc.base.errors import ProgramError, Severity, UsageError
from dagc.base.source import Source
from dagc.build.mpi import find_mpi
from dagc.build.toolchain import find_cxx
from dagc.emit import emit
from dagc.forms import kernel_of
from dagc.forms.groups import conflict, fused, groups
from dagc.ir.constraints import configuration_of
from dagc.ir.enums import Mode
from dagc.ir.plan import Plan, Target, plan_from_json, plan_inputs, plan_to_json, program_hash
from dagc.ir.program import Graph, KernelOp, Program, Value
from dagc.ir.regions import Regions
from dagc.ir.traversal import Traversal, traversal_text
from dagc.lang.lower import analyse, lower, parse_with_includes
from dagc.measure.launch import launch
from dagc.passes import build_graph
from dagc.recipes.forms import show_forms
from dagc.setup import run_setup
from dagc.space import Space
from dagc.space.proof import Prover
from dagc.stages.program import count, read
from dagc.store.records import Records
from dagc.store.results import MachineRecord, ProgramRecord, Run
from dagc.store.settings import check_fixed
from dagc.study.decisions import with_automatic
from dagc.study.loaded import Loaded
from tests.emit.build import graph_of
from tests.emit.together import build_together
from tests.forms.compared import check_at
from tests.tiers import examples

ROOT = Path(__file__).parents[2]
HALO = ROOT / "samples/halo3d/halo3d.dag"
JACOBI = ROOT / "samples/jacobi/jacobi.dag"
DATA = Path(__file__).parent / "data"
COARSE = DATA / "coarse.dag"
KERNELS = ("guarded", "search", "strides", "sum", "moved", "box", "plane", "line")
PLANE = '''
// Grids whose sizes differ in two dimensions, with two of them in use.
kernel plane(y: out f32[n * n], x: in f32[(n + 2) * (n + 2)], n: i64) {
  gpu {
    launch grid(ceil(n / 4), n, 2) block(4)
    cuda """
      const long j = blockIdx.x * 4 + threadIdx.x;
      if (j < n && blockIdx.z == 1) y[blockIdx.y * n + j] = x[j] + 10 * blockIdx.y + 100 * gridDim.x + gridDim.z;
    """
  }
}
// The other axes of a grid of one, a formal that only a macro names, and one that the text declares again.
cuda """
#define LINE_AT(y, i) (y)[i]
#define LINE_SIZE (n * n)
"""
kernel line(y: out f32[n * n], x: in f32[(n + 2) * (n + 2)], n: i64) {
  gpu {
    launch grid(ceil(n * n / 32)) block(32)
    cuda """
      const auto value = [=](const float* y, long i) { return LINE_AT(y, i) + blockIdx.y + blockIdx.z + gridDim.y; };
      const long i = blockIdx.x * 32 + threadIdx.x;
      if (i < LINE_SIZE) LINE_AT(y, i) = value(x, i);
    """
  }
}
kernel given(y: out f32[n * n], x: in f32[(n + 2) * (n + 2)], n: i64) {
  tune block in {32, 64, 96}
  gpu {
    launch grid(ceil(n * n / block)) block(block)
    cuda """
      const long i = blockIdx.x * block + threadIdx.x;
      if (i < n * n) y[i] = 2 * x[i];
    """
  }
}
'''


def separate_and_fused() -> Graph:
    """Each kernel called three times, on two sizes, as one launch; and separately, on a stream of their own."""
    arrays, ops, defines = ["let h = floor(n / 2)"], [], dict[str, str]()
    half = "x[0 .. (h + 2) * (h + 2)]"
    for number, kernel in enumerate((*KERNELS, "given")):
        arrays.append(f"array {', '.join(f'{kernel}_{k}_out' for k in 'acr')} : f32[n * n] on pinned")
        arrays.append(f"array {', '.join(f'{kernel}_{k}_out' for k in 'bs')} : f32[h * h] on pinned")
        pins = {"a": ", block = 32", "b": ", block = 96", "c": ", block = 64"} if kernel == "given" else {}
        for k in "abc":
            ops.append(
                f"{kernel}_{k} : gpu {kernel}({kernel}_{k}_out, {half if k == 'b' else 'x'}, {'h' if k == 'b' else 'n'}"
                f"{pins.get(k, '')})"
            )
        defines[f"fuse.{'_'.join(f'{kernel}_{k}' for k in 'abc')}"] = "2"
        ops.append(f"{kernel}_r : gpu {kernel}({kernel}_r_out, x, n) stream 1")
        ops.append(f"{kernel}_s : gpu {kernel}({kernel}_s_out, {half}, h) stream 1")
        whole, part = (f"apart[{2 * number + k} .. {2 * number + k + 1}]" for k in range(2))
        o = [f"{kernel}_{k}_out" for k in "abcrs"]
        ops.append(f"{kernel}_same : cpu same({whole}, {o[0]}, {o[2]}, {o[3]}, {o[3]}, n * n)")
        ops.append(f"{kernel}_same_h : cpu same({part}, {o[1]}, {o[4]}, {o[1]}, {o[4]}, h * h)")
    defines |= {"guarded_a_guarded_b_guarded_c.by": "3", "strides_a_strides_b_strides_c.form.coarsen": "4"}
    defines |= {"plane_a_plane_b_plane_c.form.coarsen": "2", "many": str(2 * len(KERNELS) + 2)}
    text = "\n".join([COARSE.read_text(), PLANE, *arrays, "dag {", *ops, "}"])
    return graph_of(text, **defines)


@pytest.mark.mpi
@pytest.mark.skipif(find_mpi() is None or find_cxx() is None, reason="needs an MPI and a C++ compiler")
def test_results_are_those_of_separate_launches(tmp_path: Path) -> None:
    graph = separate_and_fused()
    assert sum(bool(kernel.fused) for kernel in graph.program.kernels) == len(KERNELS) + 1
    sizes = [{"side": side} for side in (*range(1, 6), 9, 17, 33)]
    check_at(graph, tmp_path, sizes, ("-O0", "-Wall", "-Wextra", "-Werror"))


@pytest.mark.mpi
@pytest.mark.skipif(find_mpi() is None or find_cxx() is None, reason="needs an MPI and a C++ compiler")
def test_samples_agree_with_numpy_on_four_ranks(tmp_path: Path) -> None:
    """Faces of unequal sizes and blocks; boundary rows alone, and with the inner rows, under forms."""
    cases = {
        "halo": (
            HALO,
            {
                "nx": 5,
                "ny": 6,
                "nz": 7,
                "nq": 2,
                "g": 2,
                "fuse.pack": 1,
                "fuse.unpack": 1,
                "threads[x]": 256,
                "pack.form.literals": 2,
                "unpack.form.literals": 2,
                "unpack.form.coarsen": 2,
            },
        ),
        "axes": (HALO, {"nx": 5, "ny": 6, "nz": 7, "per_axis": "true", "fuse.pack": 1, "fuse.unpack": 1}),
        "rows": (JACOBI, {"nx": 37, "rows": 9, "steps": 2, "fuse.first_last_inner": 1, "first_last.form.wide": 4}),
        "whole": (
            JACOBI,
            {"nx": 64, "rows": 9, "steps": 2, "fuse.first_last_inner": 2, "first_last_inner.form.wide": 2},
        ),
    }
    graphs = {name: read(path, defines).graph() for name, (path, defines) in cases.items()}
    made = {name: Plan(graph, next(iter(Space(graph))), Target.HOST) for name, graph in graphs.items()}
    programs = build_together(made, tmp_path / "bench", flags=("-O0",))
    for name, (path, _) in cases.items():
        run_setup(graphs[name].program, path.parent, 4, 0, tmp_path / name)
        done = launch(
            [programs[name], "--data", tmp_path / name, "--seconds", "0.001", "--repeats", "1"], 4, timeout=300
        )
        assert done.returncode == 0, (name, done.stdout, done.stderr)


# ---- the count ----------------------------------------------------------------------------------


def test_the_count_has_the_fused_programs(tmp_path: Path) -> None:
    """The sum over all values of what the orders of each program are, listed one by one; none without forms."""
    path = tmp_path / "two.dag"
    text = TWO.replace("BODY", BODY).replace("ARRAY", "").replace("AROUND", "tune streams in {2}")
    path.write_text(text.replace("DAG", f"{CALLS}\n d : gpu copy(u, y)\n c : gpu k(w, x, n)"))
    values: list[dict[str, Value]] = [{"fuse.a_b_c": k} for k in range(3)]
    graphs = [read(path, defines).graph() for defines in values]
    assert [[op.name for op in graph.program.ops] for graph in graphs] == [
        ["a", "b", "d", "c"], ["a", "d", "b_c"], ["a_b_c", "d"],
    ]  # fmt: skip
    orders = [len({traversal_text(t, graph) for t in Space(graph)}) for graph in graphs]
    assert len(set(orders)) == 3
    report = count(path, forms="on")
    forms = 4  # of an op: `coarsen`
    assert report.whole == sum(n * forms**ops for n, ops in zip(orders, (3, 2, 1), strict=True))
    assert [line.count for line in report.lines if line.label.startswith("fuse")] == orders
    plain = count(path)
    assert plain.whole == orders[0]
    assert not any(line.label.startswith("fuse") for line in plain.lines)


def test_numbers_of_each_call_may_be_constants_where_the_text_divides() -> None:
    """A decision of the launch that joins calls which differ in numbers, beside no other form."""
    parsed = parse_with_includes(Source(str(HALO), HALO.read_text()))
    for value, values in ((0, None), (1, (1, 2))):
        program = lower(parsed, {"fuse.pack": value}, forms=True)
        offered = {d.name: d.values for d in program.decisions}
        assert offered.get("pack.form.literals") == values
    kernel = next(kernel for kernel in program.kernels if kernel.fused)
    forms = [t.name for t in kernel.impls[0].tunables if t.name.startswith("form.") and t.name != "form.literals"]
    assert len(forms) == len(kernel.requires) > 1


def test_a_loop_stays_folded() -> None:
    graph = read(JACOBI, {"fuse.first_last_inner": 1}, folds=True).graph()
    assert graph.folding is not None
    assert len(next(s for s in graph.folding.segments if s.loop).rounds) == 20


# ---- any dag ------------------------------------------------------------------------------------

PIECES = 4  # of the array
SMALL = '''
program small
setup "none.py" none()
array a : f32[PIECES * 8] inout
kernel k(y: inout f32[8], x: in f32[8]) {
  gpu { launch grid(1) block(8) cuda """ int i = blockIdx.x * 8 + threadIdx.x; y[i] += x[i]; """ }
}
kernel one(y: inout f32[8]) {
  gpu { launch grid(1) block(8) cuda """ int i = blockIdx.x * 8 + threadIdx.x; y[i] *= 2; """ }
}
dag {
OPS
}
'''


@st.composite
def dags(draw: st.DrawFn) -> str:
    """Up to seven calls of two kernels on pieces of an array."""
    lines = []
    for number in range(draw(st.integers(2, 7))):
        y, x = draw(st.permutations(range(PIECES)))[:2]
        piece = [f"a[{8 * p} .. {8 * p + 8}]" for p in (y, x)]
        call = f"k({piece[0]}, {piece[1]})" if draw(st.booleans()) else f"one({piece[0]})"
        lines.append(f"  o{number} : gpu {call}")
    return SMALL.replace("PIECES", str(PIECES)).replace("OPS", "\n".join(lines))


@given(dags())
@settings(max_examples=examples(60))
def test_fused_programs_keep_the_order_of_what_conflicts(text: str) -> None:
    """Of any dag: ops of a launch that is no chain do not conflict, every other pair that does keeps its order, and no
    order of the fused program has a race."""
    program = lower(parse_with_includes(Source("small.dag", text)))
    regions = Regions.of(program)
    found, _ = groups(program, regions)
    place = {op.name: k for k, op in enumerate(program.ops)}
    for group in found:
        for way in group.ways:
            made, instead = fused(program, [(names, group.chained) for names in way], regions)
            after = {op.name: k for k, op in enumerate(made.ops)}
            for a, b in combinations(program.ops, 2):
                if conflict(a, b, regions):
                    first, second = (after[instead.get(op.name, op.name)] for op in (a, b))
                    together = first == second and group.chained
                    assert together or (first < second) == (place[a.name] < place[b.name])
            graph = build_graph(made)
            prover = Prover(graph)
            assert all(map(prover.proved, first_of(Space(graph), 20)))


def first_of(space: Space, number: int) -> Iterator[Traversal]:
    return (traversal for traversal, _ in zip(space, range(number), strict=False))


# ---- what is refused ----------------------------------------------------------------------------

TWO = '''
program two
setup "none.py" none()
scalar n, m : i64
array x : f32[n] in
array y, z, u, w : f32[n] inout
AROUND
kernel k(y: out f32[n], x: in f32[*], n: i64) {
  gpu { ARRAY launch grid(1, ceil(n / 32)) block(32) cuda """ BODY """ }
}
dag {
  DAG
}
'''
BODY = "const long i = blockIdx.y * 32 + threadIdx.x; if (i < n) y[i] = x[i];"
HERE = 'cuda """ __device__ int here() { return blockIdx.x; } """'
CALLS = "a : gpu k(y, x, n)\n b : gpu k(z, x, n)"


def two(dag: str = CALLS, body: str = BODY, array: str = "", around: str = "") -> Program:
    text = TWO.replace("DAG", dag).replace("BODY", body).replace("ARRAY", array).replace("AROUND", around)
    return lower(parse_with_includes(Source("two.dag", text)))


def reasons(program: Program) -> list[str]:
    found, left = groups(program, Regions.of(program))
    assert not found
    return [out.why.reason for out in left]


def test_independent_launches_are_a_group() -> None:
    found, left = groups(two(), Regions.of(two()))
    assert [(group.name, group.ways) for group in found] == [("a_b", ((("a", "b"),),))]
    assert not left


@pytest.mark.parametrize(
    "dag",
    [
        "a : gpu k(y, x, n)\n b : gpu k(y, x, n)",  # both write all of it
        "a : gpu k(y[0 .. m], x, m)\n b : gpu k(y[0 .. m], x, m)",
        "require 2 <= m\n a : gpu k(y[0 .. m], x, m)\n b : gpu k(y[m - 1 .. n], x, n - m + 1)",  # one element
        "a : gpu k(y[0 .. m], x, m)\n b : gpu k(y[n - m .. n], x, m)",  # which may overlap
        "a : gpu k(y, x, n)\n b : gpu k(z, y, n)",  # b reads what a writes
        "a : gpu k(y, z, n)\n b : gpu k(z, x, n)",  # b writes what a reads
        "a : gpu k(y, x, n)\n c : gpu copy(z, y)\n b : gpu k(y, z, n)",  # by way of a copy
    ],
)
def test_launches_that_depend_on_each_other_are_no_group(dag: str) -> None:
    require, _, ops = dag.rpartition("\n a") if dag.startswith("require") else ("", "", dag)
    program = two(f"a{ops}" if require else ops, around=require)
    assert groups(program, Regions.of(program)) == ((), ())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dag": f"edges explicit\n {CALLS}"}, "`edges explicit` orders the ops"),
        ({"dag": f"{CALLS}\n b -> a"}, "an edge orders `b` before `a`, against the order of the text"),
        ({"body": "y[here()] = x[0];", "around": HERE}, "`here` uses `blockIdx`"),
        ({"body": 'asm("" : : "f"(x[0])); y[0] = 1;'}, "inline PTX is not read"),
        ({"body": "cooperative_groups::this_grid().sync(); y[0] = x[0];"}, "it synchronises blocks (`this_grid`)"),
        ({"array": "array s : f32[32]", "body": "s[threadIdx.x] = x[0]; y[0] = s[0];"}, "has scratch arrays"),
        ({"array": "forms none"}, "`forms none` of the kernel"),
    ],
)
def test_other_launches_are_left_out_with_the_reason(change: dict[str, str], reason: str) -> None:
    assert [reason in found for found in reasons(two(**change))] == [True]


def test_counters_beside_the_arguments_are_seen() -> None:
    """Two launches that change a variable of the device depend on each other."""
    around = 'cuda """ __device__ int hits; """'
    body = f"{BODY} atomicAdd(&hits, 1);"
    program = two(body=body, around=around)
    assert groups(program, Regions.of(program)) == ((), ())


def test_what_is_given_must_be_possible() -> None:
    with pytest.raises(UsageError, match=r"-D fuse\.inner: there are no launches of this name to fuse") as refused:
        read(JACOBI, {"fuse.inner": 1}).program()
    assert refused.value.help == "`dagc show --forms KERNEL` says which launches can be one"
    apart = {"fuse.first_last_inner": 1, "first.bx": 32, "last.bx": 64}
    with pytest.raises(
        ProgramError, match="(?s)-D gives its parts values that differ: first.bx=32, .*or do not fuse them"
    ):
        read(JACOBI, apart).program()
    same = read(JACOBI, {"fuse.first_last_inner": 1, "first.bx": 64}).program()
    assert same.decision("first_last.bx") == 64
    with pytest.raises(KeyError):
        same.decision("first.bx")


def fusions(words: str, **defines: Value) -> list[str]:
    """The decisions on fusion of a dag with these words, where forms are open."""
    text = TWO.replace("DAG", f"{words} {CALLS}").replace("BODY", BODY).replace("ARRAY", "").replace("AROUND", "")
    program = lower(parse_with_includes(Source("two.dag", text)), defines, forms=True)
    return [d.name for d in program.decisions if d.name.startswith("fuse")]


def test_the_text_restricts_what_is_searched() -> None:
    """And -D takes what the text leaves out all the same."""
    assert fusions("") == fusions("fuse {a_b}") == fusions("fuse none", **{"fuse.a_b": 1}) == ["fuse.a_b"]
    assert fusions("fuse none") == []
    with pytest.raises(ProgramError, match="a list of launches has braces"):
        fusions("fuse a_b")
    text = TWO.replace("DAG", f"fuse {{a_c}} {CALLS}").replace("BODY", BODY).replace("ARRAY", "").replace("AROUND", "")
    for forms in (False, True):
        found = analyse(parse_with_includes(Source("two.dag", text)), forms=forms).diagnostics
        assert [(d.severity, d.message, d.help) for d in found if d.code == "unknown-name"] == [
            (Severity.WARNING, "there are no launches `a_c` to fuse", "did you mean `a_b`?")
        ]


# ---- what is emitted ----------------------------------------------------------------------------


def test_the_text_is_that_of_the_kernel_after_its_arguments() -> None:
    program = read(HALO, {"fuse.pack": 1}).program()
    (op,) = (op for op in program.kernel_ops if op.name == "pack")
    kernel, impl = kernel_of(program, op)
    assert isinstance(op, KernelOp)
    assert impl.code is not None
    assert impl.launch is not None
    lines = (impl.code.text or "").split("\n")
    assert lines[0] == "// fuse: the blocks of 6 launches of pack, one after the other."
    assert lines[-2:] == [
        "long i = (long)tile.x * block + threadIdx.x;",
        "if (i < count) buffer[i] = u[slab(i, d, s, false)];",
    ]
    assert [name for name, _ in impl.launch.numbers] == [f"end_{k}" for k in range(5)]
    assert len(kernel.formals) == 6 + 1 + 3 + 2 + 1  # buffers, the array, axes, sides, the size of all faces


NEGATIVE = """program negative
param side : i64 = 2
setup "coarse.py" numbers(side)
scalar n : i64
array x : f32[(n + 2) * (n + 2)] in
array y : f32[64]
kernel k(y: out f32[64], x: in f32[*], n: i64) {
  gpu { launch grid(n) block(1) cuda \"\"\" y[blockIdx.x] = x[blockIdx.x]; \"\"\" }
}
dag { a : gpu k(y[0 .. 32], x, n - 3)  b : gpu k(y[32 .. 64], x, n + 2) }
"""


@pytest.mark.mpi
@pytest.mark.skipif(find_mpi() is None or find_cxx() is None, reason="needs an MPI and a C++ compiler")
def test_a_negative_grid_is_an_error_as_it_is_in_the_program_as_written(tmp_path: Path) -> None:
    """Also where the launch has a positive one: of both calls, or of joined blocks."""
    text = NEGATIVE.replace("out f32[64]", "out f32[32]")
    made = {
        name: Plan(graph := graph_of(text, **defines), next(iter(Space(graph))), Target.HOST)
        for name, defines in {"plain": {}, "fused": {"fuse.a_b": "1"}, "joined": {"a.form.coarsen": "2"}}.items()
    }
    programs = build_together(made, tmp_path / "bench", flags=("-O0", "-Wall", "-Wextra", "-Werror"))
    run_setup(made["plain"].program, DATA, 1, 0, tmp_path / "data")
    for program in programs.values():
        done = launch([program, "--data", tmp_path / "data", "--seconds", "0.001", "--repeats", "1"], 1, timeout=300)
        assert done.returncode == 5
        assert "a grid of -1 x 1 x 1 blocks cannot be launched" in done.stderr
    driver = emit(Plan(made["fused"].graph, made["fused"].traversal, Target.CUDA))["driver.py"]
    assert re.search(r"^ +dagc\.grid\(.*n - 3\)$", driver, re.MULTILINE)


def test_a_driver_gives_the_ends_and_a_plan_has_the_fusion() -> None:
    """PyCUDA launches the fused kernel with where the blocks of each call end; `plan.json` leads to the same graph."""
    small = {"nx": 9, "ny": 9, "nz": 9, "fuse.pack": 1}
    graph = read(HALO, small).graph()
    made = Plan(graph, next(iter(Space(graph))), Target.CUDA)
    driver = emit(made)["driver.py"]
    assert "dagc.function(module, 'pack_6', 'PPPPPPPiiiiiqIIIII')" in driver
    assert "0, 1, 2, 0, 1, 729, 6, 12, 18, 24, 30)" in driver
    text = plan_to_json(made)
    kept = plan_inputs(text)
    again = read(HALO, {**kept.params, **kept.decisions}).graph()
    assert plan_from_json(text, again).traversal == made.traversal


def test_launches_that_can_be_one_are_shown() -> None:
    text = show_forms(JACOBI, "first")
    assert "  fuse.first_last_inner  0, 1, 2  at most 3 launches as one, 20 times in a run\n" in text
    under = show_forms(JACOBI, "stencil", {"fuse.first_last_inner": 1, "steps": 2})
    assert "stencil_2:\n  // fuse: the blocks of 2 launches of stencil" in under


# ---- chains -------------------------------------------------------------------------------------

VECTORS = '''
kernel axpy(y: inout f64[n], x: in f64[n], a: f64, n: i64) {
  tune block in {32, 64}
  gpu {
    launch grid(ceil(n / block)) block(block)
    cuda """
      const long i = blockIdx.x * block + threadIdx.x;
      if (i >= n) return; if (i < 0) return;
      if (y[i] > 100) { return; }
      if (const bool small = y[i] < -100; small) return;
      y[i] += a * x[i];
    """
  }
}
kernel scale(z: out f64[n], y: in f64[n], s: in f64[1], n: i64) {
  tune block in {32, 64, 128}
  gpu {
    launch grid(ceil(n / block)) block(block)
    cuda """
      int i = threadIdx.x + blockIdx.x * blockDim.x;
      for (int k = 0; k < 1; ++k)
        if (i < n) {
          z[i] = s[0] * y[i];
          if (z[i] > 2) return;
        }
    """
  }
}
kernel sums(sum: out f64[*], z: in f64[n], n: i64) {
  tune block in {64}
  gpu {
    launch grid(ceil(n / block)) block(block)
    cuda """
      __shared__ double s[64];
      const long i = blockIdx.x * 64 + threadIdx.x;
      s[threadIdx.x] = i < n ? z[i] : 0;
      for (int d = 32; d > 0; d /= 2) {
        __syncthreads();
        if (int(threadIdx.x) < d) s[threadIdx.x] += s[threadIdx.x + d];
      }
      if (threadIdx.x == 0) sum[blockIdx.x] = s[0];
    """
  }
}
'''
CHAINED = f"""
program chained
param side : i64 = 100
setup "chained.py" vectors(side)
scalar n : i64
array r, q : f64[n] inout
array x : f64[n] in
array z : f64[n] out
array s : f64[1] in
array sum : f64[ceil(n / 64)] out
{VECTORS}
dag {{
  a : gpu axpy(r, x, 0.5, n)
  b : gpu axpy(q, r, 2.0, n)
  c : gpu scale(z, q, s, n)
  d : gpu sums(sum, z, n)
}}
verify r ~ after_r() rtol 0
verify z ~ after_z() rtol 0
verify sum ~ after_sum() rtol 1e-14
"""
CHAINED_SETUP = """
import numpy as np


def vectors(rank, size, seed, side):
    rng = np.random.default_rng(seed)
    arrays = {name: rng.uniform(-1, 1, side) for name in ("r", "q", "x")}
    arrays["r"][::7] = 200
    return {"n": side, "s": np.array([3.0]), **arrays}


def after_r(data, **_):
    return {"r": np.where(data["r"] > 100, data["r"], data["r"] + 0.5 * data["x"])}


def after_z(data, **_):
    return {"z": 3.0 * (data["q"] + 2.0 * after_r(data)["r"])}


def after_sum(data, **_):
    z = after_z(data)["z"]
    return {"sum": np.append(z, np.zeros(-len(z) % 64)).reshape(-1, 64).sum(1)}
"""


@pytest.mark.mpi
@pytest.mark.skipif(find_mpi() is None or find_cxx() is None, reason="needs an MPI and a C++ compiler")
def test_chains_agree_with_numpy(tmp_path: Path) -> None:
    """A guard that becomes a condition, a `return` in a loop, one array through three kernels, and a reduction at the
    end; as written, fused, and fused under forms."""
    path = tmp_path / "chained.dag"
    path.write_text(CHAINED)
    (tmp_path / "chained.py").write_text(CHAINED_SETUP)
    fuse: dict[str, Value] = {"fuse.a_b_c_d": 1}
    cases: dict[str, dict[str, Value]] = {
        "plain": {}, "fused": fuse, "formed": {**fuse, "a_b_c_d.form.coarsen": 4, "a_b_c_d.form.freedom": 2},
    }  # fmt: skip
    graphs = {name: read(path, defines).graph() for name, defines in cases.items()}
    assert [op.name for op in graphs["fused"].program.ops] == ["a_b_c_d"]
    assert graphs["fused"].program.decision("a_b_c_d.block") == 64  # which all may have
    made = {name: Plan(graph, next(iter(Space(graph))), Target.HOST) for name, graph in graphs.items()}
    flags = ("-O0", "-Wall", "-Wextra", "-Werror")
    programs = build_together(made, tmp_path / "bench", flags=flags)
    for side in (1, 2, 63, 64, 65, 200):
        data = tmp_path / str(side)
        run_setup(read(path, {"side": side}).program(), tmp_path, 1, 0, data)
        for name, program in programs.items():
            done = launch([program, "--data", data, "--seconds", "0.001", "--repeats", "1"], 1, timeout=300)
            assert done.returncode == 0, (side, name, done.stdout, done.stderr)


CHAIN = '''
program chain
setup "none.py" none()
scalar n : i64
array x, y, z, w : f64[n + 2] inout
array hits : i32[n] const
AROUND
kernel first(y: inout f64[*], x: in f64[*], n: i64) {
  gpu { launch grid(ceil(n / 32)) block(32) cuda """ FIRST """ }
}
kernel second(z: inout f64[*], y: in f64[*], at: in i32[*], n: i64) {
  gpu { launch grid(ceil(n / 32)) block(32) cuda """ SECOND """ }
}
dag {
  a : gpu first(y, x, n)
  BETWEEN
  b : gpu second(z, Y, hits, M)
}
'''
FIRST = "int i = blockIdx.x * 32 + threadIdx.x; if (i < n) y[i] = x[i];"
SECOND = "int i = blockIdx.x * 32 + threadIdx.x; if (i < n) z[i] = y[i];"


def chain(
    first: str = FIRST, second: str = SECOND, between: str = "", y: str = "y", m: str = "n", around: str = ""
) -> Program:
    text = CHAIN.replace("FIRST", first).replace("SECOND", second).replace("BETWEEN", between)
    text = text.replace("AROUND", around)
    return lower(parse_with_includes(Source("chain.dag", text.replace("Y", y).replace("M", m))))


def test_elements_of_a_thread_are_a_chain() -> None:
    program = chain()
    found, left = groups(program, Regions.of(program))
    assert [(group.name, group.chained, group.ways) for group in found] == [("a_b", True, ((("a", "b"),),))]
    assert not left


@pytest.mark.parametrize(("of", "chained"), [("w, x", ["a_b"]), ("z, y", [])])
def test_a_chain_goes_on_past_an_op_of_another_launch(of: str, chained: list[str]) -> None:
    """An update is done with the op that next uses what it does, unless one between needs it and is needed."""
    other = 'kernel other(w: inout f64[*], x: in f64[*]) { gpu { launch grid(2) block(8) cuda """ w[0] += x[0]; """ } }'
    program = chain(between=f"c : gpu other({of})", around=other)
    found, _ = groups(program, Regions.of(program))
    assert [group.name for group in found] == chained


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"second": SECOND.replace("y[i]", "y[i + 1]")}, "`y` is accessed at different places"),
        ({"second": SECOND.replace("y[i]", "y[n - 1 - i]")}, "is not at a place of its own thread"),
        ({"second": SECOND.replace("y[i]", "y[2 * i]")}, "is not at a place of its own thread"),
        ({"second": SECOND.replace("y[i]", "y[at[i]]")}, "where `y[at[i]]` is, is not known"),
        ({"second": SECOND.replace("y[i]", "y[i] + y[i + 1]")}, "threads access several elements of `y`"),
        ({"second": SECOND.replace("y[i]", "y[0]")}, "is not at a place of its own thread"),
        ({"second": SECOND.replace("y[i]", "__ldg(&y[i])")}, "is not at a place of its own thread"),
        ({"second": SECOND.replace("y[i]", "*(y + i - 1 + 1)"), "first": FIRST.replace("y[i]", "y[i + 1]")},
         "`y` is accessed at different places"),
        ({"second": "const double* v = y + 1; " + SECOND.replace("y[i]", "v[i]")}, "`y` is used in another way"),
        ({"second": "z[0] = y[threadIdx.x];"}, "is not at a place of its own thread"),
        ({"second": "for (int i = blockIdx.x * 32 + threadIdx.x; i < n; i += 32) z[i] = y[i];"},
         "is not at a place of its own thread"),
        ({"second": SECOND.replace("z[i] =", "i += 1; z[i] =")}, "is not at a place of its own thread"),
        ({"first": FIRST.replace("y[i] =", "n = n; y[i] =")}, None),  # it changes a parameter
        ({"second": SECOND.replace("if", "int& k = i; k = n - 1 - i; if")}, None),
        ({"second": f"{SECOND} auto f = [&](int i) {{ return y[i]; }}; if (i < n) z[i] += f(n - 1 - i);"}, None),
        ({"second": SECOND.replace("z[i]", "for (int i : {0, 1}) z[i]")}, None),
        ({"second": SECOND.replace("z[i]", "for (auto [i, k] : hits) z[i]")}, None),
        ({"second": SECOND.replace("y[i]", "y[HERE]"), "around": 'cuda """\n#define HERE (i + 0)\n"""'}, None),
        ({"second": f"{SECOND} if (i < n) goto end; z[n] = 0; end: ;"}, None),
        ({"second": SECOND.replace("y[i]", "y[i] * x"), "around": 'cuda """ __device__ double x = 2; """'},
         "`x` of `first` would hide what `second` means by it"),
        ({"second": SECOND.replace("y[i]", "y[i] * TWICE"), "around": 'cuda """\n#define TWICE (2 * x)\n"""'},
         "`x` of `first` would hide what `second` means by it"),
        ({"first": f"__shared__ double t[32]; t[threadIdx.x] = 1; __syncthreads(); {FIRST}"}, "threads meet in it"),
        ({"y": "y[1 .. n + 2]"}, "`y` and `y[1 .. n + 2]` may overlap"),
        ({"between": "c : gpu copy(y, w)"}, None),  # which has to come between
        ({"m": "n - 1"}, None),  # other threads
    ],
)  # fmt: skip
def test_chains_that_would_need_elements_of_other_threads_are_refused(
    change: dict[str, str], reason: str | None
) -> None:
    program = chain(**change)
    found, left = groups(program, Regions.of(program))
    assert not found
    assert [reason in out.why.reason for out in left] == ([True] if reason is not None else [])


def test_one_slice_is_one_array_of_a_chain() -> None:
    """What both calls access through equal slices is at equal places, whatever it is called there."""
    text = CHAIN.replace("FIRST", FIRST).replace("SECOND", SECOND).replace("BETWEEN", "").replace("M", "n")
    text = (
        text.replace("AROUND", "").replace("first(y, x, n)", "first(y[1 .. n + 1], x, n)").replace("Y", "y[1 .. n + 1]")
    )
    program = lower(parse_with_includes(Source("chain.dag", text)), {"fuse.a_b": 1})
    (op,) = program.kernel_ops
    kernel = program.kernel(op.kernel)
    assert [(f.name, f.mode) for f in kernel.formals] == [
        ("y", Mode.INOUT), ("x", Mode.IN), ("n", None), ("z", Mode.INOUT), ("at", Mode.IN),
    ]  # fmt: skip


def test_a_search_on_a_gpu_opens_fusion(monkeypatch: pytest.MonkeyPatch) -> None:
    """After staging, as far as not too many programs are compiled; with --forms off not at all."""

    def opened(path: Path, cores: int, forms: bool) -> tuple[set[str], str]:
        monkeypatch.setattr("dagc.study.decisions.compilers", lambda: cores)
        text = replace(read(path, folds=True), forms=forms)
        program = text.program()
        values, notes = with_automatic(program, {"transport": ("mpi_host", "peer")}, {"transport"})
        return {name for name in values if name.startswith("fuse")}, " ".join(notes)

    assert opened(JACOBI, 16, forms=True) == ({"fuse.first_last_inner"}, "")
    assert opened(JACOBI, 16, forms=False) == (set(), "")
    few, note = opened(JACOBI, 1, forms=True)  # four programs: two transports with staging
    assert (few, "fuse.first_last_inner" in note) == (set(), True)


# ---- files --------------------------------------------------------------------------------------


def test_a_results_file_has_implementations_of_each_fusion(tmp_path: Path) -> None:
    """Their graphs have other ops; what reads the file takes the one of each."""
    path = tmp_path / "two.dag"
    path.write_text(TWO.replace("DAG", CALLS).replace("BODY", BODY).replace("ARRAY", "").replace("AROUND", ""))
    graphs = [read(path, {"fuse.a_b": k}).graph() for k in range(2)]
    texts = tuple((p, s.text) for p, s in graphs[0].program.sources.items())
    program = ProgramRecord("two", str(path), program_hash(graphs[0].program), texts, ())
    machine = MachineRecord(("here",), "a CPU", 4, (), "", "an MPI", "host", "", {})
    ran = Run("2026-01-01T00:00:00+00:00", machine, 1, 7, "random", 0.01, "", "0.2", 0.01, {"budget": 5, "data": None})
    with Records.open(tmp_path / "r.db", program, ran) as records:
        for number, graph in enumerate(graphs):
            for traversal in first_of(Space(graph), 4):
                key = records.begin(configuration_of(graph), traversal_text(traversal, graph))
                for _ in range(3):
                    records.reference(1e-3)
                    records.add(key, 1e-4 * (1 + number), 1e-3, 10)
    loaded = Loaded(tmp_path / "r.db")
    assert [len(example.graph.program.ops) for example in loaded.samples()] == [2, 2, 2, 2, 1]
    assert {loaded.kind(i).key for i in loaded.results.implementations if i.configuration["fuse.a_b"] == 1} != {
        loaded.kind(i).key for i in loaded.results.implementations if i.configuration["fuse.a_b"] == 0
    }


def test_tuned_files_of_before_are_continued() -> None:
    """A decision on fusion that a file lacks has its launches as written."""
    kept: dict[str, dict[str, object]] = {"params": {}, "decisions": {"a.bx": 32}}
    check_fixed("t.db", kept, {"params": {}, "decisions": {"a.bx": 32, "fuse.a_b": 0}})
    with pytest.raises(UsageError, match=r"tuned with fuse\.a_b=0, this is fuse\.a_b=1"):
        check_fixed("t.db", kept, {"params": {}, "decisions": {"a.bx": 32, "fuse.a_b": 1}})
