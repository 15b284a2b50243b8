"""A rank that a signal or `exit` ends says in which op. Real ranks, bad addresses and stacks, on the host target."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc import api
from dagc.base.errors import RunFailed, WrongResult
from dagc.recipes.explore import explore
from dagc.stages.options import ExploreOptions
from tests.measure.conftest import needs_mpi
from tests.tiers import thorough

pytestmark = [*needs_mpi, pytest.mark.usefixtures("unoptimised")]

PROGRAM = '''program faulty
setup "faulty.py" init()
scalar n : i32
scalar how : i32
array y : f32[n] out
array z : f32[n] out
array h : f32[n] on host out
kernel fill(y: out f32[n], n: i32) {
  gpu {
    launch grid(ceil(n / 64)) block(64)
    cuda """
      int i = blockIdx.x * 64 + threadIdx.x;
      if (i < n) y[i] = i;
    """
  }
}
kernel faulty(y: out f32[n], n: i32, how: i32) {
  gpu simple {
    launch grid(ceil(n / 64)) block(64)
    cuda """
      int i = blockIdx.x * 64 + threadIdx.x;
      if (how == 1) y[(1LL << 40) + i] = 1;
      if (how == 2) *static_cast<volatile float*>(nullptr) = 1;
      if (how == 3) [] {
        volatile char deep[1 << 30];
        for (int k = (1 << 30) - 1; k > 0; k -= 1024) deep[k] = 1;
      }();
      for (volatile int turn = 0; how == 5; turn = 1 - turn) {}
      if (how == 7 && i == 0) y[n + 50] = 1;
      if (how == 8 && i == 0) y[n + 5] = y[i - 3] = 1;
      if (how == 10 && i == 70) std::exit(3);
      if (i < n) y[i] = i;
    """
  }
}
kernel count(y: out f32[n], n: i32, how: i32) {
  cpu {
    cpp """
      if (how == 4) *static_cast<volatile float*>(nullptr) = 1;
      for (volatile int turn = 0; how == 6; turn = 1 - turn) {}
      if (how == 9) y[n] = y[n + 50];
      if (how == 11) std::exit(0);
      for (int i = 0; i < n; ++i) y[i] = i;
    """
  }
}
dag {
  first : gpu fill(z, n)
  second : gpu faulty(y, n, how)
  third : cpu count(h, n, how)
}
verify y ~ reference() rtol 0
'''
SETUP = """import os
import numpy as np

def init(rank, size, seed):
    return {"n": 100, "how": int(os.environ["HOW"]) if rank == 1 else 0}

def reference(data, **_):
    return {"y": np.arange(100, dtype=np.float32)}
"""
BAD = "terminated by SIGSEGV (a bad address)"
SECOND = "rank 1: terminated by SIGSEGV (a bad address) in op `second` (kernel `faulty.simple`)"
THIRD = "rank 1: terminated by SIGSEGV (a bad address) in op `third` (kernel `count`)"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("faulty") / "faulty.dag"
    path.write_text(PROGRAM)
    path.with_suffix(".py").write_text(SETUP)
    return path


@pytest.mark.parametrize(
    ("how", "capture", "message"),
    [
        ("1", "false", SECOND),
        ("2", "false", SECOND),
        ("3", "false", SECOND),
        ("4", "false", THIRD),
        ("1", "true", SECOND),
        ("7", "false", f"{SECOND}: element 150 of `y`, which has 100"),
        ("9", "false", f"{THIRD}: element 150 of `h`, which has 100"),
        ("10", "false", SECOND.replace(BAD, "ended with exit code 3")),
        ("11", "false", THIRD.replace(BAD, "ended with exit code 0")),
    ],
    ids=["far outside", "null", "stack", "cpu", "captured", "beyond an array", "of the host", "exit", "exit of cpu"],
)
def test_compile_run_names_the_op(
    program: Path, monkeypatch: pytest.MonkeyPatch, how: str, capture: str, message: str
) -> None:
    monkeypatch.setenv("HOW", how)
    out = program.parent / f"out-{capture}"
    with pytest.raises(RunFailed) as failed:
        api.compile(
            program, out, target="host", defines={"capture": capture}, run=True, ranks=2, force=True, seconds=1e-3
        )
    assert failed.value.message == message


def test_what_is_written_beside_an_array_is_named(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too near for a guard page. The element before is reported first."""
    monkeypatch.setenv("HOW", "8")
    with pytest.raises(WrongResult, match="op `second` writes element -3 of `y`, which has 100"):
        api.compile(program, program.parent / "out-false", target="host", run=True, ranks=2, force=True, seconds=1e-3)


@pytest.mark.parametrize(
    ("how", "where"),
    [
        pytest.param("5", "`sync(e0)`, which waits for `second`", id="kernel"),
        pytest.param("6", "op `third` (kernel `count`)", id="cpu", marks=thorough),
    ],
)
def test_a_run_that_hangs_ends_and_names_the_op(
    program: Path, monkeypatch: pytest.MonkeyPatch, how: str, where: str
) -> None:
    """Rank 0 waits for the other one at a barrier, which is no op."""
    monkeypatch.setenv("HOW", how)
    with pytest.raises(RunFailed) as failed:
        api.compile(
            program, program.parent / "out-false", target="host", defines={"capture": "false"}, run=True, ranks=2,
            force=True, seconds=1e-3, watchdog=1.0,
        )  # fmt: skip
    assert failed.value.message == f"hang: rank 1 in {where}"
    assert "--watchdog" in failed.value.help


def test_explore_names_the_op(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOW", "1")
    options = ExploreOptions(
        ranks=2, target="host", seconds=1e-3, quiet=True, budget=4, trace=False, capture="on", only="orders"
    )
    with pytest.raises(RunFailed) as failed:
        explore(program, program.parent / "r.db", options)
    assert f"run failed: {SECOND}" in failed.value.message
