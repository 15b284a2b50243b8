"""What is known of the data of a program before anything is timed."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc.base.errors import DagcError
from dagc.base.sample import Sample
from dagc.ir.choice import Choice
from dagc.setup import read_scalars, run_setup
from dagc.stages.program import load
from dagc.study.launch import ISSUED, unless_short
from dagc.study.prepare import WARM, array_bytes, is_warm

SAMPLES = Path(__file__).parents[2] / "samples"


def test_a_repeated_program_is_warm_where_its_arrays_fit(tmp_path: Path) -> None:
    """Also arrays whose length comes with their data; not those of the host, which no L2 cache holds."""
    program = load(SAMPLES / "spmv/spmv.dag", {"rows": 600, "transport": "mpi_host"})
    run_setup(program, SAMPLES / "spmv", 2, 0, tmp_path)
    scalars = read_scalars(program, tmp_path, 2)
    n, sent, received = (int(scalars[name]) for name in ("n", "n_send", "n_recv"))
    entries = sum(array_bytes(program, scalars, tmp_path, name) for name in ("col_l", "col_r", "val_l", "val_r"))
    assert entries == 8 * 10 * n  # ten in each row, of 8 bytes with their column
    whole = 4 * (n + 2 * (n + 1) + sent + sent + received + 2 * n + n) + entries
    assert is_warm(program, scalars, tmp_path, int(whole / WARM))
    assert not is_warm(program, scalars, tmp_path, int(whole / WARM) - 2)
    (tmp_path / "rank-0000" / "col_l.npy").unlink()
    assert not is_warm(program, scalars, tmp_path, 1 << 40)  # unknown
    with pytest.raises(DagcError):
        array_bytes(program, scalars, tmp_path, "col_l")


@pytest.mark.parametrize(("first", "expected"), [(2 * ISSUED, [2.0, 1.0]), (ISSUED / 2, [7.0, 7.0])])
def test_launches_as_short_as_their_calls_are_timed_apart(first: float, expected: list[float]) -> None:
    """By the first setting that runs: all settings of an op are timed alike."""
    warm = iter([Sample(0.0, failure="too many threads"), Sample(first), Sample(ISSUED)])
    measure = unless_short(lambda choice: next(warm), lambda choice: Sample(7 * ISSUED))
    assert measure(Choice()).failure
    assert [measure(Choice()).value / ISSUED for _ in range(2)] == pytest.approx(expected)
