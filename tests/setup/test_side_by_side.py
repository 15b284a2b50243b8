"""Processes that write ranks side by side write what one process writes, and say the same of a set-up that is wrong."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest

from dagc.base import signals
from dagc.base.errors import DagcError
from dagc.ir.names import data_file
from dagc.setup import run_setup, values_of_ranks
from dagc.setup.arrays import CORES_OF_ONE
from dagc.stages.program import read

JACOBI = Path(__file__).parents[2] / "samples/jacobi"
SENDS_TO_NOBODY = '"up": (rank - 1) % size', '"up": 0'
REFUSES = "    u = _rows(size, nx, rows, rank", '    assert rank < 2, "no rank 2"\n    u = _rows(size, nx, rows, rank'
CRASHES = (
    "    u = _rows(size, nx, rows, rank",
    "    if rank == 1: import os; os.abort()\n    u = _rows(size, nx, rows, rank",
)


@pytest.mark.parametrize(
    "change", [("", ""), SENDS_TO_NOBODY, REFUSES, CRASHES], ids=["", "messages", "refuses", "crashes"]
)
def test_ranks_side_by_side(change: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "isolates", lambda: True)
    for file in ("jacobi.dag", "jacobi.py"):
        text = (JACOBI / file).read_text()
        assert file == "jacobi.dag" or change[0] in text
        (tmp_path / file).write_text(text.replace(*change) if change[0] else text)
    program = read(tmp_path / "jacobi.dag", {"nx": 16, "rows": 4}).program()

    def written(processes: int) -> dict[str, bytes] | str:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(processes * CORES_OF_ONE))
        out, ranks = tmp_path / f"data-{processes}", list[None]()
        try:
            run_setup(program, tmp_path, 3, 1, out, done=lambda: ranks.append(None))
        except DagcError as error:
            assert not out.exists()
            return str(error)
        assert len(ranks) == 3
        return {str(p.relative_to(out)): p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file()}

    one = written(1)
    assert isinstance(one, str) == bool(change[0])
    assert one == written(2) == written(4)
    if not change[0]:
        some = values_of_ranks(program, tmp_path, 3, 1, ("u[0]",))
        assert isinstance(one, dict)
        for rank, values in enumerate(some):
            assert {"rank", "ranks", "u[0]"} < values.keys()
            assert np.load(io.BytesIO(one[f"rank-{rank:04d}/{data_file('u[0]')}"])) == pytest.approx(values["u[0]"])
