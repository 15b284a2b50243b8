"""What the machine can do at most, measured on the host target."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc.measure.machine import measured_ceilings


def test_ceilings_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DAGC_CACHE", str(tmp_path))
    assert measured_ceilings("host", "", kept=True) is None  # measured on request only
    found = measured_ceilings("host", "")
    assert found is not None
    sizes = [size for size, _ in found["streams"]]
    assert sizes == [15 << n for n in range(10, 24)]
    assert all(1e8 < speed < 1e14 for _, speed in found["streams"])  # bytes per second: no mistaken unit
    assert 1e7 < found["operations"] < 1e13
    assert 0 < found["launch"] < 1e-3
    assert found["wait"] >= 0
    assert measured_ceilings("host", "", kept=True) == found
