"""Emitted text of the two samples, as golden files: a change of emission shows as a change of these."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc.emit import emit
from dagc.emit.library import emit_library
from dagc.ir.plan import Target
from dagc.stages.artifacts import enqueued_of
from tests.conftest import Compare
from tests.emit.build import COMMS, HALO, SPMV, plan

GOLDEN = Path(__file__).parents[1] / "golden/emit"


@pytest.mark.parametrize("target", list(Target), ids=lambda t: t.value)
@pytest.mark.parametrize("path", [SPMV, HALO], ids=lambda p: p.stem)
def test_emitted_text(path: Path, target: Target, golden: Compare) -> None:
    small = {"nx": "16", "ny": "12", "nz": "8"} if path is HALO else {}
    files = emit(plan(path, target, **small))
    same_always = {"plan.json", "driver_runtime.py"}  # the sample's text, and a file of templates/
    for name in sorted(files.keys() - same_always):
        golden(GOLDEN / f"{path.stem}-{target.value}" / f"{name}.golden", files[name])


@pytest.mark.parametrize("transport", ["nccl", "peer"])
def test_groups_of_the_spmv(transport: str, golden: Compare) -> None:
    files = emit(plan(SPMV, Target.CUDA, transport=transport))
    for name in ("program.hpp", "iteration.hpp", *(("driver.py", "driver.cu") if transport == "peer" else ())):
        golden(GOLDEN / f"spmv-cuda-{transport}" / f"{name}.golden", files[name])


@pytest.mark.parametrize("lowering", ["staging", "mpi_cuda"])
def test_lowerings_of_the_spmv(lowering: str, golden: Compare) -> None:
    choice = {"staging": {"staging": "ops"}, "mpi_cuda": {"transport": "mpi_cuda"}}[lowering]
    files = emit(plan(SPMV, Target.CUDA, **choice))
    golden(GOLDEN / f"spmv-cuda-{lowering}" / "iteration.hpp.golden", files["iteration.hpp"])


@pytest.mark.parametrize("transport", ["mpi_host", "peer"])
def test_a_library_of_the_spmv(transport: str, golden: Compare) -> None:
    """One that needs the host in each iteration, and one that does not."""
    made = plan(SPMV, Target.CUDA, transport=transport)
    files = emit_library(made, "spmv", enqueued_of(made))
    of_interface = ["include/spmv.hpp", "fortran/spmv.f90", "python/spmv/__init__.py", "CMakeLists.txt"]
    for name in ["include/spmv.h", "src/spmv.cu", "src/program.hpp", *(of_interface if transport == "peer" else ())]:
        golden(GOLDEN / f"spmv-library-{transport}" / f"{name.replace('/', '_')}.golden", files[name])


def test_communicators(golden: Compare) -> None:
    made = plan(COMMS, Target.CUDA, transport="nccl")
    files, library = emit(made), emit_library(made, "comms", enqueued_of(made))
    for name in ("program.hpp", "iteration.hpp"):
        golden(GOLDEN / "comms-cuda-nccl" / f"{name}.golden", files[name])
    for name in (
        "include/comms.h",
        "src/program.hpp",
        "fortran/comms.f90",
        "python/comms/__init__.py",
        "example/main.cpp",
    ):
        golden(GOLDEN / "comms-library-nccl" / f"{name.replace('/', '_')}.golden", library[name])
