"""What fails in an exploration: it is told, kept in the file, and the search goes on where it can. Real ranks."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dagc.base.errors import BuildFailed, DagcError, RunFailed, WrongResult
from dagc.cli.main import main
from dagc.ir.choice import Choice
from dagc.recipes.explore import explore
from dagc.stages.options import ExploreOptions
from dagc.store.records import load
from dagc.study.domain import keep_excluded
from dagc.study.outcome import Explored
from tests.measure.conftest import can_run
from tests.tiers import representatives

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI"),
    pytest.mark.usefixtures("unoptimised"),
]

# In mode `late` rank 1 dies where `other` was done before `twice`, which is so in half of all orders.
PROGRAM = '''
program failing
param rows : i64 = 100
setup "failing.py" numbers(rows)
enum modes {good, unbuilt, wrong, dead, late}
array x : f64[rows] on host in
array y, z : f64[rows] on host out
cpp """
  #include <csignal>
  #include <cstdlib>
  #include <string>
  inline long count(const char* op, long more) {  // where no analysis of the text sees it
    const char* known = std::getenv(op);
    long now = (known == nullptr ? 0 : std::atol(known)) + more;
    setenv(op, std::to_string(now).c_str(), 1);
    return now;
  }
  inline bool second() {
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank == 1;
  }
"""
kernel twice(y: out f64[n], x: in f64[n], n: i64) {
  tune mode in {0, 1, 2, 3, 4}
  cpu {
    cpp """
      static_assert(mode != unbuilt, "not to be built");
      if (mode == dead && second()) std::raise(SIGFPE);
      if (mode == late && second() && count("others", 0) > count("twices", 0)) y[1L << 40] = 1;
      count("twices", 1);
      for (long i = 0; i < n; ++i) y[i] = 2 * x[i];
      if (mode == wrong && second()) y[7] = -1;
    """
  }
}
kernel other(z: out f64[n], x: in f64[n], n: i64) {
  cpu {
    cpp """
      count("others", 1);
      for (long i = 0; i < n; ++i) z[i] = x[i] + 1;
    """
  }
}
dag {
  twice : cpu twice(y, x, rows)
  other : cpu other(z, x, rows)
}
verify y ~ expected() rtol 1e-12
'''
SETUP = """
import numpy as np

def numbers(rank, size, seed, rows):
    return {"x": np.arange(1.0, rows + 1)}

def expected(data, *, rank, size, seed, rows):
    return {"y": 2.0 * data["x"]}
"""
QUICK = ExploreOptions(
    ranks=2, target="host", seconds=5e-4, confirm=2, repeats=2, transport="mpi_host", quiet=True, budget=20,
    trace=False, only="orders",
)  # fmt: skip


def write(folder: Path) -> Path:
    path = folder / "failing.dag"
    path.write_text(PROGRAM)
    (folder / "failing.py").write_text(SETUP)
    return path


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path is in what is emitted: at one path, each configuration is compiled once."""
    return write(tmp_path_factory.mktemp("failing"))


def run(program: Path, modes: str, out: Path) -> Explored:
    done = explore(program, out, replace(QUICK, opened=(f"twice.mode={modes}",)))
    assert done is not None
    return done


def test_a_configuration_that_fails_is_left_out_and_kept_as_a_failure(
    program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "r.db"
    done = run(program, "0,1,2,3", out)
    assert done.exit_code == 0
    assert done.configuration is not None
    assert done.configuration.get("twice.mode") == 0
    failures = {i.configuration.get("twice.mode"): i.failure for i in load(out).implementations if i.failure}
    assert failures.keys() == {1, 2, 3}
    assert failures[1].startswith("does not build: ")
    assert "not to be built" in failures[1]
    assert failures[2].startswith("wrong result: rank 1: y is wrong: element 7 is -1, expected 16")
    signalled = "terminated by SIGFPE (a division by zero of integers) in op `twice` (kernel `twice`)"
    assert failures[3] == f"run failed: rank 1: {signalled}"
    # On a busy machine there are notes about that, too.
    left_out = [note.partition(": ")[2] for note in done.notes if note.startswith("without ")]
    assert left_out == [failures[1], failures[2], failures[3]]
    assert f"noise floor {100 * load(out).noise:.1f} %" in done.render()
    assert main(["explain", str(out), "--pairs", "2", "--seconds", "0.0005"]) == 0
    assert main(["report", str(out), "-o", str(tmp_path / "r.html")]) == 0
    capsys.readouterr()


def test_what_dies_in_some_orders_is_told_with_its_reason(program: Path, tmp_path: Path) -> None:
    done = run(program, "4", tmp_path / "r.db")
    assert done.exit_code == 0
    assert done.summary.failures > 0
    (reason, count), *others = done.summary.reasons
    assert not others
    assert reason == "run failed: rank 1: terminated by SIGSEGV (a bad address) in op `twice` (kernel `twice`)"
    assert count == done.summary.failures
    assert f"failed     {count} x {reason}" in done.render().splitlines()


@pytest.mark.parametrize(
    ("mode", "error"), representatives([("1", BuildFailed), ("2", WrongResult), ("3", RunFailed)], ("2", WrongResult))
)
def test_where_nothing_works_no_file_is_in_the_way_of_the_next_run(
    program: Path, tmp_path: Path, mode: str, error: type[DagcError]
) -> None:
    with pytest.raises(error):
        run(program, mode, tmp_path / "r.db")
    assert not list(tmp_path.glob("r.db*"))


def test_a_first_configuration_that_is_wrong_is_said_before_the_search(
    program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [
        "explore",
        str(program),
        "--target",
        "host",
        "-n",
        "2",
        "--open",
        "twice.mode=2,0",
        "--budget",
        "4",
        "--only",
        "orders",
    ]
    command += ["-D", "transport=mpi_host", "--confirm", "1", "--seconds", "0.0005", "--no-trace"]
    assert main([*command, "-D", "twice.mode=2", "-o", str(tmp_path / "wrong.db")]) == 2  # opened and fixed
    capsys.readouterr()
    assert main([*command, "-o", str(tmp_path / "r.db")]) == 0
    said = capsys.readouterr().err
    assert re.search(r"twice\.mode=2\b.*: wrong result: rank 1: y is wrong: element 7 is -1, expected 16", said)
    assert "1 other configuration follows; Ctrl-C ends it" in said


MISTAKES = {
    "file": (lambda p: p.with_suffix(".py").unlink(), "cannot read the set-up file"),
    "reference": (lambda p: _edit(p, "def expected", "def result"), "failing.py has no function `expected`"),
    "type": (lambda p: _edit(p, "rows + 1)}", 'rows + 1).astype("f4")}'), "returns type float32 for `x`"),
    "shape": (lambda p: _edit(p, "rows + 1)}", "rows)}"), "returns shape (99,) for `x`, expected (100,)"),
    "reference's type": (lambda p: _edit(p, '2.0 * data["x"]', "3"), "returns int for the array `y`"),
    "exit": (lambda p: _edit(p, "import numpy", "import os; os._exit(0)\nimport numpy"), "calls os._exit(0)"),
}


def _edit(program: Path, old: str, new: str) -> None:
    setup = program.with_suffix(".py")
    text = setup.read_text()
    assert old in text
    setup.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("command", ["explore", "compile"])
def test_mistakes_of_a_set_up_are_known_before_anything_is_compiled(
    tmp_path: Path, command: str, mistake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    program = write(tmp_path)
    change, message = MISTAKES[mistake]
    change(program)
    out = tmp_path / "out.db"
    words = [command, str(program), "--target", "host", "-n", "2", "-o", str(out)]
    assert main([*words, "--run"] if command == "compile" else words) == 2
    assert message in capsys.readouterr().err
    assert not [path for path in tmp_path.rglob("*") if path.name in ("bench", "librunner.so")]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda part: (part / "x.npy").unlink(), "x.npy: no such file, but the program has `x`"),
        (lambda part: (part / "x.npy").write_bytes(b"no array"), "x.npy: is not a NumPy array"),
        (lambda part: np.save(part / "x.npy", np.ones(100, "f4")), "x.npy: holds float32, but `x` is float64"),
        (lambda part: np.save(part / "x.npy", np.ones(7)), "x.npy: has shape (7), but `x` has (100)"),
        (lambda part: (part / "expected" / "y.npy").unlink(), "y.npy: no such file, but the program has `y`"),
    ],
)
def test_arrays_that_were_given_are_looked_at_before_anything_is_compiled(
    program: Path, tmp_path: Path, damage: Callable[[Path], None], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = tmp_path / "data", tmp_path / "r.db"
    assert main(["setup", str(program), "-n", "2", "-o", str(data)]) == 0
    damage(data / "rank-0001")
    assert main(["explore", str(program), "--target", "host", "-n", "2", "--data", str(data), "-o", str(out)]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "r-build").exists()


def test_what_fails_for_one_reason_is_one_note_whichever_rank_reports_it() -> None:
    kept: list[str] = []
    records = SimpleNamespace(begin=lambda *_: 0, fail=lambda _, failure: kept.append(failure))
    failures = ["run failed: rank 0: op y: no", "run failed: rank 1: op y: no", "wrong result: x"]
    excluded = [
        SimpleNamespace(configured=SimpleNamespace(configuration=Choice((("p", p),))), traversal="", failure=one)
        for p, one in enumerate(failures)
    ]
    notes = keep_excluded(records, excluded)  # type: ignore[arg-type]
    assert notes == [
        "without 2 combinations, for example p=0: run failed: rank 0: op y: no", "without p=2: wrong result: x"
    ]  # fmt: skip
    assert kept == failures
