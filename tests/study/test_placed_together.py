"""`select device with dp()` of a chain into a diamond: from tuning to the program; whole programs evaluated."""

from __future__ import annotations

import math
import re
from argparse import ArgumentTypeError
from dataclasses import replace
from pathlib import Path

import pytest

from dagc import api
from dagc.base.errors import UsageError
from dagc.build.mpi import find_mpi
from dagc.build.toolchain import find_cxx
from dagc.choice.placement import HOST, Problem, Transfer, Transfers, Value, place
from dagc.cli.main import main
from dagc.measure.launch import launch
from dagc.recipes import tune as tune_recipe
from dagc.stages.options import TuneOptions, links_of
from dagc.stages.program import run_setup
from dagc.store.tuned import load_tuned
from dagc.study.placed import TOGETHER, MovedValues, moves_text

ROOT = Path(__file__).parents[2]

mpi = find_mpi()
pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(mpi is None or mpi.mpiexec is None or find_cxx() is None, reason="needs an MPI and a compiler"),
]

# The same loop so many times on the host, and on the device.
PROGRAM = '''program graph
param N : i64 = 500 over {500, 1000, 4000}
setup "graph.py" given(N)
scalar n : i32
array x : f32[n] on any in
array t, u, v : f32[n] on any
array y : f32[n] on any out
kernel scale(y: out f32[n], x: in f32[n], n: i32, f: f32, host: i32, device: i32) {
  select variant with tree(n)
  gpu naive {
    launch grid(1) block(1)
    cuda """ for (int k = 0; k < device; ++k) for (int i = 0; i < n; ++i) y[i] = f * x[i]; """
  }
  cpu naive { cpp """ for (int k = 0; k < host; ++k) for (int i = 0; i < n; ++i) y[i] = f * x[i]; """ }
  cpu slow { cpp """ for (int k = 0; k < 3 * host; ++k) for (int i = 0; i < n; ++i) y[i] = f * x[i]; """ }
}
kernel add(z: out f32[n], x: in f32[n], y: in f32[n], n: i32) {
  gpu {
    launch grid(1) block(1)
    cuda """ for (int i = 0; i < n; ++i) z[i] = x[i] + y[i]; """
  }
  cpu { cpp """ for (int i = 0; i < n; ++i) z[i] = x[i] + y[i]; """ }
}
dag {
  select device with dp()
  a : any scale(t, x, n, 2.0, 1, 40)
  b : any scale(u, t, n, 3.0, 40, 1)
  c : any scale(v, t, n, 5.0, 40, 1)
  d : any add(y, u, v, n)
}
verify y ~ expected() rtol 1e-6
'''
SETUP = """
import numpy as np
def given(rank, size, seed, N):
    return {"n": N, "x": np.random.default_rng([seed, rank]).random(N, dtype=np.float32)}
def expected(data, **_):
    return {"y": np.float32(16) * data["x"]}
"""
OPTIONS = TuneOptions(variants=True, target="host", cell=0.002)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graph")
    (folder / "graph.dag").write_text(PROGRAM)
    (folder / "graph.py").write_text(SETUP)
    return folder / "graph.dag"


def placement_of(said: str) -> str:
    """`a cpu, b gpu, c gpu, d cpu`, of the line that `bench --verbose` prints."""
    line = next(line for line in said.splitlines() if line.startswith("placement: "))
    words = [part.split() for part in line.removeprefix("placement: ").split(", ")]
    return ", ".join(f"{op} {answer.partition('.')[0]}" for op, answer, *_ in words if op in "abcd")


def test_from_tuning_to_the_program(program: Path, tmp_path: Path, unoptimised: None) -> None:
    file = tmp_path / "tuned.db"
    tune_recipe.tune(program, file, OPTIONS)
    tuned = load_tuned(file)
    assert tuned.facts.transfers is not None
    assert {op: c.method for op, c in tuned.kernel_choosers.items()} == dict.fromkeys("abcd", "cost")

    done = api.compile(program, tmp_path / "out", target="host", launch=str(file))
    assert done.binary is not None
    run_setup(program, 1, tmp_path / "data", defines={"N": 3000})
    said = launch([done.binary, "--data", tmp_path / "data", "--check-only", "--verbose"], 1)
    assert said.returncode == 0, said.stderr
    assert "y agrees with the reference" in said.stdout
    emitted = placement_of(said.stdout)
    assert emitted.startswith("a cpu, b gpu, c gpu")  # 40 times as fast, where a transfer takes about one pass

    api.compile(program, tmp_path / "library", target="host", launch=str(file), form="library", build=False)
    assert "program->placement" in (tmp_path / "library/src/graph.cpp").read_text()  # what graph_choices() returns

    judged = tune_recipe.evaluate(program, file, TuneOptions(sizes="N=3000,700", target="host", cell=0.002))
    whole = judged.ops[-1]
    assert whole.op == TOGETHER
    assert {case.name for case in whole.judged.verdicts} == {"N=3000", "N=700"}
    chosen = {case.name: whole.choices[case.chosen].variant for case in whole.judged.verdicts}
    assert chosen["N=3000"] == emitted
    assert len(whole.judged.all.singles) == 16  # every placement was timed
    assert "times as fast as GPU only" in whole.costs[0]
    assert re.fullmatch(r"transfers of .*; \d+ transfers, \d+ by .*; saved: .*\d at [12].*", whole.costs[1])


def test_transfers_that_a_placement_saves() -> None:
    """Ops 0 and 2 are faster on the GPU, op 1 on the host, by less than two copies: two of four are saved, and none
    where copies take no time."""
    texts = []
    for seconds in (2.0, 0.0):
        moves = Transfers(Transfer(seconds, math.inf), Transfer(seconds, math.inf)).moves(1.0)
        values = (
            Value(None, (0,), moves),
            Value(0, (1,), moves),
            Value(1, (2,), moves),
            Value(2, (), moves, ends=(HOST,)),
        )
        problem = Problem(((9.0, 1.0), (1.0, 4.0), (9.0, 1.0)), values)
        texts.append(MovedValues.of(problem, place(problem).placement, "xtuy"))
    assert moves_text(texts) == (
        "x: 100 %, t: 50 %, u: 50 %, y: 100 %; 6 transfers, 8 by the fastest device of each op alone; saved: 0 at 1,"
        " 2 at 1"
    )


@pytest.mark.parametrize(
    ("devices", "links", "error"),
    [
        ("gpu 2", "gpu-gpu2=1e-6:1e9", "`gpu-gpu2`: a link is between two of cpu, gpu, gpu1"),
        ("gpu 2, socket 2", "socket0-gpu=1e-6:1e9", "`socket0-gpu`: a link is between two of"),
        ("gpu 2", "gpu-gpu=1e-6:1e9", "a link is between two of"),
        ("", "cpu-gpu=1e-6:1e9", "--links has no effect"),
    ],
)
def test_links_that_a_program_does_not_have(devices: str, links: str, error: str, tmp_path: Path) -> None:
    text = PROGRAM.replace("program graph", f"program graph\n{devices and f'devices {devices}'}")
    (tmp_path / "graph.dag").write_text(text if devices else text.replace("  select device with dp()\n", ""))
    (tmp_path / "graph.py").write_text(SETUP)
    with pytest.raises(UsageError, match=error):
        tune_recipe.tune(tmp_path / "graph.dag", None, replace(OPTIONS, links=links_of(links)))


@pytest.mark.parametrize(
    "words", [["samples/tridiag/tridiag.dag"], ["samples/gnn/gcn.dag", "-o", "t.db", "--evaluate"]]
)
def test_links_without_effect(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Of whole programs, and where a file has them."""
    file, *more = words
    assert main(["tune", str(ROOT / file), *more, "--links", "cpu-gpu=1e-6:1e9"]) == 2
    assert "--links has no effect" in capsys.readouterr().err


def test_links_are_given_for_each_direction() -> None:
    assert {(a, b): (c, d) for a, b, c, d in links_of("gpu-gpu1=1e-6:3e11, gpu1-gpu=2e-6:1e9,cpu-gpu=0:1e9")} == {
        ("gpu", "gpu1"): (1e-6, 3e11), ("gpu1", "gpu"): (2e-6, 1e9), ("cpu", "gpu"): (0, 1e9), ("gpu", "cpu"): (0, 1e9),
    }  # fmt: skip
    for wrong in ("gpu", "gpu-gpu1=1", "gpu-gpu1=-1:1e9", "gpu-gpu1=nan:1e9", "gpu-gpu1=1e-6:0", "gpu-gpu1=1e-6:x", ""):
        with pytest.raises(ArgumentTypeError, match="a link is like"):
            links_of(wrong)
    with pytest.raises(ArgumentTypeError, match="'gpu-gpu1=2e-6:1e9': the link gpu-gpu1 is given twice"):
        links_of("gpu-gpu1=1e-6:1e9, gpu-gpu1=2e-6:1e9")


def test_ops_are_not_placed_together_without_expected_times(program: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="method tree predicts no times, which placing the ops together needs"):
        tune_recipe.tune(program, tmp_path / "t.db", TuneOptions(variants=True, target="host", method="tree"))
