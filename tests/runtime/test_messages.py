"""dagc/message.hpp: what arrives, and what ThreadSanitizer says of buffers that are touched too early."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dagc.build.mpi import MPI, find_mpi, thread_sanitizer_environment
from dagc.build.toolchain import find_cxx
from dagc.measure.launch import Finished, launch
from tests.runtime.programs import make
from tests.tiers import representatives

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(find_cxx() is None or find_mpi() is None, reason="needs a C++ compiler and an MPI"),
]

SMALL, LARGE = 64, 1 << 20  # bytes: one MPI copies at once, one that it reads from the waiting thread
MUTANTS = [
    "no sync before send",
    "write before wait_send",
    "synced write before wait_send",
    "cpu write before wait_send",
    "read before wait_recv",
    "synced read before wait_recv",
    "no sync before receive",
    "write before collective's wait",
]


@pytest.fixture(scope="module")
def mpi() -> MPI:
    found = find_mpi()
    assert found is not None
    return found


@pytest.fixture(scope="module")
def messages(mpi: MPI, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make("messages", tmp_path_factory.mktemp("messages"), mpi=mpi)


@pytest.fixture(scope="module")
def races(mpi: MPI, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make("message_races", tmp_path_factory.mktemp("races"), mpi=mpi, sanitize="thread")


@pytest.mark.parametrize("ranks", representatives([1, 2, 3, 4], 1, 4))
def test_every_form_and_type_arrives(mpi: MPI, messages: Path, ranks: int) -> None:
    done = launch([messages], ranks, mpi=mpi, timeout=300)
    assert (done.returncode, done.stdout) == (0, "good\n"), done.stderr


@pytest.mark.skipif(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < 6 << 30, reason="needs 6 GiB")
@pytest.mark.thorough
def test_more_elements_than_an_int_counts(mpi: MPI, messages: Path) -> None:
    """MPI 4 has the calls for it; an older one is told so before anything is sent."""
    done = launch([messages, str((1 << 31) + 5)], 1, mpi=mpi, timeout=300)
    if done.returncode == 0:
        assert done.stdout == "good\n"
    else:
        assert done.returncode == 5
        assert "a message of 2147483653 elements needs an MPI of version 4 or newer" in done.stderr


def sanitised(mpi: MPI, program: Path, *args: str) -> Finished:
    env = thread_sanitizer_environment(mpi)
    # The first report ends the run: a race on every element of a large buffer takes the tool a minute to sum up.
    env["TSAN_OPTIONS"] += " halt_on_error=1"
    done = launch([program, *args], 2, mpi=mpi, timeout=300, env=env)
    assert not done.timed_out
    return done


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_the_tool_is_silent_on_a_right_program(mpi: MPI, races: Path, size: int) -> None:
    done = sanitised(mpi, races, "right", str(size))
    assert "WARNING: ThreadSanitizer" not in done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize("size", representatives([SMALL, LARGE], SMALL))
@pytest.mark.parametrize("how", MUTANTS)
def test_the_tool_speaks_of_every_missing_order(mpi: MPI, races: Path, how: str, size: int) -> None:
    done = sanitised(mpi, races, how, str(size))
    assert "WARNING: ThreadSanitizer: data race" in done.stderr
    assert "MPI send" in done.stderr or "MPI receive" in done.stderr
    assert done.returncode != 0
