from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from dagc.errors import DagcError
from dagc.run import together
from dagc.run.launch import launch
from dagc.run.together import once_per_job
from dagc.toolchain import find_mpi

WORKER = """
import sys, time
from pathlib import Path
from dagc.run.together import once_per_job
out = Path(sys.argv[1])
def work():
    with (out.parent / "log").open("a") as log:
        log.write("begin\\n")
        log.flush()
        time.sleep(1)
        log.write("end\\n")
done = once_per_job(out, "request", work)
print("done here" if done else "found done", (out.parent / "log").read_text().count("end"))
"""


@pytest.mark.mpi
@pytest.mark.skipif(find_mpi() is None, reason="needs an MPI")
def test_one_rank_works_and_the_others_wait(tmp_path: Path) -> None:
    out = launch([sys.executable, "-c", WORKER, str(tmp_path / "out")], 3, timeout=120).check().stdout
    # Never two at a time, and nobody goes on before it was done once. On a busy machine a rank may start so late that
    # it does it again.
    log = (tmp_path / "log").read_text().splitlines()
    assert log == ["begin", "end"] * (len(log) // 2)
    said = out.splitlines()
    assert len(said) == 3
    assert sum(line.startswith("done here") for line in said) == len(log) // 2
    assert all(not line.endswith(" 0") for line in said)


def _as_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.delenv("SLURM_STEP_NUM_TASKS", raising=False)


def test_without_a_job_it_is_always_done(tmp_path: Path) -> None:
    calls: list[int] = []
    assert once_per_job(tmp_path / "out", "r", lambda: calls.append(1))
    assert once_per_job(tmp_path / "out", "r", lambda: calls.append(2))
    assert calls == [1, 2]
    assert list(tmp_path.iterdir()) == []


def test_what_an_earlier_job_did_or_another_request_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _as_rank(monkeypatch)
    calls: list[str] = []
    assert once_per_job(tmp_path / "out", "a", lambda: calls.append("a"))
    assert not once_per_job(tmp_path / "out", "a", lambda: calls.append("again"))
    assert once_per_job(tmp_path / "out", "b", lambda: calls.append("b"))
    monkeypatch.setattr(together, "_STARTED", time.time() + 1)
    assert once_per_job(tmp_path / "out", "b", lambda: calls.append("later"))
    assert calls == ["a", "b", "later"]


def test_a_failure_is_not_taken_for_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _as_rank(monkeypatch)

    def fail() -> None:
        raise DagcError("no")

    once_per_job(tmp_path / "out", "a", lambda: None)
    for _ in range(2):
        with pytest.raises(DagcError, match="no"):
            once_per_job(tmp_path / "out", "b", fail)
    calls: list[int] = []
    assert once_per_job(tmp_path / "out", "a", lambda: calls.append(1))
    assert calls == [1]


def test_a_place_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _as_rank(monkeypatch)
    (tmp_path / "file").write_text("")
    with pytest.raises(DagcError, match="cannot be written"):
        once_per_job(tmp_path / "file" / "out", "a", lambda: None)
