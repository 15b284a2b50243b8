"""dagc/check.hpp: one clear line, the exit code through mpiexec, and no rank left waiting."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dagc.base.errors import RunFailed
from dagc.build.mpi import MPI, find_mpi
from dagc.build.toolchain import find_cxx
from dagc.measure.launch import launch
from tests.runtime.programs import make

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(find_cxx() is None or find_mpi() is None, reason="needs a C++ compiler and an MPI"),
]


@pytest.fixture(scope="module")
def mpi() -> MPI:
    found = find_mpi()
    assert found is not None
    return found


@pytest.fixture(scope="module")
def program(mpi: MPI, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make("failures", tmp_path_factory.mktemp("failures"), mpi=mpi)


@pytest.mark.parametrize(
    ("how", "code", "line"),
    [
        ("mpi", 5, r"dagc: rank 2: .*failures\.cpp:\d+: MPI_Send\(&value, 1, MPI_INT, .*\) failed: .*rank.*"),
        ("cuda", 5, r"dagc: rank 2: .*failures\.cpp:\d+: call\(broken\) failed: out of memory"),
        ("wrong", 1, r"dagc: rank 2: y is wrong"),
        ("thread", 3, r"dagc: rank 2: no GPU"),
        ("connect", 5, r"dagc: rank 2 on \S+: NCCL has not connected the ranks on \S+ after 0\.2 s, by .*; NCCL_.*"),
    ],
)
def test_a_failing_rank_ends_all(mpi: MPI, program: Path, how: str, code: int, line: str) -> None:
    done = launch([program, how], 3, mpi=mpi, timeout=300)
    assert not done.timed_out
    assert done.returncode == code
    spoken = [text for text in done.stderr.splitlines() if text.startswith("dagc: ")]
    assert len(spoken) == 1
    assert re.fullmatch(line, spoken[0])


@pytest.mark.parametrize(("how", "name"), [("segv", "SIGSEGV"), ("abort", "SIGABRT")])
def test_a_rank_that_a_signal_ends_says_which(mpi: MPI, program: Path, how: str, name: str) -> None:
    done = launch([program, how], 3, mpi=mpi, timeout=300)
    assert done.returncode != 0
    spoken = [text for text in done.stderr.splitlines() if text.startswith("dagc: ")]
    assert len(spoken) == 1
    assert re.fullmatch(rf"dagc: rank 2: terminated by {name} \(.*\)", spoken[0])


def test_a_rank_that_is_killed_is_told_by_the_starter(mpi: MPI, program: Path) -> None:
    done = launch([program, "kill"], 3, mpi=mpi, timeout=300)
    assert done.why().startswith("was terminated by SIGKILL (")
    with pytest.raises(RunFailed, match="was terminated by SIGKILL"):
        done.check()


@pytest.mark.parametrize(("how", "code", "line"), [("before", 2, "dagc: before MPI"), ("after", 5, "dagc: after MPI")])
def test_outside_of_mpi_no_rank_is_named(mpi: MPI, program: Path, how: str, code: int, line: str) -> None:
    done = launch([program, how], 1, mpi=mpi, timeout=300)
    assert done.returncode == code
    assert line in done.stderr.splitlines()


def test_ranks_of_one_host_are_numbered(mpi: MPI, program: Path) -> None:
    done = launch([program, "ranks"], 3, mpi=mpi, timeout=300)
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == ["0 0 3", "1 1 3", "2 2 3"]
