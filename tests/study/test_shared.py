"""Ops of one kernel whose regressors share samples: which do, and what each of them expects."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc.base.sample import Sample
from dagc.choice.learners import cost
from dagc.choice.types import Case, Cell
from dagc.ir.choice import Choice
from dagc.perf.hardware import load_hardware
from dagc.stages.program import read
from dagc.study.choosers import ChooserInputs, alike, asked_of, final_choosers
from dagc.study.gpu import NOT_COUNTED
from dagc.study.prepare import AtCase, Prepared
from dagc.study.task import tuning_task
from dagc.study.train import TrainingTable, train
from tests.emit.build import ROOT

PROGRAM = '''program layers
param N : i64 = 100 over {100, 800}
setup "layers.py" given(N)
scalar n, wide, narrow : i32
scalar zeros : f64
array x : f32[n, wide] on any in
array h, g : f32[n, narrow] on any
array y : f32[n, narrow] on any out
kernel layer(o: out f32[n, F], i: in f32[n, K], n, K, F: i32, share: f64, turned: bool) {
  let both = K * F
  feature work = n * both
  select variant with cost(n, K, F, work, share)
  gpu one {
    launch grid(ceil(n / 64)) block(64)
    cuda """ int r = blockIdx.x * 64 + threadIdx.x; if (r < n) o[r * F] = i[r * K]; """
  }
  cpu one { cpp """ for (int r = 0; r < n; ++r) o[r * F] = i[r * K]; """ }
}
dag {
  select device with dp()
  a : any layer(h, x, n, wide, narrow, zeros, false)
  b : any layer(g, h, n, narrow, narrow, 0.5, false)
  c : any layer(y, g, n, narrow, narrow, 0.5, true)
}
'''


def prepared(folder: Path) -> Prepared:
    (folder / "layers.dag").write_text(PROGRAM)
    task = tuning_task(read(folder / "layers.dag"), target="host")
    at = {}
    for case in task.cases:
        n = dict(case.params)["N"]
        scalars = {"n": n, "wide": 500, "narrow": 16, "zeros": 0.9, "rank": 0, "ranks": 1}
        at[case] = AtCase(case, Path(), scalars, 1, task.choices)  # type: ignore[arg-type]
    return Prepared(task, Path(), at)


def seconds(op: str, case: Case, choice: Choice) -> float:
    """As if a copied 500 numbers a row, and the others 16; the CPU is 8 times as slow, and starts at once."""
    work = float(dict(case.params)["N"]) * (500 * 16 if op == "a" else 16 * 16)
    return 1e-8 * work if choice.variant == "cpu.one" else 1e-5 + 1e-9 * work


def inputs_of(ready: Prepared) -> tuple[ChooserInputs, dict[Cell, Sample]]:
    task = ready.task
    samples = {
        Cell(u.name, p, s): Sample.of((seconds(u.name, p, s),) * 3)
        for u in task.sites
        for p in task.cases
        for s in u.choices
    }
    asked = asked_of(task, "", runs=True)
    return ChooserInputs(ready, asked, NOT_COUNTED, load_hardware("h200"), {}), samples


def test_ops_that_differ_in_what_is_asked_for_share_samples(tmp_path: Path) -> None:
    ready = prepared(tmp_path)
    known, samples = inputs_of(ready)
    together = {u.name: [one.name for one in alike(ready, u, known.asked)] for u in ready.task.sites}
    assert together == {"a": ["a", "b"], "b": ["a", "b"], "c": ["c"]}, "`turned` is no feature"

    fit = dict(ready.task.choices)
    choosers, learned = final_choosers(known, fit, samples, 0)
    assert "learned from a, b together" in learned["a"].notes[-1]
    assert "together" not in learned["c"].notes[-1]
    assert choosers["b"].chooser.selector.data == ("n", "narrow", "narrow", "work")  # the share is 0.5
    case = ready.task.cases[-1]
    for op in "ab":
        expected = choosers[op].chooser.predict(ready.at[case].values)
        measured = [seconds(op, case, choice) for choice in ready.task.choices[op]]
        assert list(expected) == pytest.approx(measured, rel=0.5), op


def test_a_regressor_with_constants_expects_the_same(tmp_path: Path) -> None:
    rows = tuple((float(n), float(k), float(f)) for n in (10, 100, 1000, 5000) for k in (4, 32, 256) for f in (0, 1))
    times = tuple({0: 1e-6 * n * k, 1: 1e-5 + 1e-8 * n * k * (1 + f)} for n, k, f in rows)
    known = TrainingTable.of(("n", "k", "f"), rows, times)
    whole = train("cost", known, default=0)
    assert isinstance(whole, cost.Cost)
    part = whole.with_fixed({1: 32.0, 2: 1.0}, ("n",))
    assert part.data == ("n",)
    assert cost.read(_row(part)) == part
    for n in (3.0, 55.0, 999.0, 1e6):
        assert part.seconds((n,)) == pytest.approx(whole.seconds((n, 32.0, 1.0)), rel=1e-9)
        assert part.ask((n,)) == whole.ask((n, 32.0, 1.0))


def _row(selector: cost.Cost) -> cost.Row:
    import msgspec

    return msgspec.convert(selector.to_json(), cost.Row)


def test_layers_of_a_network_share_samples() -> None:
    task = tuning_task(read(ROOT / "samples/gnn/gcn.dag", {"layers": 3}), target="host")
    ready, asked = Prepared(task, Path()), asked_of(task, "", runs=True)
    assert [len(alike(ready, site, asked)) for site in task.sites] == [3, 3, 3]
