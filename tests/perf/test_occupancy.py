"""Occupancy: the rational program against CUDA's own answers, recorded on an H200."""

from __future__ import annotations

import csv
import lzma
from pathlib import Path

import numpy as np

from dagc.perf.evaluate import evaluate, evaluate_all
from dagc.perf.occupancy import H200, occupancy_program

# Made by benchmarks/gpu/occupancy.cu: registers, threads, shared (bytes, static and dynamic), blocks.
RECORDED = Path(__file__).parents[1] / "data" / "occupancy-h200.csv.xz"
PLAIN = {name: H200[name] for name in ("Rmax", "Zmax", "Tmax", "Bmax", "Wmax")}


def recorded() -> dict[str, np.ndarray]:
    with lzma.open(RECORDED, "rt") as file:
        rows = list(csv.DictReader(file))
    return {name: np.array([int(row[name]) for row in rows]) for name in rows[0]}


def test_the_program_says_what_cuda_says() -> None:
    cuda = recorded()
    assert len(cuda["blocks"]) == 6000
    assert len(set(cuda["registers"])) > 20
    launch = {"T": cuda["threads"], "R": cuda["registers"], "Z": cuda["shared"]}
    blocks = evaluate(occupancy_program(), {**H200, **launch})
    np.testing.assert_array_equal(blocks, cuda["blocks"])


def test_the_published_chart_is_too_generous() -> None:
    """Without allocation units it is never below CUDA's answer, and above it for some launches."""
    cuda = recorded()
    launch = {"T": cuda["threads"], "R": cuda["registers"], "Z": cuda["shared"]}
    blocks = evaluate(occupancy_program(plain=True), {**PLAIN, **launch})
    assert (blocks >= cuda["blocks"]).all()
    assert 0.7 < (blocks == cuda["blocks"]).mean() < 0.95


def test_the_five_branches() -> None:
    def active(t: int, r: int, z: int) -> int:
        return int(evaluate(occupancy_program(plain=True), {**PLAIN, "T": t, "R": r, "Z": z}))

    assert active(32, 16, 0) == 32, "blocks"
    assert active(512, 16, 0) == 4, "warps"
    assert active(256, 64, 0) == 4, "registers"
    assert active(64, 16, 40_000) == 5, "shared memory"
    assert active(2048, 16, 0) == 0, "cannot be launched"
    names = evaluate_all(occupancy_program(plain=True), {**PLAIN, "T": 256, "R": 64, "Z": 0})
    assert names["Wactive"] == 32
