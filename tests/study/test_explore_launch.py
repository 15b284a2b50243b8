"""Launch settings of `dagc explore`: tuned first, of a tuned file, or the defaults; on ranks of the host target."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dagc.base.errors import UsageError
from dagc.cli.main import main
from dagc.lab.orders import Orders
from dagc.recipes import tune as tune_recipe
from dagc.recipes.explore import explore
from dagc.stages.options import ExploreOptions, TuneOptions
from dagc.store.records import load
from dagc.store.settings import Origin
from dagc.study.launch import timed_sites
from dagc.study.outcome import Explored
from tests.measure.conftest import SAMPLES, can_run
from tests.study.programs import write_fill

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI"),
    pytest.mark.usefixtures("unoptimised"),
]
HEAT = SAMPLES / "heat/heat.dag"
SMALL = {"nx": "64", "rows": "6", "steps": "1"}
QUICK = ExploreOptions(
    ranks=2, target="host", seconds=5e-4, confirm=2, repeats=2, transport="mpi_host", quiet=True, budget=4,
    strategy="random", trace=False, only="orders",
)  # fmt: skip
SETTINGS = ("inner.bx", "inner.by", "first.bx", "first.by", "last.bx", "last.by")


def run(out: Path, defines: dict[str, str] | None = None, path: Path = HEAT, **options: object) -> Explored:
    done = explore(path, out, replace(QUICK, **options), SMALL | (defines or {}))  # type: ignore[arg-type]
    assert done is not None
    assert done.configuration is not None
    return done


def values(done: Explored) -> dict[str, object]:
    """The launch settings of the best."""
    assert done.configuration is not None
    return {name: value for name, value in done.configuration.decisions if name in SETTINGS}


@pytest.mark.thorough
def test_settings_are_tuned_first_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "r.db"
    done = run(file, {"last.bx": "128"}, launch="auto")
    origins = {name: origin for (name, _), origin in done.fixed.items()}
    assert origins.pop("last.bx") is Origin.DEFINED
    assert values(done)["last.bx"] == 128
    assert set(origins.values()) == {Origin.MEASURED}
    assert set(origins) == set(SETTINGS) - {"last.bx"}
    assert "fixed      last.bx=128 (-D)" in done.render()

    # What reads the file has them.
    assert main(["best", str(file), "--plan"]) == 0
    assert "(measured here)" in capsys.readouterr().out
    assert main(["report", str(file), "-o", str(tmp_path / "r.html")]) == 0
    page = (tmp_path / "r.html").read_text()
    assert "Not searched: <code>last.bx=128 (-D)</code>; <code>inner.bx=" in page
    assert "(measured here)</code>." in page

    # --resume goes on with them; what -D gives then is another configuration.
    again = run(file, {"inner.bx": "128", "last.bx": "128"}, resume=True)
    found = {i.configuration for i in load(file).implementations}
    assert {origin for (name, _), origin in again.fixed.items() if name not in ("inner.bx", "last.bx")} == {
        Origin.MEASURED
    }
    for configuration in found:
        assert {n: v for n, v in configuration.decisions if n in SETTINGS and n != "inner.bx"} == {
            n: v for n, v in values(done).items() if n != "inner.bx"
        }

    # And so does a replay, where nothing is tuned.
    replayed = run(tmp_path / "none.db", {"last.bx": "128"}, replay=str(file))
    assert set(values(replayed)) == set(SETTINGS)
    with pytest.raises(UsageError, match="--replay"):
        run(tmp_path / "none.db", replay=str(file), launch="auto")


def test_a_tuned_file_and_the_defaults(tmp_path: Path) -> None:
    tuned = tmp_path / "t.db"
    large = {"nx": "1024", "rows": "256"}  # where blocks of several rows gain
    options = TuneOptions(sizes="nx=1024", target="host", top=0, cell=0.01, defines=SMALL | large, ranks=2)
    by = {line.op: line.chosen.own for line in tune_recipe.tune(HEAT, tuned, options).lines}
    assert by["inner"]["by"] != 1, "where the model chooses the default, this test shows nothing"
    few: dict[str, object] = {"budget": 1, "confirm": 0, "repeats": 1}
    # What -D fixes stays; what it leaves open of the same kernel is still chosen.
    pinned = run(tmp_path / "p.db", {**large, "inner.bx": "32"}, launch=str(tuned), **few)
    chosen = {f"{op}.{name}": value for op, block in by.items() for name, value in block.items()}
    assert values(pinned) == chosen | {"inner.bx": 32}
    assert {name for (name, _), origin in pinned.fixed.items() if origin is Origin.TUNED} == set(SETTINGS) - {
        "inner.bx"
    }

    # With `--only orders` alone: the defaults.
    plain = run(tmp_path / "d.db")
    assert plain.fixed == {(n, 32 if n.endswith("x") else 1): Origin.DEFAULT for n in SETTINGS}
    assert not any("launch settings" in note for note in plain.notes)


def test_settings_are_searched_together_with_the_orders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What no option fixes is searched at once; one compiled program serves all launch settings."""
    file = tmp_path / "r.db"
    done = run(file, {"last.bx": "64"}, only=None, strategy=None, budget=12, confirm=3)
    assert not any(failure for failure in done.summary.reasons)
    assert dict(done.fixed.keys()).keys() == {"last.bx"}
    results = load(file)
    found = {i.configuration for i in results.implementations}
    assert {c.get("last.bx") for c in found} == {64}
    assert {c.get("staging") for c in found} == {"fused", "ops"}
    assert len({(c.get("inner.bx"), c.get("inner.by")) for c in found}) > 1
    assert len(list((tmp_path / "r-build").glob("0*"))) == 2  # one for each staging
    assert done.configuration is not None
    assert done.configuration.text in done.render()
    assert results.searched == done.summary.space
    for wrong in ("12x", "", 12, None, "9" * 5000):
        run_of_others = replace(results.runs[0], options={"space": wrong})
        assert replace(results, runs=(run_of_others,)).searched is None

    # `best` has the settings, `--resume` goes on with the same search, and a replay has them too.
    assert main(["best", str(file), "--plan"]) == 0
    plan = capsys.readouterr().out
    best = next(i.configuration for i in results.implementations if i.configuration.text in plan)
    assert {n: v for n, v in best.decisions if n in SETTINGS} == values(done)
    again = run(file, {"last.bx": "64"}, only=None, strategy=None, budget=2, confirm=0, resume=True)
    assert again.summary.space == done.summary.space
    assert len({i.configuration for i in load(file).implementations} | found) >= len(found)
    replayed = explore(HEAT, None, replace(QUICK, only=None, budget=3, replay=str(file)), {**SMALL, "last.bx": "64"})
    assert replayed is not None
    assert replayed.summary.space == done.summary.space


@pytest.mark.thorough
def test_only_orders_are_as_many_as_ever(tmp_path: Path) -> None:
    """Launch settings multiply the orders; what a file was searched for without them goes on without."""
    one = run(tmp_path / "r.db")
    every = run(tmp_path / "s.db", {"staging": "fused"}, only=None, budget=2, confirm=0)
    assert one.summary.space is not None
    assert every.summary.space == one.summary.space * 9**3
    again = run(tmp_path / "r.db", only=None, resume=True, budget=2, confirm=0)
    assert again.summary.space == one.summary.space


@pytest.mark.thorough
def test_what_is_opened_is_searched(tmp_path: Path) -> None:
    done = run(tmp_path / "r.db", opened=("inner.by=1,2",), launch="auto", budget=8)
    found = {i.configuration for i in load(tmp_path / "r.db").implementations}
    assert {c.get("inner.by") for c in found} == {1, 2}
    assert len({c.get("inner.bx") for c in found}) == 1
    assert "inner.by" not in dict(done.fixed.keys())


def test_a_file_that_is_of_no_use_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    for launch, why in ((tmp_path / "none.db", "no such file"), (HEAT, "not a results file")):
        with pytest.raises(UsageError, match=why):
            run(tmp_path / "out/r.db", launch=str(launch))
    other = write_fill(tmp_path, "tune bx in {32, 64}")
    tune_recipe.tune(other, tmp_path / "t.db", TuneOptions(sizes="N=100", target="host", top=0))
    with pytest.raises(UsageError, match="tuned for program fill, this is heat"):
        run(tmp_path / "out/r.db", launch=str(tmp_path / "t.db"))
    assert not (tmp_path / "out").exists()


@pytest.mark.thorough
def test_tuning_that_fails_is_a_note(tmp_path: Path) -> None:
    """Two values that do not compile together, without a `require`: with open settings nothing builds."""
    tune = "tune bx in {32}\n  tune a in {1, 2}\n  tune b in {1, 2}"
    path = write_fill(tmp_path, tune, 'static_assert(a + b < 4, ""); if (i < n) y[i] = i;')
    done = explore(path, tmp_path / "r.db", replace(QUICK, ranks=1, launch="auto"))
    assert done is not None
    assert done.exit_code == 0
    assert any("tuning with measurements failed" in note for note in done.notes)
    assert dict(done.fixed.keys()) == {"fill.a": 1, "fill.b": 1}


TWO = '''program two
param N : i64 = 4096
setup "two.py" init(N)
scalar n : i32
array x, y : f32[n] out
kernel fill(y: out f32[n], n: i32) {
  tune bx in {32, 64, 128}
  tune by in {1, 2}
  gpu {
    launch grid(ceil(n / bx)) block(bx, by)
    cuda """
      int i = blockIdx.x * bx + threadIdx.x;
      if (i < n) y[i] = i + WRONG;
    """
  }
}
dag {
  a : gpu fill(x, n)
  b : gpu fill(y, n)
}
verify x ~ one() rtol 0
verify y ~ two() rtol 0
'''
TWO_PY = """import numpy as np

def init(rank, size, seed, N):
    return {"n": N}

def one(data, **_):
    return {"x": np.arange(data["n"], dtype=np.float32)}

def two(data, **_):
    return {"y": np.arange(data["n"], dtype=np.float32)}
"""


def test_each_implementation_runs_under_its_own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where its launches are captured in a graph: a kernel that is wrong under some blocks is wrong there."""
    (tmp_path / "two.py").write_text(TWO_PY)
    program = tmp_path / "two.dag"
    program.write_text(TWO.replace("WRONG", "(blockDim.x == 64 && blockDim.y == 1) + (blockDim.x == 128)"))
    file = tmp_path / "r.db"
    options = replace(QUICK, ranks=1, only=None, strategy="exhaustive", budget=None, capture="both", confirm=0)
    done = explore(program, file, options, {"b.bx": 32, "b.by": 1})
    assert done is not None
    results = load(file)
    assert done.summary.space == len(results.implementations) == 14 * 6 * 2
    for found in results.implementations:
        block = found.configuration.get("a.bx"), found.configuration.get("a.by")
        wrong = block[0] == 128 or block == (64, 1)
        assert bool(found.failure) is wrong
        assert found.failure.startswith("wrong result") is wrong
    # What is timed alone, one op after the other and again, must agree with the program's own setting; one that does
    # not is expected last.
    timed: list[Orders] = []

    def kept(*args: Any) -> Orders:
        timed.append(timed_sites(*args))
        return timed[-1]

    monkeypatch.setattr("dagc.study.domain.timed_sites", kept)
    again = explore(program, tmp_path / "s.db", replace(options, strategy="model", budget=6, capture="off"))
    assert again is not None
    assert again.configuration is not None
    bad = {(64, 1), (128, 1), (128, 2)}
    assert not {(again.configuration.get(f"{op}.bx"), again.configuration.get(f"{op}.by")) for op in "ab"} & bad
    for site in timed[0].spaces[0].sites:
        assert site.doubts
        slow = {tuple(s.values()) for s, t in zip(site.choices, site.prior, strict=True) if math.isinf(t)}
        assert slow <= bad


def test_ops_of_a_dag_that_is_called_in_a_loop_are_timed_alone(tmp_path: Path) -> None:
    """Their names have an index before a dot, `all[0].fill`, and their settings do not, `all.fill.bx`."""
    program = write_fill(tmp_path, "tune bx in {32, 64}", "if (i < n) y[i] = i;")
    text = program.read_text()
    called = "dag each(y: out f32[n]) { fill : gpu fill(y, n) }\ndag { for k in 0..2 { all[k] : dag each(y) } }"
    program.write_text(text.replace("dag { fill : gpu fill(y, n) }", called))
    options = replace(QUICK, ranks=1, only=None, strategy="model", budget=3, confirm=0)
    done = explore(program, tmp_path / "r.db", options, {"N": 100})
    assert done is not None
    assert done.configuration is not None
    assert {name for name in done.configuration if name.endswith("bx")} == {"all.fill.bx"}
    assert not done.summary.reasons
