"""The FFT on pencils: its exchanges, played in NumPy, must give the reference; and the program does."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from dagc import api
from tests.measure.conftest import SAMPLES, can_run
from tests.samples.load import computed, sample

fft = sample("fft/fft.py")


@pytest.mark.parametrize(("ranks", "px", "n"), [(1, 0, 4), (3, 3, 8), (4, 1, 4), (6, 2, 8)])
def test_pencils_turn_twice(ranks: int, px: int, n: int) -> None:
    """What all ranks send arrives where the counts say, of blocks that differ by one."""
    of = [computed(fft.pencils(r, ranks, 1, n, px)) for r in range(ranks)]

    def turned(
        lines: list[np.ndarray], place: str, key: str, counts: str, lengths: tuple[str, str]
    ) -> list[np.ndarray]:
        out = []
        for mine in of:
            members = sorted((r for r in range(ranks) if of[r][place] == mine[place]), key=lambda r: of[r][key])
            got = []
            for r in members:
                at = np.cumsum([0, *of[r][f"to_{counts}"]]) // (2 * len(lines[r]))
                first, last = list(pairwise(at))[mine[key]]
                got.append(lines[r][:, first:last].reshape(-1))
            assert [2 * len(part) for part in got] == list(mine[f"from_{counts}"])
            b, c = (mine[name] for name in lengths)
            out.append(np.concatenate(got).reshape(n, b * c).T.copy())
        return out

    lines = [np.fft.fft(d["start"].view(np.complex128).reshape(-1, n)) for d in of]
    lines = [np.fft.fft(one) for one in turned(lines, "i", "j", "row", ("z", "x"))]
    lines = [np.fft.fft(one) for one in turned(lines, "j", "i", "col", ("x", "w"))]
    for rank, own in enumerate(lines):
        expected = fft.transform({}, rank=rank, size=ranks, seed=1, n=n, px=px)["result"]
        assert np.allclose(own.reshape(-1), expected.view(np.complex128).reshape(-1))


@pytest.mark.parametrize(
    ("ranks", "px", "n", "said"),
    [(6, 4, 8, "6 ranks are not a grid of 4 columns"), (2, 0, 12, "not a power of two"), (5, 5, 4, "5 columns")],
)
def test_grids_that_do_not_divide_are_named(ranks: int, px: int, n: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        fft.pencils(0, ranks, 1, n, px)


@pytest.mark.mpi
@pytest.mark.thorough
@pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI")
@pytest.mark.usefixtures("unoptimised")
def test_the_transform_on_three_ranks(tmp_path: Path) -> None:
    small = {"n": 8, "px": 0, "transport": "mpi_host"}
    done = api.compile(
        SAMPLES / "fft/fft.dag", tmp_path / "out", target="host", defines=small, run=True, ranks=3, seconds=1e-3,
        repeats=1,
    )  # fmt: skip
    assert done.result is not None
