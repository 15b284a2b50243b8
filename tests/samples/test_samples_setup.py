"""The samples that have a set-up: their own `.dag`, through `run_setup`, with its checks of shapes and messages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dagc import api
from dagc.base.errors import ProgramError
from dagc.setup import run_setup
from tests.samples.load import SAMPLES

SMALL: dict[str, dict[str, str | int | float | bool]] = {
    "spmv/spmv.dag": {"rows": 101, "nnz_per_row": 7},
    "halo3d/halo3d.dag": {"nx": 4, "ny": 5, "nz": 6, "nq": 2, "g": 2},
    "corr/corr.dag": {"columns": 13, "rows": 11},
}


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("path", SMALL)
def test_a_sample_is_set_up(path: str, ranks: int, tmp_path: Path) -> None:
    program = api.load(SAMPLES / path, SMALL[path])
    run_setup(program, (SAMPLES / path).parent, ranks, 1, tmp_path / "out")
    folders = sorted((tmp_path / "out").glob("rank-*"))
    assert len(folders) == ranks
    for folder in folders:
        for verify in program.verifies:
            assert np.isfinite(np.load(folder / "expected" / f"{verify.region.array}.npy")).all()


def test_both_graphs_of_the_halo_have_one_set_up(tmp_path: Path) -> None:
    for value in (False, True):
        program = api.load(SAMPLES / "halo3d/halo3d.dag", SMALL["halo3d/halo3d.dag"] | {"per_axis": value})
        run_setup(program, SAMPLES / "halo3d", 4, 1, tmp_path / str(value))
    for one in (tmp_path / "False").rglob("*.npy"):
        assert one.read_bytes() == (tmp_path / "True" / one.relative_to(tmp_path / "False")).read_bytes()


@pytest.mark.parametrize("name", sorted(p.name for p in SAMPLES.iterdir() if not list(p.glob("*.py"))))
def test_a_sample_without_a_set_up_says_so(name: str, tmp_path: Path) -> None:
    """Their pages say that the set-up is missing: whoever writes one changes the page too."""
    program = api.load(SAMPLES / name / f"{name}.dag")
    with pytest.raises(ProgramError, match="cannot read the set-up file"):
        run_setup(program, SAMPLES / name, 2, 1, tmp_path / "out")
    assert "not there yet" in (SAMPLES / name / "README.md").read_text()
