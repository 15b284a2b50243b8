"""Code as it is found: overloads, files of other encodings and suffixes, functions named like words of the language."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc import api
from dagc.base.errors import DagcError, WrongResult
from dagc.base.source import Source
from dagc.build.mpi import find_mpi
from dagc.build.toolchain import find_cxx, find_nvcc
from dagc.cuda.text import has_kernels, signatures_of
from dagc.lang.code import suspects
from dagc.lang.lower import lower, parse_with_includes

ROOT = Path(__file__).parents[2]

PROGRAM = """program found
setup "found.py" data()
array x : f32[64] in
array d : f64[64] in
array y, z, w : f32[64] out
array e : f64[64] out
kernel scale(y: out f32[n], x: in f32[n], n: i32) { gpu { launch grid(1) block(64) cuda scale from "over.cu" } }
kernel scale_d(y: out f64[n], x: in f64[n], n: i64) { gpu { launch grid(1) block(64) cuda n::scale from "over.cu" } }
kernel low(y: out f32[64]) { gpu { launch grid(1) block(64) cuda cost from "latin.cu" } }
kernel twice(y: out f32[n], x: in f32[n], n: i32) { gpu { launch grid(1) block(64) cuda twice from "over.cpp" } }
dag {
  a : gpu scale(y, x, 64)
  b : gpu scale_d(e, d, 64)
  c : gpu low(z)
  f : gpu twice(w, x, 64)
}
verify y ~ want() rtol 0
verify e ~ want() rtol 0
verify z ~ want() rtol 0
verify w ~ want() rtol 0
"""
SETUP = """import numpy as np
def data(rank, size, seed):
    return {"x": np.arange(64, dtype="f4"), "d": np.arange(64.0)}
def want(data, *, rank, size, seed):
    return {"y": 2 * data["x"], "e": 3 * data["d"], "z": np.full(64, 0xe9, "f4"), "w": 2 * data["x"]}
"""
OVERLOADED = """
__global__ void scale(float* __restrict__ y, const float* x, int) { y[threadIdx.x] = 2 * x[threadIdx.x]; }
__global__ void scale(double* y, const double* x, int) { y[threadIdx.x] = 5 * x[threadIdx.x]; }
inline void scale(float* y, const float* x) { scale<<<1, 64>>>(y, x, 64); }
namespace n {
template <class T> __global__ void scale(T* y, const T* x) { y[threadIdx.x] = x[threadIdx.x]; }
__global__ void scale(double* y, const double* x, long) { y[threadIdx.x] = 3 * x[threadIdx.x]; }
}
"""
OTHER_SUFFIX = """\ufeff#include <cuda_runtime.h>
__global__ void twice(float *y, const float *x, int n) { int i = threadIdx.x; if (i < n) y[i] = 2 * x[i]; }
"""
LATIN = "// d\xe9placement\n__global__ void cost(float* y) { y[threadIdx.x] = 0xe9; }\n"  # nvcc refuses other places


@pytest.fixture
def found(tmp_path: Path) -> Path:
    for name, text in {
        "found.dag": PROGRAM,
        "found.py": SETUP,
        "over.cu": OVERLOADED,
        "over.cpp": OTHER_SUFFIX,
    }.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "latin.cu").write_bytes(LATIN.encode("latin-1"))
    return tmp_path / "found.dag"


@pytest.mark.skipif(find_mpi() is None or find_cxx() is None, reason="needs an MPI and a C++ compiler")
@pytest.mark.usefixtures("unoptimised")
def test_it_runs_on_the_host_target(found: Path) -> None:
    done = api.compile(found, found.parent / "out", target="host", run=True, ranks=1, seconds=0.001, repeats=2)
    assert done.result is not None
    assert b"// d\xe9placement\n" in (found.parent / "out/code/latin.cu").read_bytes()


@pytest.mark.nvcc
@pytest.mark.thorough
@pytest.mark.skipif(find_mpi() is None or find_nvcc() is None, reason="needs an MPI and nvcc")
def test_nvcc_takes_it(found: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGC_NVCCFLAGS", "-O0 -Xptxas=-O0")
    assert api.compile(found, found.parent / "out", target="cuda").binary is not None
    assert (found.parent / "out/code/latin.cu").read_bytes().endswith(LATIN.encode("latin-1"))


def test_the_signatures_of_a_function() -> None:
    text = """
    namespace n { template <class T> __global__ void __launch_bounds__(256) f(T* __restrict__ y, int n = 3); }
    __global__ void f(const double2 *x, float (&a)[3], unsigned long long k) {}
    void f(void);
    """
    assert [(s.types, s.kernel, s.template) for s in signatures_of(text, "f")] == [
        (("T*", "int"), True, True),
        (("const double2 *", "float (&)[3]", "unsigned long long"), True, False),
        ((), False, False),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("__global__ void f() {}", True),
        ("void f() { g<<<1, 2>>>(); }", True),
        ("// __global__\nvoid f() { a << b << c; }", False),
        ("#ifdef __CUDACC__\n__global__ void f() {}\n#endif", False),
    ],
)
def test_files_with_kernels(text: str, expected: bool) -> None:
    assert has_kernels(text) is expected


ROWS = """program rows
setup "rows.py" data(n)
param n : i64 = 70000
scalar m : i64
array y : f32[m] out
kernel one(y: out f32[k], k: i64) { gpu { launch grid(1, k) block(1) cuda \"\"\" y[blockIdx.y] = 1; \"\"\" } }
dag { a : gpu one(y, m) }
"""


@pytest.mark.skipif(find_mpi() is None or find_cxx() is None, reason="needs an MPI and a C++ compiler")
@pytest.mark.usefixtures("unoptimised")
def test_a_grid_that_is_too_large_is_reported_at_start(tmp_path: Path) -> None:
    (tmp_path / "rows.dag").write_text(ROWS)
    (tmp_path / "rows.py").write_text("def data(rank, size, seed, n): return {'m': n}\n")
    with pytest.raises(DagcError, match=r"rows.dag:6:\d+: op a: the grid in y, m <= 65535"):
        api.compile(tmp_path / "rows.dag", tmp_path / "out", target="host", run=True, ranks=1)


@pytest.mark.parametrize(
    ("target", "variable", "library"), [("host", "DAGC_CXXFLAGS", True), ("cuda", "DAGC_NVCCFLAGS", False)]
)
def test_the_flags_of_the_user_are_in_the_emitted_project(
    target: str, variable: str, library: bool, found: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "--expt-relaxed-constexpr '-DNAME=\"a b\"' -L/some/where -lthing")
    form = "library" if library else "program"
    made = api.compile(found, found.parent / "out", target=target, build=False, form=form)
    text = (made.directory / "CMakeLists.txt").read_text()
    language = "CUDA" if target == "cuda" else "CXX"
    options = "--expt-relaxed-constexpr '-DNAME=\\\"a b\\\"'"
    assert f'add_compile_options("$<$<COMPILE_LANGUAGE:{language}>:SHELL:{options}>")' in text
    assert '"-L/some/where" "-lthing"' in text


IN_STEP = """program step
setup "step.py" data()
array x : f32[64] in
array y : f32[1] out
kernel total(y: out f32[1], x: in f32[64]) {
  gpu {
    launch grid(1) block(64)
    cuda \"\"\"
      __shared__ volatile float s[64];
      int t = threadIdx.x;
      s[t] = x[t];
      __syncthreads();
      if (t < 32) {
        s[t] += s[t + 32]; s[t] += s[t + 16]; s[t] += s[t + 8]; s[t] += s[t + 4]; s[t] += s[t + 2]; s[t] += s[t + 1];
      }
      if (t == 0) y[0] = s[0];
    \"\"\"
  }
}
dag { a : gpu total(y, x) }
verify y ~ want() rtol 1e-6
"""


def test_lanes_that_run_in_step_are_suspected() -> None:
    (text,) = suspects(lower(parse_with_includes(Source("step.dag", IN_STEP))))
    assert "one writes `s[t]` and another reads `s[t + 16]` without `__syncwarp()` between" in text


@pytest.mark.thorough
@pytest.mark.skipif(find_mpi() is None or find_cxx() is None, reason="needs an MPI and a C++ compiler")
@pytest.mark.usefixtures("unoptimised")
def test_wrong_results_name_lanes_that_run_in_step(tmp_path: Path) -> None:
    (tmp_path / "step.dag").write_text(IN_STEP)
    (tmp_path / "step.py").write_text(SETUP.partition("def want")[0].replace(', "d": np.arange(64.0)', "") + WANTED)
    with pytest.raises(WrongResult) as info:
        api.compile(tmp_path / "step.dag", tmp_path / "out", target="host", run=True, ranks=1)
    assert "`total` relies on lanes of a warp that run in step" in info.value.help
    assert "`__syncwarp()`" in info.value.help


WANTED = "def want(data, *, rank, size, seed):\n    return {'y': np.array([data['x'].sum()], 'f4')}\n"


@pytest.mark.thorough
def test_no_kernel_of_the_samples_and_the_corpus_is_suspected() -> None:
    """All kernels that were measured with right results."""
    programs = [*(ROOT / "samples").glob("*/*.dag"), *(ROOT / "benchmarks/corpus").glob("*/*.dag")]
    assert len(programs) > 150
    found = {
        path.name: suspects(lower(parse_with_includes(Source.read(path)))) for path in programs if _stands_alone(path)
    }
    assert not {name: texts for name, texts in found.items() if texts}


def _stands_alone(path: Path) -> bool:
    return path.read_text().lstrip().startswith(("program", "//")) and "\nprogram " in "\n" + path.read_text()
