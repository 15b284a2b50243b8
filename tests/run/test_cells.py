"""Cells measured by a process that may end at one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dagc.base.errors import RunFailed
from dagc.measure.cells import CellDone, run_cells

WORKER = """
import json, os, resource, signal, sys, time
from pathlib import Path
from dagc.measure.cells import begin, end, say

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
for number, what in json.loads(Path(sys.argv[1]).read_text())["cells"]:
    if what == "early":
        os._exit(4)
    began = begin(number)
    if what == "fault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "exit":
        os._exit(3)
    if what == "said":
        sys.exit("dagc: no such thing\\nand more")
    if what == "hang":
        time.sleep(60)
    end(number, began, times=[0.5])
say(done=True)
"""


PATIENCE = 10  # seconds: Python starts in less, also on a busy machine


def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whats: list[str]) -> list[CellDone]:
    (tmp_path / "worker_of_cells.py").write_text(WORKER)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parents[2]}")

    def job(done: set[int]) -> dict[str, Any] | None:
        left = [(i, what) for i, what in enumerate(whats) if i not in done]
        return {"cells": left} if left else None

    return list(run_cells(job, "worker_of_cells", patience=PATIENCE))


def test_why_the_process_ended_at_a_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = results(tmp_path, monkeypatch, ["good", "fault", "exit", "said", "hang", "good"])
    assert [cell.number for cell in found] == list(range(6))
    assert [cell.failure for cell in found] == [
        "", "run failed: ended by SIGSEGV (Segmentation fault)", "run failed: ended with exit code 3, without a word",
        "run failed: no such thing", f"run failed: hang: nothing for {PATIENCE} s", "",
    ]  # fmt: skip
    assert [cell.times for cell in found if not cell.failure] == [(0.5,), (0.5,)]
    assert all(0 < cell.took < PATIENCE for cell in found if not cell.failure)


def test_a_process_that_ends_outside_of_its_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RunFailed, match="does not run: ended with exit code 4"):
        results(tmp_path, monkeypatch, ["good", "early", "good"])
