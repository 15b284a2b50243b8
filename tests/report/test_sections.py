"""Tables and tiles of the report."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc.report.charts import groups_of, points_of, ranked
from dagc.report.html import summary_tiles
from dagc.report.si import TIMES
from dagc.study.loaded import Loaded

RESULTS = Path(__file__).parents[2] / "benchmarks/results/2026-11-22-2xh200-launch/heat-auto.db"


@pytest.mark.thorough
def test_a_space_that_is_too_large_to_count_has_a_lower_bound():
    """It is counted for about a second: a page of a program of hundreds of ops is not waited for."""
    loaded = Loaded(RESULTS)
    points = points_of(loaded.results)
    tiles = summary_tiles(loaded.results, points, ranked(points)[0], groups_of(points), loaded.graphs, TIMES)
    ((value, note),) = [rest for name, *rest in tiles if name == "implementations"]
    assert value == "150"
    assert note.startswith("of more than ")
