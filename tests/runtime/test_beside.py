"""Features beside the runs of a program: dagc/beside.hpp."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc.build.mpi import require_mpi
from dagc.measure.launch import launch
from tests.runtime.programs import make


@pytest.mark.mpi
def test_a_thread_begins_where_it_pays_and_copies_what_it_reads(tmp_path: Path) -> None:
    done = launch([str(make("beside", tmp_path, mpi=require_mpi()))], 1)
    assert done.stdout.splitlines() == [
        "0 same: too few runs for a choice to pay",
        "0 same: too few runs for a choice to pay",
        "1 same: the defaults are chosen",
        "0 same: too few runs for a choice to pay",
    ], done.stderr
