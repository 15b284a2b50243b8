"""Libraries on GPUs: what the host target cannot show. Sides of pointers, graphs of the application, memory of several
GPUs, ranks that share one, NCCL communicators, NVTX, and compute-sanitizer."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dagc.build.toolchain import find_nccl, find_nvcc, gpus, require_cxx
from dagc.measure.launch import Finished, launch
from tests.library.conftest import needs_mpi
from tests.library.gpu import HERE, SAMPLES, TRANSPORTS, application, library

pytestmark = [
    *needs_mpi, pytest.mark.gpu, pytest.mark.nvcc,
    pytest.mark.skipif(not gpus() or find_nvcc() is None, reason="needs a CUDA device and nvcc"),
]  # fmt: skip


def _start(*words: str | Path, ranks: int = 2, **environment: str) -> Finished:
    environment = {"PYTHONPATH": str(SAMPLES.parent), "MPI4PY_RC_THREAD_LEVEL": "multiple", **environment}
    return launch([str(w) for w in words], ranks, env=environment, timeout=300)


def _right(done: Finished, ranks: int = 2) -> None:
    said = sorted(re.findall(r"rank \d+: (?:right|wrong)", done.check().stdout))
    assert said == [f"rank {rank}: right" for rank in range(ranks)], done.stdout + done.stderr


def _can(transport: str, ranks: int) -> None:
    if transport == "nccl" and (find_nccl() is None or len(gpus()) < ranks):
        pytest.skip(f"needs NCCL and {ranks} GPUs")


def _ranks(transport: str) -> int:
    """Two; with NCCL, which needs a GPU for each rank, as many as there are GPUs. Other transports share one."""
    return min(2, len(gpus())) if transport == "nccl" else 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gpu")


def _ring(transport: str, folder: Path) -> Path:
    app = folder / f"ring-{transport}.out"
    if not app.exists():
        application(HERE / "ring.cpp", [library("ring", transport, folder)], app, nccl=transport == "nccl")
    return app


def _apps(transport: str, folder: Path) -> tuple[Path, list[Path]]:
    """The sample application, and its libraries."""
    app, libraries = folder / f"app-{transport}.out", [folder / f"{name}-{transport}" for name in ("spmv", "heat")]
    if not app.exists():
        for name in ("spmv", "heat"):
            library(name, transport, folder)
        application(SAMPLES / "apps/app.cpp", libraries, app)
    return app, libraries


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_arrays_of_the_application(transport: str, ranks: int, folder: Path) -> None:
    """Many iterations, other arrays, a graph of the application, refused pointers, streams and communicators."""
    _can(transport, ranks)
    _right(_start(_ring(transport, folder), ranks=ranks), ranks)


@pytest.mark.parametrize("transport", ["mpi_host", "peer"])
def test_ranks_that_share_a_gpu(transport: str, folder: Path) -> None:
    _right(_start(_ring(transport, folder), CUDA_VISIBLE_DEVICES="0"))


def test_nccl_is_refused_where_ranks_share_a_gpu(folder: Path) -> None:
    """An error value on every rank, with the reason."""
    _can("nccl", 1)
    app, _ = _apps("nccl", folder)
    done = _start(app, CUDA_VISIBLE_DEVICES="0")
    assert done.returncode == 1
    assert done.stderr.count("transport nccl needs a GPU for each rank, and 2 ranks of this host share 1") == 2


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_sample_applications(transport: str, folder: Path) -> None:
    _can(transport, 1)
    ranks = _ranks(transport)
    app, libraries = _apps(transport, folder)
    _right(_start(app, ranks=ranks), ranks)
    if importlib.util.find_spec("cupy") is not None:
        _right(_start(sys.executable, SAMPLES / "apps/app.py", *libraries, "cuda", ranks=ranks), ranks)


# initcheck does not see what another process writes: of the transports, it knows the copies of `mpi_host`.
SANITIZED = [("memcheck", t) for t in TRANSPORTS] + [("synccheck", t) for t in TRANSPORTS]
SANITIZED += [("racecheck", "mpi_host"), ("racecheck", "peer"), ("initcheck", "mpi_host")]


def _sanitized(tool: str, transport: str, app: Path, *options: str) -> None:
    if shutil.which("compute-sanitizer") is None:
        pytest.skip("needs compute-sanitizer")
    ranks = _ranks(transport)
    done = _start("compute-sanitizer", "--tool", tool, *options, "--error-exitcode", "9", app, ranks=ranks)
    _right(done, ranks)
    silent = (done.stdout + done.stderr).count("ERROR SUMMARY: 0 errors") + done.stdout.count("0 hazards displayed")
    assert silent >= ranks, done.stdout + done.stderr


# Not an error of the application: the calls that NCCL makes to learn what the driver and the GPU have.
ANSWERS = ("--report-api-errors", "no")


@pytest.mark.parametrize(("tool", "transport"), SANITIZED)
def test_compute_sanitizer_is_silent(tool: str, transport: str, folder: Path) -> None:
    """The sample application."""
    _can(transport, 1)
    app, _ = _apps(transport, folder)
    _sanitized(tool, transport, app, *(ANSWERS if (tool, transport) == ("memcheck", "nccl") else ()))


@pytest.mark.parametrize("tool", ["memcheck", "synccheck"])
def test_compute_sanitizer_is_silent_on_messages_of_nccl(tool: str, folder: Path) -> None:
    """Also with one GPU, where a rank sends to itself: graphs, `rebind`, and a communicator of the application."""
    _can("nccl", 1)
    _sanitized(tool, "nccl", _ring("nccl", folder), *(ANSWERS if tool == "memcheck" else ()))


def test_address_sanitizer_is_silent(folder: Path) -> None:
    """The application, with the headers of the libraries."""
    _, libraries = _apps("peer", folder)
    app = application(SAMPLES / "apps/app.cpp", libraries, folder / "app-asan.out", "-fsanitize=address,undefined")
    done = _start(app, ASAN_OPTIONS="protect_shadow_gap=0:detect_leaks=0")
    assert "ERROR: AddressSanitizer" not in done.stderr
    assert "runtime error" not in done.stderr
    _right(done)


def test_ranges_of_the_ops(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a profiler gets from a library with NVTX: the ops of each iteration, in order."""
    (folder / "ranges").mkdir()
    monkeypatch.setenv("DAGC_NVCCFLAGS", "-DDAGC_NVTX=1")
    marked = library("ring", "peer", folder / "ranges")
    app = application(HERE / "ring.cpp", [marked], folder / "ranges.out")
    nvcc = find_nvcc()
    assert nvcc is not None
    profiler, include = folder / "profiler.so", nvcc.path.resolve().parents[1] / "include"
    words = [str(require_cxx().path), "-shared", "-fPIC", "-DPROFILER", "-isystem", str(include)]
    subprocess.run([*words, str(HERE / "ranges.cpp"), "-o", str(profiler)], check=True)
    done = _start(
        app, ranks=1, NVTX_INJECTION64_PATH=str(profiler), LD_LIBRARY_PATH=os.environ.get("LD_LIBRARY_PATH", "")
    )
    _right(done, 1)
    pushed = re.findall(r"push:op `(\w+)`", done.stdout)
    assert " ".join(pushed[:5]) == "own pack move add came"
    assert done.stdout.count("push:") == done.stdout.count("pop")
