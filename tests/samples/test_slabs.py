"""The slab solvers on real ranks of the host target, with messages that are slices sent in place."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc import api
from tests.measure.conftest import SAMPLES, can_run


@pytest.mark.mpi
@pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI")
@pytest.mark.usefixtures("unoptimised")
def test_jacobi_agrees_with_its_reference(tmp_path: Path) -> None:
    """Two ranks: the one above and the one below are the same."""
    small = {"nx": 40, "rows": 5, "steps": 3, "transport": "peer"}
    done = api.compile(
        SAMPLES / "jacobi/jacobi.dag", tmp_path / "out", target="host", defines=small, run=True, ranks=2, seconds=1e-3,
        repeats=1,
    )  # fmt: skip
    assert done.result is not None
