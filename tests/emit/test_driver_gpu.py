"""The Python driver on GPUs, with every transport: its results against NumPy's, beside the C++ program."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from dagc import api
from dagc.build.mpi import find_mpi
from dagc.build.toolchain import find_nccl, find_nvcc, gpus
from dagc.measure.launch import launch
from tests.emit.build import SINK, SPMV

RANKS = 2
needs = [
    (bool(gpus()) and find_nvcc() is not None, "an NVIDIA GPU and nvcc"),
    (find_mpi() is not None and importlib.util.find_spec("mpi4py") is not None, "an MPI and mpi4py"),
    (importlib.util.find_spec("pycuda") is not None, "PyCUDA"),
]
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not all(there for there, _ in needs), reason=f"needs {', '.join(n for t, n in needs if not t)}"),
]
CASES = [(SPMV, t, c) for t, c in (("mpi_host", "false"), ("nccl", "false"), ("nccl", "true"), ("peer", "true"))]
CASES += [(SINK, t, c) for t, c in (("mpi_host", "true"), ("nccl", "true"), ("peer", "false"), ("peer", "true"))]


@pytest.mark.parametrize(("path", "transport", "capture"), CASES, ids=lambda v: v.stem if isinstance(v, Path) else v)
def test_results_are_those_of_the_reference(path: Path, transport: str, capture: str, tmp_path: Path) -> None:
    """Of the driver and of the C++ program, from the same data; timed, since a race may show late."""
    if transport == "nccl" and (len(gpus()) < RANKS or find_nccl() is None):
        pytest.skip("NCCL needs a GPU for each rank")
    defines = {"transport": transport, "capture": capture}
    api.compile(path, tmp_path / "out", target="cuda", form="driver", defines=defines)
    api.run_setup(path, RANKS, tmp_path / "data")
    short = ["--data", tmp_path / "data", "--seconds", "0.002", "--repeats", "5"]
    for argv in ([tmp_path / "out/bench"], [sys.executable, tmp_path / "out/driver.py"]):
        done = launch([*argv, *short], RANKS, timeout=300)
        assert done.returncode == 0, done.stderr
        assert "with the reference" in done.stdout
    expected = next((tmp_path / "data/rank-0001/expected").glob("*.npy"))
    np.save(expected, np.load(expected) + 1)
    done = launch([sys.executable, tmp_path / "out/driver.py", *short], RANKS, timeout=300)
    assert done.returncode == 1
    assert f"{expected.stem} is wrong" in done.stderr
