"""`dagc tune --samples`: inputs that are drawn, at random and where a guide is unsure; on the host target."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dagc.base.errors import UsageError
from dagc.cli.main import main
from dagc.recipes import tune as tune_recipe
from dagc.recipes.options import TuneOptions
from dagc.recipes.program import read
from dagc.recipes.tune_prepare import compiled_part
from dagc.recipes.tune_results import Tuning
from dagc.store.tuned import Tuned, load_tuned

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("unoptimised")]

# `low` takes long where `share` is above 0.4, `high` where it is below. `wrong` is the fastest of all, and wrong. The
# set-up refuses kind 3; the feature `inverse` has no value at kind 1.
TEXT = '''program pair
param count : i64 = 16 over log(4, 64)
param share : f64 = 0.25 over uniform(0, 1)
param kind : i64 = 0 over {0, 1, 2, 3}
let both = count * 2
require both <= 100 && count != 5
setup "pair.py" load(count, share, kind)
scalar n, k : i32
scalar slow : f32
array y : f32[n] out
cuda """
  static __host__ __device__ float spent(int turns) {
    float sum = 0;
    for (int j = 0; j < turns; ++j) sum += 1e-30f * j;
    return sum > 1 ? 1 : 0;
  }
"""
kernel fill(y: out f32[n], n, k: i32, slow: f32) {
  feature slowness = slow
  feature inverse = 1 / (k - 1)
  select variant with tree(slowness, inverse)
  gpu low {
    launch grid(1) block(64)
    cuda """ if (threadIdx.x < n) y[threadIdx.x] = threadIdx.x + spent(slow > 0.4f ? 3000 : 300); """
  }
  gpu high {
    launch grid(1) block(64)
    cuda """ if (threadIdx.x < n) y[threadIdx.x] = threadIdx.x + spent(slow > 0.4f ? 300 : 3000); """
  }
  gpu wrong {
    launch grid(1) block(64)
    cuda """ if (threadIdx.x < n) y[threadIdx.x] = threadIdx.x + (threadIdx.x == 3 && slow > 0.2f); """
  }
}
dag { fill : gpu fill(y, n, k, slow) }
verify y ~ reference() rtol 0
'''
SETUP = """import numpy as np

def load(rank, size, seed, count, share, kind):
    if kind == 3:
        raise ValueError("kind 3 is not supported")
    return {"n": count, "k": kind, "slow": share}

def reference(data, **_):
    return {"y": np.arange(data["n"], dtype=np.float32)}
"""
HOST = TuneOptions(target="host", cell=0.002, variants=True, samples=60)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pair")
    (folder / "pair.py").write_text(SETUP)
    (folder / "pair.dag").write_text(TEXT)
    return folder / "pair.dag"


@pytest.fixture(scope="module")
def done(program: Path) -> Tuning:
    """Tuned actively."""
    options = replace(HOST, active=True, initial=20, batch=8, defines={"count": "16"})
    return tune_recipe.tune(program, program.parent / "pair.db", options)


@pytest.fixture(scope="module")
def tuned(done: Tuning) -> Tuned:
    assert done.output is not None
    return load_tuned(done.output)


def labelled(tuned: Tuned) -> list[dict[str, float | int | str]]:
    """Values of the inputs in the order in which they were measured."""
    return [dict(p.params) for p in dict.fromkeys(cell.point for cell in tuned.cells)]


def test_batches_are_drawn_where_the_best_variant_changes(tuned: Tuned) -> None:
    shares = [float(at["share"]) for at in labelled(tuned)]
    first, later = shares[:15], shares[20:]
    assert 25 <= len(shares) <= 60
    assert len(set(shares)) == len(shares), "no input is measured twice"
    off = [sorted(abs(s - 0.4) for s in some)[len(some) // 2] for some in (first, later)]
    assert off[1] < off[0] / 3, "the guide is unsure near the border"


def test_what_fails_is_named_and_the_rest_goes_on(done: Tuning, tuned: Tuned) -> None:
    failed = "\n".join(done.failures)
    assert "kind 3 is not supported" in failed
    assert "fill wrong at kind=" in failed, "a variant that is wrong at some inputs, by their names"
    assert "element 3 is 4, expected 3" in failed
    assert any("inverse not finite: not learned from" in note for note in done.notes)
    assert any(note.startswith("active: ") and "at random, then " in note for note in done.notes)
    assert {at["kind"] for at in labelled(tuned)} == {0, 1, 2}
    chooser = tuned.kernel_choosers["fill"]
    assert chooser.selector is not None
    for share, variant in ((0.1, "low"), (0.7, "high")):
        settings = chooser.settings[chooser.selector.choose((share, -1.0))]
        assert dict(settings)["variant"] == variant
    assert any(note.startswith("fill wrong: never chosen, since it failed at ") for note in done.notes)


def test_more_samples_are_added(done: Tuning, program: Path, tuned: Tuned, tmp_path: Path) -> None:
    """The inputs of the file count; a finite generator ends before the samples do."""
    path = tmp_path / "more.db"
    path.write_bytes(tuned.path.read_bytes())
    before = labelled(tuned)
    more = replace(HOST, samples=len(before) + 5, active=True, batch=5, resume=True, defines={"count": "16"})
    again = tune_recipe.tune(program, path, more)
    assert labelled(load_tuned(path))[: len(before)] == before
    assert len(labelled(load_tuned(path))) in range(len(before), len(before) + 6)
    (note,) = (note for note in again.notes if note.startswith("active: "))
    assert note.startswith(f"active: {len(labelled(load_tuned(path)))} samples: {len(before)} of the file, then ")


def test_a_let_for_a_require_does_not_change_the_program(program: Path) -> None:
    """But a param that code uses does."""
    text = read(program)
    assert compiled_part(text.program({"count": 8})) == compiled_part(text.program({"count": 32}))
    used = program.parent / "used.dag"
    used.write_text(program.read_text().replace("spent(slow > 0.4f", "spent(count + 0 * slow > 0.4f"))
    assert compiled_part(read(used).program({"count": 8})) != compiled_part(read(used).program({"count": 32}))
    with pytest.raises(UsageError, match="at count=.* the program is compiled differently"):
        tune_recipe.tune(used, None, replace(HOST, samples=2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--active"], "--active draws inputs"),
        (["--active", "--samples", "9", "--incremental"], "--incremental takes them from a list"),
        (["--batch", "9", "--samples", "9"], "--batch belongs to --active"),
        (["--margin", "0.3"], "--margin belongs to --active"),
        (["--accuracy", "90%"], "--accuracy belongs to --incremental"),
        (["--samples", "9", "--sizes", "count=8"], "--samples draws them"),
    ],
)
def test_options_that_do_not_go_together(
    program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    command = ["tune", str(program), "--variants", "--quiet", "--target", "host", "-o", str(tmp_path / "no.db")]
    assert main([*command, *options]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "no.db").exists()
