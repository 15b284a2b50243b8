"""Emitted code compiles without a warning, for both targets; the Python driver is complete."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dagc.build.builder import build
from dagc.build.toolchain import find_cmake, find_cxx, find_mpi, find_nccl, find_nvcc, require_mpi, require_nccl
from dagc.emit import emit, sources, why_no_driver
from dagc.ir.plan import Target
from tests.emit.build import HALO, ROOT, SINK, SPMV, plan, write

GROUPS = ROOT / "tests/run/data/groups.dag"
SAMPLES = [ROOT / "samples" / name / f"{name}.dag" for name in ("cg", "gcn", "nitro", "tridiag")]
LOWERINGS = [{"transport": "mpi_host"}, {"transport": "mpi_host", "staging": "ops"}, {"transport": "mpi_cuda"}]
CASES = [(path, choice) for path in (SPMV, HALO, SINK) for choice in LOWERINGS] + [(path, {}) for path in SAMPLES]
CASES += [(SPMV, {"transport": "mpi_cuda", "capture": "true"})]
CASES += [(path, {"transport": t, "capture": "true"}) for path in (SPMV, HALO) for t in ("nccl", "peer")]
CASES += [(GROUPS, {"transport": "nccl"})]
# The others are compiled without a warning, and run, in tests/run/test_compile.py and tests/emit/test_bench.py.
ON_HOST = [(path, choice) for path, choice in CASES if path not in (SPMV, HALO, SINK)]
ON_HOST += [(SINK, LOWERINGS[1]), *((path, {"transport": "nccl", "capture": "true"}) for path in (SPMV, HALO))]

needs_mpi = pytest.mark.skipif(find_mpi() is None, reason="needs an MPI")
needs_cxx = pytest.mark.skipif(find_cxx() is None, reason="needs a C++ compiler")
needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")


def name(case: object) -> str:
    return case.stem if isinstance(case, Path) else "-".join(case.values()) if isinstance(case, dict) else str(case)


def compile_both(path: Path, choice: dict[str, str], target: Target, directory: Path) -> None:
    write(plan(path, target, **choice), directory)
    bench, runner = (directory / f for f in sources(target))
    # Warnings are what matters here, not speed.
    wanted = [(bench, "bench", False)] + ([(runner, "runner.so", True)] if choice in LOWERINGS[:1] else [])
    for source, out, shared in wanted:
        kind = target.value
        flags = ("-O0",)
        if target is Target.CUDA:
            flags += ("-Xptxas=-O0",)
        if target is Target.CUDA and choice.get("transport") == "nccl":
            flags += require_nccl().flags()
        build([source], directory / out, target=kind, mpi=require_mpi(), shared=shared, flags=flags)


@needs_mpi
@needs_cxx
@pytest.mark.slow
@pytest.mark.parametrize(("path", "choice"), ON_HOST, ids=name)
def test_host(path: Path, choice: dict[str, str], tmp_path: Path) -> None:
    compile_both(path, choice, Target.HOST, tmp_path)


@needs_mpi
@needs_nvcc
@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.parametrize(("path", "choice"), CASES, ids=name)
def test_cuda(path: Path, choice: dict[str, str], tmp_path: Path) -> None:
    if choice.get("transport") == "nccl" and find_nccl() is None:
        pytest.skip("needs NCCL")
    compile_both(path, choice, Target.CUDA, tmp_path)


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
@pytest.mark.slow
@pytest.mark.skipif(find_cmake() is None, reason="needs cmake")
def test_the_directory_builds_without_dagc(tmp_path: Path) -> None:
    """For a GPU; tests/run/test_compile.py does so for the host, and runs what was built."""
    cmake, nvcc, mpi = find_cmake(), find_nvcc(), require_mpi()
    assert cmake is not None
    assert nvcc is not None
    write(plan(SPMV, Target.CUDA), tmp_path)
    found = [f"-DMPI_CXX_COMPILER={mpi.mpiexec.parent / 'mpicxx'}"] if mpi.mpiexec is not None else []
    found += [f"-DCMAKE_CUDA_COMPILER={nvcc.path}", "-DCMAKE_CUDA_FLAGS_RELEASE=-O0"]  # speed is no matter here
    subprocess.run([str(cmake.path), "-S", ".", "-B", "build", *found], cwd=tmp_path, check=True)
    subprocess.run([str(cmake.path), "--build", "build", "--parallel", "2"], cwd=tmp_path, check=True)
    assert (tmp_path / "build/bench").exists()
    assert (tmp_path / "build/runner").exists()


@pytest.mark.parametrize("choice", LOWERINGS, ids=name)
@pytest.mark.parametrize("path", [SPMV, HALO], ids=name)
def test_driver_has_no_unknown_names(path: Path, choice: dict[str, str], tmp_path: Path) -> None:
    """The driver cannot run without a GPU; a linter knows its names, and that it is Python."""
    made = plan(path, Target.CUDA, **choice)
    assert why_no_driver(made) == ""
    files = emit(made)
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
