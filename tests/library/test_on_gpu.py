"""Libraries on arrays of other packages on a GPU: CUDA array interface and DLPack."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from dagc import api
from dagc.build.mpi import find_mpi
from dagc.build.toolchain import find_nvcc, gpus
from dagc.measure.launch import launch

DATA = Path(__file__).parent / "data"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not gpus() or find_nvcc() is None or find_mpi() is None, reason="needs a GPU, nvcc and an MPI"),
]
NEEDED = {
    "cupy": ["cupy"], "cupy-dlpack": ["cupy"], "torch": ["torch"], "torch-dlpack": ["torch"], "jax": ["jax", "cupy"],
    "numba": ["numba"], "pycuda": ["pycuda"],
}  # fmt: skip


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("libraries") / "scaled"
    api.compile(DATA / "scaled.dag", folder, target="cuda", form="library")
    return folder


@pytest.mark.parametrize("package", NEEDED)
def test_arrays_of(package: str, scaled: Path) -> None:
    for name in ("mpi4py", *NEEDED[package]):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"needs {name}")
    env = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    done = launch([sys.executable, DATA / "on_gpu.py", scaled, package], 1, env=env, timeout=300)
    assert done.returncode == 0, done.stderr
    more = ["refused", "graph"] if package == "cupy" else []
    assert done.stdout.split() == ["run(1)", "rebind", *more]
