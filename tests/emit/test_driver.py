"""The Python driver, run with a stand-in for PyCUDA: its kernels by g++, its messages by the real mpi4py.

A GPU runs it too, see docs/how-to/repeat-figures.md; here it is held right on machines without one.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dagc.build.mpi import find_mpi, require_mpi
from dagc.build.toolchain import find_cxx
from dagc.ir.plan import Plan, Target
from dagc.ir.traversal import Entry, Traversal, Wait
from dagc.measure.launch import Finished, launch
from dagc.setup import run_setup
from dagc.space import Space
from tests.emit.build import ALIKE, COLLECTIVES, COMMS, HALO, SPMV, graph_of, plan, write
from tests.precompiled import precompiled_flags
from tests.regressions.test_verify import COUNTED, STEPS
from tests.tiers import representatives

mpi = find_mpi()
pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(
        mpi is None or mpi.mpiexec is None or find_cxx() is None or importlib.util.find_spec("mpi4py") is None,
        reason="needs an MPI, mpi4py and a C++ compiler",
    ),
]
SPLIT = SPMV.parent / "split.dag"
FAKE = Path(__file__).parent / "fake_cuda"
SMALL = {
    SPMV: {"rows": "900"},
    SPLIT: {"rows": "900"},  # three messages in one post
    HALO: {"nx": "6", "ny": "5", "nz": "7", "nq": "2", "g": "2"},
    COLLECTIVES: {},
}
RANKS = 3
LOWERINGS = {
    "mpi_host": {"transport": "mpi_host"},
    "staging_ops": {"transport": "mpi_host", "staging": "ops"},
    "mpi_cuda": {"transport": "mpi_cuda"},
}


@pytest.fixture(scope="module", autouse=True)
def kernels_are_compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    found = require_mpi()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGC_FAKE_NVCC_KEPT", str(tmp_path_factory.mktemp("kept")))
        flags = (*found.compile_flags(), *precompiled_flags(), *found.link_flags(nvcc=False))
        patch.setenv("DAGC_FAKE_NVCC_FLAGS", shlex.join(flags))
        yield


def run(directory: Path, *options: str) -> Finished:
    argv = [sys.executable, directory / "driver.py", "--data", directory / "data", *options]
    env = {"PYTHONPATH": str(FAKE), "DAGC_NVCC": str(FAKE / "nvcc"), "PYTHONDONTWRITEBYTECODE": "1"}
    return launch(argv, RANKS, env=env, timeout=300)


def prepare(made: Plan, path: Path, directory: Path) -> Path:
    write(made, directory)
    run_setup(made.program, path.parent, RANKS, 1, directory / "data")
    return directory


CASES = representatives([SPMV, SPLIT, HALO, COLLECTIVES], HALO, COLLECTIVES)


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
@pytest.mark.parametrize("lowering", representatives(LOWERINGS, "mpi_host"))
def test_right_results(path: Path, lowering: str, tmp_path: Path) -> None:
    made = plan(path, Target.CUDA, **SMALL[path], **LOWERINGS[lowering])
    done = run(prepare(made, path, tmp_path), "--check-only", "--mpi-takes-device-pointers")
    assert done.returncode == 0, done.stderr
    assert "agree with the reference" in done.stdout


def test_names_that_are_alike(tmp_path: Path) -> None:
    """Two ops had one grid, two arrays one file, and `comp.ranks` lost its `p.`."""
    done = run(prepare(plan(ALIKE, Target.CUDA, transport="mpi_host"), ALIKE, tmp_path), "--check-only")
    assert done.returncode == 0, done.stderr


WITHOUT_ALLTOALLV = """import whole
def data(*given, **more): return {n: v for n, v in whole.data(*given, **more).items() if n not in ("parts", "shares")}
def expected(*given, **more): return {n: v for n, v in whole.expected(*given, **more).items() if n != "got"}
"""


def test_communicators(tmp_path: Path) -> None:
    """One of them has a single rank here, which sends to itself, and one not all ranks."""
    lines = COMMS.read_text(encoding="utf-8").splitlines(True)
    text = "".join(line for line in lines if not re.search(r"spread|got|parts|shares", line))
    (tmp_path / "whole.py").write_text((COMMS.parent / "comms.py").read_text(encoding="utf-8"))
    (tmp_path / "comms.py").write_text(WITHOUT_ALLTOALLV)
    text = text.replace("exchange on col {", "exchange on col split 2 {")  # the ranks in an array have two posts
    made = graph_of(text, transport="mpi_cuda")
    prepare(Plan(made, Space(made).first(), Target.CUDA), tmp_path / "comms.dag", tmp_path)
    done = run(tmp_path, "--check-only", "--mpi-takes-device-pointers")
    assert done.returncode == 0, done.stderr
    np.save(tmp_path / "data/rank-0001/parity.npy", np.int32(-2))
    done = run(tmp_path, "--check-only", "--mpi-takes-device-pointers")
    assert done.returncode == 2
    assert re.search(r"rank 1: .*:8:9: require parity >= 0 does not hold for these data: parity = -2\n", done.stderr)


def test_results_after_several_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHICH", "0")
    (tmp_path / "small.py").write_text(COUNTED)
    made = graph_of(STEPS)
    prepare(Plan(made, Space(made).first(), Target.CUDA), tmp_path / "small.dag", tmp_path)
    done = run(tmp_path, "--seconds", "0.001", "--repeats", "2")
    assert done.returncode == 0, done.stderr
    np.save(tmp_path / "data/rank-0001/which.npy", np.int32(1))
    done = run(tmp_path, "--check-only")
    assert done.returncode == 1
    assert re.search(r"rank 1: u\[0\] is wrong.*, after 2 runs\n", done.stderr)


def last(path: Path, **choices: str) -> Plan:
    """A traversal with work on both streams: the last offer is taken each time."""
    first = plan(path, Target.CUDA, **SMALL[path], **choices)
    space = Space(first.graph)
    entries: list[Entry] = []
    state = space.moves.start()
    while not space.moves.finished(state):
        offers = space.moves.offers(state)
        entry = list(offers)[-1]
        entries.append(entry)
        state = space.moves.step(state, entry, offers[entry])
    return Plan(first.graph, Traversal(tuple(entries)), Target.CUDA)


def test_two_streams_and_a_missing_wait(tmp_path: Path) -> None:
    made = last(SPMV)
    assert any(isinstance(e, Wait) for e in made.traversal.entries)
    (tmp_path / "good").mkdir()
    done = run(prepare(made, SPMV, tmp_path / "good"), "--check-only")
    assert done.returncode == 0, done.stderr
    syncs = [e for e in made.traversal.entries if e.waits and e.stream is None]
    without = Traversal(tuple(e for e in made.traversal.entries if e != syncs[0]))
    (tmp_path / "bad").mkdir()
    done = run(prepare(Plan(made.graph, without, Target.CUDA), SPMV, tmp_path / "bad"), "--check-only")
    assert done.returncode == 1
    assert "y is wrong" in done.stderr


def test_times_as_json(tmp_path: Path) -> None:
    made = plan(SPMV, Target.CUDA, **SMALL[SPMV])
    done = run(prepare(made, SPMV, tmp_path), "--seconds", "0.001", "--repeats", "3", "--json", "-")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["environment"]["ranks"] == RANKS
    assert len(record["time"]["seconds"]) == 3


def test_failures(tmp_path: Path) -> None:
    made = plan(SPMV, Target.CUDA, **SMALL[SPMV], transport="mpi_cuda")
    prepare(made, SPMV, tmp_path)
    done = run(tmp_path, "--check-only")
    assert done.returncode == 3
    assert "--mpi-takes-device-pointers" in done.stderr
    np.save(tmp_path / "data/rank-0001/x_l.npy", np.zeros(2, np.float32))
    done = run(tmp_path, "--check-only", "--mpi-takes-device-pointers")
    assert done.returncode == 2
    assert "x_l is float32(2,), declared as float32(300,)" in done.stderr
    assert "Traceback" not in done.stderr


LATE = '''program late
setup "late.py" made()
array x : f64[6] inout
cpp """ inline int calls = 0; """
kernel grow(x: inout f64[6]) {
  gpu {
    launch grid(1) block(6)
    cuda """ long i = threadIdx.x; x[i] += 1 + (++calls > 200 && i == 4 && x[i] > 5.5); """
  }
}
dag repeat 3 { a : gpu grow(x) }
verify x ~ grown() rtol 0
'''
LATE_SETUP = """import numpy as np
def made(rank, size, seed): return {"x": np.arange(6.0)}
def grown(data, *, rank, size, seed): return {"x": data["x"] + 1}
"""


@pytest.mark.thorough
def test_several_runs_in_a_row_are_checked_after_timing(tmp_path: Path) -> None:
    """Right in each first run, and in three before timing; each time that three run later, the third goes wrong."""
    (tmp_path / "late.py").write_text(LATE_SETUP)
    made = graph_of(LATE)
    prepare(Plan(made, Space(made).first(), Target.CUDA), tmp_path / "late.dag", tmp_path)
    done = run(tmp_path, "--repeats", "300", "--seconds", "0.0001")
    assert done.returncode == 1, done.stderr
    assert "x is wrong: element 4 is 8.0, expected 7.0" in done.stderr
    assert "after 3 runs without a pause" in done.stderr
