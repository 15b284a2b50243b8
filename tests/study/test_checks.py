"""A setting is chosen only where its results are right, whichever setting is wrong, on the host target."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from dagc import api
from dagc.base.errors import DagcError, RunFailed
from dagc.base.sample import Sample
from dagc.choice.types import Case, Cell
from dagc.cli.main import main
from dagc.ir.program import KernelOp
from dagc.recipes import tune as tune_recipe
from dagc.stages.options import TuneOptions
from dagc.store.tuned import load_tuned
from dagc.study.measure import results_agree
from dagc.study.results import Tuning, choosable
from dagc.study.task import tuning_task
from tests.study.programs import write_fill
from tests.tiers import representatives

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("unoptimised")]
WRONG = "if (i < n) y[i] = {} ? -1 : i;"
BLOCKS = "tune bx in {32, 64, 128}"
FAULTS = {
    "none": "false",
    "largest block": "bx == 128",
    "a block of large sizes": "bx == 64 && n > 200",
    "default": "bx == 32",
    "default of large sizes": "bx == 32 && n > 200",
    "all": "true",
}
NONE_RIGHT = "fill: no setting gives correct results; the default stays"
ABORTS = {"block aborts": "bx == 64", "large sizes abort": "n >= 300"}
ABORT = 'std::FILE* f = std::fopen(std::getenv("LOG"), "a"); std::fputs("x", f); std::fclose(f); std::abort();'


def tuned(folder: Path, tune: str, body: str, **options: object) -> Tuning:
    program = write_fill(folder, tune, body)
    asked = {"sizes": "N=100,300", "target": "host", "cell": 0.01, **options}
    return tune_recipe.tune(program, folder / "t.db", TuneOptions(**asked))  # type: ignore[arg-type]


def with_faults(folder: Path, body: str, faults: Iterable[str]) -> Path:
    """The program of this body, with the fault that the variable FAULT names when it is set up: compiled once."""
    path = write_fill(folder, BLOCKS, body)
    path.write_text(
        path.read_text()
        .replace("scalar n : i32", "scalar n : i32\nscalar fault : i32")
        .replace("n: i32)", "n: i32, fault: i32)")
        .replace("gpu fill(y, n)", "gpu fill(y, n, fault)")
    )
    setup = path.with_suffix(".py")
    given = f'{{"n": N, "fault": {list(faults)}.index(os.environ["FAULT"])}}'
    setup.write_text("import os\n" + setup.read_text().replace('{"n": N}', given))
    return path


def any_of(faults: dict[str, str]) -> str:
    return " || ".join(f"(fault == {number} && {where})" for number, where in enumerate(faults.values()))


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_faults(tmp_path_factory.mktemp("faulty"), WRONG.format(any_of(FAULTS)), FAULTS)


@pytest.fixture(scope="module")
def aborting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program of its own: it has no model, that of wrong results has one."""
    body = f"if ({any_of(ABORTS)}) {{ {ABORT} }} if (i < n) y[i] = i;"
    return with_faults(tmp_path_factory.mktemp("aborting"), body, ABORTS)


Tune = Callable[..., Tuning]


@pytest.fixture
def tune(faulty: Path, aborting: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tune:
    """`tune(FAULT, method="knn")`: the program with this fault, tuned into t.db."""

    def tuned_with(fault: str, **options: object) -> Tuning:
        monkeypatch.setenv("FAULT", fault)
        monkeypatch.setenv("LOG", str(tmp_path / "log"))
        asked = {"sizes": "N=100,300", "target": "host", "cell": 0.01, **options}
        program = aborting if fault in ABORTS else faulty
        return tune_recipe.tune(program, tmp_path / "t.db", TuneOptions(**asked))  # type: ignore[arg-type]

    return tuned_with


def answers(folder: Path) -> set[int]:
    return {s["fill.bx"] for s in load_tuned(folder / "t.db").kernel_choosers["fill"].choices}


def test_no_chooser_answers_with_a_setting_that_is_wrong(tune: Tune, tmp_path: Path) -> None:
    done = tune("largest block", top=1)
    assert ["128" in failure for failure in done.failures] == [True]
    assert {c.choice["fill.bx"] for c, _ in load_tuned(tmp_path / "t.db").samples} == {32, 64}
    assert answers(tmp_path) == {32, 64}, "what was not timed is checked too"
    assert {line.why for line in done.lines} != {"the default"}, "there is a model"


def test_a_setting_that_is_wrong_at_one_size_is_chosen_at_none(tune: Tune, tmp_path: Path) -> None:
    done = tune("a block of large sizes", method="knn", sizes="N=100,150,160,300")
    assert any("64 at N=300" in failure for failure in done.failures)
    assert answers(tmp_path) == {32, 128}
    assert any("knn, k =" in note for note in done.notes), "sizes at which it is wrong count as measured in full"
    again = tune("a block of large sizes", method="knn", sizes="N=100,150", resume=True)
    assert [failure.endswith("(in an earlier run)") for failure in again.failures] == [True], "told again"
    assert answers(tmp_path) == {32, 128}


def test_a_default_that_is_wrong_hinders_no_other(tune: Tune, faulty: Path, tmp_path: Path) -> None:
    done = tune("default", method="exhaustive")
    assert len(done.failures) == 1
    assert done.cells == 4
    assert all(line.chosen.own["bx"] != 32 and line.best is not None for line in done.lines)
    assert answers(tmp_path) == {64, 128}
    out = ["-o", str(tmp_path / "o"), "--run", "-n", "1"]
    assert main(["compile", str(faulty), "--launch", str(tmp_path / "t.db"), "--target", "host", *out]) == 0


def test_what_failed_the_check_is_not_tried_twice(tune: Tune, tmp_path: Path) -> None:
    """A setting that hangs costs minutes each time."""
    done = tune("block aborts", method="exhaustive")
    (failure,) = done.failures
    ended = "run failed: rank 0: terminated by SIGABRT (abort was called) in op `fill` (kernel `fill`)"
    assert failure.startswith(f"fill 64 at N=100: {ended}")
    assert (tmp_path / "log").read_text() == "x"
    assert answers(tmp_path) == {32, 128}


def test_a_default_that_is_wrong_at_a_larger_size_only_is_suspected(tune: Tune) -> None:
    done = tune("default of large sizes", method="exhaustive")
    assert len(done.failures) == 2
    assert [note for note in done.notes if "may itself be wrong" in note and "--check-at 'N=300'" in note]


def test_a_size_at_which_every_setting_fails_is_no_setting_s_failure(tmp_path: Path) -> None:
    """As where a kernel faults on a GPU whatever its block."""
    made = tuning_task(api.read(write_fill(tmp_path, BLOCKS, "y[i] = i;")), target="host")
    choices, cases = made.choices["fill"], [Case.of({"N": n}) for n in (100, 300)]
    samples = {Cell("fill", cases[0], s): Sample.of((1.0, 1.1)) for s in choices[:2]}
    samples |= {Cell("fill", cases[1], s): Sample(failure="launch failed") for s in choices[:2]}
    checks = {("fill", s): "" for s in choices}
    fit, notes = choosable(made, checks, samples)
    assert fit == {"fill": choices}
    assert notes == ["fill at N=300: all settings failed, so no single setting is the cause"]
    samples[Cell("fill", cases[1], choices[2])] = Sample.of((1.0,))
    fit, notes = choosable(made, checks, samples)
    assert fit == {"fill": choices[2:]}
    assert [note.split(", ")[0] for note in notes] == ["fill 32: never chosen", "fill 64: never chosen"]
    path = write_fill(tmp_path, BLOCKS, "y[i] += i;")  # launched again, it reads what it wrote
    path.write_text(path.read_text().replace("y: out", "y: inout").replace("f32[n] out", "f32[n] inout"))
    again = tuning_task(api.read(path), target="host")
    *_, note = choosable(again, checks, samples)[1]
    assert note.startswith("fill failed only when it was timed: its launches follow each other, each on what the last")
    assert choosable(again, {("fill", s): "wrong" for s in choices}, samples)[1] == [*notes, NONE_RIGHT]


def test_a_wrong_default_of_one_kernel_does_not_make_the_other_wrong(tmp_path: Path) -> None:
    program = write_fill(tmp_path, "tune bx in {32, 64}", WRONG.format("bx == 32"))
    text = program.read_text().replace(
        "dag {", 'kernel same(y: inout f32[n], n: i32) {\n  tune t in {32, 64, 128}\n  gpu { launch grid(ceil(n / t)) '
        'block(t) cuda """ int i = blockIdx.x * t + threadIdx.x; if (i < n) y[i] += 0; """ }\n}\ndag {'
    ).replace("gpu fill(y, n) }", "gpu fill(y, n)  same : gpu same(y, n) }")  # fmt: skip
    program.write_text(text)
    done = tune_recipe.tune(
        program, tmp_path / "t.db", TuneOptions(sizes="N=100", target="host", cell=0.01, method="exhaustive")
    )
    assert len(done.failures) == 1
    assert {(line.op, line.chosen.own.get("bx", 64)) for line in done.lines} == {("fill", 64), ("same", 64)}
    assert done.cells == 1 + 3


def test_where_no_setting_is_right_the_default_stays(tune: Tune, faulty: Path, tmp_path: Path) -> None:
    done = tune("all")
    assert len(done.failures) == 3
    assert any("no setting gives correct results; the default stays" in note for note in done.notes)
    assert answers(tmp_path) == {32}
    api.compile(faulty, tmp_path / "o", target="host", launch=str(tmp_path / "t.db"), build=False)


def test_without_a_model_and_without_measurements_the_default_is_said_to_be_it(tmp_path: Path) -> None:
    done = tuned(
        tmp_path,
        "tune bx in {32, 64}",
        "if (i >= n) goto end; y[i] = i; end: return;",
        target="cuda",
        top=0,
        forms="off",
    )
    assert {line.why for line in done.lines} == {"the default"}


def test_a_size_at_which_the_program_does_not_run_is_left_out(tune: Tune, tmp_path: Path) -> None:
    """Under no setting, so it is no setting's failure. At the size of the checks, or at all, nothing can be done."""
    done = tune("large sizes abort", method="exhaustive", sizes="N=100,300,200")
    ended = "rank 0: terminated by SIGABRT (abort was called) in op `fill` (kernel `fill`)"
    assert done.failures == (f"N=300: skipped: the program does not run: {ended} (given up after 3 such failures)",)
    assert done.cells == 6
    assert answers(tmp_path) == {32, 64, 128}
    only = {"method": "exhaustive", "sizes": "N=300,400", "resume": True}
    with pytest.raises(RunFailed, match="at N=[34]00: the program does not run: rank 0: terminated by SIGABRT"):
        tune("large sizes abort", check_at="N=100", **only)


def test_what_the_model_takes_for_granted_is_told(tmp_path: Path) -> None:
    body = "int k = 0; while (k < n) { if (i == k) break; ++k; } if (i < n) y[i] = k;"
    done = tuned(tmp_path, "tune bx in {32, 64}", body, target="cuda", top=0, forms="off")
    (note,) = (note for note in done.notes if "`break`" in note)
    assert note.startswith("fill: ")
    assert {line.why for line in done.lines} != {"the default"}, "there is a model"


@pytest.mark.parametrize("options", [{}, {"target": "cuda", "top": 0}], ids=["measured", "model"])
def test_a_size_that_the_set_up_does_not_take_is_left_out(tune: Tune, options: dict[str, object]) -> None:
    done = tune("none", sizes="N=100,2000000,300", **options)
    assert [line.case.text for line in done.lines] == ["N=100", "N=300"]
    assert any("N=2000000: skipped:" in note and "MemoryError" in note for note in done.notes)
    with pytest.raises(DagcError, match="MemoryError"):
        tune("none", sizes="N=2000000", resume=True, **options)


@pytest.mark.parametrize("method", representatives(["random", "mcts-min", "model"], "model"))
def test_strategies_of_the_laboratory_tune(tune: Tune, faulty: Path, tmp_path: Path, method: str) -> None:
    """Each measures the default and as many as --top says, keeps them, and goes on with them."""
    done = tune("none", method=method, top=1)
    assert (done.method, done.cells, done.failures) == (method, 2 * 2, ())
    assert all(line.best is not None and line.chosen == line.best for line in done.lines)
    assert all(line.default_value > 0 for line in done.lines), "the default is among them"
    again = tune("none", method=method, top=9, resume=True)
    assert again.cells == 2 * 3
    api.compile(faulty, tmp_path / "o", target="host", launch=str(tmp_path / "t.db"), build=False)


def test_results_agree_within_what_the_widest_check_of_an_array_allows(tmp_path: Path) -> None:
    program = write_fill(tmp_path, BLOCKS)
    halves = "verify y[0 .. 50] ~ reference() rtol 1e-2\nverify y[50 .. N] ~ reference() rtol 1e-5\n"
    program.write_text(program.read_text().replace("verify y ~ reference() rtol 0\n", halves))
    graph = api.load_graph(program)
    (op,) = (one.op for one in graph.ops if isinstance(one.op, KernelOp))
    assert results_agree(graph.program, op) == 2e-2
