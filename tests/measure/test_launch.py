"""Real MPI programs, started with every MPI that is there (DAGC_TEST_MPIS names the wrappers of further ones)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dagc.base.errors import RunFailed, UsageError
from dagc.build.builder import Build, build
from dagc.build.mpi import (
    MPI,
    WAITING,
    YIELDING,
    MPIKind,
    cores,
    find_mpi,
    mpi_of_wrapper,
    rank_environment,
    starter_options,
    thread_sanitizer_environment,
)
from dagc.build.ranks import joined
from dagc.build.toolchain import find_cxx
from dagc.measure.launch import Finished, launch

PROGRAM = r"""
#include <mpi.h>
#include <unistd.h>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    const std::string mode = argc > 1 ? argv[1] : "";
    int rank = 0, ranks = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (mode == "abort" && rank == 1) MPI_Abort(MPI_COMM_WORLD, 3);
    if (mode == "hang" && rank == 1) {
        std::printf("pid %d\n", static_cast<int>(getpid()));
        std::fflush(stdout);
        for (;;) pause();
    }
    const int n = 300000;  // large enough for a message that waits for its receiver
    std::vector<int> mine(n, rank), theirs(n, -1);
    MPI_Request requests[2];
    MPI_Irecv(theirs.data(), n, MPI_INT, (rank + ranks - 1) % ranks, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(mine.data(), n, MPI_INT, (rank + 1) % ranks, 0, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    const char* word = std::getenv("WORD_FOR_RANKS");
    std::printf("rank %d of %d got %d %s\n", rank, ranks, theirs[n - 1], word ? word : "");
    MPI_Finalize();
    return 0;
}
"""


def _mpis() -> list[MPI]:
    found = [find_mpi()]
    wrappers = [w for w in os.environ.get("DAGC_TEST_MPIS", "").split(os.pathsep) if w]
    found += [mpi_of_wrapper(Path(w), "DAGC_TEST_MPIS") for w in wrappers]
    assert None not in found[1:], f"DAGC_TEST_MPIS={wrappers} names something that is not an MPI"
    return [mpi for mpi in found if mpi is not None and mpi.mpiexec is not None]


MPIS = _mpis()
pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(not MPIS or find_cxx() is None, reason="needs a C++ compiler and an MPI"),
]


@pytest.fixture(scope="module", params=MPIS, ids=lambda mpi: mpi.kind.name.lower())
def mpi(request: pytest.FixtureRequest) -> MPI:
    return request.param


@pytest.fixture(scope="module")
def program(mpi: MPI, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    (folder / "ring.cpp").write_text(PROGRAM)
    return build(Build(["ring.cpp"], directory=folder, mpi=mpi), folder / "ring")


def _wrapper(mpi: MPI) -> str:
    assert mpi.mpiexec is not None
    return str(mpi.mpiexec.with_name(mpi.mpiexec.name.replace("mpiexec", "mpicc")))


def _python_child(code: str, **variables: str) -> subprocess.Popen[str]:
    environment = {**os.environ, **variables}
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)


@pytest.mark.parametrize("ranks", [1, 2, cores() + 2])
def test_ring(mpi: MPI, program: Path, ranks: int) -> None:
    done = launch([program], ranks, env={"WORD_FOR_RANKS": "word"}, timeout=300, mpi=mpi)
    assert done.check() is done
    lines = sorted(line.rstrip() for line in done.stdout.splitlines() if line.startswith("rank"))
    assert lines == sorted(f"rank {r} of {ranks} got {(r - 1) % ranks} word" for r in range(ranks))


def test_exit_code_of_a_failing_rank_comes_through(mpi: MPI, program: Path) -> None:
    done = launch([program, "abort"], 4, timeout=300, mpi=mpi)
    assert done.returncode == 3
    assert not done.timed_out
    with pytest.raises(RunFailed, match="failed with exit code 3"):
        done.check()


def _alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def _gone_soon(pid: int) -> bool:
    end = time.monotonic() + 300
    while _alive(pid) and time.monotonic() < end:
        time.sleep(0.05)
    return not _alive(pid)


def test_hanging_ranks_are_ended_after_the_timeout(mpi: MPI, program: Path) -> None:
    done = launch([program, "hang"], 2, timeout=5, mpi=mpi)
    assert (done.returncode, done.timed_out) == (124, True)
    pid = int(done.stdout.split("pid ")[1].split()[0])
    assert _gone_soon(pid)
    with pytest.raises(RunFailed, match="timed out"):
        done.check()


def test_interrupt_ends_the_ranks(mpi: MPI, program: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from dagc.measure.launch import launch\n"
        "from dagc.build.mpi import mpi_of_wrapper\n"
        f"mpi = mpi_of_wrapper(Path({_wrapper(mpi)!r}), 'test')\n"
        f"launch([{str(program)!r}, 'hang'], 2, mpi=mpi, capture=False)\n"
    )
    child = _python_child(code)
    assert child.stdout is not None
    line = next(line for line in child.stdout if line.startswith("pid"))
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=300)
    assert child.returncode == -signal.SIGINT
    assert _gone_soon(int(line.split()[1]))


def test_a_program_that_is_not_there(mpi: MPI, tmp_path: Path) -> None:
    done = launch([tmp_path / "nowhere"], 2, timeout=300, mpi=mpi)
    assert done.returncode != 0
    assert "nowhere" in done.stderr + done.stdout


def test_under_mpiexec_the_program_joins(mpi: MPI, program: Path) -> None:
    code = (
        "from pathlib import Path; from dagc.measure.launch import launch, joined\n"
        "from dagc.build.mpi import mpi_of_wrapper\n"
        f"mpi = mpi_of_wrapper(Path({_wrapper(mpi)!r}), 'test')\n"
        f"done = launch([{str(program)!r}], 3, timeout=300, mpi=mpi).check()\n"
        "import sys; sys.stdout.write(f'{joined()} | {done.stdout.strip()}\\n')  # at once: ranks share a pipe\n"
    )
    done = launch([sys.executable, "-c", code], 3, timeout=300, mpi=mpi).check()
    lines = sorted(line.rstrip() for line in done.stdout.splitlines())
    assert lines == [f"({r}, 3) | rank {r} of 3 got {(r - 1) % 3}" for r in range(3)]


def test_joining_with_another_number_of_ranks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.delenv("SLURM_STEP_NUM_TASKS", raising=False)
    with pytest.raises(UsageError, match="one of 2"):
        launch(["true"], 4)


def test_no_ranks() -> None:
    with pytest.raises(UsageError, match="0 ranks"):
        launch(["true"], 0)


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({}, None),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"}, (2, 4)),
        ({"PMI_RANK": "0", "PMI_SIZE": "1"}, (0, 1)),
        ({"PMI_RANK": "0"}, None),
        # A batch script is no rank, though it has SLURM_PROCID; nor is a shell in a step of one task.
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, None),
        (
            {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "1", "PMI_RANK": "0", "PMI_SIZE": "1"},
            None,
        ),
        ({"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4"}, (3, 4)),
        ({"SLURM_STEP_NUM_TASKS": "1", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (1, 2)),
    ],
)
def test_joined(environment: dict[str, str], place: tuple[int, int] | None) -> None:
    assert joined(environment) == place


def _mpi_of_kind(kind: MPIKind, version: str) -> MPI:
    return MPI(kind, version, (), Path("lib"), ("mpi",), Path("mpiexec"), "test")


def test_what_each_kind_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = _mpi_of_kind(MPIKind.OPEN_MPI, "4.1.6"), _mpi_of_kind(MPIKind.OPEN_MPI, "5.0.8")
    mpich = _mpi_of_kind(MPIKind.MPICH, "5.0.0")
    assert "--oversubscribe" in starter_options(old)
    assert ":OVERSUBSCRIBE" in starter_options(new)
    assert starter_options(mpich) == ()
    for name in (*(name for names in YIELDING.values() for name in names), *WAITING, "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    assert rank_environment(new, cores()) == rank_environment(None, 1) == WAITING
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    assert rank_environment(new, cores()) == rank_environment(mpich, cores()) == rank_environment(None, 1) == {}
    assert rank_environment(new, cores() + 1) == {"OMPI_MCA_mpi_yield_when_idle": "1"}
    monkeypatch.setenv("MPIR_CVAR_POLLS_BEFORE_YIELD", "1000")
    variables = rank_environment(mpich, cores() + 1)
    assert "MPIR_CVAR_POLLS_BEFORE_YIELD" not in variables
    assert variables["MPIR_CVAR_ENABLE_HEAVY_YIELD"] == "1"
    assert variables["MPIR_CVAR_BARRIER_POSIX_INTRA_ALGORITHM"] == "mpir"
    assert thread_sanitizer_environment(mpich)["UCX_MEM_MMAP_HOOK_MODE"] == "none"
    assert thread_sanitizer_environment(new)["PMIX_MCA_gds"] == "hash"


def test_a_signal_is_told_from_an_exit_code() -> None:
    place = {"PMI_RANK": "0", "PMI_SIZE": "1"}
    code = (
        "from dagc.measure.launch import launch; import sys\n"
        "print(launch([sys.executable, '-c', 'import os, signal; os.kill(os.getpid(), signal.SIGTERM)'], 1).returncode)"
    )
    child = _python_child(code, **place)
    assert child.communicate(timeout=300)[0].strip() == str(128 + signal.SIGTERM)


def test_check_shows_the_end_of_what_was_said() -> None:
    done = Finished(("prog", "a b"), 5, "", "first\nlast\n", 0.1)
    with pytest.raises(RunFailed, match=r"prog 'a b' failed with exit code 5:\nfirst\nlast"):
        done.check()
