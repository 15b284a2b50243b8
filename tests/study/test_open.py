"""Tunables that are constants of their kernels: which of their values are compiled, on the host target."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc.cli.main import main
from dagc.recipes import tune as tune_recipe
from dagc.stages.options import TuneOptions
from tests.study.programs import write_fill
from tests.tiers import representatives

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("unoptimised")]


def test_what_a_require_forbids_is_not_compiled(tmp_path: Path) -> None:
    body = 'static_assert(a * b <= 4, "too much"); if (i < n) y[i] = i;'
    tune = "tune bx in {32, 64} tune a in {1, 2, 4} tune b in {1, 4} require a * b <= 4 && a * b * bx <= 128"
    program, tuned = write_fill(tmp_path, tune, body), tmp_path / "t.db"
    done = tune_recipe.tune(program, tuned, TuneOptions(sizes="N=100", target="host", method="exhaustive", cell=0.01))
    assert not done.failures
    assert done.cells == 6, "the product of a and b is 1 or 2 with either block, 4 with the smaller only"
    assert main(["compile", str(program), "--launch", str(tuned), "--target", "host", "-o", str(tmp_path / "o")]) == 0


def test_truth_values(tmp_path: Path) -> None:
    program = write_fill(
        tmp_path, "tune bx in {32} tune twice in {false, true}", "if (i < n) y[i] = twice ? i + 0 : i;"
    )
    done = tune_recipe.tune(program, tmp_path / "t.db", TuneOptions(sizes="N=100", target="host", cell=0.01))
    assert not done.failures
    arguments = ["compile", str(program), "--launch", str(tmp_path / "t.db"), "--target", "host"]
    assert main([*arguments, "-o", str(tmp_path / "o"), "--run", "-n", "1"]) == 0


def test_a_value_that_cannot_stay_open_is_told(tmp_path: Path) -> None:
    tune = "tune bx in {32, 64} tune factor in {1.0, 2.0}"
    program = write_fill(tmp_path, tune, "if (i < n) y[i] = factor * i;")
    done = tune_recipe.tune(program, tmp_path / "t.db", TuneOptions(sizes="N=100", target="host", cell=0.01))
    assert not done.failures
    assert any("fill: factor = 1.0 is fixed" in note for note in done.notes)


GRID = "tune bx in {32} tune rows in {1, 2, 4}"
SEVERAL = "for (int r = 0; r < rows; ++r) if (i * rows + r < n) y[i * rows + r] = i * rows + r;"


@pytest.fixture(scope="module")
def of_the_grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In one place, for what is compiled of it to be the same."""
    program = write_fill(tmp_path_factory.mktemp("grid"), GRID, SEVERAL)
    program.write_text(program.read_text().replace("grid(ceil(n / bx))", "grid(ceil(n / (bx * rows)))"))
    return program


@pytest.mark.parametrize("method", representatives(["volume", "exhaustive", "knn"], "volume", "knn"))
def test_a_tunable_of_the_grid(of_the_grid: Path, tmp_path: Path, method: str) -> None:
    program = of_the_grid
    options = TuneOptions(sizes="N=100,200,400", target="host", cell=0.01, method=method)
    done = tune_recipe.tune(program, tmp_path / "t.db", options)
    assert not done.failures
    assert all(line.best is not None for line in done.lines)
    assert not any("no model" in note for note in done.notes)
    out = ["-o", str(tmp_path / "o"), "--run", "-n", "1"]
    arguments = ["compile", str(program), "--launch", str(tmp_path / "t.db"), "--target", "host"]
    assert main([*arguments, *out, "-D", "N=150"]) == 0


def test_blocks_of_three_dimensions(tmp_path: Path) -> None:
    program = write_fill(tmp_path, "tune bx in {8, 16} tune by in {4} tune bz in {1, 2}")
    text = program.read_text().replace(
        "grid(ceil(n / bx)) block(bx)", "grid(ceil(n / (bx * by * bz))) block(bx, by, bz)"
    )
    program.write_text(
        text.replace(
            "blockIdx.x * bx + threadIdx.x", "((blockIdx.x * bz + threadIdx.z) * by + threadIdx.y) * bx + threadIdx.x"
        )
    )
    done = tune_recipe.tune(
        program, tmp_path / "t.db", TuneOptions(sizes="N=100", target="host", cell=0.01, method="exhaustive")
    )
    assert not done.failures
    assert done.cells == 4
    done = tune_recipe.tune(program, tmp_path / "model.db", TuneOptions(sizes="N=100", target="cuda", top=0))
    assert [line.op for line in done.lines] == ["fill"]


def test_a_loop_over_the_grid(tmp_path: Path) -> None:
    """Whatever the model can read of it, it is tuned."""
    body = "for (; i < n; ) { y[i] = i; i += gridDim.x * bx; } while (i < 0) { i += bx; }"
    program = write_fill(tmp_path, "tune bx in {32, 64}", body)
    done = tune_recipe.tune(program, tmp_path / "t.db", TuneOptions(sizes="N=100", target="cuda", top=0))
    assert [line.op for line in done.lines] == ["fill"]
    assert main(["tune", str(program), "--show", "fill"]) in (0, 2)


def test_a_grid_of_the_hardware(tmp_path: Path) -> None:
    body = "for (; i < n; i += gridDim.x * bx) y[i] = i;"
    program = write_fill(tmp_path, "tune bx in {32, 64}", body)
    program.write_text(program.read_text().replace("grid(ceil(n / bx))", "grid(2 * hw.sms)"))
    done = tune_recipe.tune(program, tmp_path / "t.db", TuneOptions(sizes="N=1000", target="host", cell=0.01))
    assert not done.failures
    assert [line.best is not None for line in done.lines] == [True]


def test_blocks_with_too_much_shared_memory_are_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = write_fill(tmp_path, "tune bx in {32, 64}")
    program.write_text(program.read_text().replace("block(bx)", "block(bx) shared(300_000)"))
    assert main(["tune", str(program), "-o", str(tmp_path / "t.db")]) == 2
    assert "1024 threads and 227 KiB of shared memory" in capsys.readouterr().err
