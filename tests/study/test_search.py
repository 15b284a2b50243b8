"""The search of `dagc tune` on the host target: budgets, what goes wrong, and what is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from dagc.base.errors import UsageError
from dagc.base.sample import Sample
from dagc.choice import residual
from dagc.choice.types import Case, Cell
from dagc.cli.main import main
from dagc.ir.choice import Choice
from dagc.lab.across import CONFIRMED, RIVALS
from dagc.lab.engine import SearchOptions
from dagc.lab.settings import LaunchSettings
from dagc.lab.strategy import find, names
from dagc.recipes import tune as tune_recipe
from dagc.stages.options import TuneOptions
from dagc.stages.program import load_graph
from dagc.store.tuned import load_tuned
from dagc.study.measure import Hangs, SiteTimings
from dagc.study.sizes import MOST_CODES, alike
from dagc.study.tuned import choosers_of
from tests.study.programs import write_fill

pytestmark = pytest.mark.usefixtures("unoptimised")

# A block of 128 threads writes nothing where n is 300: wrong there, and right at the size of the check.
BODY = "if (i < n && !(n == 300 && blockDim.x == 128 && blockIdx.x == 2)) y[i] = i;"
MODEL_ONLY = TuneOptions(sizes="N=100,300", target="cuda", arch="sm_90", top=0, forms="off")


@pytest.mark.mpi
def test_a_budget_is_for_all_sizes_and_a_setting_that_fails_is_not_fatal(tmp_path: Path) -> None:
    program = write_fill(tmp_path, "tune bx in {32, 64, 128}", BODY)
    options = TuneOptions(sizes="N=100,300,500", target="host", cell=0.01, budget=4, check_at="N=100")
    done = tune_recipe.tune(program, tmp_path / "t.db", options)
    assert done.cells == 4
    assert all(line.best is None or line.chosen_value <= line.default_value for line in done.lines)
    every = tune_recipe.tune(
        program, tmp_path / "t.db", TuneOptions(sizes="N=100,300,500", target="host", cell=0.01, budget=50, resume=True)
    )
    samples = load_tuned(tmp_path / "t.db").samples
    assert 4 < every.cells == len({cell for cell, _ in samples}) <= 9, "nothing twice"
    assert any("the search ended: " in note for note in every.notes)
    assert all(0 <= line.sure <= 1 for line in every.lines)
    assert "sure" in every.render()
    failed = [cell for cell, sample in samples if sample.failure]
    if failed:  # it was measured at the size where it is wrong
        assert len(failed) == 1
        assert all(line.chosen.own["bx"] != 128 for line in every.lines), "chosen at no size"


def test_a_learner_that_cannot_be_read_is_said_and_the_model_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, broken = write_fill(tmp_path, "tune bx in {32, 64, 128}"), tmp_path / "launch_learner.json"
    for text in ("{}", "no JSON"):
        broken.write_text(text)
        residual.load_learner.cache_clear()
        monkeypatch.setattr(residual, "FILE", broken)
        done = tune_recipe.tune(program, None, MODEL_ONLY)
        (note,) = [n for n in done.notes if "pre-trained learner" in n]
        assert note.startswith(
            "the model alone ranks, without a pre-trained learner: launch_learner.json is not a learner"
        )
        assert len(done.lines) == 2


def test_a_learner_of_another_architecture_is_trusted_less(tmp_path: Path) -> None:
    program = write_fill(tmp_path, "tune bx in {32, 64, 128}")
    done = tune_recipe.tune(program, None, TuneOptions(sizes="N=100", target="cuda", gpu="v100", top=0, forms="off"))
    assert "the pre-trained learner knows sm_90, not sm_70: its predictions have less weight" in done.notes
    assert not [n for n in tune_recipe.tune(program, None, MODEL_ONLY).notes if "trusted" in n]


def test_an_op_without_a_legal_setting_is_skipped(tmp_path: Path) -> None:
    program = write_fill(tmp_path, "tune bx in {32, 64}")
    other = (
        "kernel large(y: inout f32[n], n: i32) {\n  tune t in {32, 64}\n  require hw.shared_per_block >= 1000000\n"
        "  gpu { launch grid(ceil(n / t)) block(t)"
        ' cuda """ int i = blockIdx.x * t + threadIdx.x; if (i < n) y[i] += 0; """ }\n}\ndag {'
    )
    text = (
        program.read_text()
        .replace("dag {", other)
        .replace("gpu fill(y, n) }", "gpu fill(y, n) large : gpu large(y, n) }")
    )
    program.write_text(text)
    done = tune_recipe.tune(program, None, MODEL_ONLY)
    assert {line.op for line in done.lines} == {"fill"}
    assert "without op `large`: no value of its tunables is legal" in done.notes
    with pytest.raises(UsageError, match="op `large`: no value of its tunables is legal"):
        tune_recipe.tune(
            program, None, TuneOptions(sizes="N=100", target="cuda", top=0, forms="off", kernels=("large",))
        )


def test_a_kernel_that_cannot_be_read_is_searched_all_the_same(tmp_path: Path) -> None:
    program = write_fill(tmp_path, "tune bx in {32, 64}", "if (i >= n) goto end; y[i] = i; end: return;")
    done = tune_recipe.tune(program, None, replace(MODEL_ONLY, forms="on"))
    assert any("the search uses only the launch and the compiled code" in note for note in done.notes)
    assert {line.chosen for line in done.lines} == {Choice.at("fill", [("bx", 32), ("form.coarsen", 1)])}, (
        "nothing is known: the default stays"
    )


def test_instructions_of_many_compiled_versions_are_not_told_apart_but_those_of_forms_are() -> None:
    """A model is made for each that is, and for each form."""
    from dagc.cuda.ptx import Instructions, Resources

    versions = [Resources(32 + i, 0, Instructions(float(i))) for i in range(MOST_CODES + 1)]
    choices = [Choice.at("k", [("items", i), ("form.wide", 1)]) for i in range(MOST_CODES + 1)]
    assert alike(choices[1:], versions[1:]) == versions[1:]
    assert [r.registers for r in alike(choices, versions)] == [r.registers for r in versions]
    assert len({r.instructions for r in alike(choices, versions)}) == 1
    formed = [Choice.at("k", [("form.wide", 1 + i % 2), ("form.coarsen", 1 + i // 2)]) for i in range(MOST_CODES + 1)]
    assert alike(formed, versions) == versions


@pytest.mark.mpi
def test_another_objective_than_the_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Strategies search by it, the best by it is chosen, the file has its metrics, and --resume continues with it."""
    path, file = write_fill(tmp_path, "tune bx in {32, 64, 128, 256}"), tmp_path / "t.db"
    words = ["tune", str(path), "--target", "host", "--cell", "0.01", "-o", str(file)]
    assert main([*words, "--objective", "cpu / time", "--budget", "3"]) == 0
    assert "default cpu / time" in capsys.readouterr().out
    tuned = load_tuned(file)
    assert (tuned.facts.objective, len(tuned.samples)) == ("cpu / time", 3)
    ratios = {c.choice: median(dict(sample.metrics)["cpu"] / t for t in sample.times) for c, sample in tuned.samples}
    best = min(ratios, key=lambda choice: ratios[choice])
    chooser = tuned.kernel_choosers["fill"]
    assert [chooser.choices[a.chosen] for a in chooser.anchors] == [best]
    assert choosers_of(load_graph(path), tuned)[0].model is None, "it predicts the time"

    assert main([*words, "--resume", "--budget", "4"]) == 0
    assert len(load_tuned(file).samples) == 4
    assert "default cpu / time" in capsys.readouterr().out
    for method in ("volume", "rational"):
        assert main([*words, "-o", str(tmp_path / "u.db"), "--objective", "cpu", "--method", method]) == 2
        assert f"method {method} predicts the time, not cpu" in capsys.readouterr().err


class Table:
    """A machine with known times; the second series of a setting takes as long as is told."""

    def __init__(self, times: dict[Choice, list[float]]) -> None:
        self.left = {choice: list(series) for choice, series in times.items()}

    def measure(self, candidate: Choice) -> Sample:
        seconds = self.left[candidate].pop(0)
        return Sample.of((seconds,) * 5) if seconds else Sample(failure="wrong result")


@pytest.mark.parametrize("strategy", names())
def test_what_may_be_the_fastest_is_timed_again_whatever_the_strategy(strategy: str) -> None:
    """Of settings within 2 % of the fastest both series count, or the failure of the second; of others there is one."""
    choices = [Choice.at("fill", [("bx", bx)]) for bx in (32, 64, 128, 256)]
    series = dict(zip(choices, ([1e-5, 1.008e-5], [1.01e-5, 0.0], [1.2e-5], [2e-5]), strict=True))
    kept: dict[Cell, Sample] = {}
    case = Case(())
    timings = SiteTimings("fill", case, Table(series), Hangs(1.0), kept.__setitem__, lambda what: None)  # type: ignore[arg-type]
    domain, first = LaunchSettings(choices), choices[2:3]
    options = SearchOptions(confirm=CONFIRMED, repeats=1, rivals=RIVALS)
    timings.search(domain, find(strategy)(domain, 0), options, first=first)
    assert next(iter(kept)).choice == first[0]
    assert sorted(kept[Cell("fill", case, choices[0])].times) == [1e-5] * 5 + [1.008e-5] * 5
    assert kept[Cell("fill", case, choices[1])].failure == "wrong result (when it was timed again)"
    assert [len(kept[Cell("fill", case, choice)].times) for choice in choices[2:]] == [5, 5]


CHASE = """program chase
param N : i64 = 4096
scalar n : i32
array a : f32[n] in
array p : i32[n] in
array s : f32[n] out
setup "none.py" init(n = N)
kernel k(s: out f32[n], a: in f32[n], p: in i32[n], n: i32) {
  tune bx in {256, 32, 64, 128, 512, 1024}
  gpu {
    launch grid(ceil(n / bx)) block(bx)
    cuda \"\"\"
      int i = blockIdx.x * bx + threadIdx.x;
      if (i >= n) return;
      LOOP
    \"\"\"
  }
}
dag { r : gpu k(s, a, p, n) }
"""


@pytest.mark.parametrize(
    ("loop", "unsure"),
    [
        ("float t = 0; for (int j = 0; j < 32; ++j) t += a[(i + 37 * j) % n] + p[i]; s[i] = t;", False),
        ("int j = i; float t = 0; while (p[j] != i) { j = p[j]; t += a[j]; } s[i] = t;", True),
        ("float t = 0; for (int j = i; t < 9; j = p[j]) t += a[j]; s[i] = t;", True),
    ],
)
def test_a_guessed_number_of_iterations_moves_no_block(loop: str, unsure: bool, tmp_path: Path) -> None:
    (tmp_path / "chase.dag").write_text(CHASE.replace("LOOP", loop))
    arrays = "{'n': n, 'a': np.zeros(n, 'f4'), 'p': np.arange(n, dtype='i4')}"
    (tmp_path / "none.py").write_text(f"import numpy as np\ndef init(rank, size, seed, n): return {arrays}\n")
    done = tune_recipe.tune(
        tmp_path / "chase.dag", None, TuneOptions(sizes="N=4096", target="cuda", arch="sm_90", top=0, forms="off")
    )
    (line,) = done.lines
    assert any("32 are assumed" in note for note in done.notes) is unsure
    if unsure:
        assert line.chosen.own["bx"] == 256
        assert line.sure < 0.3
