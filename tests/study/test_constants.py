"""Tuning where sizes are constants of the program: it is set up and compiled for each size."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc import api
from dagc.base.errors import UsageError
from dagc.recipes import tune as tune_recipe
from dagc.stages.options import TuneOptions
from dagc.store.tuned import load_tuned
from dagc.study.tuned import choosers_of
from tests.measure.conftest import can_run

pytestmark = [
    pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI"),
    pytest.mark.usefixtures("unoptimised"),
]
TEXT = '''program fill
param N : i64 = 100
setup "fill.py" init()
array y : f32[N] out
kernel fill(y: out f32[n], n: i64) {
  tune bx in {32, 64, 128}
  gpu {
    launch grid(ceil(n / bx)) block(bx)
    cuda """
      long i = (long)blockIdx.x * bx + threadIdx.x;
      if (i < n) y[i] = i;
    """
  }
}
dag { fill : gpu fill(y, N) }
verify y ~ reference(N) rtol 0
'''
SETUP = """import numpy as np

def init(rank, size, seed):
    return {}

def reference(data, *, N, **_):
    return {"y": np.arange(N, dtype=np.float32)}
"""


def write(folder: Path) -> Path:
    (folder / "fill.py").write_text(SETUP)
    (folder / "fill.dag").write_text(TEXT)
    return folder / "fill.dag"


def test_each_size_is_a_program_of_its_own(tmp_path: Path) -> None:
    path, tuned = write(tmp_path), tmp_path / "t.db"
    options = TuneOptions(sizes="N=64,5000", target="host", method="exhaustive", cell=0.005)
    done = tune_recipe.tune(path, tuned, options)
    assert done.failures == ()
    assert done.cells == 6
    assert any("2 programs were compiled" in note for note in done.notes)
    # Measured bests are told apart by the parameter; compiled in, it is the program's own value.
    for line in done.lines:
        assert line.chosen == line.best
        graph = api.load_graph(path, dict(line.case.params))
        (chooser,) = choosers_of(graph, load_tuned(tuned))
        assert chooser.data == ("N",)
        assert {a.data for a in chooser.anchors} == {(64,), (5000,)}
        assert chooser.choices[chooser.choose({})] == line.best
    made = api.compile(path, tmp_path / "out", target="host", defines={"N": 5000}, build=False, launch=str(tuned))
    text = (made.directory / "program.hpp").read_text()
    assert "const double features[] = {static_cast<double>(5000)};" in text


def test_more_programs_than_are_compiled_are_refused_first(tmp_path: Path) -> None:
    sizes = "N=" + ",".join(str(n) for n in range(100, 117))
    with pytest.raises(UsageError, match="17 sizes, each of which needs its own compilation") as refused:
        tune_recipe.tune(write(tmp_path), tmp_path / "t.db", TuneOptions(sizes=sizes, target="host"))
    assert "scalar n : i64" in refused.value.help
    assert {p.name for p in tmp_path.iterdir()} == {"fill.py", "fill.dag"}
