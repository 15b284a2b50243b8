"""Applications that no program expresses, and commands without one: what is said, and that nothing is written."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dagc.build.mpi import find_mpi
from dagc.build.toolchain import find_cxx
from tests.cli.command import dagc

SOURCE = Path(__file__).parent / "apps/trouble.cu"
mpi = find_mpi()
pytestmark = [
    pytest.mark.skipif(
        mpi is None or mpi.mpiexec is None or find_cxx() is None, reason="needs an MPI and a C++ compiler"
    ),
    pytest.mark.mpi,
    pytest.mark.usefixtures("unoptimised"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all tests: the application is built once."""
    path = tmp_path_factory.mktemp("trouble")
    shutil.copy(SOURCE, path)
    return path


@pytest.mark.parametrize(
    ("what", "options", "code", "message"),
    [
        ("crash", (), 5, "(a bad address) in kernel `add` at trouble.cu:57: element 64 of `x`, which has 64"),
        ("exit", (), 5, "the application failed with exit code 3"),
        ("managed", (), 2, "trouble.cu:39: managed memory, whose copies are in no call"),
        ("thread", (), 2, "a call from a second thread"),
        ("derived", (), 2, "a message of a derived datatype whose blocks differ in length"),
        ("persistent", (), 2, "MPI_Send_init is not recorded"),
        ("window", (), 2, "MPI_Win_create is not recorded"),
        ("fork", (), 2, "a forked process calls CUDA or MPI"),
        ("grows", (), 2, "trouble.cu:70: allocates 512 bytes, then 520: an array has one size in all rounds"),
        ("leaks", (), 2, "trouble.cu:70: allocates memory 8 times, and none of it was freed before the next"),
        ("scan", (), 2, "MPI_Scan is not recorded"),
        ("devices", (), 2, "cudaSetDevice is not recorded"),
        ("graph", (), 2, "cudaStreamBeginCapture is not recorded"),
        ("hidden", (), 2, "the definition of the kernel made is in no file of the application"),
        ("random", (), 2, "trouble.cu:85: curandGenerateUniformDouble is not recorded"),
        ("mark", (), 2, "rank 1 never reaches the mark BEGIN of --from; rank 0 does"),
        ("once", (), 2, "no loop was found that all ranks repeat"),
        ("good", ("--from", "nowhere"), 2, "no rank reaches the mark nowhere of --from"),
        ("good", ("--bytes", "100"), 2, "more than the 100 of --bytes"),
        ("calls", (), 2, "rank 0 made another call in a second run"),
        ("values", ("--twice",), 2, "rank 0 had other values of step in another run"),
    ],
)
def test_nothing_is_written(folder: Path, what: str, options: tuple[str, ...], code: int, message: str) -> None:
    words = ("--host", "trouble.cu", "-o", "trouble.dag", *options, "--quiet", "--")
    done = dagc("record", *words, "mpiexec", "-n", "2", "./trouble", what, cwd=folder)
    assert message in done.stderr
    assert "help: " in done.stderr
    assert done.returncode == code
    assert [path.name for path in folder.iterdir()] == ["trouble.cu"]


def test_files_of_two_programs_are_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.cu").write_text("int main() { return 0; }\n")
    done = dagc("record", "--host", ".", "-o", "one.dag", "--quiet", "--", "./one", cwd=tmp_path)
    assert "one.cu, two.cu: several programs, each with its `main`" in done.stderr
    assert done.returncode == 2


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_an_application_ends_with_its_command(folder: Path) -> None:
    words = ("--host", "trouble.cu", "-o", "trouble.dag", "--quiet", "--watchdog", "2", "--")
    done = dagc("record", *words, "mpiexec", "-n", "2", "./trouble", "wait", cwd=folder)
    assert "the application did not end within 2 s" in done.stderr
    assert done.returncode == 5
    assert not [line for line in _commands() if b"/trouble" in line]


def _commands() -> Iterator[bytes]:
    """The command lines of the processes of this machine."""
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            yield (entry / "cmdline").read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-o", "a.dag", "--", "./trouble"), "name the files of the application with --host, or with --source"),
        (("--source", "main.f", "-o", "a.dag", "--", "./main"), "main.f: Fortran, of which record compiles nothing"),
        (("--host", "trouble.cu", "-o", "a.dag", "--", "mpiexec", "app"), "names no program of the application"),
        (("--host", "missing.cu", "-o", "a.dag", "--", "./missing"), "missing.cu: No such file or directory"),
        (("--host", "main.F90", "-o", "a.dag", "--", "./main"), "main.F90: Fortran, of which record compiles nothing"),
        (("--host", "run.py", "-o", "a.dag", "--", "./run"), "run.py: not C, C++ or CUDA, of which record compiles"),
        (("--host", "trouble.cu", "-o", "a.txt", "--", "./trouble"), "a.txt: the output is a program"),
        (("--host", "trouble.cu", "-o", "no/a.dag", "--", "./trouble"), "no is no directory"),
        (("--host", "/usr/include/mpi.cu", "-o", "a.dag", "--", "./mpi"), "it is not below"),
        (("--host", "trouble.cu", "-o", "for.dag", "--", "./trouble"), "`for` is a reserved word"),
    ],
)  # fmt: skip
def test_a_command_that_records_nothing(folder: Path, words: tuple[str, ...], message: str) -> None:
    done = dagc("record", "--quiet", *words, cwd=folder)
    assert message in done.stderr
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("#include <cusparse.h>", "cuSPARSE"),
        ("#include <thrust/sort.h>", "Thrust"),
        ("void f(double* x) { cublasDtrsv(0, 0, 0, 0, 1, x, 1, x, 1); }", "cublasDtrsv"),
        ("__global__ void k(cudaTextureObject_t t, float* x) { *x = tex1Dfetch<float>(t, 0); }", "a texture"),
    ],
)
def test_what_the_host_target_lacks_is_named(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "a.cu").write_text(f"#include <cuda_runtime.h>\n{text}\nint main() {{}}\n")
    done = dagc("record", "--host", "a.cu", "-o", "a.dag", "--quiet", "--", "./a", cwd=tmp_path)
    assert f"a.cu:2: {what} is not recorded" in done.stderr
    assert done.returncode == 2


def test_a_file_that_no_program_can_name(tmp_path: Path) -> None:
    (tmp_path / 'a"b.cu').write_text("int main() {}\n")
    done = dagc("record", "--host", 'a"b.cu', "-o", "a.dag", "--", './a"b', cwd=tmp_path)
    assert "'a\"b.cu': a quote or a control character in the name of a file" in done.stderr
    assert "help: rename it" in done.stderr
    assert done.returncode == 2


def test_names_that_are_not_ascii(tmp_path: Path) -> None:
    """Of kernels, their parameters and arrays: legal in CUDA, not in a program."""
    (tmp_path / "ü.cu").write_text(NAMES)
    done = dagc("record", "--host", "ü.cu", "-o", "a.dag", "--quiet", "--", "./ü", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "gr__e: inout f64[*]" in (tmp_path / "a.dag").read_text()


NAMES = """
#include <cuda_runtime.h>
__global__ void straße(double* größe, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) größe[i] = größe[i] * 0.5 + 1;
}
int main() {
  double h[64] = {}, *wärme;
  cudaMalloc(&wärme, sizeof h);
  cudaMemcpy(wärme, h, sizeof h, cudaMemcpyHostToDevice);
  for (int t = 0; t < 6; ++t) straße<<<1, 64>>>(wärme, 64);
  cudaMemcpy(h, wärme, sizeof h, cudaMemcpyDeviceToHost);
}
"""
