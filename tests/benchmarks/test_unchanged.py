"""The comparison of what users see before and after a change."""

from __future__ import annotations

from pathlib import Path

from benchmarks.unchanged import ROOT, differences, masked


def _written(folder: Path, **cases: str) -> Path:
    for name, text in cases.items():
        (folder / "help").mkdir(parents=True, exist_ok=True)
        (folder / "help" / f"{name}.txt").write_text(text, encoding="utf-8")
    return folder


def test_a_digit_that_moved_a_case_that_is_new_and_one_that_is_gone_are_reported(tmp_path: Path) -> None:
    before = _written(tmp_path / "before", same="1.234\n", moved="best 1.234 us\nend\n", gone="x\n")
    after = _written(tmp_path / "after", same="1.234\n", moved="best 1.235 us\nend\n", new="x\n")
    gone, moved, new = differences(before, after, ["help"], "")
    assert (gone, new) == ("help/gone.txt: only before", "help/new.txt: only after")
    assert moved.splitlines()[2:] == ["  -best 1.234 us", "  +best 1.235 us"]


def test_only_the_families_and_cases_that_were_run_are_compared(tmp_path: Path) -> None:
    before, after = _written(tmp_path / "before", one="1\n"), _written(tmp_path / "after", one="2\n")
    assert differences(before, after, ["tuned"], "") == []
    assert differences(before, after, ["help"], "another") == []
    assert len(differences(before, after, ["help"], "one")) == 1


def test_paths_and_durations_are_masked_and_times_of_kernels_are_not(tmp_path: Path) -> None:
    shown = f"wrote {tmp_path}/r.html of {ROOT}/samples\ntime 0.9 s searching and writing\nbest 36.4 us\n"
    assert masked(shown, tmp_path) == (
        "wrote OUT/r.html of ROOT/samples\ntime SECONDS searching and writing\nbest 36.4 us\n"
    )
