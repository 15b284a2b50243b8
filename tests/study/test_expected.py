"""`--cut`: what is expected of answers at large inputs by small ones, and what is not measured there."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from dagc.build.mpi import find_mpi
from dagc.build.toolchain import find_cxx
from dagc.recipes import tune as tune_recipe
from dagc.stages.options import TuneOptions
from dagc.store.tuned import load_tuned
from dagc.study.expected import LEAST, SHORT, Expected
from dagc.study.train import TrainingTable

PROGRAM = '''program summed
param N : i64 = 100 over log(2, 2000)
setup "summed.py" given(N)
scalar n : i32
array x, y : f32[n] on any in
array z : f32[n] on any out
kernel work(z: out f32[n], x: in f32[n], y: in f32[n], n: i32) {
  feature pairs = n * n
  select variant, device with knn(n, pairs)
  cpu pairwise { cpp """
    for (int i = 0; i < n; ++i) {
      float least = x[i];
      for (int j = 0; j < n; ++j) least = y[j] < least ? y[j] : least;
      z[i] = least;
    }
  """ }
  cpu once { cpp """
    float least = 1e30f;
    for (int j = 0; j < n; ++j) least = y[j] < least ? y[j] : least;
    for (int i = 0; i < n; ++i) z[i] = x[i] < least ? x[i] : least;
  """ }
}
dag { work : any work(z, x, y, n) }
verify z ~ expected() rtol 0
'''
SETUP = """
import numpy as np
def given(rank, size, seed, N):
    return {"n": N, "x": np.arange(N, dtype=np.float32), "y": np.full(N, 7, np.float32)}
def expected(data, **_):
    return {"z": np.minimum(data["x"], data["y"].min())}
"""


def table(count: int, noise: float = 0.02, most: float = 1e4) -> TrainingTable:
    """Of three answers: one that grows with the work, one that costs more at first and a hundredth later, and one of
    the square root of the work, which no sum of the features is."""
    draw = random.Random(1)
    features, times = [], []
    for _ in range(count):
        n = float(round(most ** draw.random())) + 1
        exact = {0: 1e-6 + 1e-9 * n * n, 1: 1e-4 + 1e-11 * n * n, 2: 1e-5 * n**1.3}
        features.append([n, n * n])
        times.append({a: t * 2 ** draw.gauss(0, noise) for a, t in exact.items()})
    return TrainingTable.of(("n", "pairs"), features, times, 0.02)


def test_small_inputs_tell_what_is_slow_at_large_ones() -> None:
    expected = Expected.of(table(40))
    assert expected is not None
    large = expected.seconds({"n": 1e6, "pairs": 1e12})
    assert large[0] == pytest.approx(1e3, rel=0.3), "sums go on beyond what was measured"
    assert large[1] == pytest.approx(10, rel=0.3)
    assert 0 in expected.slow(large, 8, 0.01)
    assert 1 not in expected.slow(large, 8, 0.01)
    assert not expected.slow(large, 8, 1e9), "what takes less is measured"
    assert expected.seconds({"n": 1e6}) == {}


def test_beyond_all_inputs_what_is_expected_to_be_short_is_measured() -> None:
    """Errors at small inputs say little of larger ones."""
    expected = Expected.of(table(40))
    assert expected is not None
    inside, beyond, far = (expected.seconds({"n": n, "pairs": n * n}) for n in (7e3, 1.2e4, 1e5))
    assert 0.02 < inside[0] < beyond[0] < SHORT < far[0]
    assert 0 in expected.slow(inside, 8, 0.01)
    assert 0 not in expected.slow(beyond, 8, 0.01)
    assert 0 in expected.slow(far, 8, 0.01)


def test_an_error_of_the_expectation_leaves_an_answer_in() -> None:
    """The margin of an answer grows with its errors."""
    exact, rough = (Expected.of(table(40, noise)) for noise in (0.02, 3.0))
    assert exact is not None
    assert rough is not None
    seconds = {0: 1.0, 1: 0.1}
    assert exact.slow(seconds, 8, 0.01) == {0}
    assert not rough.slow(seconds, 8, 0.01)


def test_nothing_is_expected_of_a_few() -> None:
    assert Expected.of(table(LEAST - 1)) is None


mpi = find_mpi()


@pytest.mark.mpi
@pytest.mark.skipif(mpi is None or mpi.mpiexec is None or find_cxx() is None, reason="needs an MPI and a compiler")
def test_what_is_slow_is_not_measured_at_large_inputs(tmp_path: Path, unoptimised: None) -> None:
    (tmp_path / "summed.dag").write_text(PROGRAM)
    (tmp_path / "summed.py").write_text(SETUP)
    options = TuneOptions(target="host", samples=40, cell=0.0001, cut=8)
    tuned = tmp_path / "summed.db"
    done = tune_recipe.tune(tmp_path / "summed.dag", tuned, options)
    note = "work cpu.pairwise: at {} not measured, expected to take more than 8 times the fastest"
    omitted = [c for c, sample in load_tuned(tuned).samples if not sample.times]
    what = f"{len(omitted)} inputs" if len(omitted) > 1 else "1 input"
    assert note.format(what) in done.notes
    assert {cell.choice.in_words for cell in omitted} == {"cpu.pairwise"}
    assert not done.failures
    sizes = {cell.case: dict(cell.case.params)["N"] for cell, _ in load_tuned(tuned).samples}
    assert min(sizes[cell.case] for cell in omitted) > 100, "it is measured where it takes no time"
