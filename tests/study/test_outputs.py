"""The objective as an output of the program: what a variant or a setting returns is minimised."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc.base.errors import UsageError
from dagc.cli.main import main
from dagc.ir.choice import Choice
from dagc.recipes.tune import tune
from dagc.stages.options import TuneOptions
from dagc.store.tuned import load_tuned
from dagc.study.results import minimised

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("unoptimised")]

# More threads of a block price less here, whatever they take; those of 512 price nothing, which no objective is.
PRICED = '''program priced
param N : i64 = 100
setup "priced.py" init(N)
scalar n : i32
array y : f32[n] out
array price : i32[1] out
kernel fill(y: out f32[n], price: out i32[1], n: i32) {
  tune bx in {128, 32, 64, 512}
  gpu {
    launch grid(ceil(n / bx)) block(bx)
    cuda """
      int i = blockIdx.x * bx + threadIdx.x;
      if (i < n) y[i] = i;
      if (i == 0) { price[0] = 512 - bx; }
    """
  }
}
dag { fill : gpu fill(y, price, n) }
verify y ~ reference() rtol 0
'''
PRICED_PY = """import numpy as np

def init(rank, size, seed, N):
    return {"n": N}

def reference(data, **_):
    return {"y": np.arange(data["n"], dtype=np.float32)}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("priced")
    (folder / "priced.dag").write_text(PRICED)
    (folder / "priced.py").write_text(PRICED_PY)
    return folder / "priced.dag"


def test_the_least_output_is_chosen(program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tuned = tmp_path / "t.db"
    command = ["tune", str(program), "--objective", "price", "--method", "exhaustive", "--sizes", "N=100;N=900"]
    assert main([*command, "--target", "host", "--cell", "0.005", "-o", str(tuned)]) == 0
    text = capsys.readouterr().out
    assert "output `price` is 0; an objective is a number above 0" in text
    assert "default price" in text
    found = load_tuned(tuned)
    values = {cell.choice.own["bx"]: sample.metrics["price"] for cell, sample in found.samples if not sample.failure}
    assert values == {128: 384.0, 32: 480.0, 64: 448.0}
    assert minimised(found).text == "price"
    assert {
        found.kernel_choosers["fill"].choices[a.chosen].own["bx"] for a in found.kernel_choosers["fill"].anchors
    } == {128}


def test_an_expression_of_outputs(program: Path, tmp_path: Path) -> None:
    objective = "price ** 2 - 400 * price + 1e5 + 0 * time"
    options = TuneOptions(method="exhaustive", sizes="N=100", target="host", cell=0.005, objective=objective)
    (line,) = tune(program, tmp_path / "t.db", options).lines
    assert line.best == Choice.at("fill", [("bx", 128)])
    assert line.best_value == 384**2 - 400 * 384 + 1e5
    with pytest.raises(UsageError, match="unknown metric `y`"):
        tune(program, tmp_path / "v.db", TuneOptions(sizes="N=100", target="host", objective="y"))


def test_whole_programs_by_an_output(program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = str(tmp_path / "r.db")
    command = ["explore", str(program), "--objective", "price", "--budget", "4", "--launch", "fixed", "-n", "1"]
    assert main([*command, "--target", "host", "-o", results, "--quiet", "--confirm", "0"]) == 0
    assert "384 price" in capsys.readouterr().out
