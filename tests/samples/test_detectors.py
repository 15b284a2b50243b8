"""Detectors that worker threads read: right results where both are read at the same time."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc import api
from dagc.base.errors import DagcError
from tests.measure.conftest import SAMPLES, can_run

DETECTORS = SAMPLES / "detectors/detectors.dag"
BOTH = SAMPLES / "detectors/both.txt"


@pytest.mark.mpi
@pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI")
@pytest.mark.usefixtures("unoptimised")
def test_two_detectors_are_read_at_the_same_time(tmp_path: Path) -> None:
    """The order is legal in worker threads only, and nothing orders the two functions."""
    small = {"pixels": 4096, "wait": 100}
    worker = {**small, "read.thread": "worker"}
    done = api.compile(
        DETECTORS, tmp_path / "out", traversal=str(BOTH), target="host", defines=worker, run=True, ranks=1,
        seconds=1e-3, repeats=1,
    )  # fmt: skip
    assert done.result is not None
    with pytest.raises(DagcError, match="read"):
        api.compile(DETECTORS, tmp_path / "caller", traversal=str(BOTH), target="host", defines=small)
