"""Emitted code compiles without a warning, for both targets; the Python driver is complete."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dagc.base.errors import BuildFailed
from dagc.build.builder import Build, build
from dagc.build.mpi import find_mpi, require_mpi
from dagc.build.toolchain import find_cmake, find_cxx, find_nvcc
from dagc.emit import emit
from dagc.ir.plan import Target
from tests.emit.build import ALLTOALLV, COLUMNS, HALO, RANKS, ROOT, SINK, SPMV, plan, write
from tests.emit.together import write_together

GROUPS = ROOT / "tests/measure/data/groups.dag"
SAMPLES = [ROOT / "samples" / name for name in ("cg/cg.dag", "gnn/gcn.dag", "tridiag/tridiag.dag")]
LOWERINGS = [{"transport": "mpi_host"}, {"transport": "mpi_host", "staging": "ops"}, {"transport": "mpi_cuda"}]
CASES = [(path, choice) for path in (SPMV, HALO, SINK) for choice in LOWERINGS] + [(path, {}) for path in SAMPLES]
CASES += [(SPMV, {"transport": "mpi_cuda", "capture": "true"})]
CASES += [(path, {"transport": t, "capture": "true"}) for path in (SPMV, HALO) for t in ("nccl", "peer")]
CASES += [
    (RANKS, {"transport": "mpi_cuda"}),
    (COLUMNS, {"transport": "mpi_cuda"}),
    (ALLTOALLV, {"transport": "mpi_cuda"}),
    (RANKS, {"transport": "nccl", "capture": "true"}),
]
CASES += [(GROUPS, {"transport": "nccl"}), (ROOT / "samples/polybench/gemm.dag", {})]
# For the GPU: tests/emit/test_nvcc.py. The others are compiled for the host without a warning, and run, in
# tests/measure/test_compile.py, tests/emit/test_bench.py and tests/emit/test_ranks.py.
ON_HOST = [(path, choice) for path, choice in CASES if path not in (SPMV, HALO, SINK, RANKS, COLUMNS, ALLTOALLV)]
ON_HOST += [(SINK, LOWERINGS[1]), *((path, {"transport": "nccl", "capture": "true"}) for path in (SPMV, HALO))]

needs_mpi = pytest.mark.skipif(find_mpi() is None, reason="needs an MPI")
needs_cxx = pytest.mark.skipif(find_cxx() is None, reason="needs a C++ compiler")
needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")


def name(case: object) -> str:
    return case.stem if isinstance(case, Path) else "-".join(case.values()) if isinstance(case, dict) else str(case)


FLAGS = ("-c", "-O0")  # warnings are what matters here, not speed


@needs_mpi
@needs_cxx
def test_host(tmp_path: Path) -> None:
    """With what their drivers call."""
    plans = {f"{name(path)} {name(choice)}": plan(path, Target.HOST, **choice) for path, choice in ON_HOST}
    build(Build([write_together(plans, tmp_path)], mpi=require_mpi(), flags=FLAGS), tmp_path / "together.o")


def test_programs_together_are_told_apart_by_the_source_file(tmp_path: Path) -> None:
    """The build cache does not read the files that it includes."""
    transports = ("mpi_host", "mpi_cuda")
    texts = [
        write_together({"one": plan(SPMV, Target.HOST, transport=t)}, tmp_path / t).read_text() for t in transports
    ]
    assert texts[0] != texts[1]
    assert texts[0].split("\n")[1:] == texts[1].split("\n")[1:]


@pytest.mark.thorough
@needs_mpi
@needs_cxx
def test_programs_together_are_compiled_with_their_warnings(tmp_path: Path) -> None:
    """Each of them, also where files of two have equal text."""
    plans = {"one": plan(SPMV, Target.HOST), "other": plan(SPMV, Target.HOST, transport="mpi_cuda")}
    source = write_together(plans, tmp_path)
    file = tmp_path / "p_other/kernels.cu"
    file.write_text(file.read_text() + "static void unused() {}\n")
    with pytest.raises(BuildFailed, match=r"kernels\.cu:\d+:\d+: error: .*unused"):
        build(Build([source], mpi=require_mpi(), flags=FLAGS), tmp_path / "together.o")


@needs_nvcc
@pytest.mark.nvcc
@pytest.mark.parametrize("path", [SPMV, HALO], ids=name)
def test_kernels_alone_become_a_cubin(path: Path, tmp_path: Path) -> None:
    """As the Python driver compiles them; the kernels are found by their plain names."""
    nvcc = find_nvcc()
    assert nvcc is not None
    write(plan(path, Target.CUDA), tmp_path)
    command = [str(nvcc.path), "-cubin", "-arch=sm_90", "-std=c++17", "-I", "include", "-o", "k.cubin", "kernels.cu"]
    subprocess.run(command, cwd=tmp_path, check=True)
    names = {"spmv": (b"gather", b"spmv", b"add"), "halo3d": (b"pack", b"unpack")}[path.stem]
    assert all(b"\0.text." + n + b"\0" in (tmp_path / "k.cubin").read_bytes() for n in names)


@needs_mpi
@needs_nvcc
@pytest.mark.nvcc
@pytest.mark.skipif(find_cmake() is None, reason="needs cmake")
@pytest.mark.thorough
def test_the_directory_builds_without_dagc(tmp_path: Path) -> None:
    """For a GPU, without a warning: `runner`, one of two programs of a loop in the file. tests/measure/test_compile.py
    builds and runs both for the host."""
    cmake, nvcc, mpi = find_cmake(), find_nvcc(), require_mpi()
    assert cmake is not None
    assert nvcc is not None
    write(plan(SINK, Target.CUDA), tmp_path)
    found = [f"-DMPI_CXX_COMPILER={mpi.mpiexec.parent / 'mpicxx'}"] if mpi.mpiexec is not None else []
    strict = "--Werror all-warnings -Xcompiler=-Wall,-Wextra,-Werror"
    found += [f"-DCMAKE_CUDA_COMPILER={nvcc.path}", f"-DCMAKE_CUDA_FLAGS={strict}"]
    found += ["-DCMAKE_CUDA_FLAGS_RELEASE=-O0 -Xptxas=-O0"]  # speed is no matter here
    subprocess.run([str(cmake.path), "-S", ".", "-B", "build", *found], cwd=tmp_path, check=True)
    subprocess.run([str(cmake.path), "--build", "build", "--target", "runner"], cwd=tmp_path, check=True)
    assert (tmp_path / "build/runner").exists()


@pytest.mark.parametrize("choice", [*LOWERINGS, {"transport": "peer", "capture": "true"}], ids=name)
@pytest.mark.parametrize("path", [SPMV, HALO], ids=name)
def test_driver_has_no_unknown_names(path: Path, choice: dict[str, str], tmp_path: Path) -> None:
    """The driver cannot run without a GPU; a linter knows its names, and that it is Python."""
    files = emit(plan(path, Target.CUDA, **choice))
    for file in ("driver.py", "driver_runtime.py"):
        (tmp_path / file).write_text(files[file])
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F,E9", "--ignore", "F401", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_driver_follows_the_traversal() -> None:
    made = plan(HALO, Target.CUDA)
    text = emit(made)["driver.py"]
    entries = [line.strip() for line in text.split("def iteration()")[1].splitlines() if line.strip().startswith("# ")]
    assert len(entries) == len(made.traversal.entries)
    assert text.count(".record(") == sum("record" in e for e in (plan_text(made)))
    assert text.count(".synchronize(") == sum("sync" in e for e in plan_text(made))


def plan_text(made: object) -> list[str]:
    from dagc.ir.plan import Plan
    from dagc.ir.traversal import traversal_text

    assert isinstance(made, Plan)
    return traversal_text(made.traversal, made.graph).split()
