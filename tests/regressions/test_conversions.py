"""Values of a rank where a type is too small for them, or where ranks must have one and the same."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dagc.base.errors import ProgramError
from dagc.base.source import Source
from dagc.build.mpi import require_mpi
from dagc.ir.plan import Plan, Target
from dagc.lang.lower import lower, parse_with_includes
from dagc.measure.launch import Finished, launch
from dagc.passes import build_graph
from dagc.setup import run_setup
from dagc.space import Space
from tests.emit.build import write as write_program
from tests.measure.conftest import needs_mpi
from tests.precompiled import precompiled_flags
from tests.regressions.programs import run, write

RANKS = 2
FAKE = Path(__file__).parents[1] / "emit/fake_cuda"
DAG = '''program small
setup "small.py" made()
scalar big, m, less, many : i64
scalar root : i32
scalar wide : f64
scalar f : f64
array y : i64[4] out
array u : f64[40] inout
array s : f64[6] out
array t : f64[6] in
kernel w(y: out i64[4], a: i32, b: u8, c: f32, d: u64) {
  gpu { launch grid(1) block(1) cuda """ y[0] = a; y[1] = b; y[2] = c; y[3] = d; """ }
}
kernel twice(u: inout f64[n], n: i64) {
  gpu { launch grid(1) block(64) cuda """ if (threadIdx.x < n) u[threadIdx.x] *= 2; """ }
}
dag {
  k : gpu w(y, big - 1, m, wide, less)
  a : gpu twice(u[floor(f * 10) .. 40], 40 - floor(f * 10))
  b : mpi bcast(u, root)
  c : mpi allreduce(s[0 .. many], t[0 .. many], sum)
}
verify y ~ expected() rtol 0
verify u ~ expected() rtol 0
verify s[0 .. many] ~ expected() rtol 0
'''
SETUP = """
import os
import numpy as np

def made(rank, size, seed):
    given = {"big": 2**31, "m": 255, "less": 0, "many": 5, "root": 1, "wide": 3.0, "f": 0.7}
    name, value = os.environ.get("ONE", "m 255").split()
    if rank == 1:
        given[name] = type(given[name])(value)
    return {**given, "u": np.arange(40.0) + rank, "t": np.arange(6.0)}

def expected(data, *, rank, size, seed):
    u = np.arange(40.0) + 1
    u[7:] *= 2
    return {"y": np.array([2**31 - 1, 255, 3, 0]), "u": u, "s": size * np.arange(6.0)}
"""
WRONG = {
    "big": (2**31 + 1, "small.dag:18:3: error: op k passes 2147483648 as `a` of w, which is i32 (rank 1)"),
    "m": (256, "op k passes 256 as `b` of w, which is u8 (rank 1)"),
    "less": (-1, "op k passes -1 as `d` of w, which is u64 (rank 1)"),
    "root": (0, "the root of b differs: it is 1 on rank 0, 0 on rank 1"),
    "many": (4, "the number of rows of c differs: it is 5 on rank 0, 4 on rank 1"),
}
AT_START = {
    "big": (2**31 + 1, 2, "small.dag:18:3: k, argument `a` of w: i32 does not hold 2147483648"),
    "m": (-1, 2, "k, argument `b` of w: u8 does not hold -1"),
    "less": (-1, 2, "k, argument `d` of w: u64 does not hold -1"),
    "wide": (1e39, 2, "k, argument `c` of w: f32 does not hold "),
    "root": (0, 2, "small.dag:20:3: b: the root differs: it is 0 on one rank, 1 on another"),
    "many": (4, 2, "c: the number of rows differs: it is 4 on one rank, 5 on another"),
    "f": (np.inf, 5, "the slice -9223372036854775808 .. 40 is not within 0 .. 40"),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_set_up_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    value, message = WRONG[name]
    path = write(tmp_path, DAG, SETUP)
    program = lower(parse_with_includes(Source("small.dag", path.read_text())))
    monkeypatch.setenv("ONE", f"{name} {value}")
    with pytest.raises(ProgramError) as caught:
        run_setup(program, tmp_path, RANKS, 1, tmp_path / "data")
    assert message in str(caught.value)


def _all_are_refused(data: Path, start: Callable[[], Finished]) -> None:
    """Changes one value of rank 1, where `dagc setup` does not see it."""
    for name, (value, code, message) in AT_START.items():
        file = data / f"rank-0001/{name}.npy"
        before = np.load(file)
        np.save(file, before.dtype.type(value))
        done = start()
        np.save(file, before)
        assert (done.returncode, message in done.stderr) == (code, True), (name, done.stderr)
    done = start()
    assert done.returncode == 0, done.stderr


@pytest.mark.mpi
@needs_mpi[1]
@pytest.mark.usefixtures("unoptimised")
def test_a_program_is_checked_when_it_starts(tmp_path: Path) -> None:
    made = run(write(tmp_path, DAG, SETUP), ranks=RANKS)
    program = lower(parse_with_includes(Source("small.dag", DAG)))
    run_setup(program, tmp_path, RANKS, 1, tmp_path / "data")
    bench = [made.directory / "bench", "--data", tmp_path / "data", "--check-only"]
    _all_are_refused(tmp_path / "data", lambda: launch(bench, RANKS, timeout=100))


@pytest.mark.mpi
@needs_mpi[1]
@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="needs mpi4py")
def test_a_driver_is_checked_when_it_starts(tmp_path: Path) -> None:
    write(tmp_path, DAG, SETUP)
    program = lower(parse_with_includes(Source("small.dag", DAG)), {"transport": "mpi_host"})
    space = Space(build_graph(program))
    write_program(Plan(space.graph, space.first(), Target.CUDA), tmp_path)
    run_setup(program, tmp_path, RANKS, 1, tmp_path / "data")
    flags = (*require_mpi().compile_flags(), *precompiled_flags(), *require_mpi().link_flags(nvcc=False))
    env = {"PYTHONPATH": str(FAKE), "DAGC_NVCC": str(FAKE / "nvcc"), "DAGC_FAKE_NVCC_KEPT": str(tmp_path)}
    env["DAGC_FAKE_NVCC_FLAGS"] = shlex.join(flags)
    driver = [sys.executable, tmp_path / "driver.py", "--data", tmp_path / "data", "--check-only"]
    _all_are_refused(tmp_path / "data", lambda: launch(driver, RANKS, env=env, timeout=100))
