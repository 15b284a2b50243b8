"""Times of transfers on the host target, where they are copies in memory."""

from __future__ import annotations

import itertools

import pytest

from dagc.choice.placement import fit_transfer
from dagc.measure.machine import measured_transfers
from tests.precompiled import compile_by_clang


@pytest.mark.parametrize(("pageable", "gpus"), [(True, 1), (False, 2)])
def test_transfers_of_this_machine(pageable: bool, gpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_by_clang(monkeypatch)
    found = measured_transfers("host", "", pageable, gpus)
    assert set(found) == set(itertools.permutations(range(1 + gpus), 2))
    for samples in found.values():
        sizes = [size for size, _ in samples]
        assert sizes[0] == 4
        assert sizes[-1] == 1 << 26
        assert all(a < b for a, b in itertools.pairwise(sizes))
        transfer = fit_transfer(samples)
        assert transfer.latency >= 0
        assert 1e6 < transfer.bandwidth < 1e13  # bytes per second: no mistaken unit
