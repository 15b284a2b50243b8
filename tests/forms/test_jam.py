"""Iterations of a loop together: results also where iterations need each other, and loops that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc.build.mpi import find_mpi
from dagc.build.toolchain import find_cxx
from tests.forms.compared import Compared

JAMS = Compared(
    "jam", ("triangle", "strided", "blocks"), "n * n", "x, n, s",
    ({}, {"jam": 2}, {"jam": 4}, {"jam": 8}),
)  # fmt: skip


@pytest.mark.mpi
@pytest.mark.skipif(find_mpi() is None or find_cxx() is None, reason="needs an MPI and a C++ compiler")
def test_results_are_equal_at_every_remainder(tmp_path: Path) -> None:
    sizes = [(1, 0), (2, 1), (6, 0), (9, 1), (12, 2), (33, 0), (34, 1), (35, 2)]
    JAMS.check(tmp_path, [{"side": side, "step": step} for side, step in sizes])
