"""Several `verify` of one array: each has its own part, reference and tolerance."""

from __future__ import annotations

import re

import pytest

from dagc.base.errors import ProgramError, RunFailed, WrongResult
from dagc.ir.program import Region
from dagc.study.measure import results_agree, tolerance_between
from tests.emit.build import graph_of
from tests.measure.conftest import needs_mpi
from tests.regressions.programs import run, write

SETUP = """
import os
import numpy as np

def made(rank, size, seed):
    return {"x": np.arange(10.0), "which": int(os.environ["WHICH"])}

def right(data, *, rank, size, seed):
    return {"u": data["x"], "v": np.arange(10, dtype=np.int8)}

def near(data, *, rank, size, seed):
    return {"u": data["x"] + 0.5}

def totals(data, *, rank, size, seed):
    return {"norm(w)": 285 ** 0.5, "sum(w)": 44}

def above(data, *, rank, size, seed):
    return {"v": np.arange(1, 11, dtype=np.int8)}
"""
DAG = '''program small
setup "small.py" made()
scalar which : i32
array x : f64[10] in
array u : f64[10] out
array v : i8[10] out
array w : f32[10] out
kernel some(u: out f64[10], v: out i8[10], w: out f32[10], x: in f64[10], which: i32) {
  gpu { launch grid(1) block(10) cuda """
    int i = threadIdx.x, from = which == 1 ? 5 + i % 5 : which == 2 ? i % 5 : i;
    u[i] = x[from] + (which == 4) * 0.25;
    if (which != 3 || i != 1) v[i] = i;
    w[i] = i + (which == 5) * 0.001f - 9 * (which == 6 && i == 9) + 9 * (which == 6 && i == 0);
  """ }
}
dag { k : gpu some(u, v, w, x, which) }
verify u ~ near() rtol 0.1
verify u[0 .. 3] ~ right() rtol 1
verify u[3 .. 10] ~ right() rtol 0
verify u[0 .. 1] ~ right() rtol 0
verify v[0 .. 3] ~ right() rtol 1e10
verify v[3 .. 10] ~ right() rtol 0
verify v[3 .. 10] ~ above() rtol 0 atol 1.5
verify norm(w) ~ totals() rtol 1e-6
verify sum(w[2 .. 10]) ~ totals() rtol 0
'''


@pytest.mark.mpi
@needs_mpi[1]
@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize(
    ("which", "wrong"),
    [
        (0, ""),
        (1, "element 0 is 5"),
        (2, "element 5 is 0"),
        (3, "v is wrong: element 1 is never written"),
        (4, "element [03] is [03].25"),
        (5, r"norm\(w\) is wrong: it is 16.88\d+, expected 16.88\d+; largest difference 0.00267, allowed 1.69e-05"),
        (6, r"sum\(w\) is wrong: it is 35, expected 44; largest difference 9, allowed 0"),
    ],
    ids=["right", "first part", "second part", "not written", "one tolerance", "norm", "sum"],
)
def test_each_has_its_file_and_tolerance(
    which: int, wrong: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHICH", str(which))
    path = write(tmp_path_factory.getbasetemp(), DAG, SETUP)  # one place: compiled once
    if not wrong:
        run(path, ranks=1)
        return
    with pytest.raises((WrongResult, RunFailed), match=wrong):
        run(path, ranks=1)


def test_settings_must_agree_as_the_whole_array_must() -> None:
    program = graph_of(re.sub("verify v.*\n", "", DAG) + "verify v[0 .. 3] ~ right() rtol 0.05\n").program
    assert [v.region == Region("u") for v in program.verifies] == [True, *[False] * 6]
    assert results_agree(program, program.kernel_ops[0]) == 0.2
    assert tolerance_between(program, program.kernel_ops[0]) == (0.2, 0)
    absolute = graph_of(DAG.replace("rtol 0.1", "rtol 0.1 atol 4")).program
    assert tolerance_between(absolute, absolute.kernel_ops[0])[1] == 8


COUNTED = """
import os
import numpy as np

def made(rank, size, seed):
    return {"u[0]": np.arange(10.0), "u[1]": np.zeros(10), "which": int(os.environ["WHICH"])}

def moved(data, *, rank, size, seed):
    u = 3 * (3 * (3 * data["u[0]"] + 1) + 1) + 1
    return {"u[0]": u, "u[1]": (u - 1) / 3, "kept": u}
"""
STEPS = '''program steps
setup "small.py" made()
scalar which : i32
for p in 0..2 { array u[p] : f64[10] inout }
array kept : f64[10] out
kernel grow(v: out f64[10], u: in f64[10]) {
  gpu { launch grid(1) block(10) cuda """ v[threadIdx.x] = 3 * u[threadIdx.x] + 1; """ }
}
kernel back(u: inout f64[10], v: in f64[10], which: i32) {
  gpu { launch grid(1) block(10) cuda """ if (which == 0) u[threadIdx.x] = v[threadIdx.x]; """ }
}
dag {
  for t in 0..3 { step[t] : gpu grow(u[(t + 1) % 2], u[t % 2]) }
  keep : gpu copy(kept, u[1])
  back : gpu back(u[0], u[1], which)
}
verify kept ~ moved() rtol 0
verify kept ~ moved() rtol 0 after 3 runs
verify u[0] ~ moved() rtol 0 after 2 runs
'''


@pytest.mark.mpi
@needs_mpi[1]
@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("which", [0, 1], ids=["right", "state of a step before"])
def test_after_several_runs(
    which: int, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference is applied as often, each time to the arrays that it returned before."""
    monkeypatch.setenv("WHICH", str(which))
    folder = tmp_path_factory.getbasetemp() / "steps"
    folder.mkdir(exist_ok=True)
    path = write(folder, STEPS, COUNTED)
    if which == 0:
        run(path, ranks=1)
        return
    with pytest.raises(WrongResult, match=r"u\[0\] is wrong.*, after 2 runs"):
        run(path, ranks=1)


def test_runs_are_at_least_one() -> None:
    for runs in (0, 1001):
        with pytest.raises(ProgramError, match=rf"a comparison after {runs} runs"):
            graph_of(STEPS.replace("after 3", f"after {runs}"))
    assert [v.runs for v in graph_of(STEPS).program.verifies] == [1, 3, 2]
