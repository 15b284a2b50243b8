"""A rank that a signal ends is named, whoever has started it; signals and exit codes pass through."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dagc.measure.launch import launch
from tests.measure.conftest import SPMV, can_run

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
BEGIN = """
import os, signal, sys, time
from dagc.measure.launch import work_in_child
work_in_child(4)
"""


def started(code: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-c", BEGIN + code], stdout=pipe, stderr=pipe, text=True, env=ENVIRONMENT, bufsize=1
    )


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM], ids=lambda s: s.name)
def test_a_signal_is_named_and_ends_the_parent_too(number: signal.Signals) -> None:
    with started(f"os.kill(os.getpid(), {int(number)})") as process:
        _, said = process.communicate(timeout=300)
    assert process.returncode == -number
    assert said.startswith(f"dagc: rank 4: terminated by {number.name} (")
    assert len(said.splitlines()) == 1


def test_an_exit_code_passes() -> None:
    with started("sys.exit(3)") as process:
        assert process.communicate(timeout=300) == ("", "")
    assert process.returncode == 3


def test_a_signal_to_the_parent_is_for_the_child() -> None:
    code = "signal.signal(signal.SIGINT, lambda *_: sys.exit(7)); print('here', flush=True); time.sleep(60)"
    with started(code) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=300) == ("", "")
    assert process.returncode == 7


def test_the_child_ends_with_the_parent() -> None:
    with started("print(os.getpid(), flush=True); time.sleep(60)") as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.kill()
    until = time.monotonic() + 300
    while Path(f"/proc/{child}").exists():
        assert time.monotonic() < until, "it is still running"
        time.sleep(0.05)


@pytest.mark.mpi
@pytest.mark.skipif(not can_run(), reason="needs an MPI")
def test_under_mpiexec_a_command_names_the_rank_that_was_killed(tmp_path: Path) -> None:
    """Here in its set-up, which the first rank runs."""
    (tmp_path / "spmv.dag").write_bytes(SPMV.read_bytes())
    (tmp_path / "spmv.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    command = [sys.executable, "-m", "dagc", "explore", "spmv.dag", "--target", "host", "--quiet"]
    done = launch(command, 3, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, timeout=300)
    assert done.returncode != 0
    reported = [line for line in done.stderr.splitlines() if line.startswith("dagc: rank ")]
    assert reported == ["dagc: rank 0: terminated by SIGKILL (Killed; the system sends it when memory runs out)"]
