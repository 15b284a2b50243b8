"""A time limit is for the whole command: each stage asks the same clock, one result comes first, the rest is told."""

from __future__ import annotations

import math
import re
import sqlite3
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from dagc.base.children import Stopped
from dagc.base.errors import BuildFailed, UsageError
from dagc.base.sample import Sample
from dagc.base.signals import ENDLESS, Deadline
from dagc.ir.choice import Choice
from dagc.ir.program import Graph, Value
from dagc.recipes.best import best
from dagc.recipes.explore import explore
from dagc.stages.options import ExploreOptions
from dagc.stages.program import ProgramText
from dagc.store.records import load
from dagc.study.ahead import Ahead
from dagc.study.beside import Beside
from dagc.study.outcome import Explored
from dagc.study.runners import Compilation
from dagc.study.traced import require_traces

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("unoptimised")]

PROGRAM = '''program modes
setup "modes.py" numbers()
array x : f64[100] on host in
array y, z : f64[100] on host out
kernel twice(y: out f64[n], x: in f64[n], n: i64) {
  tune mode in {0, 1, 2, 3}
  cpu { cpp """ for (long i = 0; i < n; ++i) y[i] = 2 * x[i] + 0 * mode; """ }
}
dag {
  first : cpu twice(y, x, 100)
  second : cpu twice(z, x, 100)
}
verify y ~ expected() rtol 1e-12
'''
SETUP = """import numpy as np
from pathlib import Path

def numbers(rank, size, seed):
    return {"x": np.arange(100.0)}

def expected(data, **_):
    with (Path(__file__).parent / "references").open("a") as file:
        file.write("x")
    return {"y": 2 * data["x"]}
"""
OPTIONS = ExploreOptions(
    ranks=1, target="host", seconds=5e-4, confirm=2, repeats=2, only="orders", opened=("first.mode",)
)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("modes")
    (folder / "modes.py").write_text(SETUP)
    (folder / "modes.dag").write_text(PROGRAM)
    return folder / "modes.dag"


class Jump:
    """A clock that nearly stands still, and from its n-th reading on is 1000 s ahead."""

    def __init__(self, number: float) -> None:
        self.number, self.read = number, 0

    def __call__(self) -> float:
        self.read += 1
        return 1e-6 * self.read + (0.0 if self.read < self.number else 1000.0)


def searched(program: Path, out: Path, clock: Callable[[], float], **options: object) -> Explored:
    done = explore(program, out, replace(OPTIONS, **options), clock=clock)  # type: ignore[arg-type]
    assert done is not None
    assert done.exit_code == 0
    return done


def test_a_deadline_and_its_parts() -> None:
    now = [5.0]
    end = Deadline.after(10.0, lambda: now[0])
    assert (end.left, end.part(0.6).left, end.limit(0.1), end.limit(0.5, 3.0)) == (10.0, 6.0, 1.0, 3.0)
    now[0] = 12.0
    assert (end.left, end.part(0.6).left, end.part(0.6).over, end.over) == (3.0, 0.0, True, False)
    now[0] = 15.0
    assert end.over
    assert (ENDLESS.left, ENDLESS.part(0.5).left, ENDLESS.limit(0.1, 20.0)) == (math.inf, math.inf, 20.0)


def test_after_the_limit_one_configuration_is_measured_once(
    program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The time has passed when the set-up begins: the first configuration is built, checked and measured all the
    same."""
    done = searched(program, tmp_path / "r.db", Jump(2), time=30.0)
    assert (done.summary.measurements, done.summary.implementations) == (1, 1)
    assert len({i.configuration for i in load(tmp_path / "r.db").implementations}) == 1
    (left,) = [note for note in done.notes if note.startswith("without ")]
    assert left.startswith("without 3 combinations, ")
    assert left.endswith("not built and checked within the time limit (--time)")
    assert "no traces, which the report and --simulate read: the time limit was reached (--time)" in done.notes
    with pytest.raises(UsageError, match="the results have no trace"):
        require_traces(load(tmp_path / "r.db"))
    assert "slowest" not in done.render(), "one implementation has no range"
    late = "to set up, compile and check the first configuration took 1000 s, longer than --time 30 s"
    assert late in done.notes
    assert "first measurement: " in capsys.readouterr().err


def test_within_the_limit_nothing_is_left_out(program: Path, tmp_path: Path) -> None:
    """And the references are computed once for all configurations."""
    (program.parent / "references").unlink(missing_ok=True)
    done = searched(program, tmp_path / "r.db", Jump(math.inf), time=1e4, budget=6)
    assert not [note for note in done.notes if "--time" in note or "configuration took" in note]
    assert len({i.configuration for i in load(tmp_path / "r.db").implementations}) > 1
    assert (program.parent / "references").read_text() == "x"


def test_wherever_the_limit_falls_there_is_a_result(program: Path, tmp_path: Path) -> None:
    """Every reading of the clock is a stage that may be cut."""
    clock = Jump(math.inf)
    searched(program, tmp_path / "all.db", clock, time=1e4, budget=2)
    for number in range(3, clock.read + 1, max(1, clock.read // 4)):
        done = searched(program, tmp_path / f"{number}.db", Jump(number), time=30.0, budget=2)
        assert done.summary.measurements >= 1


def test_after_the_limit_the_most_promising_is_waited_for() -> None:
    """Its library is built last; it is taken all the same, and the others are not."""
    jobs: list[Future[Path | BuildFailed]] = [Future() for _ in range(3)]
    members = [(Choice((("number", n),)),) for n in range(3)]
    compilation = Compilation(dict(zip(jobs, members, strict=True)), lambda: None)
    taken: list[Path | BuildFailed] = []
    built = compilation.as_built(Deadline.after(0.0), lambda: bool(taken))

    def build() -> None:
        jobs[2].set_result(Path("c"))
        jobs[0].set_result(Path("a"))

    threading.Timer(0.05, build).start()
    for found, library in built:
        taken.append(library)
        assert found == members[0]
    assert taken == [Path("a")]


def test_within_the_limit_the_first_that_is_built_is_taken() -> None:
    jobs: list[Future[Path | BuildFailed]] = [Future() for _ in range(2)]
    members = [(Choice((("number", n),)),) for n in range(2)]
    compilation = Compilation(dict(zip(jobs, members, strict=True)), lambda: None)
    jobs[1].set_result(Path("b"))
    built = compilation.as_built()
    assert next(built) == (members[1], Path("b"))
    jobs[0].set_result(Path("a"))
    assert list(built) == [(members[0], Path("a"))]


def test_an_interrupt_while_compilers_run_leaves_a_file_that_can_be_continued(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C after the first configuration was checked and measured again, beside the compilers of the others."""
    first = Beside.first

    def interrupted(beside: Beside, index: int) -> Sample:
        assert first(beside, index).failure == ""
        assert beside.step()
        raise KeyboardInterrupt

    out = tmp_path / "r.db"
    with monkeypatch.context() as patch:
        patch.setattr(Beside, "first", interrupted)
        with pytest.raises(KeyboardInterrupt):
            explore(program, out, replace(OPTIONS, quiet=False, time=1e4, budget=6))
    said = capsys.readouterr().err
    assert re.search(r"best so far .* \(range: .*; disturbed by compilers\), ", said)
    assert f"{out} keeps it; --resume continues" in said
    (before,) = load(out).measured()
    assert [sample.purpose for sample in before.samples] == ["beside"] * 2
    assert "measured beside compilers, which disturb times" in best(out, only_print=True)
    done = searched(program, out, Jump(math.inf), resume=True, time=1e4, budget=6)
    results = load(out)
    assert len(results.runs) == 2
    assert done.summary.measurements >= 6
    assert "compilers" not in best(out, only_print=True)
    assert sum(len(i.samples) for i in results.implementations) == done.summary.measurements
    first = min((taken.order, i.traversal) for i in results.implementations for taken in i.taken)
    assert first[1] == before.traversal  # what was the fastest before


def test_while_nothing_is_built_other_work_is_done() -> None:
    job: Future[Path | BuildFailed] = Future()
    calls = []

    def meanwhile() -> bool:
        calls.append(len(calls))
        if len(calls) == 3:
            job.set_result(Path("built"))
        return True

    compilation = Compilation({job: (Choice(()),)}, lambda: None)
    assert list(compilation.as_built(meanwhile=meanwhile)) == [((Choice(()),), Path("built"))]
    assert calls == [0, 1, 2]


def test_what_compilers_disturbed_judges_nothing(program: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.db"
    done = searched(program, out, Jump(math.inf), time=1e4, budget=6)
    results = load(out)
    assert sum(len(i.samples) for i in results.implementations) == done.summary.measurements
    with closing(sqlite3.connect(out)) as file:
        beside = file.execute("SELECT count(*) FROM sample WHERE purpose = 'beside'").fetchone()
    assert beside[0] >= 1
    assert results.searched == done.summary.space


def test_the_first_is_measured_before_the_others_are_lowered(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the order of an application, which is compared with another implementation even after the limit."""
    lowered: list[object] = []
    measured_after: list[int] = []
    in_file: list[int] = []
    first, graph, advance = Beside.first, ProgramText.graph, Ahead._advance

    def advanced(ahead: Ahead) -> None:
        wait([*ahead.libraries.values(), *(job for job in (ahead._domain, ahead._ranks) if job is not None)])
        advance(ahead)

    def measured(beside: Beside, index: int) -> Sample:
        measured_after.append(len(lowered))
        return first(beside, index)

    def noted(text: ProgramText, choices: Mapping[str, Value] | None = None) -> Graph:
        lowered.append(choices)
        if len(measured_after) == 2 and not in_file:
            in_file.append(len(list(load(tmp_path / "r.db").measured())))
        return graph(text, choices)

    monkeypatch.setattr(Ahead, "_advance", advanced)
    monkeypatch.setattr(Beside, "first", measured)
    monkeypatch.setattr(ProgramText, "graph", noted)
    (tmp_path / "own.txt").write_text("# of the application\nsecond\nfirst\nend\n")
    opened = ("first.mode", "second.mode")  # 16 combinations
    done = searched(program, tmp_path / "r.db", Jump(4), time=30.0, opened=opened, original=str(tmp_path / "own.txt"))
    assert (measured_after[0], len(measured_after), len(lowered) >= 16) == (1, 2, True)
    assert in_file == [2], "what is measured is written at once"
    assert done.original.startswith("original   ")
    assert "; the best has " in done.original
    assert done.summary.implementations >= 1
    assert {i.traversal for i in load(tmp_path / "r.db").measured()} >= {"second first end"}
    lowered.clear()
    alone = searched(program, tmp_path / "alone.db", Jump(4), time=30.0, opened=opened)
    assert len(lowered) < 16, "what is late is not lowered"
    assert any(note.startswith("without 15 combinations, ") and "--time" in note for note in alone.notes)


def test_compilers_end_at_the_limit_before_jobs_are_submitted() -> None:
    """Not before one library is built, also if another does not build; what was built is taken."""
    jobs: list[Future[Path | BuildFailed]] = [Future() for _ in range(4)]
    jobs[0].set_result(BuildFailed("no"))
    jobs[3].set_running_or_notify_cancel()

    def stop() -> None:
        jobs[2].cancel()
        jobs[3].set_exception(Stopped())

    compilation = Compilation({job: (Choice((("number", n),)),) for n, job in enumerate(jobs)}, stop)
    threading.Timer(0.05, lambda: jobs[1].set_result(Path("b"))).start()
    compilation.wait(Deadline.after(0.0))
    assert [job.done() for job in jobs] == [True] * 4
    assert [library for _, library in compilation.as_built()] == [jobs[0].result(), Path("b")]
