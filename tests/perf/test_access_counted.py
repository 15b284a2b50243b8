"""Loads and stores read from a kernel's text: what stays in a register, loops one after the other; beside counters."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest
import sympy as sp

from benchmarks.tune.counters_csv import read_counters
from benchmarks.tune.instructions import of_warps
from dagc import api
from dagc.build.toolchain import find_nvcc
from dagc.choice.legal import op_of, open_sites
from dagc.cuda.accesses import accesses_of
from dagc.cuda.expressions import symbol
from dagc.cuda.ptx import Instructions, Resources
from dagc.perf.evaluate import evaluate_all
from dagc.perf.geometry import read_accesses
from dagc.perf.hardware import load_hardware
from dagc.perf.volume import calibration_of, volume_program
from dagc.study.build import resources_of
from dagc.study.task import tuning_task
from tests.tiers import representatives

ROOT = Path(__file__).parents[2]
COUNTERS = ROOT / "benchmarks" / "results" / "2026-11-21-h200-tune" / "counters.csv.xz"


def in_loops(body: str) -> list[tuple[str, str, bool]]:
    """Array, address and whether it is a store, of what is in loops."""
    found = accesses_of(body, {"a": 4, "b": 4}, {"n": symbol("n")})
    return [(a.array, str(a.address), a.store) for a in found.accesses if a.loops]


def test_an_element_of_this_iteration_is_loaded_before_it_is_changed():
    body = "for (int i = 0; i < n; ++i) a[i] -= b[i];"
    assert in_loops(body) == [("b", "i_0", False), ("a", "i_0", False), ("a", "i_0", True)]


def test_what_the_last_iteration_stored_is_in_a_register():
    assert in_loops("for (int i = 1; i < n; ++i) a[i] = a[i - 1] + 1;") == [("a", "i_0", True)]
    assert in_loops("for (int i = 0; i < n; ++i) a[0] += b[i];") == [("b", "i_0", False), ("a", "0", True)]


def test_a_later_loop_loads_again():
    body = "for (int i = 0; i < n; ++i) s += a[i];\nfor (int i = 0; i < n; ++i) t += a[i] * s;"
    found = accesses_of(body, {"a": 4}, {"n": symbol("n"), "s": sp.Integer(0), "t": sp.Integer(0)})
    assert len(found.accesses) == 2
    assert len({loop.place for a in found.accesses for loop in a.loops}) == 2


@pytest.fixture(scope="module")
def counted():
    return read_counters(COUNTERS)


# column_norm of GRAMSCHM: one thread, whose k[0] the compiler takes out of the loop
LOOPING = (
    "2mm d", "2mm tmp", "3mm e", "3mm f", "3mm g", "atax ax", "atax aty", "bicg q", "bicg s", "corr corr", "corr mean",
    "corr std", "covar covar", "covar mean", "gemm gemm", "gesummv gesummv", "gramschm r", "mvt x1", "mvt x2",
    "syr2k syr2k", "syrk syrk",
)  # fmt: skip


@pytest.mark.parametrize("name", LOOPING)
def test_loads_for_each_store_as_the_gpu_counted_them(counted, name):
    """In innermost loops, beside the largest launch, where what is outside of them does not matter."""
    program, op = name.split()
    graph = api.load_graph(ROOT / "samples" / "polybench" / f"{program}.dag")
    (site,) = open_sites(graph, [op])
    accesses = read_accesses(graph.program, op_of(graph, site)).accesses
    deepest = max(len(a.loops) for a in accesses)
    times = Counter(a.store for a in accesses if len(a.loops) == deepest)
    counts = max((one.counts for one in counted[program, op]), key=lambda counts: counts["load_requests"])
    found = counts["load_requests"] / counts["store_requests"]
    assert found == pytest.approx(times[False] / times[True], rel=0.02)


@pytest.mark.nvcc
@pytest.mark.skipif(find_nvcc() is None, reason="nvcc is not installed")
@pytest.mark.parametrize("program", representatives(["gemm", "corr"], "gemm"))
def test_instructions_of_a_warp_as_the_gpu_counted_them(counted, program, tmp_path):
    """As nvcc compiles them for the architecture that was counted; the text alone has 0.15 to 1.06 of them."""
    made = tuning_task(api.read(ROOT / "samples" / "polybench" / f"{program}.dag"), target="cuda", arch="sm_90")
    taken = resources_of(made, tmp_path)
    for site in made.sites:
        ratios = of_warps(made.graph, site.name, taken[site.name], counted[program, site.name])
        assert ratios.min() > 0.6, site.name
        assert ratios.max() < 1.2, site.name


def gramschm(size: int, block: int) -> dict[str, float]:
    """Steps of the volume model of GRAMSCHM r on an H200."""
    graph = api.load_graph(ROOT / "samples" / "polybench" / "gramschm.dag")
    (site,) = open_sites(graph, ["r"])
    program, gpu = volume_program(graph.program, op_of(graph, site)), load_hardware("h200")
    values = {**gpu.parameters(), **calibration_of(gpu), "ni": size, "nj": size, "registers": 32}
    values |= {"blockDim_x": block, "blockDim_y": 1, "log2_threads": math.log2(block)}
    values |= {p.name: 0 for p in program.parameters if p.name not in values}
    found = evaluate_all(program, {p.name: values[p.name] for p in program.parameters})
    return {name: float(value) for name, value in found.items()}


def test_a_later_loop_finds_what_fits_into_the_cache():
    """An H200 takes 0.75 of the time with 32 threads at 512, where 128 do not fit, and the same at 2048."""
    small, wide, large = gramschm(512, 32), gramschm(512, 128), gramschm(2048, 32)
    assert small["held_bytes"] < wide["held_bytes"]
    assert small["spilled"] < 0.2
    assert wide["spilled"] == large["spilled"] == 1
    assert large["block_slices"] > 1.5 * large["unique_slices"]


def test_a_loop_whose_number_of_iterations_is_unknown():
    body = "int i = 0;\nwhile (i < n) { a[i] = 1; if (b[i] > 0) i += 1; }"
    found = accesses_of(body, {"a": 4, "b": 4}, {"n": symbol("n")})
    assert [(a.array, a.store, len(a.loops)) for a in found.accesses] == [("a", True, 1), ("b", False, 1)]
    assert any("while" in note for note in found.notes)


TILES = '''program tiles
param N : i64 = 256
setup "tiles.py" init(N)
scalar n : i32
array x : f32[n, n] in
array y : f32[n, n] out
kernel tile(y: out f32[n, n], x: in f32[n, n], n: i32) {
  tune bx in {16, 8}
  gpu {
    launch grid(ceil(n / bx), ceil(n / bx)) block(bx, bx)
    cuda """
      __shared__ float a[16][16];
      int i = blockIdx.y * bx + threadIdx.y, j = blockIdx.x * bx + threadIdx.x;
      float s = 0;
      for (int t = 0; t < n / 16; ++t) {
        a[threadIdx.y][threadIdx.x] = x[i * n + t * 16 + threadIdx.x];
        for (int k = 0; k < BOUND; ++k) s += a[threadIdx.y][k] * s;
      }
      y[i * n + j] = s;
    """
  }
}
dag { tile : gpu tile(y, x, n) }
'''


@pytest.mark.parametrize(("bound", "more"), [("16", 0), ("n", 16 * 2 * 256)])
def test_what_nvcc_unrolled_counts_once(tmp_path, bound, more):
    """An inner loop over shared memory of known length is part of the loop around it in nvcc's output; one of a length
    that is known at run time is a loop there too, and has the text's two operations in each of its iterations."""
    (tmp_path / "tiles.dag").write_text(TILES.replace("BOUND", bound))
    graph = api.load_graph(tmp_path / "tiles.dag")
    (site,) = open_sites(graph)
    taken = Resources(32, 1024, Instructions(40, (20.0,)))
    program, gpu = volume_program(graph.program, op_of(graph, site), resources=taken), load_hardware("h200")
    values = {**gpu.parameters(), **calibration_of(gpu), "n": 256, "registers": 32, "log2_threads": 8.0}
    values |= {"blockDim_x": 16, "blockDim_y": 16}
    found = evaluate_all(program, {p.name: values.get(p.name, 0) for p in program.parameters})
    assert float(found["instructions"]) == 40 + 16 * 20 + more


@pytest.mark.parametrize("leaving", ["break;", "continue;", "{ break; }", "return;"])
def test_a_loop_that_may_end_early_is_taken_to_run_to_its_end(leaving):
    body = f"for (int i = 0; i < n; ++i) {{ if (b[i] < 0) {leaving} a[i] = 1; }} a[n] = 2;"
    assert in_loops(body) == [("b", "i_0", False), ("a", "i_0", True)]
    found = accesses_of(body, {"a": 4, "b": 4}, {"n": symbol("n")})
    assert len(found.accesses) == 3
    assert [loop.trips for loop in found.accesses[0].loops] == [symbol("n")]
    assert any("run to its end" in note for note in found.notes) == ("break" in leaving)
