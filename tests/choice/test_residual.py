"""The pre-trained learner: its file, its trees, and what it says where nothing is known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dagc.choice.residual import FEATURES, FEW_BIAS, FILE, TERMS, UNTRAINED, features, load_learner
from dagc.ir.choice import Choice


def changed(folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The file of the package with a change."""
    found = json.loads(FILE.read_text())
    change(found)
    path = folder / "learner.json"
    path.write_text(json.dumps(found))
    return path


def test_the_file_of_the_package() -> None:
    learner = load_learner(FILE)
    assert FILE.stat().st_size < 1 << 20
    assert learner.archs == ("sm_90",)
    assert "oracle-fit.csv.xz" in learner.source, "where it comes from"
    assert 0.05 < learner.deviation <= learner.blind < 2


def test_a_kernel_of_which_nothing_is_known_has_equal_settings_and_more_doubt() -> None:
    table = np.full((7, len(TERMS)), np.nan)
    for learner in (UNTRAINED, load_learner(FILE)):
        mean, deviation = learner.predict(table, [Choice()] * len(table))
        assert np.ptp(mean) < 1e-12
        assert (deviation == learner.blind).all()
        assert learner.blind > learner.deviation


def test_settings_that_the_model_does_not_know_are_as_the_slowest() -> None:
    table = np.full((3, len(TERMS)), np.nan)
    table[:, 0] = [1e-3, 2e-3, np.inf]
    mean, _ = UNTRAINED.predict(table, [Choice()] * len(table))
    assert np.isfinite(mean).all()
    assert mean[2] == mean[1] > mean[0]


def test_what_is_learned_does_not_depend_on_the_scale_of_the_model() -> None:
    """Features are ratios, but for the absolute time itself."""
    table = np.abs(np.random.default_rng(0).normal(size=(6, len(TERMS)))) * 1e-4
    table[:, 0] = np.linspace(1, 2, 6) * 1e-4
    twice = table.copy()
    times = [i for i, name in enumerate(TERMS) if name == "seconds" or name.endswith("_s")]
    twice[:, times] *= 2
    one, two = features(table), features(twice)
    for i, name in enumerate(FEATURES):
        assert name == "seconds" or np.allclose(one[:, i], two[:, i], equal_nan=True), name


def _cycle(found: dict[str, Any]) -> None:
    found["trees"] = [
        {"feature": [0, 0], "threshold": [0, 0], "left": [1, 1], "right": [1, 1], "value": [0, 0], "unknown_left": []}
    ]


CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "other features": lambda found: found["features"].pop(),
    "another format": lambda found: found.update(format=99),
    "no kernel": lambda found: found.pop("kernel"),
    "a negative length": lambda found: found["kernel"].update(lengths=[1, 1, 1, -1, 1]),
    "a deviation that is not a number": lambda found: found.update(deviation=float("nan")),
    "a tree that goes round": _cycle,
    "a text for a number": lambda found: found.update(blind="much"),
    "a list for all": lambda found: found.update(kernel=[]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_broken_file_is_refused(tmp_path: Path, change: str) -> None:
    with pytest.raises(ValueError, match="is not a learner of launch settings"):
        load_learner(changed(tmp_path, CHANGES[change]))


def test_a_file_that_is_no_json_or_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "learner.json"
    path.write_text("{" * 100_000)
    with pytest.raises(ValueError, match="is not a learner"):
        load_learner(path)
    other = tmp_path / "large.json"
    other.write_bytes(b" " * ((1 << 20) + 1))
    with pytest.raises(ValueError, match="larger than 1024 KiB"):
        load_learner(other)


def test_predicted_gains_of_forms_are_trusted_as_far_as_they_were_right() -> None:
    """A form that was never measured, too: by its bias alone it is not ahead. Nor is one with too few threads."""
    table = np.full((4, len(TERMS)), 1e-4)
    forms = ([], [("form.wide", 4)], [("form.new", 2)], [("form.freedom", 2)])
    named = [Choice.at("k", [("bx", 32), *own]) for own in forms]
    means = {}
    for warps in (8.0, 16.0, 64.0):
        table[:, TERMS.index("warps_sm")] = warps
        means[warps] = UNTRAINED.predict(table, named)[0]
    assert means[64][0] == means[64][1] == means[64][3] < means[64][2]
    assert means[8][0] == means[8][3]
    assert means[8][1] - means[16][1] == pytest.approx(means[16][1] - means[64][1]) == pytest.approx(FEW_BIAS)
