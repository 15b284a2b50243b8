"""`prepare`: host code that fills the scratch of an implementation once, before the first run."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

from dagc.base.source import Source
from dagc.build.mpi import find_mpi, require_mpi, thread_sanitizer_environment
from dagc.build.toolchain import find_cxx
from dagc.emit import emit
from dagc.ir.plan import Plan, Target
from dagc.lang.lower import lower, parse_with_includes
from dagc.measure.launch import Finished, launch
from dagc.passes import build_graph
from dagc.setup import run_setup
from dagc.space import Space
from tests.emit.build import graph, graph_of, plan
from tests.emit.together import build_together
from tests.precompiled import by_clang
from tests.tiers import representatives

HERE = Path(__file__).parent / "data"
PREPARED = HERE / "prepared.dag"
ELL = {"first.variant": "ell", "second.variant": "ell", "again.variant": "ell"}

mpi = find_mpi()
can_run = [
    pytest.mark.mpi,
    pytest.mark.skipif(mpi is None or mpi.mpiexec is None or find_cxx() is None, reason="needs an MPI and a compiler"),
]

# Whatever `wanted` is becomes the size of the scratch, on the device and for host code.
SIZES = """
program sizes
setup "sizes.py" given()
require hw.memory == MEMORY && hw.sms > 0
scalar wanted : f64
array x : f64[1] const
array y : f64[1] out
array z : f64[1] on host out
kernel fill(y: out f64[1], x: in f64[1], wanted: f64) {
  feature size = wanted
  feature first cost 1 = cpp \"\"\" return x[0]; \"\"\"
  gpu {
    array room : f64[size]
    prepare cpp \"\"\" cudaMemcpyAsync(room, x, sizeof(double), cudaMemcpyDefault, stream); \"\"\"
    launch grid(1) block(1)
    cuda \"\"\" y[0] = room[0] + first; \"\"\"
  }
}
kernel keep(z: out f64[1], wanted: f64) {
  cpu {
    array room : f64[ceil(wanted)]
    prepare cpp \"\"\" room[0] = 7; \"\"\"
    cpp \"\"\" z[0] = room[0] * (wanted > 0); \"\"\"
  }
}
dag {
  fill : gpu fill(y, x, wanted)
  keep : cpu keep(z, wanted)
}
verify y ~ results() rtol 0
verify z ~ results() rtol 0
"""
GIVEN = """
import numpy as np
def given(rank, size, seed):
    return {"wanted": 3.0, "x": np.full(1, 5.0)}
def results(data, **_):
    return {"y": np.full(1, 10.0), "z": np.full(1, 7.0)}
"""


@pytest.fixture(scope="module")
def sizes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sizes")
    (folder / "sizes.dag").write_text(
        SIZES.replace("MEMORY", str(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")))
    )
    (folder / "sizes.py").write_text(GIVEN)
    return folder / "sizes.dag"


def _counted(**defines: str) -> Plan:
    """The program of tests/emit/data, which says when it converts."""
    text = PREPARED.read_text().replace('cpp """ to_ell<<<', 'cpp """ std::printf("to_ell %d\\n", nnz); to_ell<<<')
    made = graph_of(text, **defines)
    return Plan(made, next(iter(Space(made))), Target.HOST)


def _first(path: Path) -> Plan:
    made = build_graph(lower(parse_with_includes(Source(str(path), path.read_text()))))
    return Plan(made, next(iter(Space(made))), Target.HOST)


@pytest.fixture(scope="module")
def programs(sizes: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    plans = {"both": _counted(**ELL), "sizes": _first(sizes)}
    return _sanitized(plans, tmp_path_factory.mktemp("programs"))


def _sanitized(plans: dict[str, Plan], folder: Path) -> dict[str, Path]:
    """Under AddressSanitizer: what fills scratch stays within it."""
    flags = ("-O0", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", *by_clang())
    return build_together(plans, folder, flags=flags)


def _run(program: Path, data: Path, ranks: int = 1, **environment: str) -> Finished:
    env = {"ASAN_OPTIONS": "detect_leaks=0", **environment}
    return launch([program, "--data", data, "--check-only"], ranks, env=env, timeout=300)


@pytest.mark.thorough
def test_thread_sanitizer_is_silent(tmp_path: Path) -> None:
    """What `prepare` launches is done before the first run, on whatever stream that is."""
    program = build_together({"both": plan(PREPARED, Target.HOST, **ELL)}, tmp_path / "p", sanitize="thread")["both"]
    run_setup(graph(PREPARED).program, HERE, 2, 1, tmp_path / "data")
    done = _run(program, tmp_path / "data", 2, **thread_sanitizer_environment(require_mpi()))
    assert "ThreadSanitizer" not in done.stderr, done.stderr[:4000]
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("name", "conversions"), representatives([("both", 2), ("one", 1)], ("both", 2)))
def test_each_op_gets_the_layout_that_was_prepared_for_it(
    programs: dict[str, Path], name: str, conversions: int, tmp_path: Path
) -> None:
    """Ops of one kernel with different matrices, and two on one matrix, which share its layout or whose variants
    differ: results agree after each poison, so what was prepared outlives `reset`. A matrix is converted once."""
    run_setup(graph(PREPARED).program, HERE, 2, 1, tmp_path)
    one = {"one": _counted(**{"again.variant": "ell"})}
    program = programs["both"] if name == "both" else _sanitized(one, tmp_path / "programs")["one"]
    done = _run(program, tmp_path, 2)
    assert done.returncode == 0, done.stderr
    assert "y, z agree with the reference" in done.stdout
    assert done.stdout.count("to_ell") == 2 * conversions, "on each of two ranks"


def test_constant_scratch_is_one_of_all_ops_with_its_conversion() -> None:
    """Other scratch is each op's own, and `prepare` does not get it. Features of the same arguments are one, too."""
    found = emit(plan(PREPARED, Target.CUDA, **ELL))
    header, iteration = found["program.hpp"], found["iteration.hpp"]
    assert re.findall(r"dagc::Array<float> (\w*_(?:ell_val|sums));", header) == [
        "first_sums", "second_sums", "again_sums", "first_ell_val", "second_ell_val"
    ]  # fmt: skip
    assert "p.z.data, p.half.data, p.row_ptr.data" in iteration
    assert "p.first_ell_col.data, p.again_sums.data, p.first_ell_val.data" in iteration
    assert iteration.count("p.first_ell_col.data, nullptr, p.first_ell_val.data") == 1
    assert "const int* ell_col, float* sums, const float* ell_val" in found["kernels.cu"]
    assert "int* ell_col, [[maybe_unused]] float* sums, float* ell_val" in found["kernels.cu"], "for `prepare`"
    assert "p.feature_2()" not in header + iteration


@pytest.mark.parametrize(
    ("wanted", "code", "text"),
    [
        (1.0, 0, ""),
        (2.5, 5, "fill: room: a dimension is not whole (write `floor` or `ceil`): 2.5"),
        (-2.0, 5, "a dimension is negative: -2"),
        (1e18, 5, "fill: room: a size of (1000000000000000000,) elements is too large"),
        (float("nan"), 5, "fill: room: a dimension is not a number: nan"),
    ],
    ids=str,
)
def test_a_size_from_features_is_checked(
    programs: dict[str, Path], sizes: Path, wanted: float, code: int, text: str, tmp_path: Path
) -> None:
    run_setup(_first(sizes).program, sizes.parent, 1, 1, tmp_path)
    np.save(next(tmp_path.rglob("wanted.npy")), wanted)
    done = _run(programs["sizes"], tmp_path)
    assert text in done.stderr
    assert done.returncode == code, done.stderr


NAMED = """
program named
scalar n, nnz : i32
array x : f32[n] in
array z : f32[n] out
kernel scale(z: out f32[n], x: in f32[n], n: i32, nnz: i32) {
  feature mean = nnz / n
  feature most = max(mean, 2.5)
  gpu {
    array room : f32[ceil(mean)]
    launch grid(ceil(n * mean / 256)) block(256)
    cuda \"\"\" if (threadIdx.x < mean + most) z[threadIdx.x] = x[threadIdx.x] + 0 * room[0]; \"\"\"
  }
}
dag { one : gpu scale(z, x, n, nnz) }
"""


def test_code_names_features() -> None:
    """They are further arguments, which the C++ code computes. Real numbers are rounded as the text says."""
    made = graph_of(NAMED)
    found = emit(Plan(made, next(iter(Space(made))), Target.CUDA))
    assert "op_0(s0.handle)" in found["driver.py"]
    assert "const double mean, const double most)" in found["kernels.cu"]
    mean = "(double(p.nnz) / double(p.n))"
    assert f"static_cast<double>({mean}), static_cast<double>(std::max({mean}, 2.5))" in found["iteration.hpp"]
    assert "dagc::ceil_div(p.nnz, p.n)" in found["program.hpp"], "whole numbers stay whole"
