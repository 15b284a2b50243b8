"""The traversal of an ID is enumerated if it is one of the first; otherwise states are counted, up to a limit."""

from __future__ import annotations

import pytest

from dagc.base.errors import UsageError
from dagc.stages import artifacts
from dagc.stages.artifacts import wanted_traversal
from tests.graphs import spmv


def test_ids_are_enumerated_or_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, shown = spmv(2), list[int]()
    enumerated = wanted_traversal(graph, "7", shown.append)
    assert not shown
    monkeypatch.setattr(artifacts, "_FIRST", 0)
    assert wanted_traversal(graph, "7", shown.append) == enumerated
    with pytest.raises(UsageError, match="does not exist"):
        wanted_traversal(graph, "1000000")
    monkeypatch.setattr(artifacts, "_COUNTED", 10)
    with pytest.raises(UsageError, match="more than 10 states"):
        wanted_traversal(graph, "7")
