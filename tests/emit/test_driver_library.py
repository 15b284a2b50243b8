"""The Python driver with libdriver.so: ops that PyCUDA has no functions for, and CUDA graphs.

Here it runs on the host target's runtime, in which streams are threads, with a stand-in for PyCUDA over this runtime.
On GPUs: tests/emit/test_driver_gpu.py.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from pathlib import Path

import pytest

from dagc import api
from dagc.base.errors import UsageError
from dagc.build.builder import Build, build
from dagc.build.mpi import find_mpi, require_mpi
from dagc.build.toolchain import find_cxx
from dagc.emit import driver_files
from dagc.emit.common import emission
from dagc.emit.driver import driver_view
from dagc.ir.plan import Plan, Target
from dagc.measure.launch import Finished, launch
from dagc.setup import run_setup
from tests.emit.build import SINK, plan, write

mpi = find_mpi()
HOSTED = Path(__file__).parent / "hosted_cuda"
RANKS = 2
_HEAD = re.compile(r"__global__ void (\w+)\((.*)\) \{")
_runs = pytest.mark.skipif(
    mpi is None or mpi.mpiexec is None or find_cxx() is None or importlib.util.find_spec("mpi4py") is None,
    reason="needs an MPI, mpi4py and a C++ compiler",
)


def driver_on_host(made: Plan) -> dict[str, str]:
    """The driver's files for a plan of the host target, for which dagc writes none."""
    views = emission(made)
    return driver_files(driver_view(made, views), made.target, views.common)


def launchers(kernels: str) -> str:
    """For each kernel a C function that launches it."""
    out = ""
    for name, formals in _HEAD.findall(kernels):
        names = "".join(f", {f.split()[-1].lstrip('*')}" for f in formals.split(",") if f)
        out += f"""
extern "C" void launch_{name}(const unsigned* grid_, const unsigned* block_, unsigned shared_, void* stream_,
    {formals}) {{
  const dim3 grid(grid_[0], grid_[1], grid_[2]), block(block_[0], block_[1], block_[2]);
  dagc::launch({name}, grid, block, shared_, static_cast<cudaStream_t>(stream_){names});
}}
"""
    return out


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory, unoptimised: None) -> Path:
    """Every kind of op, with messages on the GPU, in CUDA graphs: the driver, its library and its data."""
    made = plan(SINK, Target.HOST, transport="peer", capture="true")
    directory = write(made, tmp_path_factory.mktemp("driver"))
    files = driver_on_host(made)
    assert set(files) == {"driver.py", "driver_runtime.py", "driver.cpp"}
    files["driver.cpp"] += (HOSTED / "hosted.cpp").read_text() + launchers((directory / "kernels.cu").read_text())
    for name, text in files.items():
        (directory / name).write_text(text)
    build(Build([directory / "driver.cpp"], mpi=require_mpi(), shared=True), directory / "libdriver.so")
    run_setup(made.program, SINK.parent, RANKS, 1, directory / "data")
    return directory


def run(directory: Path, *options: str, driver: Path | None = None) -> Finished:
    argv = [sys.executable, driver or directory / "driver.py", "--data", directory / "data", *options]
    env = {"PYTHONPATH": str(HOSTED), "HOSTED_LIBRARY": str(directory / "libdriver.so"), "PYTHONDONTWRITEBYTECODE": "1"}
    return launch(argv, RANKS, env=env, timeout=300)


@pytest.fixture(autouse=True)
def stand_in_for_nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DAGC_NVCC", str(tmp_path / "nvcc"))
    return Path(shutil.copy(HOSTED / "nvcc", tmp_path))


@_runs
@pytest.mark.mpi
def test_every_kind_of_op_gives_the_right_results(everything: Path, stand_in_for_nvcc: Path) -> None:
    text = (everything / "driver.py").read_text()
    assert "launch_mix(" in text  # PyCUDA's
    assert "graph_0(s" in text
    assert "memcpy_dtoh_async" in text
    done = run(everything, "--seconds", "0.001", "--repeats", "3")
    assert done.returncode == 0, done.stderr
    assert "agree with the reference" in done.stdout
    assert "time per iteration" in done.stdout
    stand_in_for_nvcc.unlink()  # the kernels were compiled by the first run
    assert run(everything, "--check-only").returncode == 0


@_runs
@pytest.mark.mpi
def test_a_library_that_is_missing_or_of_another_traversal(everything: Path, tmp_path: Path) -> None:
    for name in ("driver.py", "driver_runtime.py"):
        (tmp_path / name).write_text((everything / name).read_text())
    done = run(everything, driver=tmp_path / "driver.py")
    assert done.returncode == 3
    assert f"{tmp_path} has no libdriver.so; build it with `dagc compile --as driver`, or with CMake" in done.stderr
    (tmp_path / "build").mkdir()
    (tmp_path / "build/libdriver.so").symlink_to(everything / "libdriver.so")
    (tmp_path / "driver.py").write_text((everything / "driver.py").read_text().replace("first@s0", "first@s1"))
    done = run(everything, driver=tmp_path / "driver.py")
    assert done.returncode == 3
    assert "libdriver.so is of another traversal than driver.py; build it again" in done.stderr


def test_as_driver_needs_a_target_and_a_program_that_has_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--as driver: PyCUDA needs a GPU, and the target is host") as caught:
        api.compile(SINK, tmp_path / "out", target="host", form="driver")
    assert caught.value.help == "add --target cuda"
    assert not (tmp_path / "out").exists()
    done = api.compile(SINK, tmp_path / "out", target="cuda", form="driver", build=False)
    assert {"driver.py", "driver.cu"} <= set(done.files)
    assert done.left_out == ()
    with pytest.raises(UsageError, match="--name is the name of a library"):
        api.compile(SINK, tmp_path / "out", target="cuda", form="driver", name="mine", build=False)
