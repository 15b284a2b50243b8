"""The counts of lines by feature and room."""

from __future__ import annotations

from pathlib import Path

from benchmarks.lines import FEATURES, REST, feature_of

DAGC = Path(__file__).parents[2] / "dagc"


def test_each_pattern_of_a_feature_has_modules() -> None:
    """A module that was renamed would be counted with the rest."""
    missing = [p for patterns in FEATURES.values() for p in patterns if not list(DAGC.glob(p))]
    assert not missing
    assert feature_of("editor/server.py") != REST
    assert feature_of("lang/lower.py") == REST
