"""Launch settings on a machine without a GPU: ranked by a model; measured on the CPU on request, within limits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dagc.base.errors import RunFailed, UsageError
from dagc.base.signals import Deadline
from dagc.ir.plan import Target
from dagc.recipes import tune as tune_recipe
from dagc.stages.options import TuneOptions
from dagc.stages.program import read
from dagc.store.tuned import load_tuned
from dagc.study import sizes
from dagc.study.task import tuning_task
from tests.study.programs import FILL_PY, write_fill
from tests.study.test_variants import CPU, CPU_PY

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("unoptimised")]
BLOCKS = "tune bx in {32, 64}"
SLOW = """if (i == 0 && n > 200) std::this_thread::sleep_for(std::chrono::milliseconds(300));
      if (i < n) y[i] = i;"""


def test_without_a_gpu_nothing_is_measured(tmp_path: Path, gpus_here: Callable[..., None]) -> None:
    """Nor compared: the reference is not computed."""
    gpus_here()
    program = write_fill(tmp_path, BLOCKS)
    program.with_suffix(".py").write_text(
        FILL_PY.replace('return {"y"', 'raise ValueError("not needed")\n    return {"y"')
    )
    done = tune_recipe.tune(program, tmp_path / "t.db", TuneOptions(sizes="N=100,3000"))
    assert done.cells == 0
    assert [line.case.text for line in done.lines] == ["N=100", "N=3000"]
    assert any(
        note.startswith("no GPU was found: settings are ranked by the model of NVIDIA H200") for note in done.notes
    )
    assert load_tuned(tmp_path / "t.db").facts.target == "cuda"


def test_a_method_that_measures_names_the_target_that_can(tmp_path: Path, gpus_here: Callable[..., None]) -> None:
    gpus_here()
    with pytest.raises(UsageError, match="nothing can run here: no GPU was found") as raised:
        tune_recipe.tune(write_fill(tmp_path, BLOCKS), None, TuneOptions(sizes="N=100", method="exhaustive"))
    assert "--target host" in raised.value.help


def test_variants_still_run_on_the_cpu(tmp_path: Path, gpus_here: Callable[..., None]) -> None:
    """No model compares them."""
    gpus_here()
    (tmp_path / "total.dag").write_text(CPU)
    (tmp_path / "total.py").write_text(CPU_PY)
    assert tuning_task(read(tmp_path / "total.dag")).chosen.target is Target.HOST


def test_a_size_with_long_launches_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "HOST_LAUNCH", 0.2)
    program = write_fill(tmp_path, BLOCKS, SLOW)
    for method in ("volume", "exhaustive"):
        asked = TuneOptions(sizes="N=100,300", target="host", cell=0.001, method=method)
        done = tune_recipe.tune(program, tmp_path / f"{method}.db", asked)
        assert done.failures == ("N=300: skipped: a launch takes more than 0.2 s",)
        assert {cell.case.text for cell, _ in load_tuned(tmp_path / f"{method}.db").samples} == {"N=100"}
    with pytest.raises(RunFailed, match=r"at N=300: a launch takes more than 0\.2 s"):
        tune_recipe.tune(program, None, TuneOptions(sizes="N=300", target="host", cell=0.001))


@pytest.mark.parametrize("method", ["volume", "exhaustive"])
def test_measuring_on_the_cpu_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """One setting is compared and timed all the same; what was not compared is not chosen."""
    monkeypatch.setattr(sizes, "HOST_SECONDS", 1e-9)
    asked = TuneOptions(sizes="N=100,200", target="host", cell=0.001, method=method)
    done = tune_recipe.tune(write_fill(tmp_path, BLOCKS), tmp_path / "t.db", asked)
    assert "measuring ended at the time limit of 1e-09 s (--time)" in done.notes
    assert done.cells == 1
    assert {line.chosen for line in done.lines} == {line.default for line in done.lines}


def test_the_time_limit_begins_with_the_command(tmp_path: Path) -> None:
    """It is over when everything has been set up and compiled: one setting is measured, not all of two sizes."""
    now = [0.0]

    def clock() -> float:
        now[0] += 1.0
        return now[0]

    deadline = Deadline.after(2.5, clock)
    options = TuneOptions(sizes="N=100,200", target="host", cell=0.001, seconds=2.5, deadline=deadline)
    done = tune_recipe.tune(write_fill(tmp_path, BLOCKS), tmp_path / "t.db", options)
    assert done.cells == 1
