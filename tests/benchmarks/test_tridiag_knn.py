"""The tridiagonal selector's table: constants, splits, and tolerances that see nothing of a size left out."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from benchmarks.tune import tridiag_knn

SIZES = [100, 200, 400, 800, 1600, 3200, 6400, 12800]
A, B, C = (4, 1), (8, 1), (16, 2)


@pytest.fixture
def measured(tmp_path: Path) -> tridiag_knn.Measured:
    """(4, 1) is best below 1000, (8, 1) above, by 50 %; (16, 2) loses 2 % everywhere. Half widths are 1 %, at 12800
    10 %. A second file replaces a cell; a size that has not all pairs, and what is wrong, does not count."""
    lines = []
    for size in SIZES:
        fast, slow = (A, B) if size < 1000 else (B, A)
        for (m, chunks), time in ((fast, 1.0), (slow, 1.5), (C, 1.02)):
            half = 0.1 if size == SIZES[-1] else 0.01
            lines.append(f"f64,{size},{m},{chunks},{time},{time * (1 - half)},{time * (1 + half)},True")
    lines += ["f64,50,4,1,1.0,1.0,1.0,True", "f64,25,4,1,1.0,1.0,1.0,False"]
    head = "real,size,m,chunks,median_us,low_us,high_us,verified"
    for name, rows in (("first", [*lines, "f64,100,4,1,99,99,99,True"]), ("second", [lines[0]])):
        with lzma.open(tmp_path / f"{name}.csv.xz", "wt") as file:
            file.write("\n".join([head, *rows]) + "\n")
    found = tridiag_knn.read([tmp_path / "first.csv.xz", tmp_path / "second.csv.xz"])
    return found["f64"]


def test_complete_sizes_are_read(measured: tridiag_knn.Measured) -> None:
    assert list(measured.times) == SIZES
    assert measured.times[100] == {A: 1.0, B: 1.5, C: 1.02}


def test_the_tolerance_is_of_the_sizes_that_are_seen(measured: tridiag_knn.Measured) -> None:
    assert measured.tolerance(SIZES[:-1]) == pytest.approx(0.02)
    assert measured.tolerance(SIZES[-1:]) == pytest.approx(0.2)
    assert set(measured.labels(SIZES[-2:], None, correct=True)) == {B}
    assert measured.labels(SIZES, 0.03, correct=True) == (C,) * 8, "one label within 3 % everywhere"
    assert measured.labels(SIZES, 0.01, correct=True) == measured.labels(SIZES, None, correct=False)


def test_constants_beside_what_is_learned(measured: tridiag_knn.Measured) -> None:
    lines = tridiag_knn.evaluate("f64", measured, 0.01)
    assert [line.split(" | ")[1] for line in lines] == [
        "trained on observed labels", "trained on corrected labels",
        "always 16, 2: the best constant, in hindsight", "the best constant of the other sizes",
        "always 4, 1: the most frequent label", "the published heuristic of an RTX 2080 Ti",
    ]  # fmt: skip
    assert (
        lines[2] == "| f64 | always 16, 2: the best constant, in hindsight | 0 of 8 | 0 of 8 | 0 of 8 | 2.00% | 2.00% |"
    )
    assert lines[4].endswith("| 4 of 8 | 4 of 8 | 4 of 8 | 25.00% | 50.00% |")
    assert lines[5].endswith("| 6 of 8 | 6 of 8 | 6 of 8 | 12.50% | 50.00% |"), "m = 4 below 5000, then 8"


def test_what_varies_beside_m_and_chunks_is_part_of_the_choice(tmp_path: Path) -> None:
    rows = [f"f64,{size},4,1,{block},{depth},{time},1,1,True" for size in SIZES
            for block, depth, time in ((32, 0, 3.0), (32, 1, 1.5), (64, 0, 2.0), (64, 1, 2.5))]  # fmt: skip
    with lzma.open(tmp_path / "all.csv.xz", "wt") as file:
        file.write("\n".join(["real,size,m,chunks,block,depth,median_us,low_us,high_us,verified", *rows]) + "\n")
    found = tridiag_knn.read([tmp_path / "all.csv.xz"])["f64"]
    assert found.names == ("m", "chunks", "block", "depth")
    assert tridiag_knn.rule("f64", found, 0.01) == ["| f64 | 100 to 12800 | 4 | 1 | 32 | 1 |"]
    assert "1.00 over always 4, 1, 32, 1" in tridiag_knn.gains(found)
    by_depth = tridiag_knn.fastest(tridiag_knn.cells([tmp_path / "all.csv.xz"]), "depth")
    assert by_depth[2] == "| f64 | 100 | 2.0 (4, 1, 64, 0) | 1.5 (4, 1, 32, 1) | 1.33 |"
    assert len(by_depth) == 2 + len(SIZES)


def test_splits_hold_a_quarter_back(measured: tridiag_knn.Measured) -> None:
    observed, corrected = tridiag_knn.splits("f64", measured, 0.01, draws=4)
    share, least, whole = observed.split(" | ")[2:5]
    assert 0.5 <= float(least) <= float(share) <= 1
    assert whole.endswith(" of 4")
    assert corrected.split(" | ")[2:] == observed.split(" | ")[2:], "nothing is corrected within 1 %"
