"""The pipeline over ranks: right results in both forms, and what `lag` decouples."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc import api
from tests.measure.conftest import SAMPLES, can_run

PIPELINE = SAMPLES / "pipeline/pipeline.dag"


@pytest.mark.parametrize(("lag", "waits"), [(1, True), (2, False)])
def test_with_a_lag_of_two_the_kernel_of_a_step_needs_no_message_of_it(lag: int, waits: bool) -> None:
    """Step 9 loads nothing: a load waits for the message, since both write the buffer of what arrives."""
    text = api.show(PIPELINE, {"lag": lag, "transport": "nccl"})
    work = next(line for line in text.splitlines() if line.split()[1:2] == ["work[9]"])
    assert ("hop[9]" in work) is waits


@pytest.mark.mpi
@pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI")
@pytest.mark.usefixtures("unoptimised")
def test_micro_batches_pass_all_stages(tmp_path: Path) -> None:
    """Fewer ranks than stages, and a last rank that works on a micro-batch after the first has none left."""
    small = {"lag": 2, "batches": 3, "batch": 4, "width": 12}
    done = api.compile(
        PIPELINE, tmp_path / "out", target="host", defines=small, run=True, ranks=3, seconds=1e-3, repeats=1
    )
    assert done.result is not None
