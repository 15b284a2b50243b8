"""`dagc tune` with learned methods on the host target: measured, trained, compiled into the program, run."""

from __future__ import annotations

import re
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from dagc import api
from dagc.base.errors import UsageError
from dagc.cli.main import main
from dagc.recipes import tune as tune_recipe
from dagc.stages.options import TuneOptions
from dagc.store.tuned import load_tuned
from dagc.study.shown import show
from tests.tiers import representatives

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("unoptimised")]

PROGRAM = '''program filled
param N : i64 = 100 over {100, 300, 1000, 3000, 9000}
param K : i64 = 2
setup "filled.py" init(N, K)
scalar n, k : i32
array y : f32[n] out
kernel fill(y: out f32[size], size: i32, k: i32) {
  tune bx in {32, 64, 128}
  SELECT
  gpu {
    launch grid(ceil(size / bx)) block(bx)
    cuda """
      int i = blockIdx.x * bx + threadIdx.x;
      if (i < size) y[i] = k * i;
    """
  }
}
dag { fill : gpu fill(y, n, k) }
verify y ~ reference() rtol 0
'''
SETUP = """import numpy as np

def init(rank, size, seed, N, K):
    return {"n": N, "k": K}

def reference(data, **_):
    return {"y": (data["k"] * np.arange(data["n"])).astype(np.float32)}
"""


def written(folder: Path, select: str = "") -> Path:
    (folder / "filled.py").write_text(SETUP)
    path = folder / "filled.dag"
    path.write_text(PROGRAM.replace("SELECT", select))
    return path


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that asks for no method; in one place, for what is compiled of it to be the same."""
    return written(tmp_path_factory.mktemp("plain"))


@pytest.mark.parametrize("method", representatives(["knn", "tree"], "knn"))
def test_tune_with_a_learned_method_and_compile(method: str, plain: Path, tmp_path: Path) -> None:
    path, tuned = plain, tmp_path / "tuned.db"
    done = tune_recipe.tune(path, tuned, TuneOptions(method=method, target="host", cell=0.005))
    assert not done.failures
    assert (done.method, done.cells) == (method, 15)
    assert all(line.chosen == line.best for line in done.lines), "at a measured size the best there"
    assert all(line.why.startswith(method) for line in done.lines)
    (note,) = [n for n in done.notes if "leave one out" in n]
    assert note.startswith(f"fill: {method}")
    assert ", by n; leave one out: " in note, "of the scalars that differ, those that the kernel uses"
    assert " of 5 sizes within " in note
    assert re.search(r"; compared: best constant [\d.]+ %, default [\d.]+ %(, model [\d.]+ %)?$", note)
    mean = sum(line.left_out for line in done.lines) / 5
    assert f"mean regret {100 * mean:.1f} %" in note, "the table's figures are those of the note"
    assert f"method {method}, for time on the CPU (target host)\n" in show(path, "fill", tuned=tuned)
    kept = load_tuned(tuned).kernel_choosers["fill"]
    assert kept.selector is not None
    assert kept.selector.method == kept.method == method
    assert kept.selector.data == ("n",)
    compiled = api.compile(
        path, tmp_path / "out", target="host", defines={"N": "777"}, launch=str(tuned), run=True, ranks=1, repeats=2
    )
    assert compiled.result is not None
    assert (
        "static inline int dagc_select_fill(const double* x, double* sure)"
        in (tmp_path / "out" / "chooser.h").read_text()
    )


def test_the_program_says_which_method_and_by_what(tmp_path: Path) -> None:
    path, tuned = written(tmp_path, "select bx with tree(size * k)"), tmp_path / "tuned.db"
    assert not [d for d in api.check(path).diagnostics if d.code == "not-used-yet"]
    done = tune_recipe.tune(path, tuned, TuneOptions(target="host", cell=0.005))
    assert (done.method, done.cells) == ("tree", 15)
    selector = load_tuned(tuned).kernel_choosers["fill"].selector
    assert selector is not None
    assert selector.data == ("n * k",)
    (tmp_path / "b").mkdir()
    given = tune_recipe.tune(path, tmp_path / "b.db", TuneOptions(method="volume", target="host", cell=0.005, top=1))
    assert (given.method, load_tuned(tmp_path / "b.db").kernel_choosers["fill"].selector) == ("volume", None)


@pytest.mark.parametrize(
    ("select", "noted"),
    [("bx with rational(size)", ""), ("bx with volume(size)", ""),
     ("bx with forest(size)", ""), ("bx with dp(size)", "not-used-yet"),
     ("device with tree(size)", "one-device"), ("variant with tree(size)", "")],
)  # fmt: skip
def test_a_note_where_nothing_acts_on_it(select: str, noted: str, tmp_path: Path) -> None:
    found = api.check(written(tmp_path, f"select {select}")).diagnostics
    assert [d.code for d in found] == [noted] * bool(noted)


def test_rational_is_the_model_and_measures_its_best(tmp_path: Path) -> None:
    path = written(tmp_path, "select bx with rational(size)")
    done = tune_recipe.tune(path, tmp_path / "t.db", TuneOptions(target="cuda", top=0, forms="off"))
    assert (done.method, done.cells) == ("volume", 0)


def test_too_few_sizes_are_a_note(plain: Path, tmp_path: Path) -> None:
    path, tuned = plain, tmp_path / "tuned.db"
    options = TuneOptions(method="knn", sizes="N=100,900", target="host", cell=0.005)
    done = tune_recipe.tune(path, tuned, options)
    assert "fill: no knn: 2 different sizes measured in full, 3 are needed" in "\n".join(done.notes)
    assert all(line.why == "measured" for line in done.lines)
    assert load_tuned(tuned).kernel_choosers["fill"].selector is None
    api.compile(path, tmp_path / "out", target="host", launch=str(tuned), build=False)
    text = (tmp_path / "out" / "chooser.h").read_text()
    assert "dagc_measured_fill[2][1]" in text
    assert "dagc_time_fill" not in text


def test_where_nothing_can_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("nvidia-smi"):
        pytest.skip("a GPU is here")
    asked = written(tmp_path, "select bx with knn(size)")
    done = tune_recipe.tune(asked, tmp_path / "t.db", TuneOptions(target="cuda", sizes="N=1000", forms="off"))
    assert done.method == "volume"
    assert "method volume, 1 setting measured" in replace(done, cells=1).render()
    assert any("the program requests knn, which needs measurements" in note for note in done.notes)
    with pytest.raises(UsageError, match="method forest measures"):
        tune_recipe.tune(asked, tmp_path / "u.db", TuneOptions(target="cuda", method="forest"))


def test_the_command_prints_it(plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = plain
    arguments = ["--method", "tree", "--target", "host", "--cell", "0.005", "-o", str(tmp_path / "t.db")]
    assert main(["tune", str(path), *arguments]) == 0
    said = capsys.readouterr().out
    assert "method tree, 15 settings measured" in said
    assert "leave one out: " in said
    titles = re.split(r"  +", said.splitlines()[1])
    assert titles[-3:] == ["regret, in training", "left out", "limited by"]
    found = (re.split(r"  +", line) for line in said.splitlines() if line.startswith("fill  "))
    rows = [dict(zip(titles, words, strict=True)) for words in found]
    assert [row["regret, in training"] for row in rows] == ["0.0%"] * 5, "the best of each size was seen"
    assert all(re.fullmatch(r"[\d.]+%", row["left out"]) for row in rows)
    assert all(0 < float(row["at least us"]) <= float(row["chosen us"]) for row in rows)
    assert all(0 < float(row["reached"].removesuffix("%")) <= 100 for row in rows)
    assert re.search(r"^limit      fill at N=\d+ .* of at least ", said, re.MULTILINE)
    assert re.search(r"^ {11}program at N=\d+ at least .*: (1 launch\b|\d+ launches that wait)", said, re.MULTILINE)
    assert main(["tune", str(path), "--show", "fill", "--format", "c", "-o", str(tmp_path / "t.db")]) == 0
    assert "static inline int dagc_select_fill(const double* x, double* sure) {" in capsys.readouterr().out
    assert main(["tune", str(path), "--show", "fill", "--format", "c", "-o", str(tmp_path / "absent.db")]) == 2
    assert main(["tune", str(path), "--method", "oracle", "--target", "host"]) == 2
    with pytest.raises(SystemExit) as end:
        main(["tune", "--method", "help"])
    assert end.value.code == 0
    assert {"knn", "tree", "forest"} <= {line.split()[0] for line in capsys.readouterr().out.splitlines()}


def test_a_file_tuned_at_sizes_is_judged_and_has_a_page(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its features are in the file; one of an earlier version gets them from a run that measures nothing."""
    tuned = tmp_path / "t.db"
    options = TuneOptions(method="tree", target="host", cell=0.005)
    tune_recipe.tune(plain, tuned, options)
    judge = ["tune", str(plain), "--evaluate", "-o", str(tuned)]
    assert main([*judge, "--folds", "5"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("5-fold cross-validation of the inputs that t.db was trained on; 5 test inputs")
    assert re.search(r"null accuracy [\d.]+ %: always what is best most often in training", printed)
    assert main([*judge, "--hold-out", "25%"]) == 0
    assert "leave one out: " in capsys.readouterr().out
    api.report(tuned, tmp_path / "t.html")
    assert "Tree" in (tmp_path / "t.html").read_text()
    with closing(sqlite3.connect(tuned)) as file, file:
        file.execute("DELETE FROM fact WHERE key = 'sizes'")
    assert main([*judge, "--folds", "5"]) == 2
    assert "tune with --resume and the same sizes" in capsys.readouterr().err
    samples = load_tuned(tuned).samples
    tune_recipe.tune(plain, tuned, replace(options, resume=True))
    assert load_tuned(tuned).samples == samples
    assert main([*judge, "--folds", "5"]) == 0


def test_sizes_of_a_resumed_file_count_for_the_chooser(plain: Path, tmp_path: Path) -> None:
    """At another size nothing is measured anew, and what was known is kept."""
    tuned = tmp_path / "tuned.db"
    options = TuneOptions(method="tree", sizes="N=100,300,900", target="host", cell=0.005)
    tune_recipe.tune(plain, tuned, options)
    again = tune_recipe.tune(plain, tuned, replace(options, sizes="N=2000", resume=True))
    assert again.cells == 12
    assert not again.failures
    kept = load_tuned(tuned).kernel_choosers["fill"]
    assert kept.selector is not None
    assert sorted(a.data[kept.data.index("n")] for a in kept.anchors) == [100, 300, 900, 2000]
    assert {line.case.text for line in again.lines} == {f"N={n}" for n in (100, 300, 900, 2000)}


def test_what_a_learner_of_an_earlier_version_was_trained_on_is_trained_on_again(plain: Path, tmp_path: Path) -> None:
    tuned = tmp_path / "tuned.db"
    options = TuneOptions(method="tree", sizes="N=100,300,900", target="host", cell=0.005)
    tune_recipe.tune(plain, tuned, options)
    trained = load_tuned(tuned)
    with closing(sqlite3.connect(tuned)) as file, file:
        file.execute("""UPDATE chooser SET chooser = replace(chooser, '"method": "tree"', '"method": "boost"')""")
    kept = load_tuned(tuned)
    assert kept.samples == trained.samples
    with pytest.raises(UsageError, match="trained by `boost`, a learner that dagc no longer has") as refused:
        api.compile(plain, tmp_path / "out", target="host", launch=str(tuned), build=False)
    assert refused.value.exit_code == 2
    assert "--resume -o TUNED --method forest" in refused.value.render()
    again = tune_recipe.tune(plain, tuned, replace(options, resume=True))
    assert again.cells == len(trained.samples)
    assert load_tuned(tuned).choosers == trained.choosers
