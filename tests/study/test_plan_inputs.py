"""Plans chosen by inputs: whole repetitions `until` an end, references that differ between plans, evaluation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dagc import api
from dagc.cli.main import main
from dagc.ir.choice import PROGRAM, Choice
from dagc.measure.launch import launch
from dagc.store.tuned import load_tuned
from tests.study.parts import part_of, run_sql

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("unoptimised")]

# Each run divides x by `rate` (m = 1) or by 12 - rate (m = 2), and takes a moment. m = 3 never comes to an end where
# the rate is above 6. m = 4 is wrong.
TEXT = '''program decay
param input : str = "made(rate = 2.0)" over files("*.txt")
tune m in {1, 2, 3, 4}
setup "decay.py" load(input)
scalar rate : f64
select m with knn(rate)
array x : f64[1] on host inout
array r : f64[1] on host
kernel step(x: inout f64[1], r: out f64[1], rate: f64) {
  cpu {
    cpp """
      volatile double spent = 0;
      for (int i = 0; i < 20000; ++i) spent = spent + i;
      x[0] = m == 1 ? x[0] / rate : m == 2 ? x[0] / (12 - rate) : m == 3 ? (rate > 6 ? x[0] : x[0] / 1.5) : x[0] / 9;
      r[0] = x[0];
    """
  }
}
dag repeat 40 until r < 1e-3 { step : cpu step(x, r, rate) }
verify x ~ once(m) rtol 1e-9
'''
SETUP = """import numpy as np
from dagc.inputs import call

def made(rate):
    return rate

def load(rank, size, seed, input):
    rate = call(input, {"made": made})
    return {"rate": rate, "x": np.array([1.0])}

def once(data, m, **_):
    rate = data["rate"]
    return {"x": np.array([1 / {1: rate, 2: 12 - rate, 3: 1 if rate > 6 else 1.5, 4: 3}[m]])}
"""


def test_plans_over_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "decay.dag").write_text(TEXT)
    (tmp_path / "decay.py").write_text(SETUP)
    tuned, program = str(tmp_path / "t.db"), str(tmp_path / "decay.dag")
    train = "made(speed = 1)," + ",".join(f"made(rate = {rate})" for rate in (1.5, 1.3, 10.5, 10.8))
    options = ["--target", "host", "--cell", "0.01", "-o", tuned]
    assert main(["tune", program, "--variants", "--inputs", train, *options]) == 0
    text = capsys.readouterr().out
    assert "m=3 at made(rate = 10.5): the end of the repetition was not reached in 40 runs" in text
    assert text.count("made(speed = 1): skipped: ") == 1, "results are compared at the next input"
    assert "m=4 at made(rate = 1.5): " in text, "compared with its own reference"
    assert "m=4 at made(rate = 1.3)" not in text, "not measured any more"
    found = load_tuned(tuned)
    seconds = {(c.case.text, c.choice["m"]): sample.value for c, sample in found.samples if sample.times}
    assert seconds["made(rate = 10.8)", 1] < seconds["made(rate = 10.8)", 2], "3 runs, not 38"
    assert seconds["made(rate = 1.3)", 2] < seconds["made(rate = 1.3)", 1]
    chosen = found.program_chooser
    assert chosen is not None
    rates = {rate: chosen.choices[chosen.selector.choose([rate])] for rate in (1.9, 9.5)}
    assert rates == {1.9: Choice.at(PROGRAM, [("m", 2)]), 9.5: Choice.at(PROGRAM, [("m", 1)])}
    parts = [str(part_of(Path(tuned), tmp_path / f"{k}.db", lambda n, k=k: n % 2 == k)) for k in range(2)]
    assert main(["merge", *parts, "-o", str(tmp_path / "merged.db")]) == 0
    merged = load_tuned(tmp_path / "merged.db").program_chooser
    assert merged == chosen
    capsys.readouterr()
    assert main(["tune", program, "--inputs", train, *options[:4], "--objective", "cpu"]) == 2
    assert "of a program with `until` the time of the whole repetition is measured" in capsys.readouterr().err
    test = "made(rate = 1.9),made(rate = 9.0),made(rate = 10.5)"
    assert main(["tune", program, "--evaluate", "--inputs", test, *options]) == 0
    text = capsys.readouterr().out
    assert "2 test inputs" in text
    assert "made(rate = 10.5): skipped: the file was trained on it" in text
    assert re.search(r"\d\d\.\d\d %", text), "how much of the fastest plan's speed: a time, so not how much"
    assert len(load_tuned(tuned).facts.tests) == 2
    built = api.compile(
        program, tmp_path / "out", target="host", launch=tuned, defines={"input": "made(rate = 9.0)"}, run=True,
        ranks=1, repeats=2,
    )  # fmt: skip
    assert built.launcher is not None
    assert built.launcher.chosen == "m1 for rate = 9"
    of = "SELECT id FROM assignment WHERE json_extract(choices, '$.m') IN"
    for plans, said in (("(1)", "plan m2 ("), ("(1, 2)", "every plan failed at sizes like these when it was tuned; m")):
        run_sql(
            Path(tuned),
            f"UPDATE candidate SET failure = 'wrong' WHERE point LIKE '%10.%' AND assignment IN ({of} {plans})",
        )
        out = tmp_path / f"failed{len(plans)}"
        api.compile(program, out, target="host", launch=tuned)
        run = launch([out / "bench", "--data", tmp_path / "out/data-1", "--verbose", "--check-only"], 1)
        assert said in run.stderr, "what failed near 9 is not taken"
    api.compile(program, tmp_path / "library", target="host", launch=tuned, form="library", build=False)
    assert "failed_before" in (tmp_path / "library/src/decay.cpp").read_text()
