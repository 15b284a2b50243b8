"""Nitro's benchmarks by the records: real inputs apart, and rows that the committed tables give."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from benchmarks.tune import nitro


@dataclass(frozen=True)
class At:
    name: str
    ratio: float
    failed: bool = False


@dataclass(frozen=True)
class Found:
    verdicts: tuple[At, ...]


def test_real_inputs_are_apart_and_one_that_fails_counts_as_nothing() -> None:
    of_a_seed = Found((At('file(path = "a.mtx")', 1.0), At('window(image = "a.npy")', 2.0), At("window(n = 9)", 1.25)))
    other = Found((*of_a_seed.verdicts[:2], At("window(n = 9)", float("inf"), failed=True)))
    assert nitro.shares([of_a_seed], True) == "75.00"
    assert nitro.shares([of_a_seed], False) == "80.00"
    assert nitro.shares([of_a_seed, other]) == "63.33"
    assert nitro.shares([Found(of_a_seed.verdicts[2:])], True) == "-"


def test_a_row(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["nitro", "histogram, H100", "--seeds", "1"])
    assert nitro.main() == 0
    head, _, line = capsys.readouterr().out.splitlines()
    found = dict(zip(head.split(" | ")[1:], line.split(" | ")[1:], strict=True))
    assert (found["inputs"], found["families"], found["training, test"]) == ("84", "10", "38, 46")
    assert float(found["test"]) > float(found["single"]) > 90
    monkeypatch.setattr("sys.argv", ["nitro", "fft"])
    with pytest.raises(SystemExit):
        nitro.main()
