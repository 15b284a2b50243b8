"""Variants that fail at some inputs of `dagc tune`, on the host target."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc.cli.main import main
from dagc.recipes import tune as tune_recipe
from dagc.stages.options import TuneOptions
from dagc.store.tuned import load_tuned
from dagc.study.results import Tuning
from tests.study.programs import stored_chooser

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("unoptimised")]

# At inputs of 41 elements every second launch takes longer, so that each variant is timed again, and the 37th launch of
# `late` aborts: the first series has 36, of which one is compared and five tell whether it is slow. At inputs of 50
# elements and more `late` hangs.
TEXT = '''program faults
param file : str = "none" over files("none")
setup "faults.py" load(file)
scalar n : i32
array y : f32[n] out
cuda """
  #include <cstdlib>
  #include <ctime>
  inline int launched(int n) {
    static int calls = 0;
    if (n != 41) return 0;
    const clock_t end = clock() + CLOCKS_PER_SEC / 4000 * (++calls % 2 == 0 ? 4 : 1);
    while (clock() < end) {}
    return calls;
  }
"""
kernel fill(y: out f32[n], n: i32) {
  feature size = n
  select variant with knn(size)
  gpu plain {
    launch grid(1) block(64)
    cuda """
      if (threadIdx.x == 0) launched(n);
      if (threadIdx.x < n) y[threadIdx.x] = threadIdx.x;
    """
  }
  gpu late {
    launch grid(1) block(64)
    cuda """
      for (volatile int turn = 0; n >= 50; turn = 1 - turn) {}
      if (threadIdx.x == 0) {
        static int own = 0;
        if (launched(n) != 0 && ++own == 37) std::abort();
      }
      if (threadIdx.x < n) y[threadIdx.x] = threadIdx.x;
    """
  }
}
dag { fill : gpu fill(y, n) }
verify y ~ reference() rtol 0
'''
SETUP = """import numpy as np
from dagc.inputs import call

def load(rank, size, seed, file):
    return call(file, {"made": lambda n: {"n": n}})

def reference(data, **_):
    return {"y": np.arange(data["n"], dtype=np.float32)}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("faults") / "faults.dag"
    path.write_text(TEXT)
    path.with_suffix(".py").write_text(SETUP)
    return path


def tuned(program: Path, output: Path, numbers: range, said: list[tuple[int, str]], **options: float) -> Tuning:
    calls = tuple(f"made(n = {n})" for n in (40, *numbers))
    every = TuneOptions(target="host", variants=True, inputs=calls, check_at=calls[0], **options)  # type: ignore[arg-type]
    return tune_recipe.tune(program, output, every, lambda done, _, what: said.append((done, what)))


def test_what_crashes_when_it_is_timed_again_has_failed(program: Path, tmp_path: Path) -> None:
    said: list[tuple[int, str]] = []
    done = tuned(program, tmp_path / "t.db", range(41, 42), said)
    where = "run failed: rank 0: terminated by SIGABRT (abort was called) in op `fill` (kernel `fill`)"
    assert done.failures == (f"fill late at made(n = 41): {where} (when it was timed again)",)
    found = {(c.case.text, c.choice.variant): sample for c, sample in load_tuned(tmp_path / "t.db").samples}
    plain, late = (found["made(n = 41)", variant] for variant in ("plain", "late"))
    assert plain.times
    assert not plain.failure
    assert late.failure
    assert not late.times
    last = {what: number for number, what in said}
    for variant in ("plain", "late"):
        assert f"checking fill {variant} at made(n = 40)" in last
    named = [what for what in last if what.startswith("fill ") and not what.endswith(" again")]
    first = {what: next(number for number, other in said if other == what) for what in named}
    assert sorted(first.values()) == [0, 1, 2, 3], "each is named when those before it are done"
    assert "fill late at made(n = 41) again" in last


def test_what_hangs_at_three_inputs_is_given_up(program: Path, tmp_path: Path) -> None:
    done = tuned(program, tmp_path / "t.db", range(50, 55), [], watchdog=1.0, cell=0.01)
    places, reasons = zip(*(failure.split(": ", 1) for failure in done.failures), strict=True)
    assert set(places) == {f"fill late at made(n = {n})" for n in range(50, 55)}
    hung, given_up = "hang: rank 0 in op `fill`", "not measured: it hung at 3 other inputs"
    assert reasons == (hung,) * 3 + (given_up,) * 2
    where = ", ".join(place.removeprefix("fill late at ") for place in places[:3])
    assert f"fill late: given up, since it hung at {where}" in done.notes
    assert any("counts as hung after 1 s, or 100 times its expected length" in note for note in done.notes)


def test_another_objective_does_not_replace_what_more_inputs_taught(
    program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "t.db"
    words = ["tune", str(program), "--target", "host", "--cell", "0.01", "-o", str(file), "--quiet"]
    inputs = [f"made(n = {n})" for n in range(42, 46)]
    assert main([*words, "--variants", "--inputs", ",".join(inputs[:3])]) == 0
    before = stored_chooser(file, "fill")
    more = [*words, "--variants", "--resume", "--objective", "cpu", "--inputs"]
    assert main([*more, ",".join(inputs[2:])]) == 2
    said = capsys.readouterr().err
    assert (
        f"objective cpu: 2 inputs of {file}, measured for time, without cpu: the choice would be learned anew" in said
    )
    assert "help: name these inputs as well" in said
    assert (load_tuned(file).facts.objective, stored_chooser(file, "fill")) == ("time", before)
    assert main([*words, "--evaluate", "--objective", "cpu", "--inputs", "made(n = 46)"]) == 0
    assert load_tuned(file).facts.objective == "time"
    assert main([*more, ",".join(inputs)]) == 0
    assert (
        f"note: objective cpu: 3 inputs of {file}, measured for time, without cpu: measured" in capsys.readouterr().out
    )
    tuned = load_tuned(file)
    assert tuned.facts.objective == "cpu"
    assert {c.case.text for c, sample in tuned.samples if "cpu" in dict(sample.metrics)} == {*inputs, "made(n = 46)"}
