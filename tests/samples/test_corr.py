"""The correlation sample: its set-up, its reference, and its program with and without staged rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dagc import api
from dagc.ir.plan import Target
from dagc.measure.bench import run_bench
from dagc.space import Space
from tests.emit.build import graph, plan
from tests.emit.together import build_together
from tests.measure.conftest import can_run
from tests.samples.load import SAMPLES, sample

CORR = SAMPLES / "corr/corr.dag"
SIZES = {"columns": "45", "rows": "37"}  # no multiple of a block or of a tile


def test_neighbouring_columns_are_correlated_and_others_are_not() -> None:
    corr = sample("corr/corr.py")
    data = corr.init(0, 1, 3, columns=6, rows=20_000)
    symmat = corr.numpy_corrcoef(data, rank=0, size=1, seed=3)["symmat"]
    distance = np.abs(np.subtract.outer(np.arange(6), np.arange(6)))
    np.testing.assert_allclose(symmat, np.maximum(1 - distance / 2, 0), atol=0.03)


def test_data_depend_on_the_seed_alone() -> None:
    corr = sample("corr/corr.py")
    first, again, other = (
        corr.init(rank, 2, seed, columns=4, rows=5)["data"] for rank, seed in ((0, 1), (1, 1), (0, 2))
    )
    assert first.tobytes() == again.tobytes() != other.tobytes()
    assert (first.dtype, first.shape) == (np.float32, (5, 4))


@pytest.mark.parametrize(("columns", "rows"), [(1, 5), (5, 1)])
def test_sizes_without_a_correlation_are_refused(columns: int, rows: int) -> None:
    with pytest.raises(ValueError, match="at least 2 of both"):
        sample("corr/corr.py").init(0, 1, 0, columns=columns, rows=rows)


TILES = {
    "first": {},
    "tile of 16": {"corr.bx": "16", "corr.by": "8", "corr.tile": "16"},
    "tile of 32": {"corr.bx": "4", "corr.by": "64", "corr.tile": "32", "centre.bx": "16", "centre.by": "4"},
}


@pytest.mark.mpi
@pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI")
def test_results(tmp_path: Path) -> None:
    """Wrong results raise."""
    plans = {name: plan(CORR, Target.HOST, **SIZES, **tile) for name, tile in TILES.items()}
    api.run_setup(CORR, 1, tmp_path / "data", seed=1, defines=SIZES)
    for binary in build_together(plans, tmp_path / "build").values():
        run_bench(binary, tmp_path / "data", ranks=1, seconds=1e-4, repeats=2)


def test_page_says_how_many_programs_there_are() -> None:
    space = Space(graph(CORR))
    assert f"{space.count()} orders" in (SAMPLES / "corr/README.md").read_text(encoding="utf-8")
