"""The halo exchange's set-up: the messages of halo3d.dag, played in NumPy, must give the reference."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest

from tests.samples.load import computed, sample

halo = sample("halo3d/halo.py")

BLOCK = {"nx": 4, "ny": 5, "nz": 3, "nq": 2, "g": 2}
SIZES = [1, 2, 3, 4, 6, 8, 12]


def ranks_of(size: int, seed: int = 1, **block: int) -> list[dict[str, Any]]:
    return [computed(halo.periodic(rank, size, seed, **(BLOCK | block))) for rank in range(size)]


def slab(data: dict[str, Any], d: int, s: int, ghost: bool, block: dict[str, int]) -> np.ndarray:
    """The view of `u` that `slab()` of halo3d.dag walks over."""
    g = block["g"]
    index: list[slice] = [slice(None)]
    for dim in (2, 1, 0):  # u is stored z, y, x
        n = block["nx"], block["ny"], block["nz"]
        start = g
        stop = g + n[dim]
        if dim == d:
            start = (g + n[d] if s else 0) if ghost else (n[d] if s else g)
            stop = start + g
        index.append(slice(start, stop))
    return data["u"][tuple(index)]


def exchange(ranks: list[dict[str, Any]], block: dict[str, int]) -> None:
    """face[d, s]: send snd[d, s] to nbr[d, s], receive rcv[d, 1 - s] from nbr[d, 1 - s]."""
    sides = ("lo", "hi")
    sent: dict[tuple[int, int, int, int], list[np.ndarray]] = {}
    for rank, data in enumerate(ranks):
        for d, dim in enumerate("xyz"):
            for s in (0, 1):
                to = int(data[f"nbr[{dim},{sides[s]}]"])
                sent.setdefault((d, s, rank, to), []).append(slab(data, d, s, False, block).copy())
    for rank, data in enumerate(ranks):
        for d, dim in enumerate("xyz"):
            for s in (0, 1):
                source = int(data[f"nbr[{dim},{sides[1 - s]}]"])
                (face,) = sent.pop((d, s, source, rank))
                slab(data, d, 1 - s, True, block)[...] = face
    assert not sent


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("block", [{}, {"g": 1}, {"g": 3}, {"nx": 2, "ny": 2, "nz": 2, "nq": 1}])
def test_the_exchange_gives_the_reference(size: int, block: dict[str, int]) -> None:
    block = BLOCK | block
    ranks = ranks_of(size, **block)
    want = [halo.wrapped(data, rank=rank, size=size, seed=1, **block)["u"] for rank, data in enumerate(ranks)]
    assert not any(np.array_equal(data["u"], u) for data, u in zip(ranks, want, strict=True))
    exchange(ranks, block)
    for data, u in zip(ranks, want, strict=True):
        assert u.dtype == np.float64
        assert np.array_equal(data["u"], u)


@pytest.mark.parametrize("size", SIZES)
def test_a_second_exchange_changes_nothing(size: int) -> None:
    ranks = ranks_of(size)
    exchange(ranks, BLOCK)
    once = [data["u"].copy() for data in ranks]
    exchange(ranks, BLOCK)
    assert all(np.array_equal(data["u"], u) for data, u in zip(ranks, once, strict=True))


def test_only_the_ghosts_of_faces_change() -> None:
    (data,) = ranks_of(1)
    before = data["u"].copy()
    after = halo.wrapped(data, rank=0, size=1, seed=1, **BLOCK)["u"]
    assert np.array_equal(data["u"], before)
    g = BLOCK["g"]
    along = [np.pad(np.zeros(BLOCK[n], int), g, constant_values=1) for n in ("nz", "ny", "nx")]
    outside = along[0][:, None, None] + along[1][:, None] + along[2]  # in how many directions a cell is a ghost
    assert np.array_equal(after[:, outside != 1], before[:, outside != 1])
    assert (before[:, outside > 0] == halo.MARK).all()
    assert (after[:, outside > 1] == halo.MARK).all()
    assert (after[:, outside == 1] >= 0).all()
    assert np.isfinite(after).all()


def test_two_and_four_ranks_meet_the_same_neighbour_on_both_sides() -> None:
    """The case that goes wrong where faces are told apart by rank alone."""
    assert [ranks_of(4)[0][f"nbr[x,{s}]"] for s in ("lo", "hi")] == [1, 1]
    assert [ranks_of(4)[0][f"nbr[z,{s}]"] for s in ("lo", "hi")] == [0, 0]
    ranks = ranks_of(2)
    exchange(ranks, BLOCK)
    low, high = (slab(ranks[0], 0, s, True, BLOCK) for s in (0, 1))
    assert not np.array_equal(low, high)


@pytest.mark.parametrize("size", [*range(1, 65), 97, 128, 1000])
def test_the_grid_is_the_most_equal_one(size: int) -> None:
    grid = halo.dims_create(size)
    assert prod(grid) == size
    assert list(grid) == sorted(grid, reverse=True)
    triples = [(a, b, c) for c in range(1, size + 1) if size % c == 0 for b in range(c, size // c + 1)
               if size // c % b == 0 and (a := size // c // b) >= b]  # fmt: skip
    assert max(grid) - min(grid) == min(max(t) - min(t) for t in triples)
    assert sorted(halo.coordinates(r, grid) for r in range(size)) == sorted(np.ndindex(*grid))


@pytest.mark.parametrize("block", [{"g": 0}, {"g": 4}, {"nq": 0}, {"nx": 0}])
def test_blocks_without_sense_are_refused(block: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="ghost width"):
        ranks_of(1, **block)
