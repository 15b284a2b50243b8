"""`dagc explore` and what reads its results, on real ranks of the host target and on recorded data."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dagc import api
from dagc.base.errors import UsageError
from dagc.base.files import MARK
from dagc.base.sample import BESIDE, CONFIRM, SEARCH
from dagc.build.toolchain import gpus
from dagc.cli.main import main
from dagc.ir.traversal import traversal_text
from dagc.lab.strategy import names
from dagc.measure.launch import launch
from dagc.recipes.explore import explore
from dagc.report.limits import limit_lines
from dagc.space import Space
from dagc.stages.options import ExplainOptions, ExploreOptions
from dagc.store.records import Records, load
from dagc.store.results import GROUP, ranking
from dagc.study.explanation import Subject, arrays_of
from dagc.study.loaded import Loaded
from dagc.study.outcome import Explored, spread
from tests.data.h200 import h200_file
from tests.measure.conftest import SPMV, can_run
from tests.tiers import representatives

pytestmark = pytest.mark.usefixtures("unoptimised")
needs_mpi = pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI")
SMALL = {"rows": "2000"}
QUICK = ExploreOptions(
    ranks=2, target="host", seconds=5e-4, confirm=2, repeats=2, transport="mpi_cuda", only="orders", quiet=True,
    budget=12,
)  # fmt: skip


def replace(options: ExploreOptions, **changes: object) -> ExploreOptions:
    from dataclasses import replace as changed

    return changed(options, **changes)  # type: ignore[arg-type]


def run(out: Path, options: ExploreOptions = QUICK) -> Explored:
    done = explore(SPMV, out, options, SMALL)
    assert done is not None
    return done


@pytest.mark.mpi
@needs_mpi
def test_explore_and_everything_that_reads_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "r.db"
    monkeypatch.setattr("dagc.store.results.NOISY", 0.0)  # whatever the machine is: it is called noisy
    graph = api.load_graph(SPMV, {**SMALL, "transport": "mpi_cuda"})
    original = tmp_path / "original.txt"
    original.write_text(f"# of the application\n{traversal_text(Space(graph).last(), graph)}\n")
    asked = replace(QUICK, transport="mpi_cuda,peer", capture="both", quiet=False, original=str(original))
    done = run(file, asked)
    assert done.exit_code == 0
    assert "warning: The noise floor of one measurement is" in capsys.readouterr().err
    assert "The noise floor of one measurement is" in done.render()
    assert done.summary.measurements >= 12
    results = load(file)
    assert results.runs[0].options["transport"] == "mpi_cuda,peer"
    assert re.search(r"\noriginal   [0-9.]+ us \(.*\); the best has [0-9.]+ of it \(.* pairs\).*\n", done.render())
    assert any(i.traversal == traversal_text(Space(graph).last(), graph) for i in results.implementations)
    assert len(results.traces) in (1, 2, 3)
    assert len(results.runs[0].machine.facts["scalars"]) == QUICK.ranks
    assert {"pack", "y", "program"} <= {row.name for row in done.limits}
    assert all(row.bound <= row.measured for row in done.limits if not math.isnan(row.measured))
    assert done.limits[-1].bound > 0
    assert "\nlimit " in done.render()
    assert done.traversal == ranking(results)[0].traversal
    assert main(["best", str(file), "--plan"]) == 0
    printed = capsys.readouterr().out
    assert done.traversal in printed
    assert all(line in printed for line in limit_lines(done.limits))
    assert main(["rules", str(file), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)
    assert main(["export", str(file), "--csv"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + sum(len(i.samples) for i in results.implementations)
    assert main(["report", str(file), "-o", str(tmp_path / "r.html")]) == 0
    kept = file.read_bytes()
    assert main(["report", str(file), "-o", str(file)]) == main(["export", str(file), "--csv", "-o", str(file)]) == 2
    assert file.read_bytes() == kept
    page = (tmp_path / "r.html").read_text()
    assert "<svg" in page
    assert "The distance to the limit" in page
    assert main(["explain", str(file), "--pairs", "2", "--variants", "1", "--seconds", "0.0005"]) == 0
    assert "the cost of breaking each one alone" in capsys.readouterr().out
    assert main(["best", str(file), "-o", str(tmp_path / "best"), "--no-build"]) == 0
    assert (tmp_path / "best/iteration.hpp").exists()


@pytest.mark.mpi
@needs_mpi
@pytest.mark.parametrize("strategy", ["random", "model"])
def test_groups_of_ranks_measure_for_one_file(strategy: str, tmp_path: Path) -> None:
    done = run(tmp_path / "r.db", replace(QUICK, ranks=1, groups=2, strategy=strategy, budget=20))
    assert any(note.startswith("2 groups on 1 host; drift reference ") for note in done.notes), done.notes
    assert done.summary.failures == 0
    results = load(tmp_path / "r.db")
    assert [(run.options.get(GROUP), run.ranks) for run in results.runs] == [(None, 1), (2, 1)]
    taken = [(t.run, s) for i in results.implementations for t, s in zip(i.taken, i.samples, strict=True)]
    searched = [run for run, sample in taken if sample.purpose == SEARCH]
    assert len(searched) == 20
    assert {*searched} == {0, 1}
    assert {run for run, sample in taken if sample.purpose == CONFIRM} == {0}
    assert all(sample.reference > 0 for _, sample in taken if sample.purpose != BESIDE)


def test_groups_need_as_many_ranks_as_were_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv("PMI_SIZE", "5")
    with pytest.raises(UsageError, match="2 groups of 2 ranks need 4, but this command runs as one of 5"):
        run(tmp_path / "r.db", replace(QUICK, groups=2))


@pytest.mark.parametrize("strategy", ["random", "mcts", "mcts-min", "exhaustive"])
def test_until_needs_a_strategy_that_can_judge(strategy: str, tmp_path: Path) -> None:
    """Refused before anything is compiled, and no results file is left."""
    with pytest.raises(UsageError, match=f"strategy `{strategy}` does not estimate the remaining gain"):
        run(tmp_path / "r.db", replace(QUICK, strategy=strategy, until=0.01))
    assert not any(tmp_path.iterdir())


@pytest.mark.mpi
@needs_mpi
def test_resume_goes_on_and_a_file_is_never_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "r.db"
    first = run(file, replace(QUICK, confirm=0, strategy="random", resume=True))
    assert f"{file} did not exist; it was created" in first.notes
    with pytest.raises(UsageError, match="exists"):
        run(file)
    second = run(file, replace(QUICK, confirm=0, strategy="random", resume=True, seed=3))
    assert f"earlier runs of {file} had arrays of seed 0" in second.notes
    results = load(file)
    assert len(results.runs) == 2
    assert len(results.implementations) == 24  # nothing was measured twice
    with pytest.raises(UsageError, match="another program"):
        explore(SPMV, file, replace(QUICK, resume=True), {"rows": "2001"})


@pytest.mark.mpi
@needs_mpi
def test_the_file_of_warm_start_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other, read = tmp_path / "other.db", []
    run(other, replace(QUICK, confirm=0, strategy="random", budget=4))
    monkeypatch.setattr("dagc.store.records.load", lambda path, *rest: read.append(str(path)) or load(path, *rest))
    done = run(tmp_path / "r.db", replace(QUICK, strategy="model", budget=3, warm_start=str(other)))
    assert any(note.startswith("uses ") and str(other) in note for note in done.notes)
    assert read.count(str(other)) == 1


@pytest.mark.mpi
@needs_mpi
def test_a_set_up_that_has_changed_is_told(tmp_path: Path) -> None:
    shutil.copytree(SPMV.parent, tmp_path / "spmv")
    file, dag = tmp_path / "r.db", tmp_path / "spmv" / SPMV.name
    options = replace(QUICK, confirm=0, strategy="random", budget=2)
    explore(dag, file, options, {"rows": "2000"})
    again = explore(dag, file, replace(options, resume=True), {"rows": "2000"})
    assert not [note for note in again.notes if "set-up" in note]
    with (tmp_path / "spmv" / "spmv.py").open("a") as setup:
        setup.write("\n# other values\n")
    changed = explore(dag, file, replace(options, resume=True), {"rows": "2000"})
    assert f"earlier runs of {file} had arrays of another set-up: its file has changed" in changed.notes


@pytest.mark.mpi
@needs_mpi
def test_a_killed_search_leaves_a_readable_file(tmp_path: Path) -> None:
    file = tmp_path / "r.db"
    command = [
        sys.executable, "-m", "dagc", "explore", str(SPMV), "-D", "rows=2000", "-n", "2", "--target", "host",
        "--transport", "mpi_cuda", "--only", "orders", "--strategy", "exhaustive", "-o", str(file), "--quiet",
    ]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    give_up = time.monotonic() + 300
    while time.monotonic() < give_up and not (file.exists() and _measured(file) >= 5):
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = _measured(file)
    assert before >= 5
    run(file, replace(QUICK, resume=True, budget=3, confirm=0, seconds=0.01))
    assert _measured(file) == before + 3


@pytest.mark.mpi
@needs_mpi
def test_arrays_that_a_killed_run_left_half_made_are_made_again(tmp_path: Path) -> None:
    options = replace(QUICK, budget=2, confirm=0, trace=False)
    run(tmp_path / "r.db", options)
    data = tmp_path / "r-build" / "data-2"
    (data / MARK).unlink()  # as while entries are exchanged
    (data / "setup.json").unlink()
    (data / ".dagc-new-abc").mkdir()
    loaded = Loaded(tmp_path / "r.db")  # as `explain` does where it has something to time
    assert arrays_of(loaded, ExplainOptions(), Subject(loaded).domain, tmp_path / "r-build") == data
    assert {p.name for p in data.iterdir()} == {MARK, "rank-0000", "rank-0001", "setup.json"}
    (data / MARK).unlink()
    (tmp_path / "r-build" / "000" / MARK).unlink()
    run(tmp_path / "r.db", replace(options, resume=True))
    (data / MARK).unlink()
    (data / "mine.txt").touch()
    with pytest.raises(UsageError, match="contains files that dagc did not write"):
        run(tmp_path / "r.db", replace(options, resume=True))


def _measured(file: Path) -> int:
    try:
        return sum(len(i.samples) for i in load(file).implementations)
    except UsageError:  # not yet a results file
        return 0


@pytest.mark.parametrize("strategy", representatives(["exhaustive", "mcts", "mcts-min", "random"], "mcts-min"))
def test_replay(tmp_path: Path, strategy: str) -> None:
    recorded = h200_file(tmp_path)
    options = ExploreOptions(transport="mpi_host", strategy=strategy, replay=str(recorded), budget=150, quiet=True)
    done = explore(SPMV, None, options)
    assert done is not None
    assert done.summary.best is not None
    results = load(recorded)
    assert done.summary.value < 1.15 * min(i.value(results.reference) for i in results.implementations)
    again = explore(SPMV, None, options)
    assert again is not None
    assert again.traversal == done.traversal


def test_the_default_strategy_is_recorded(tmp_path: Path) -> None:
    options = ExploreOptions(transport="mpi_host", replay=str(h200_file(tmp_path, passes=1)), budget=3, quiet=True)
    done = explore(SPMV, tmp_path / "found.db", options)
    assert done is not None
    found = load(tmp_path / "found.db").runs[-1]
    assert (found.strategy, found.options["strategy"]) == ("model", "model")


def test_replay_of_another_program(tmp_path: Path) -> None:
    recorded = h200_file(tmp_path)
    with pytest.raises(UsageError, match="another program"):
        explore(SPMV, None, ExploreOptions(replay=str(recorded), quiet=True), SMALL)
    with pytest.raises(UsageError, match="none of these configurations"):
        explore(SPMV, None, ExploreOptions(replay=str(recorded), transport="nccl", quiet=True))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--strategy", "luck"], "unknown strategy `luck`"),
        (["--transport", "pigeon"], "`transport` cannot be pigeon"),
        (["--open", "speed"], "unknown decision `speed`"),
        (["--strategy", "exhaustive", "--max", "10", "--transport", "nccl"], "6144 implementations, more than 10"),
        (["--open", "all", "--max-configurations", "3"], "programs, more than 3"),
        (["--budget", "0"], "not a whole number of at least 1"),
        (["--time", "soon"], "not a time such as 90s"),
        (["--transport", ","], "`transport=,` names no value of `transport`"),
        (["--open", "yl.block="], "`yl.block=` names no value of `yl.block`"),
        (["--original", "nowhere"], "nowhere: No such file"),
        (["--original", __file__, "-D", "rows=2000", "--transport", "mpi_cuda"], "test_explore.py:1:1: "),
        (["--data", "nowhere"], "nowhere: no such directory"),
        (["--data", str(SPMV.parent)], "holds no arrays of `dagc setup`"),
    ],
)
def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    command = ["explore", str(SPMV), "--target", "host", "-o", str(tmp_path / "r.db"), *arguments]
    with pytest.raises(SystemExit, match="2"):
        raise SystemExit(main(command))
    assert message in capsys.readouterr().err
    assert not (tmp_path / "r.db").exists()


def test_arrays_of_other_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = str(tmp_path / "data")
    assert main(["setup", str(SPMV), "-D", "rows=2000", "-n", "2", "-o", data]) == 0
    command = ["explore", str(SPMV), "-D", "rows=2000", "-n", "3", "--data", data, "-o", str(tmp_path / "r.db")]
    assert main([*command, "--target", "host"]) == 2
    assert f"{data}: written for 2 ranks, not 3" in capsys.readouterr().err


def test_what_cannot_be_resumed_is_told_before_anything_is_compiled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = h200_file(tmp_path)
    command = ["explore", str(SPMV), "--target", "host", "--resume", "-o", str(file)]
    for arguments, message in (
        (["-D", "rows=2000"], f"{file}: contains results of another program"),
        (["-n", "3"], f"{file}: measured on 4 ranks, this run has 3"),
    ):
        assert main([*command, *arguments]) == 2
        assert capsys.readouterr().err.startswith(f"dagc: error: {message}")
    results = load(file)
    with Records.open(file, results.program, results.runs[0], resume=True):
        assert main(command) == 2
    assert capsys.readouterr().err.startswith(f"dagc: error: {file}: another dagc writes to it")
    assert not list(tmp_path.glob("*-build"))


@needs_mpi
@pytest.mark.skipif(bool(gpus()), reason="there is a GPU")
def test_no_gpu_is_told_before_anything_is_compiled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "r.db"
    assert main(["explore", str(SPMV), "-D", "rows=2000", "--target", "cuda", "-o", str(file)]) == 3
    assert "no GPU was found" in capsys.readouterr().err
    assert not list((tmp_path / "r-build").glob("0*"))


def test_an_interval_has_the_confidence_that_it_says() -> None:
    assert spread(1e-6, 2e-6, 6) == "95%: 1.00 us to 2.00 us, 6 measurements"
    assert spread(1e-6, 2e-6, 5) == "range: 1.00 us to 2.00 us, 5 measurements"
    assert spread(1e-6, 1e-6, 1) == "1 measurement"


def _ended(**changes: object) -> str:
    from dataclasses import replace as changed

    from dagc.ir.choice import Choice
    from dagc.lab.engine import Summary

    summary = Summary(None, 21.2e-6, 21e-6, 22e-6, 5, 0, 40e-6, 200, 150, 0, 2036, 2.0, 0.1, False, lowest=20.5e-6)
    summary = changed(summary, best=object(), **changes)  # type: ignore[arg-type]
    return Explored(summary, Choice(()), "start end", None, (), 0.01).render()


def test_a_lower_single_time_is_explained() -> None:
    assert "lowest single measurement 20.50 us; 21.20 us after confirmation" in _ended()
    assert "lowest single" not in _ended(lowest=21.19e-6)


def test_a_time_that_was_displayed_differently_is_explained() -> None:
    assert "displayed while searching as 19.00 us" in _ended(displayed=19e-6)
    assert "displayed" not in _ended(displayed=20.51e-6)


def test_a_best_that_is_not_confirmed_says_so() -> None:
    assert "unconfirmed: 1 of 5 measurements" in _ended(measurements_of_best=1)
    assert "after confirmation" not in _ended(measurements_of_best=1)
    assert "unconfirmed" not in _ended()


def test_an_export_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded, out = h200_file(tmp_path), tmp_path / "out.csv"
    assert main(["export", str(recorded), "--csv", "-o", str(tmp_path / "none" / "out.csv")]) == 2
    said = capsys.readouterr().err
    assert "none/out.csv cannot be written" in said
    assert "help: name another place" in said
    out.write_text("before\n")
    code = "import sys; from dagc.cli.main import main; sys.exit(main(sys.argv[1:]))"
    limits = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)); "
    command = [sys.executable, "-B", "-c", limits + code, "export", str(recorded), "--csv", "-o", str(out)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, out.read_text()) == (5, "before\n")
    assert f"{out} cannot be written" in done.stderr


def test_rules_of_other_ranks_are_compared_with_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = Path(__file__).parents[2] / "benchmarks/results"
    recorded, other = results / "2026-11-21-4xh200-explore/spmv-150000-peer.db", tmp_path / "other.db"
    other.write_bytes(recorded.read_bytes())
    with contextlib.closing(sqlite3.connect(other)) as connection, connection:
        connection.execute("UPDATE run SET ranks = 2")
    assert main(["rules", str(other), "--against", str(recorded)]) == 0
    said = capsys.readouterr().out
    assert "learned on 2 ranks, compared on 4" in said
    assert "Those that it gives class 1 take 18.9 % longer than the best (median of 90;" in said


@pytest.mark.mpi
@needs_mpi
def test_under_mpiexec_there_are_as_many_ranks_as_it_has_started(tmp_path: Path) -> None:
    file = tmp_path / "r.db"
    words = ["explore", str(SPMV), "-D", "rows=2000", "--transport", "mpi_cuda", "--target", "host", "--only", "orders"]
    words += ["--budget", "3", "--confirm", "0", "--seconds", "0.0005", "--quiet", "-o", str(file)]
    command = [sys.executable, "-m", "dagc", *words]
    done = launch(command, 3, cwd=Path(__file__).parents[2], timeout=300)
    assert (done.returncode, load(file).runs[0].ranks) == (0, 3), done.stderr
    done = launch([*command, "--resume", "-n", "2"], 3, cwd=Path(__file__).parents[2], timeout=300)
    assert done.returncode == 2
    assert done.stderr.count("2 ranks are needed") == 1


def test_strategies_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["explore", "--strategy", "help"])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(names())


def test_no_results_no_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "text.db"
    other.write_text("no database")
    for command in ("best", "rules", "explain"):
        for path in (other, tmp_path / "absent.db"):
            assert main([command, str(path)]) == 2
            assert str(path) in capsys.readouterr().err


SLOW_FIRST = '''
program slow_first
setup "arrays.py" arrays()
array x : f64[16] on host out
kernel fill(x: out f64[16]) {
  cpu slow {
    cpp """
      volatile double sum = 0;
      for (int i = 0; i < 1000000; ++i) sum = sum + 1;
      for (int i = 0; i < 16; ++i) x[i] = sum > 0 ? 1 : 0;
    """
  }
  cpu fast { cpp """ for (int i = 0; i < 16; ++i) x[i] = 1; """ }
}
dag { x : cpu fill(x) }
'''


@pytest.mark.mpi
@needs_mpi
def test_the_quickest_configuration_is_the_drift_reference(tmp_path: Path) -> None:
    """Not the first one: what may be chosen is like the quickest."""
    (tmp_path / "p.dag").write_text(SLOW_FIRST)
    (tmp_path / "arrays.py").write_text("def arrays(rank, ranks, seed):\n    return {}\n")
    done = explore(tmp_path / "p.dag", tmp_path / "r.db", replace(QUICK, ranks=1, only=None, transport="all"))
    assert done is not None
    results = load(tmp_path / "r.db")
    slow = [i.value() for i in results.measured() if i.configuration.get("x.variant") == "slow"]
    assert results.reference < min(slow) / 2
