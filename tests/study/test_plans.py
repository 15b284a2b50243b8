"""`dagc tune` and `dagc compile --launch` for a program-level `select`, on the host target: real builds, real runs."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dagc import api
from dagc.base.errors import UsageError
from dagc.base.sample import Sample
from dagc.choice.types import Case, Cell
from dagc.cli.main import main
from dagc.emit.library import emit_plans
from dagc.ir.choice import PROGRAM, Choice
from dagc.ir.plan import ChoiceCall, EmittedChoosers, Plan, Target
from dagc.ir.sym import Apply, Fn, Var
from dagc.measure.bench import run_bench
from dagc.measure.launch import launch
from dagc.recipes import tune as tune_recipe
from dagc.space import Space
from dagc.stages.artifacts import enqueued_of
from dagc.stages.options import TuneOptions
from dagc.stages.program import read
from dagc.store.tuned import load_tuned
from dagc.study.choosers import learn_plans as learn
from dagc.study.choosers import plan_table
from dagc.study.task import plan_label, program_select, program_task
from tests.emit.build import graph_of
from tests.measure.conftest import can_run
from tests.study.oracle import ROOT

TRIDIAG = ROOT / "samples" / "tridiag" / "tridiag.dag"
SIZES = "size=100,400,1600,6400"
SMALL, LARGE = (f"m{m}-chunks1-streams1-block128-depth0-overwriteFalse" for m in (4, 64))  # plans
FOUR = {"m": "4,64", "chunks": "1,2", "streams": "1", "block": "128", "depth": "0", "overwrite": "false"}
runs = pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI")
pytestmark = pytest.mark.usefixtures("unoptimised")

# k = 2 is wrong from 50 elements on, k = 3 refuses to run there, k = 4 does not compile.
FAULTY = '''program faulty
param N : i64 = 10
tune k in {1, 2, 3, 4}
setup "faulty.py" init(N)
scalar n : i32
select k with knn(n)
require k != 3 || n < 50
array y : f32[n] on host out
kernel fill(y: out f32[n], n: i32) {
  cpu {
    cpp """
      static_assert(k != 4, "four is not allowed");
      for (int i = 0; i < n; ++i) y[i] = k == 2 && i == 49 ? -1 : i;
    """
  }
}
dag { fill : cpu fill(y, n) }
verify y ~ reference() rtol 0
'''
FAULTY_PY = """import numpy as np

def init(rank, size, seed, N):
    return {"n": N}

def reference(data, **_):
    return {"y": np.arange(data["n"], dtype=np.float32)}
"""


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tridiagonal sample, tuned: four programs at four sizes."""
    path = tmp_path_factory.mktemp("tuned") / "t.db"
    told: list[str] = []
    options = TuneOptions(sizes=SIZES, target="host", cell=0.01, defines=FOUR)
    done = tune_recipe.tune(TRIDIAG, path, options, lambda n, total, what: told.append(f"{n} of {total} {what}"))
    assert not done.failures
    assert done.method == "knn", "as the program says"
    assert done.cells == 16
    assert [line.case.text for line in done.lines] == ["size=100", "size=400", "size=1600", "size=6400"]
    for line in done.lines:
        assert line.op == PROGRAM
        assert line.default == Choice.at(
            PROGRAM, [("m", 4), ("chunks", 1), ("streams", 1), ("block", 128), ("depth", 0), ("overwrite", False)]
        )
        assert line.best_value <= line.chosen_value
        assert line.why.startswith("knn, k = ")
        assert line.trained
        assert line.left_out >= 0
    (note,) = [note for note in done.notes if "knn, k = " in note and ", by n; leave one out: " in note]
    mean = sum(line.left_out for line in done.lines) / 4
    assert f"mean regret {100 * mean:.1f} %" in note
    assert re.search(r"; compared: best constant [\d.]+ %, default [\d.]+ %$", note)
    assert sum("compiled" in words for words in told) == 4
    assert re.match(r"16 of 16 m=\S+ .*at size=", told[-1])
    return path


def with_times(tuned: Path, path: Path) -> Path:
    """The same cells with times that make m = 4 best up to 400 rows, m = 64 above; a selector learned from them."""
    shutil.copy(tuned, path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE value SET value = 3e-5")
        for where, m in (("<= 400", 4), ("> 400", 64)):
            connection.execute(
                "UPDATE value SET value = 1e-5 WHERE sample IN (SELECT s.id FROM sample s JOIN candidate c"
                " ON c.id = s.candidate JOIN assignment a ON a.id = c.assignment"
                f" WHERE json_extract(point, '$.size') {where}"
                " AND json_extract(choices, '$.m') = ? AND json_extract(choices, '$.chunks') = 1)",
                (m,),
            )
    connection.close()
    done = tune_recipe.tune(
        TRIDIAG, path, TuneOptions(sizes=SIZES, target="host", cell=0.01, defines=FOUR, resume=True)
    )  # fmt: skip
    assert done.cells == 16, "nothing is measured again"
    assert [line.chosen.own["m"] for line in done.lines] == [4, 4, 64, 64]
    return path


def test_a_file_of_programs_is_judged_at_held_out_sizes(tuned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each size once, by a selector that was trained on the three others."""
    words = ["tune", str(TRIDIAG), "--evaluate", "-o", str(tuned)]
    assert main([*words, "--folds", "4"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("4-fold cross-validation of the inputs that t.db was trained on; 4 test inputs")
    assert "program:" in printed
    assert "null accuracy " in printed
    assert main([*words, "--hold-out", "25%"]) == 0
    printed = capsys.readouterr().out
    assert "; 1 test input, trained on 3 others" in printed
    assert "leave one out: " in printed


def test_a_file_of_programs_has_a_page(tuned: Path, tmp_path: Path) -> None:
    api.report(tuned, tmp_path / "t.html")
    page = (tmp_path / "t.html").read_text()
    assert "<h2>program" in page or "program" in page
    assert "size=1600" in page


@pytest.fixture(scope="module")
def compiled(tuned: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two plans and the program that chooses, with data of 900 rows for one rank."""
    folder = tmp_path_factory.mktemp("compiled")
    file = with_times(tuned, folder / "t.db")
    done = api.compile(
        TRIDIAG, folder / "out", target="host", launch=str(file), run=True, ranks=1, repeats=2,
        defines={"size": "900"},
    )  # fmt: skip
    assert done.result is not None
    assert done.launcher is not None
    assert done.launcher.plans == (SMALL, LARGE)
    assert done.launcher.chosen == f"{LARGE} for n = 900"
    assert sorted(p.name for p in (folder / "out" / "plans").iterdir()) == sorted(done.launcher.plans)
    assert f"{LARGE} for n = 900" in done.render()
    return folder / "out"


def bench(out: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([out / "bench", *words], capture_output=True, text=True, check=False)


def taken(out: Path, n: int, data: Path) -> str:
    """The plan that is taken for n rows. There are no other data: the plan's program then says so, and ends."""
    (data / "rank-0000").mkdir(parents=True, exist_ok=True)
    np.save(data / "rank-0000" / "n.npy", np.array(n, np.int64))
    said = bench(out, "--data", str(data), "--check-only", "--verbose").stderr
    return said.split()[1]


# ---- tuned, compiled, run ---------------------------------------------------------------------------------------


@pytest.mark.mpi
@runs
def test_every_cell_is_kept(tuned: Path) -> None:
    found = load_tuned(tuned)
    assert {(c.site, len(c.choice)) for c, _ in found.samples} == {(PROGRAM, 6)}
    assert all(sample.times and not sample.failure for c, sample in found.samples)
    assert found.program_chooser is not None
    assert found.program_chooser.names == ("m", "chunks", "streams", "block", "depth", "overwrite")
    assert found.facts.program is not None
    assert found.facts.program["params"] == {"real": "f64"}


@pytest.mark.mpi
@runs
def test_the_plans_are_shown(tuned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = [f"n = {n}" for n in (100, 400, 1600, 6400)]
    for format in ("text", "latex", "dot", "svg"):
        assert main(["tune", str(TRIDIAG), "--show", "program", "-o", str(tuned), "--format", format]) == 0
        text = capsys.readouterr().out
        assert all(size in text for size in sizes), format
        assert "knn, k = " in text
    assert main(["tune", str(TRIDIAG), "--show", "tridiag", "-o", str(tuned), "--format", "c"]) == 0
    assert "dagc_select_program(const double* x, double* sure)" in capsys.readouterr().out
    assert main(["tune", str(TRIDIAG), "--show", "stage1", "-o", str(tuned)]) == 2
    assert "stage1 was not tuned" in capsys.readouterr().err


def test_the_program_chooses_as_python_does(compiled: Path, tmp_path: Path) -> None:
    kept = load_tuned(compiled.parent / "t.db").program_chooser
    assert kept is not None
    selector, labels = kept.selector, [plan_label(s) for s in kept.choices]
    sizes = (1, 2, 99, 100, 399, 600, 799, 800, 801, 1600, 10**6, 2**40)
    chosen = {n: taken(compiled, n, tmp_path / f"d{n}") for n in sizes}
    assert chosen == {n: labels[selector.choose((n,))] for n in sizes}
    assert set(chosen.values()) == set(labels)


@pytest.mark.mpi
@runs
def test_sizes_far_from_the_measured_ones_are_reported(
    compiled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """100 to 6400 rows were measured: more than 4 times outside, at compile time and when the program starts."""
    for n, beyond in ((25, ""), (24, "4.17"), (6400 * 4, ""), (10**6, "156")):
        data = tmp_path / str(n)
        taken(compiled, n, data)
        said = bench(compiled, "--data", str(data), "--check-only").stderr
        line = f"warning: the sizes are {beyond} times outside of the measured ones (n 100 to 6400)"
        assert said.startswith(line) == bool(beyond), said
        assert ("warning" in said) == bool(beyond)
    words = ["compile", str(TRIDIAG), "--target", "host", "--launch", str(compiled.parent / "t.db"), "--no-build"]
    for n, beyond in (("6400", ""), ("1000000", "156")):
        assert main([*words, "-o", str(tmp_path / f"out{n}"), "-D", f"size={n}"]) == 0
        line = f"dagc: warning: size = {n} is {beyond} times outside the measured sizes (size 100 to 6400)"
        assert capsys.readouterr().err.startswith(line) == bool(beyond)


@pytest.mark.mpi
@runs
def test_the_plan_gets_the_arguments(compiled: Path) -> None:
    data = str(compiled / "data-1")
    done = bench(compiled, f"--data={data}", "--repeats", "3", "--seconds", "0.0001", "--json", "-", "--verbose")
    assert done.returncode == 0
    assert done.stderr.startswith(f"plan {LARGE} (knn, k = 1, from n, 100 % sure) for n = 900")
    assert '"program": "tridiag"' in done.stdout
    assert "--verbose" in bench(compiled, "--help").stdout
    assert bench(compiled).returncode == bench(compiled, "--data", data, "--repeats", "no").returncode == 2


@pytest.mark.mpi
@runs
def test_two_ranks(compiled: Path, tmp_path: Path) -> None:
    """Each chooses by the size of rank 0."""
    api.run_setup(TRIDIAG, 2, tmp_path / "data", 1, {"size": 130})
    other = tmp_path / "data" / "rank-0001" / "n.npy"
    assert np.load(other) == 130
    assert run_bench(compiled / "bench", tmp_path / "data", 2, 1e-4, 2).ranks == 2
    said = launch([compiled / "bench", "--data", tmp_path / "data", "--check-only", "--verbose"], 2)
    assert said.returncode == 0
    assert said.stderr.count(f"plan {SMALL}") == 1, "the first rank speaks"


@pytest.mark.mpi
@runs
def test_what_the_program_refuses(compiled: Path, tmp_path: Path) -> None:
    nowhere = bench(compiled, "--data", str(tmp_path / "nowhere"))
    assert nowhere.returncode == 2
    assert "nowhere/rank-0000/n.npy: cannot open" in nowhere.stderr
    (tmp_path / "rank-0000").mkdir()
    for wrong in (np.array(5, np.int32), np.array([5, 6]), np.array(5.0)):
        np.save(tmp_path / "rank-0000" / "n.npy", wrong)
        assert bench(compiled, "--data", str(tmp_path)).returncode == 2
    for text in (b"", b"\x93NUMPY\x01\x00v\x00", b"no array"):
        (tmp_path / "rank-0000" / "n.npy").write_bytes(text)
        done = bench(compiled, "--data", str(tmp_path))
        assert done.returncode == 2
        assert "not a single number of type <i8" in done.stderr
    moved = shutil.copytree(compiled, tmp_path / "moved")
    shutil.rmtree(moved / "plans" / LARGE)
    done = bench(moved, "--data", str(compiled / "data-1"))
    assert done.returncode == 2
    assert f"plans/{LARGE}/bench: the plan's program cannot be started" in done.stderr


@pytest.mark.mpi
@runs
def test_what_compiling_refuses(tuned: Path, tmp_path: Path) -> None:
    def refused(words: str, path: Path = TRIDIAG, **given: object) -> None:
        with pytest.raises(UsageError, match=words):
            api.compile(path, tmp_path / "out", launch=str(tuned), build=False, **{"target": "host", **given})  # type: ignore[arg-type]

    refused("chooses m when the program starts", defines={"m": "8"})
    refused("tuned with real=f64, this is real=f32", defines={"real": "f32"})
    refused("tuned with host_memory=pinned, this is host_memory=pageable", defines={"host_memory": "pageable"})
    refused("every plan .* has its own orders", traversal="3")
    refused("a library of several plans reports what they chose", form="library", features="async")
    other = tmp_path / "tridiag.dag"
    other.write_text(TRIDIAG.read_text().replace("1 / row.b", "1.0 / row.b"))
    refused("tuned for another text", path=other)
    elsewhere = shutil.copy(tuned, tmp_path / "cuda.db")
    with sqlite3.connect(elsewhere) as connection:
        connection.execute("UPDATE fact SET value = '\"cuda\"' WHERE key = 'target'")
        connection.execute("UPDATE fact SET value = '\"sm_80\"' WHERE key = 'arch'")
    connection.close()
    with pytest.raises(UsageError, match="tuned for sm_80, this is compiled for sm_90"):
        api.compile(TRIDIAG, tmp_path / "out", target="cuda", arch="sm_90", launch=str(elsewhere), build=False)


@pytest.mark.mpi
@runs
def test_sources_for_a_gpu(tuned: Path, tmp_path: Path) -> None:
    """As if the times had been measured on one: those of the host target are refused."""
    with pytest.raises(UsageError, match="measured on the host target"):
        api.compile(TRIDIAG, tmp_path / "out", target="cuda", arch="sm_90", launch=str(tuned), build=False)
    measured_there = tmp_path / "gpu.db"
    shutil.copy(tuned, measured_there)
    with sqlite3.connect(measured_there) as connection:
        connection.execute("UPDATE fact SET value = '\"cuda\"' WHERE key = 'target'")
        connection.execute("UPDATE fact SET value = '\"sm_90\"' WHERE key = 'arch'")
    connection.close()
    done = api.compile(TRIDIAG, tmp_path / "out", target="cuda", arch="sm_90", launch=str(measured_there), build=False)
    assert done.launcher is not None
    assert done.files == ("CMakeLists.txt", "bench.cpp", "chooser.h", "plans/")
    assert {p.name for p in (tmp_path / "out").glob("plans/*/bench.cu")} == {"bench.cu"}


# ---- as a library ----------------------------------------------------------------------------------------------

APPLICATION = """
import os, sys
import numpy as np
from mpi4py import MPI
import tri

comm = MPI.COMM_WORLD

def system(n):
    lines = np.random.default_rng(n).random((n, 4))
    lines[:, 1] += 3
    a, b, c, d = lines.T
    return {"n": n, "lines": lines.ravel(), "x": np.zeros(n)}, np.diag(b) + np.diag(a[1:], -1) + np.diag(c[:-1], 1), d

def say(what):
    os.write(1, f"{comm.rank} {what}\\n".encode())  # whole

def solved(given, matrix, right):
    say(f"{np.allclose(matrix @ given['x'], right)} {instance.choices}")

first = system(100)
instance = tri.Instance(comm, **first[0])
instance.run(3)
solved(*first)
for n in (1600, 100 if comm.rank else 1600, 300):  # the second: one vote each, and the lowest answer wins
    given = system(n)
    instance.rebind(**given[0])
    instance.run()
    solved(*given)
given[0]["x"] = np.zeros(3 if comm.rank == 1 else 300)
for call in (lambda: instance.rebind(**given[0]), instance.run):
    try:
        call()
    except tri.Error as error:
        say(f"{error.code} {error}")
instance.close()
"""


@pytest.mark.mpi
@runs
def test_a_library_of_plans(compiled: Path, tmp_path: Path) -> None:
    """From a wheel: one plan by the sizes at create and rebind, the same on both ranks; errors as of one plan."""
    done = api.compile(
        TRIDIAG, tmp_path / "out", target="host", launch=str(compiled.parent / "t.db"), form="wheel", name="tri",
        defines={"size": "900"},
    )  # fmt: skip
    assert done.library == "tri"
    assert done.binary is not None
    assert f"use        pip install {done.binary}, then import tri\n" in done.render()
    site = tmp_path / "site"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "-t", site, done.binary], check=True)
    (tmp_path / "application.py").write_text(APPLICATION)
    said = launch(
        [sys.executable, str(tmp_path / "application.py")], 2, env={"PYTHONPATH": str(site)}, timeout=300
    ).check().stdout  # fmt: skip
    small, large = f"plan: {SMALL}", f"plan: {LARGE}"
    wanted = [f"True {small} (chosen 1)", f"True {large} (chosen 2)", f"True {small} (chosen 3)"]
    wanted += [f"True {small} (chosen 4)", "2 rank 1: array `x` has 3 elements, needs 300, (300, 1)"]
    wanted.append("2 the instance has no arrays, since tri_rebind failed")
    for rank in "01":
        assert [line[2:] for line in said.splitlines() if line[0] == rank] == wanted


@pytest.mark.mpi
@runs
def test_requires_of_plans_in_a_library() -> None:
    """A plan is not a candidate where a `require` of it does not hold, on any rank."""
    text = FAULTY.replace("k != 4,", "k < 9,").replace("on host out", "on host out\nscalar step : f64")
    given = []
    for k in ("1", "3"):
        graph = graph_of(text, k=k)
        plan = Plan(graph, Space(graph).first(), Target.HOST)
        given.append((f"k{k}", plan, enqueued_of(plan)))
    features = (Apply(Fn.ADD, (Var("n"), Var("step"))),)
    chooser = EmittedChoosers("", (ChoiceCall("dagc_choose", "dagc_table", "plan", features, ("k",)),))
    files = emit_plans(given, "mine", chooser, ["sum"])
    source = files["src/mine.cpp"]
    assert 'case 1:\n          if (!(false || n < 50)) return "require false || n < 50";' in source
    assert "const double step = static_cast<double>(sizes.step);" in source
    assert "case 0:" not in source
    assert "There is no mine_enqueue: op `fill` runs on the host" in files["include/mine.h"]
    other = graph_of(text.replace("y : f32[n] on host out", "y : f32[n] on host inout"), k="3")
    plan = Plan(other, Space(other).first(), Target.HOST)
    with pytest.raises(UsageError, match="plans k1 and other have different arrays, values or communicators"):
        emit_plans([given[0], ("other", plan, enqueued_of(plan))], "mine", chooser, ["sum"])


# ---- settings that fail ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path is in what is emitted: at one path, each setting is compiled once."""
    return tmp_path_factory.mktemp("faulty")


@pytest.fixture
def faulty(place: Path) -> Path:
    (place / "faulty.dag").write_text(FAULTY)
    (place / "faulty.py").write_text(FAULTY_PY)
    return place / "faulty.dag"


@pytest.mark.mpi
@runs
def test_a_feature_that_is_not_finite_is_named_and_not_kept(place: Path, tmp_path: Path) -> None:
    text = FAULTY.replace("select k with knn(n)", "feature odd = 1 / (n - 40)\nselect k with knn(odd)")
    (place / "odd.dag").write_text(text.replace("{1, 2, 3, 4}", "{1, 2}"))
    (place / "faulty.py").write_text(FAULTY_PY)
    options = TuneOptions(sizes="N=10,20,30,40", target="host", cell=0.005)
    done = tune_recipe.tune(place / "odd.dag", tmp_path / "t.db", options)
    assert list(done.failures) == ["N=40: skipped: `odd` is not a finite number there"]
    kept = load_tuned(tmp_path / "t.db").program_chooser
    assert kept is not None
    assert kept.data == ("odd",)


@pytest.mark.mpi
@runs
def test_settings_that_fail_are_told_and_not_chosen(faulty: Path, tmp_path: Path) -> None:
    """In two steps: a budget, and the rest with `resume`."""
    options = TuneOptions(sizes="N=10,40,60", target="host", cell=0.01, budget=5)
    part = tune_recipe.tune(faulty, tmp_path / "t.db", options)
    assert part.cells == 5
    assert any("no chooser yet: measured in full: 1 size of 3" in note for note in part.notes)
    with pytest.raises(UsageError, match="tuning did not end"):
        api.compile(faulty, tmp_path / "out", target="host", launch=str(tmp_path / "t.db"))
    rest = TuneOptions(sizes="N=10,40,60", target="host", cell=0.01, resume=True)
    done = tune_recipe.tune(faulty, tmp_path / "t.db", rest)
    assert done.cells == 9, "what did not compile was not measured"
    failures = {
        (c.choice["k"], c.case.params[0][1]): sample.failure for c, sample in load_tuned(tmp_path / "t.db").samples
    }
    assert {key for key, failure in failures.items() if failure} == {(2, 60), (3, 60)}
    assert "is wrong" in failures[2, 60]
    assert any(
        "k=4" in f and "does not compile: " in f and "faulty.dag:1" in f and "four is not allowed" in f
        for f in done.failures
    )
    assert len(done.failures) == 3, "those of the first run are reported again"
    assert sum("(in an earlier run)" in failure for failure in done.failures) == len(part.failures) - 1 == 2
    assert all(line.chosen.own["k"] == 1 for line in done.lines)
    assert any("leave one out: takes 4 sizes or more" in note for note in done.notes)


@pytest.mark.mpi
@runs
def test_a_size_that_the_set_up_does_not_take_is_left_out(faulty: Path, tmp_path: Path) -> None:
    python = faulty.with_suffix(".py")
    python.write_text(python.read_text().replace("    return", "    assert N < 90\n    return", 1))
    options = TuneOptions(sizes="N=10,20,95", target="host", cell=0.001, method="exhaustive", defines={"k": "1,3"})
    done = tune_recipe.tune(faulty, tmp_path / "t.db", options)
    assert [line.case.text for line in done.lines] == ["N=10", "N=20"]
    assert any("N=95: skipped:" in failure and "AssertionError" in failure for failure in done.failures)


@pytest.mark.mpi
@runs
@pytest.mark.thorough
def test_another_objective_of_drawn_sizes(faulty: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As for kernels: what is learned, printed and judged is the objective, and batches are drawn."""
    text = faulty.read_text().replace("N : i64 = 10", "N : i64 = 10 over 5..60")
    faulty.write_text(
        text.replace("k == 2 && i == 49 ? -1 : i", "i * (k == 1 ? 1 : 1 - 0x1p-8f)").replace("rtol 0", "rtol 0.1")
    )
    words = ["tune", str(faulty), "--target", "host", "--cell", "0.001", "-o", str(tmp_path / "t.db"), "-D", "k=1,3"]
    drawn = ["--active", "--samples", "4", "--initial", "3", "--batch", "1"]
    assert main([*words, *drawn, "--objective", "error"]) == 0
    out = capsys.readouterr().out
    assert "default error" in out
    assert "active: 4 samples: 3 at random, then 1 batch" in out
    tuned = load_tuned(tmp_path / "t.db")
    assert {(c.choice["k"], dict(sample.metrics)["error"]) for c, sample in tuned.samples if sample.times} == {
        (1, 2**-23),
        (3, 2**-8),
    }
    assert tuned.program_chooser is not None
    assert tuned.program_chooser.choices == (Choice.at(PROGRAM, [("k", 1)]),)
    assert main([*words, "--evaluate", "--samples", "2", "--seed", "7"]) == 0
    tuned = load_tuned(tmp_path / "t.db")
    samples = [sample for cell, sample in tuned.samples if cell.case in tuned.facts.tests and sample.times]
    assert samples
    assert all("error" in sample.metrics for sample in samples)


BOTH = """program both
param N : i64 = 100
tune k in {1, 2}
setup "faulty.py" init(N)
scalar n : i32
select k with exhaustive(n + 1)
array y : f32[n] out
kernel fill(y: out f32[n], n: i32) {
  tune bx in {32, 64}
  gpu {
    launch grid(ceil(n / (bx * k))) block(bx)
    cuda \"\"\"
      for (int i = k * (blockIdx.x * bx + threadIdx.x), j = 0; j < k && i + j < n; ++j) y[i + j] = i + j;
    \"\"\"
  }
}
dag { fill : gpu fill(y, n) }
verify y ~ reference() rtol 0
"""


@pytest.mark.mpi
@runs
def test_kernels_tuned_into_the_same_file(faulty: Path, tmp_path: Path) -> None:
    faulty.write_text(BOTH)
    options = TuneOptions(sizes="N=70", target="host", cell=0.01)
    assert tune_recipe.tune(faulty, tmp_path / "t.db", options).method == "exhaustive"
    kernel = TuneOptions(sizes="N=70", target="host", cell=0.01, kernels=("fill",), top=2, resume=True)
    assert {line.op for line in tune_recipe.tune(faulty, tmp_path / "t.db", kernel).lines} == {"fill"}
    assert set(load_tuned(tmp_path / "t.db").choosers) == {PROGRAM, "fill"}
    done = api.compile(faulty, tmp_path / "out", target="host", launch=str(tmp_path / "t.db"), build=False)
    assert done.launcher is not None
    (label,) = done.launcher.plans
    assert "dagc_choice dagc_choose_program(const double* x)" in (tmp_path / "out" / "chooser.h").read_text()
    assert "dagc_choose_fill(" in (tmp_path / "out" / "plans" / label / "chooser.h").read_text()


def test_what_tuning_refuses(faulty: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(*words: str) -> str:
        assert main(["tune", str(faulty), "--target", "host", "-o", str(tmp_path / "t.db"), *words]) == 2
        assert not (tmp_path / "t.db").exists()
        return capsys.readouterr().err

    assert "knn learns from 3 sizes or more, not from 2" in refused("--sizes", "N=10,20")
    assert "no method volume for whole programs" in refused("--sizes", "N=10,20,30", "--method", "volume")
    assert "`k` cannot be 7" in refused("-D", "k=1,7")
    assert "-D N=1,7: give one value" in refused("-D", "N=1,7")
    text = faulty.read_text()
    uses = text.replace("kernel fill", "let twice = 2 * N\nkernel fill").replace("i == 49", "i == 49 + 0 * twice")
    faulty.write_text(uses)
    assert "compiles to different code, so one program cannot serve all inputs" in refused("--sizes", "N=20,30,40")
    faulty.write_text(text.replace("knn(n)", "knn(n + rank)"))
    assert "uses `rank`, which is not a numeric scalar" in refused()
    faulty.write_text(text.replace("knn(n)", "oracle(n)"))
    assert "unknown method `oracle`" in refused("--sizes", "N=20,30,40")
    faulty.write_text(text.replace("knn(n)", "knn()"))
    assert "has no data" in refused()
    faulty.write_text(text.replace("with knn(n)", "with knn(n)\ntune b in {1, 2}\nselect b with knn(n)"))
    assert "more than one `select`" in refused()


# ---- what is learned from --------------------------------------------------------------------------------------


def test_program_select() -> None:
    found = program_select(api.load(TRIDIAG))
    assert found is not None
    assert (found.names, found.method, found.args) == (
        ("m", "chunks", "streams", "block", "depth", "overwrite"),
        "knn",
        (Var("n"),),
    )
    assert program_select(api.load(ROOT / "samples" / "polybench" / "syrk.dag")) is None


def test_labels_of_plans() -> None:
    assert (
        plan_label(Choice.at(PROGRAM, [("m", 8), ("threads[x]", 4), ("transport", "mpi_host")]))
        == "m8-threads_x_4-transportmpi_host"
    )  # type: ignore[arg-type]


def test_what_cannot_be_learned_from_is_left_out(tmp_path: Path) -> None:
    a, b, c = (Choice.at(PROGRAM, [("k", k)]) for k in (1, 2, 3))
    cases = [Case.of({"N": n}) for n in (30, 10, 20, 40)]
    data = {p: (p.params[0][1],) for p in cases}
    samples = {Cell(PROGRAM, p, s): Sample.of((1.0, 1.1, 1.2)) for p in cases[:2] for s in (a, b)}
    samples |= {Cell(PROGRAM, cases[0], c): Sample(failure="wrong"), Cell(PROGRAM, cases[1], c): Sample.of((0.5,))}
    samples |= {Cell(PROGRAM, cases[2], a): Sample.of((1.0,))}
    samples |= {Cell(PROGRAM, cases[3], s): Sample(failure="run failed: no memory") for s in (a, b, c)}
    (tmp_path / "a.dag").write_text(FAULTY.replace("{1, 2, 3, 4}", "{1, 2, 3}").replace("k != 3", "k > 0"))
    task = program_task(read(tmp_path / "a.dag"), TuneOptions(target="host"))
    assert task.plans == (a, b, c)
    found, choices, notes = plan_table(task, samples, data)
    assert choices == (a, b), "3 is wrong somewhere"
    assert found.features == [(10,), (30,)]
    assert found.times == [{0: 1.1, 1: 1.1}, {0: 1.1, 1: 1.1}]
    assert [len(row.intervals) for row in found.rows] == [2, 2]
    assert tuple(notes) == (
        "N=20: 1 of 3 settings tried, skipped until --resume completes it",
        "N=40: no setting runs, skipped",
    )


def test_a_plan_that_loses_much_where_it_is_wrong_is_not_chosen(tmp_path: Path) -> None:
    """By turns that the size does not tell, k = 2 is a little faster than k = 1, or 20 times slower, or fails."""
    (tmp_path / "a.dag").write_text(FAULTY.replace("{1, 2, 3, 4}", "{1, 2}").replace("k != 3", "k > 0"))
    (tmp_path / "faulty.py").write_text(FAULTY_PY)
    task = program_task(read(tmp_path / "a.dag"), TuneOptions(target="host"))
    one, two = (Choice.at(PROGRAM, [("k", 1)]), Choice.at(PROGRAM, [("k", 2)]))
    cases = [Case.of({"input": f"made(n = {n})"}) for n in range(100, 136)]
    samples = {Cell(PROGRAM, p, one): Sample.of((1.0,)) for p in cases}
    for i, p in enumerate(cases):
        failed = Sample(failure="no end")
        samples[Cell(PROGRAM, p, two)] = failed if i % 6 == 0 else Sample.of((0.9 if i % 3 else 20,))
    found = learn(task, "forest", samples, {p: (float(i),) for i, p in enumerate(cases)})
    assert found.selector is not None
    assert found.choices == (one, two)
    chosen = [found.choices[found.selector.choose([n])] for n in np.arange(0.5, 35, 3)]
    assert chosen.count(one) >= 11, "by labels alone, two thirds of the inputs say k = 2"
