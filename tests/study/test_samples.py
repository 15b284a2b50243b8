"""`dagc tune --samples`: inputs drawn at random, and where a guide is unsure; versions on two devices, host target."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dagc.base.errors import UsageError
from dagc.choice.types import Case
from dagc.cli.main import main
from dagc.recipes import tune as tune_recipe
from dagc.stages.options import TuneOptions
from dagc.stages.program import read
from dagc.store.tuned import Tuned, load_tuned
from dagc.study.move import losses_of
from dagc.study.results import Tuning
from dagc.study.task import compiled_part
from dagc.study.train import TableRow, TrainingTable

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("unoptimised")]

# `low`, on the CPU, takes long where `share` is above 0.4, `high` where it is below. `wrong` is the fastest of all, and
# wrong. The set-up refuses kind 3; the feature `inverse` has no value at kind 1, and `odd` throws at a count of 44.
TEXT = '''program pair
param count : i64 = 16 over log(4, 64)
param share : f64 = 0.25 over uniform(0, 1)
param kind : i64 = 0 over {0, 1, 2, 3}
let both = count * 2
require both <= 100 && count != 5
setup "pair.py" load(count, share, kind)
scalar n, k : i32
scalar slow : f32
array y : f32[n] on any out
cpp """
  static inline float taken(int turns) {
    float sum = 0;
    for (int j = 0; j < turns; ++j) sum += 1e-30f * j;
    return sum > 1 ? 1 : 0;
  }
"""
cuda """
  static __device__ float spent(int turns) {
    float sum = 0;
    for (int j = 0; j < turns; ++j) sum += 1e-30f * j;
    return sum > 1 ? 1 : 0;
  }
"""
kernel fill(y: out f32[n], n, k: i32, slow: f32) {
  feature slowness = slow
  feature inverse = 1 / (k - 1)
  feature odd cost 1 = cpp """
    if (n == 44) throw std::runtime_error("44 is not a count");
    return n % 2;
  """
  select variant, device with tree(slowness, inverse, odd)
  cpu low { cpp """ for (int i = 0; i < n; ++i) y[i] = i + taken(slow > 0.4f ? 3000 : 300); """ }
  gpu high {
    launch grid(1) block(64)
    cuda """ if (threadIdx.x < n) y[threadIdx.x] = threadIdx.x + spent(slow > 0.4f ? 300 : 3000); """
  }
  gpu wrong {
    launch grid(1) block(64)
    cuda """ if (threadIdx.x < n) y[threadIdx.x] = threadIdx.x + (threadIdx.x == 3 && slow > 0.2f); """
  }
}
dag { fill : any fill(y, n, k, slow) }
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


def test_an_active_run_says_its_quality_by_samples_and_its_file_is_replayed(
    program: Path, done: Tuning, capsys: pytest.CaptureFixture[str]
) -> None:
    number = done.notes.index("fill: quality by samples, beside a random order of them")
    assert done.notes[number + 1].startswith("| samples (times fewer) | as measured: PPP, PoIS, accuracy | at random: ")
    words = ["tune", str(program), "-D", "count=16", "-o", str(done.output), "--evaluate"]
    assert main([*words, "--replay", "1", "--samples", "10", "--initial", "8"]) == 0
    shown = capsys.readouterr().out
    assert "1 replay of active learning, another tenth held out in each:" in shown
    assert "| PPP at most | active: samples (reduction factor) | bvsb: samples" in shown
    assert main([*words[:-1], "--show", "fill"]) == 0
    assert " settings, method " in capsys.readouterr().out


def labelled(tuned: Tuned) -> list[dict[str, float | int | str]]:
    """Values of the inputs in the order in which they were measured."""
    return [dict(p.params) for p in dict.fromkeys(cell.case for cell, _ in tuned.samples)]


def off_the_fastest(tuned: Tuned) -> tuple[float, float, float]:
    """What is chosen at the measured inputs, `low` for all and `high` for all: geometric means of times over the least.

    As they were measured, on however busy a machine: what is fast is what the measurements say.
    """
    times: dict[Case, dict[str, float]] = {}
    for cell, sample in tuned.samples:
        if sample.times:
            times.setdefault(cell.case, {})[cell.choice.variant] = sample.value
    chooser, rows = tuned.kernel_choosers["fill"], []
    assert chooser.selector is not None
    for case, of in times.items():
        at = {name: float(value) for name, value in case.params}
        if at["kind"] != 1 and {"cpu.low", "gpu.high"} <= of.keys():  # at kind 1 a feature has no value
            features = (at["share"], 1 / (at["kind"] - 1), 0.0)
            answer = chooser.choices[chooser.selector.choose(features)].variant
            logs = np.log([of[name] for name in (answer, "cpu.low", "gpu.high")])
            rows.append(logs - logs[1:].min())
    assert len(rows) >= 5
    chosen, low, high = np.exp(np.mean(rows, axis=0))
    return float(chosen), float(low), float(high)


def test_batches_are_drawn(done: Tuning, tuned: Tuned) -> None:
    """Where the best variant changes: tests/choice/test_active.py shows it, with times that are known."""
    shares = [float(at["share"]) for at in labelled(tuned)]
    assert 25 <= len(shares) <= 60
    assert len(set(shares)) == len(shares), "no input is measured twice"
    assert any(note.startswith("active: ") and "at random, then " in note for note in done.notes)


def test_what_fails_is_named_and_the_rest_goes_on(done: Tuning, tuned: Tuned) -> None:
    failed = "\n".join(done.failures)
    assert "kind 3 is not supported" in failed
    assert "fill gpu.wrong at kind=" in failed, "a variant that is wrong at some inputs, by their names"
    assert "element 3 is 4, expected 3" in failed
    assert any("inverse not finite: not used for training" in note for note in done.notes)
    assert {at["kind"] for at in labelled(tuned)} == {0, 1, 2}
    chosen, low, high = off_the_fastest(tuned)
    assert chosen < min(low, high), "a tree that knows the share does better than one variant for all"
    assert any(note.startswith("fill gpu.wrong: not chosen near the ") for note in done.notes)


@pytest.mark.parametrize(
    ("share", "said"),
    [
        ("0.1", "fill: cpu.low (chosen 1)"),
        ("0.7", "fill: gpu.high (chosen 1)"),
        ("0.999e9", "fill: gpu.high (outside 1)"),
    ],
)
def test_the_program_chooses_version_and_device(
    tuned: Tuned, program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], share: str, said: str
) -> None:
    """By what was learned; far from what was trained on it takes the default."""
    command = ["compile", str(program), "--launch", str(tuned.path), "--target", "host", "--run", "-n", "1", "--quiet"]
    assert main([*command, "-D", "count=16", "-D", f"share={share}", "-o", str(tmp_path / "out")]) == 0
    assert said in capsys.readouterr().out


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
    with pytest.raises(UsageError, match="at count=.* the program compiles to different code"):
        tune_recipe.tune(used, None, replace(HOST, samples=2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--active"], "--active draws inputs"),
        (["--active", "--samples", "9", "--incremental"], "--incremental takes them from a list"),
        (["--batch", "9", "--samples", "9"], "--batch belongs to --active"),
        (["--margin", "0.3"], "--margin belongs to --active"),
        (["--folds", "5"], "--folds belongs to --evaluate"),
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


def test_a_feature_that_throws_is_named(program: Path) -> None:
    said: list[str] = []
    options = replace(HOST, samples=None, sizes="count=44")
    done = tune_recipe.tune(program, None, options, lambda done, total, what: said.append(what))
    named = "feature `odd` of op `fill` (kernel `fill`): 44 is not a count"
    assert any("no features: " in note and named in note for note in done.notes)
    assert any("44 is not a count" in what for what in said), "told before it is tried again"


# ---- evaluated, here and elsewhere ----


def test_samples_to_evaluate_are_others(done: Tuning, program: Path, tuned: Tuned, tmp_path: Path) -> None:
    path = tmp_path / "pair.db"
    path.write_bytes(tuned.path.read_bytes())
    options = replace(HOST, samples=6, defines={"count": "16"})
    found = tune_recipe.evaluate(program, path, options)
    assert found.trained == len({c.case for c, sample in tuned.samples if sample.times})
    (one,) = found.ops
    assert len(one.judged.verdicts) >= 2
    assert not {case.name for case in one.judged.verdicts} & {c.case.text for c, _ in tuned.samples}
    text = "\n".join(one.lines)
    assert "PPP " in text
    assert "PoIS " in text
    assert "speed-up over the best single variant: " in text
    again = tune_recipe.evaluate(program, path, options)
    assert [c.name for c in again.ops[0].judged.verdicts] == [c.name for c in one.judged.verdicts], "the same seed"


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--folds", "5"], "mean and standard deviation of 5 folds: PPP "),
        (["--hold-out", "10%"], "10% held out of the inputs that pair.db was trained on; "),
    ],
)
def test_a_file_is_judged_by_what_is_left_out(
    tuned: Tuned, program: Path, capsys: pytest.CaptureFixture[str], options: list[str], shown: str
) -> None:
    """Nothing is run, and the file stays as it is."""
    before = tuned.path.read_bytes()
    assert main(["tune", str(program), "--evaluate", "--quiet", "-o", str(tuned.path), *options]) == 0
    out = capsys.readouterr().out
    assert shown in out
    assert "trained on " in out
    assert tuned.path.read_bytes() == before


def test_more_folds_than_inputs(tuned: Tuned, program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["tune", str(program), "--evaluate", "--quiet", "-o", str(tuned.path)]
    assert main([*command, "--folds", "500"]) == 2
    assert "500 folds of " in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*command, "--folds", "1"])


@pytest.fixture
def moved(tuned: Tuned, tmp_path: Path) -> Path:
    """The file of another machine, on which `low` takes 50 times as long."""
    path = tmp_path / "moved.db"
    path.write_bytes(tuned.path.read_bytes())
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute('UPDATE run SET machine = replace(machine, \'"cpu": "\', \'"cpu": "Another \')')
        connection.execute(
            "UPDATE value SET value = 50 * value WHERE sample IN (SELECT s.id FROM sample s JOIN candidate c ON"
            " c.id = s.candidate JOIN assignment a ON a.id = c.assignment WHERE a.choices LIKE '%low%')"
        )
    return path


def test_a_file_of_another_machine_says_what_it_loses(
    moved: Path, program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["tune", str(program), "--evaluate", "--quiet", "--target", "host", "-o", str(moved), "-D", "count=16"]
    before = moved.read_bytes()
    assert main([*command, "--samples", "4"]) == 2
    assert "tuned on another machine" in capsys.readouterr().err
    assert main([*command, "--samples", "4", "--other-machine"]) == 0
    out = capsys.readouterr().out
    assert "PPP on its own machine " in out
    assert "correct it with --warm-start" in out
    assert "measurements of this machine are not stored in the file" in out
    assert moved.read_bytes() == before


def test_a_few_samples_mend_what_another_machine_was_trained_for(moved: Path, program: Path, tmp_path: Path) -> None:
    options = replace(HOST, samples=20, warm_start=str(moved), defines={"count": "16"})
    mended = tune_recipe.tune(program, tmp_path / "mended.db", options)
    (note,) = (n for n in mended.notes if "fill: learned from " in n)
    assert "the samples here alone" in note
    assert "the file's times, scaled" in note
    kept = load_tuned(tmp_path / "mended.db")
    assert len({c.case for c, _ in kept.samples}) <= 20, "what was measured elsewhere stays in its file"
    chosen, _, high = off_the_fastest(kept)
    assert chosen < high, "over there, `high` was the best for all"
    with pytest.raises(UsageError, match="--warm-start measures some inputs"):
        tune_recipe.tune(program, tmp_path / "no.db", replace(options, samples=None))
    with pytest.raises(UsageError, match="cpu was not measured"):
        tune_recipe.tune(program, tmp_path / "no.db", replace(options, objective="cpu"))


def test_times_of_another_machine_are_scaled_where_that_is_better() -> None:
    """Over there, the second answer takes five times as long; here, a few inputs were measured."""
    draw = random.Random(3)
    there, here, failing = [], [], []
    for number in range(120):
        x = draw.random()
        times = {0: 1.0, 1: 0.5 + x}
        row = TableRow((x,), times, case=Case((("n", number),)))
        there.append(replace(row, times={0: times[0], 1: 5 * times[1]}))
        if number < 12:
            here.append(row)
            failing.append(row if number < 6 else replace(row, times={1: times[1]}))
    ours, theirs, worse = (TrainingTable(("x",), tuple(rows)).with_noise(0.0) for rows in (here, there, failing))
    alone, as_it_is, scaled = losses_of("tree", ours, theirs, 0)
    assert {loss.failed for loss in (alone, as_it_is, scaled)} == {0}
    assert scaled.mean < 0.02
    assert scaled.mean < alone.mean
    assert scaled.mean < as_it_is.mean / 5
    alone, as_it_is, scaled = losses_of("tree", ours, ours, 0)
    assert alone == as_it_is == scaled, "a file with nothing else"
    assert losses_of("tree", worse, theirs, 0)[1].text.endswith(" and 6 failures"), "counted apart"
