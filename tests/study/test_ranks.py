"""`dagc tune -n`: the program's ranks run it together, on the host target."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc.base.errors import UsageError
from dagc.cli.main import main
from dagc.ir.choice import Choice
from dagc.recipes import tune as tune_recipe
from dagc.stages.options import TuneOptions
from dagc.store.tuned import load_tuned
from tests.measure.conftest import SAMPLES, can_run
from tests.study.programs import write_fill

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI"),
    pytest.mark.usefixtures("unoptimised"),
]


def test_what_fails_on_one_rank_is_not_chosen(tmp_path: Path) -> None:
    """Wrong with 64 threads on rank 1: one rank alone does not see it."""
    path = write_fill(tmp_path, "tune bx in {32, 64}", "if (i < n) y[i] = n > 100 && bx == 64 ? -1 : i;")
    setup = tmp_path / "fill.py"
    setup.write_text(setup.read_text().replace('"n": N', '"n": N + rank'))
    options = TuneOptions(sizes="N=100", target="host", method="exhaustive", cell=0.005)
    alone = tune_recipe.tune(path, None, options)
    assert alone.failures == ()
    both = tune_recipe.tune(path, tmp_path / "t.db", TuneOptions(**{**_given(options), "ranks": 2}))
    assert any("32" not in text and "wrong" in text for text in both.failures)
    assert both.lines[0].chosen == Choice.at("fill", [("bx", 32)])
    assert load_tuned(tmp_path / "t.db").runs[0].ranks == 2
    with pytest.raises(UsageError, match="measured on 2 ranks, this run has 1"):
        tune_recipe.tune(path, tmp_path / "t.db", TuneOptions(**{**_given(options), "resume": True}))


def _given(options: TuneOptions) -> dict[str, object]:
    return {name: getattr(options, name) for name in ("sizes", "target", "method", "cell")}


def test_a_program_with_messages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    heat, tuned = str(SAMPLES / "heat/heat.dag"), str(tmp_path / "t.db")
    command = ["tune", heat, "--sizes", "nx=64", "-D", "rows=6", "-D", "steps=1", "--target", "host", "--top", "1"]
    assert main([*command, "--cell", "0.005", "-n", "2", "-o", tuned]) == 0
    said = capsys.readouterr().out
    assert "failed" not in said
    assert " measured in " in said
    assert set(load_tuned(tuned).choosers) == {"inner", "first", "last"}


def test_whole_programs_are_tuned_on_one_rank(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="one rank"):
        tune_recipe.tune(SAMPLES / "tridiag/tridiag.dag", tmp_path / "t.db", TuneOptions(target="host", ranks=2))
