"""Set-ups prefetched by processes of their own, a few inputs on disk at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest

from dagc.base.errors import DagcError
from dagc.setup import read_scalars
from dagc.setup.prefetch import Job, Prefetch
from dagc.stages.program import read

TEXT = '''program sums
param name : str = "a"
setup "sums.py" load(name)
scalar n : i32
array x : f32[n] in
array y : f32[n] out
kernel scale(y: out f32[n], x: in f32[n], n: i32) {
  gpu { launch grid(n) block(32) cuda """ if (threadIdx.x == 0) y[blockIdx.x] = x[blockIdx.x]; """ }
}
dag { scale : gpu scale(y, x, n) }
'''
SETUP = """import os
import time
from pathlib import Path
import numpy as np

def load(rank, size, seed, name):
    if name == "crash":
        os.kill(os.getpid(), 9)
    if name == "wait":
        while not (Path(__file__).parent / "go").exists():
            time.sleep(0.01)
    if name == "threads":
        name = os.environ["OPENBLAS_NUM_THREADS"]
    if name == "nan":
        raise ValueError("it is not finite")
    return {"n": int(name), "x": np.ones(int(name), np.float32)}
"""


@pytest.fixture
def job(tmp_path: Path) -> Callable[[str], Job]:
    (tmp_path / "sums.dag").write_text(TEXT)
    (tmp_path / "sums.py").write_text(SETUP)
    text = read(tmp_path / "sums.dag")
    return lambda name: Job(text.program({"name": name}), tmp_path, 1, 0, False)


@pytest.fixture
def jobs(job: Callable[[str], Job], tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Prefetch[str]]:
    with Prefetch[str](tmp_path / "data", job, most_bytes=10**7, **getattr(request, "param", {})) as prefetch:
        yield prefetch
    assert not (tmp_path / "data").exists(), "nothing is left"


def size(folder: Path, base: Path) -> int:
    return int(read_scalars(read(base / "sums.dag").program(), folder)["n"])


def test_inputs_are_written_in_order_and_dropped(jobs: Prefetch[str], tmp_path: Path) -> None:
    names = ["10", "20", "30", "40", "50"]
    jobs.expect(names)
    for name in names:
        place = jobs.get(name)
        assert size(place, tmp_path) == int(name)
        assert len(list((tmp_path / "data").iterdir())) <= 4, "one is written while it has another name"
        assert jobs.bytes(name) > 4 * int(name)
        jobs.drop(name)
        assert not place.exists()


def test_one_that_fails_or_crashes_fails_alone(jobs: Prefetch[str], tmp_path: Path) -> None:
    jobs.expect(["nan", "crash", "7"])
    with pytest.raises(DagcError, match="it is not finite"):
        jobs.get("nan")
    with pytest.raises(DagcError, match="the process of its set-up ended with signal 9"):
        jobs.get("crash")
    jobs.drop("nan")
    jobs.drop("crash")
    assert size(jobs.get("7"), tmp_path) == 7
    assert size(jobs.get("8"), tmp_path) == 8, "one that was not expected"


def test_bytes_bound_what_lies_ahead(jobs: Prefetch[str], tmp_path: Path) -> None:
    jobs.get("2000000")  # 8 MB of 10 MB
    jobs.expect(["2000001", "3"])
    assert len(list((tmp_path / "data").iterdir())) == 1
    jobs.drop("2000000")
    assert size(jobs.get("2000001"), tmp_path) == 2000001


@pytest.mark.parametrize("jobs", [{"threads": 2}, {"between": True, "threads": 2}], indirect=True)
def test_a_set_up_that_outlasts_the_limit_is_not_waited_for(
    jobs: Prefetch[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    with pytest.raises(DagcError, match="its set-up has not ended within the time limit"):
        jobs.get("wait", 0.1)
    jobs.drop("wait")
    (tmp_path / "go").touch()
    assert size(jobs.get("threads", 300), tmp_path) == 2, "the share of the cores of a process"


def test_an_input_requested_again_is_kept_when_its_first_set_up_ends(job: Callable[[str], Job], tmp_path: Path) -> None:
    begun, first, other = Event(), Event(), Event()

    def waits(name: str) -> Job:
        if name == "10" and not begun.is_set():
            begun.set()
            first.wait()
        elif name == "20":
            other.wait()
        return job(name)

    with Prefetch[str](tmp_path / "data", waits, most_bytes=10**7, processes=2) as prefetch:
        with pytest.raises(DagcError, match="within the time limit"):
            prefetch.get("10", 0)
        begun.wait()
        prefetch.drop("10")
        place = prefetch.get("10")
        held = prefetch.bytes("10")
        assert held > 40
        prefetch.expect(["20", "30"])
        first.set()
        prefetch.get("30")  # by the thread of the first, since the other waits
        kept = prefetch.bytes("10")
        other.set()
        assert kept == held
        assert size(place, tmp_path) == 10
        prefetch.drop("10")
        assert prefetch.bytes("10") == 0


@pytest.mark.parametrize("jobs", [{"processes": 2, "ahead": 6}], indirect=True)
def test_set_ups_go_on_while_nothing_is_requested(jobs: Prefetch[str], tmp_path: Path) -> None:
    """While the program is compiled, or the first input measured: as many as may lie ahead."""
    names = [str(10 * (i + 1)) for i in range(9)]
    jobs.expect(names)
    end = time.monotonic() + 60
    while len(list((tmp_path / "data").glob("*/setup.json"))) < 6 and time.monotonic() < end:
        time.sleep(0.02)
    assert sorted(int(jobs.get(name).name.partition("-")[2]) for name in names[:6]) == [1, 2, 3, 4, 5, 6]
    assert len(list((tmp_path / "data").iterdir())) == 6


@pytest.mark.parametrize("jobs", [{"between": True, "processes": 2, "ahead": 4}], indirect=True)
def test_nothing_runs_while_something_is_measured(jobs: Prefetch[str], tmp_path: Path) -> None:
    """A set-up that is not ready is stopped with its process, and goes on when the next input is waited for."""
    names = ["10", "wait", "20", "30"]
    jobs.expect(names)
    jobs.get("10")
    jobs.drop("10")
    (tmp_path / "go").touch()
    before = sorted((tmp_path / "data").rglob("*"))
    time.sleep(0.3)
    assert sorted((tmp_path / "data").rglob("*")) == before, "all are stopped"
    assert [size(jobs.get(name), tmp_path) for name in names[2:]] == [20, 30]
    with pytest.raises(DagcError, match="wait"):
        jobs.get("wait")
