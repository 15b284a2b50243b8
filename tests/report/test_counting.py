"""The counting report: each lowering and choice, and the whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dagc import api
from dagc.base.errors import counted
from dagc.report import counting, si
from dagc.report.counting import as_json, as_text
from dagc.space import Counter
from tests.tiers import representatives

SAMPLES = Path(__file__).parents[2] / "samples"
SPMV = SAMPLES / "spmv/spmv.dag"


def test_each_lowering_has_a_line() -> None:
    report = api.count(SPMV)
    lines = {line.label: line.count for line in report.lines}
    assert lines == {
        "transport=mpi_host staging=fused": 2036,
        "transport=mpi_host staging=ops": 23450,
        "transport=mpi_cuda": 2036,
        "transport=nccl": 96,
        "transport=peer": 96,
    }
    # yl and yr: two implementations, four blocks each.
    assert dict(report.per_op) == {"yl": 8, "yr": 8}
    assert report.whole == (2036 + 23450 + 2036 + 96 + 96) * 8 * 8


def test_a_choice_that_is_made_is_not_open() -> None:
    report = api.count(SPMV, {"transport": "mpi_cuda", "yl.variant": "warp_per_row", "yl.block": "64"})
    assert report.count == 2036
    assert dict(report.per_op).get("yl", 1) == 1
    assert dict(report.per_op)["yr"] == 8
    assert "staging" not in dict(report.choices)


# Not the halo exchange, which takes seconds: it is counted in the tests of the command line.
LARGE = ("halo3d", "heat", "jacobi", "pipeline", "tridiag")  # these take half a minute
COUNTED = [path for path in sorted(SAMPLES.glob("*/*.dag")) if path.stem not in LARGE]
QUICK = [path for path in COUNTED if path.stem != "cg"]  # which takes as long as all others


@pytest.mark.parametrize("path", representatives(COUNTED, *QUICK), ids=lambda path: path.stem)
def test_json_says_the_same_as_the_text(path: Path) -> None:
    report = api.count(path)
    record = json.loads(as_json(report))
    assert record["count"] == report.count > 0
    assert as_text(report).startswith(f"{counted(record['count'], 'implementation')} of {record['program']}")
    assert [line["count"] for line in record["lines"]] == [line.count for line in report.lines]
    for line in record["lines"]:
        assert (line["count"] is None) == bool(line["note"])
    assert (record["whole"] is None) == bool(record["whole_note"])
    if record["whole"] is not None:
        assert record["whole"] >= record["count"]


def test_a_combination_with_too_many_states_has_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagc.report.counting.VARIATION_WORK", 1)
    report = api.count(SPMV)
    assert (report.whole, report.whole_note) == (None, "a combination has too many states")
    assert any(line.note.endswith("too many states; alone: -D transport=nccl") for line in report.lines)


def test_large_numbers_are_exact() -> None:
    """Beyond 64 bits, in JSON too."""
    count = 5367658504764649454197598361600000
    report = api.count(SPMV)
    assert json.loads(as_json(replace(report, count=count)))["count"] == count


def test_a_count_that_is_cut_prints_a_lower_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, now = counting._watch, [0.0]

    def late_after_1000_states(show: Callable[[int], None], end: float) -> Callable[[int], None]:
        def at(states: int) -> None:
            now[0] = 10.0 if states >= 1000 else now[0]
            show(states)

        return watch(at, end)

    monkeypatch.setattr(counting, "_watch", late_after_1000_states)
    for module in ("dagc.report.counting", "dagc.recipes.program"):
        monkeypatch.setattr(f"{module}.monotonic", lambda: now[0])
    halo = SAMPLES / "halo3d/halo3d.dag"
    report = api.count(halo, {"transport": "mpi_cuda"}, seconds=9)
    assert report.count is None
    assert report.states >= 1000
    assert 0 < report.more_than < 5367658504764649454197598361600000
    assert as_text(report).startswith(f"more than {si.about(report.more_than)} implementations (cut after ")
    assert json.loads(as_json(report))["count"] is None
    # The time is that of the whole command: no variation is counted after it.
    assert {line.note for line in report.lines} == {"not counted: stopped by --time"}
    assert report.whole_note == "stopped by --time"


@pytest.mark.parametrize(
    ("defines", "seconds"),
    [({"transport": "mpi_cuda"}, 6.0), ({"transport": "mpi_host", "staging": "fused"}, 6.0), ({}, 3.0)],
)
def test_variations_get_half_of_the_time(
    defines: dict[str, str], seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The count of the graph may take all of it where no other choice is left."""
    ends: list[float] = []
    for module in ("dagc.report.counting", "dagc.recipes.program"):
        monkeypatch.setattr(f"{module}.monotonic", lambda: 100.0)
    monkeypatch.setattr("dagc.report.counting._watch", lambda show, end: ends.append(end) or show)
    api.count(SPMV, defines, seconds=6.0)
    assert ends[0] == 100.0 + seconds


def test_lowerings_with_equal_edges_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted_ = []
    total = Counter.total
    monkeypatch.setattr(Counter, "total", lambda self: counted_.append(self.moves) or total(self))
    api.count(SPMV)
    assert len(counted_) == len(set(counted_)) == 3  # mpi_host fused and mpi_cuda, staging=ops, nccl and peer


def test_the_time_begins_with_the_command(tmp_path: Path) -> None:
    """Thousands of ops: reading them takes all of the time, and neither symmetries nor states are searched."""
    (tmp_path / "a.dag").write_text(
        "program a param rows : i64 = 10 for i in 0..2500 { array a[i] : f32[rows] inout }\n"
        'kernel k(q: inout f32[n], n: i64) { gpu { launch grid(1) block(32) cuda """ q[0] = 1; """ } }\n'
        "dag { for i in 0..2500 { o[i] : gpu k(a[i], rows) } }\n"
    )
    report = api.count(tmp_path / "a.dag", seconds=0.2)
    assert (report.count, report.states, report.whole_note) == (None, 0, "stopped by --time")
