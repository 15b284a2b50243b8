"""Measurements of one kernel in several runs become one table."""

from __future__ import annotations

import pytest

from benchmarks.gpu.devices import joined, lowest
from benchmarks.tune.variants import Table


def table(variants: tuple[str, ...], rows: dict[str, dict[int, float]]) -> Table:
    count, vectors = len(rows), tuple((float(len(name)),) for name in rows)
    return Table("k", tuple(rows), ("",) * count, (1.0,) * count, ("n",), vectors, variants, tuple(rows.values()))


FIRST = table(("cpu", "gpu"), {"n=1": {0: 2.0, 1: 9.0}, "n=22": {0: 5.0, 1: 3.0}})
SECOND = table(("new", "gpu", "cpu"), {"n=22": {0: 4.0, 1: 6.0, 2: 1.0}, "n=333": {0: 1.0}})


def test_a_record_without_a_version_adds_times_and_no_inputs() -> None:
    both = joined([FIRST, SECOND])
    assert both.variants == ("cpu", "gpu", "new")
    assert both.inputs == ("n=22", "n=333"), "at n=1 the new version was never tried: which is the best is not known"
    assert both.times == ({0: 1.0, 1: 3.0, 2: 4.0}, {2: 1.0})
    assert both.vectors == ((4.0,), (5.0,))


def test_records_of_the_same_versions_are_joined_in_any_order() -> None:
    other = table(("gpu", "cpu"), {"n=22": {0: 1.0, 1: 7.0}, "n=4444": {1: 8.0}})
    one, two = joined([FIRST, other]), joined([other, FIRST])
    assert set(one.inputs) == set(two.inputs) == {"n=1", "n=22", "n=4444"}
    assert lowest([one]) == lowest([two]) == lowest([FIRST, other])
    assert lowest([one])["n=22"] == {"cpu": 5.0, "gpu": 1.0}


def test_no_record_of_all_versions_is_said() -> None:
    with pytest.raises(SystemExit, match="no record has all of cpu, gpu, new, old"):
        joined([SECOND, table(("old", "gpu"), {"n=1": {0: 1.0}})])
