"""The port of a program: the file of CUDA and MPI as it was, and the programs that use its kernel."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

from dagc import api
from dagc.build.builder import Build, build
from dagc.build.mpi import find_mpi, require_mpi
from dagc.build.toolchain import find_cxx, find_nvcc
from dagc.measure.launch import launch
from tests.precompiled import by_clang

PORT = Path(__file__).parents[2] / "samples/port"
SMALL = {"columns": "48", "height": "16", "steps": "4"}
mpi = find_mpi()
can_run = pytest.mark.skipif(
    mpi is None or mpi.mpiexec is None or find_cxx() is None, reason="needs an MPI and a C++ compiler"
)


def mean_temperature(ranks: int) -> float:
    spec = importlib.util.spec_from_file_location("port", PORT / "port.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sizes = {name: int(value) for name, value in SMALL.items()}
    plates = [module.plate({}, rank=r, size=ranks, seed=0, **sizes)["u[0]"][1:-1] for r in range(ranks)]
    return float(np.mean(plates))


@can_run
@pytest.mark.mpi
def test_before_and_after_compute_the_same(tmp_path: Path, unoptimised: None) -> None:
    """The two steps of the port, and the program before, each against NumPy. The emitted folder has what the program
    before needs on a machine without a GPU."""
    for name in ("port", "overlap"):
        done = api.compile(
            PORT / f"{name}.dag",
            tmp_path / name,
            target="host",
            defines=SMALL,
            run=True,
            ranks=2,
            seconds=1e-3,
            repeats=2,
        )
        assert done.result is not None
    heat = tmp_path / "port/code/before/heat.cu"
    folders = [tmp_path / "port" / name for name in ("include", "code/_host")]
    before = build(Build([heat], mpi=require_mpi(), include=folders, flags=("-O0", *by_clang())), tmp_path / "heat")
    done_before = launch([before, SMALL["columns"], SMALL["height"], SMALL["steps"]], 2, timeout=300)
    assert done_before.returncode == 0, done_before.stderr
    found = re.search(r"mean temperature ([0-9.]+)", done_before.stdout)
    assert found is not None
    assert float(found[1]) == pytest.approx(mean_temperature(2), abs=1e-11)


@pytest.mark.thorough
@pytest.mark.nvcc
@pytest.mark.skipif(find_nvcc() is None or mpi is None, reason="needs nvcc and an MPI")
def test_before_compiles_for_a_gpu(tmp_path: Path) -> None:
    built = build(Build([PORT / "before/heat.cu"], target="cuda", mpi=require_mpi(), flags=("-O0",)), tmp_path / "heat")
    assert built.is_file()
