"""Functions through hardware counters: exact where counts are, on an H200's recorded counters, and too few of them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from benchmarks.tune.counters_csv import read_counters
from dagc import api
from dagc.base.errors import UsageError
from dagc.choice.legal import op_of, open_sites
from dagc.perf.evaluate import evaluate_all
from dagc.perf.hardware import load_hardware
from dagc.perf.mwp_cwp import (
    FITTED_COUNTS,
    CountedLaunch,
    Fitted,
    counted_program,
    fit_counts,
    machine_values,
    op_program,
)

ROOT = Path(__file__).parents[2]
COUNTERS = ROOT / "benchmarks" / "results" / "2026-11-21-h200-tune" / "counters.csv.xz"


def op_named(program, name):
    graph = api.load_graph(ROOT / "samples" / "polybench" / f"{program}.dag")
    return graph.program, op_of(graph, next(u for u in open_sites(graph) if u.name == name))


@pytest.fixture(scope="module")
def recorded():
    return read_counters(COUNTERS)


@pytest.fixture(scope="module")
def gemm(recorded):
    program, op = op_named("gemm", "gemm")
    return program, op, fit_counts(program, op, recorded["gemm", "gemm"])


@pytest.mark.thorough
def test_a_gemm_warp_makes_three_requests_an_iteration(gemm):
    """a[i][k], b[k][j] and c[i][j], which is written back too: as the counters of all sizes and blocks say."""
    _, _, fits = gemm
    assert set(fits) == set(FITTED_COUNTS)
    found = fits["requests"]
    assert found.names == ("nk",)
    assert found.held_out.largest < 1e-4
    steps = found(np.array([[1000], [1001]]))
    assert steps[1] - steps[0] == pytest.approx(3, rel=1e-3)


def test_sectors_hang_on_the_lanes_of_a_row(gemm):
    _, _, fits = gemm
    assert "lanes_x" in fits["sectors"].names
    assert fits["sectors"].held_out.median < 0.1


def test_the_program_counts_as_the_kernels_text_does(gemm):
    """Counted and read from the text: requests alike, arithmetic of the same order."""
    program, op, fits = gemm
    values = machine_values(load_hardware("h200")) | {
        "ni": 700, "nj": 900, "nk": 1100, "blockDim_x": 32, "blockDim_y": 8, "registers": 32,
    }  # fmt: skip
    counted = evaluate_all(counted_program(program, op, fits), values)
    text = evaluate_all(op_program(program, op), values)
    requests = text["coal_mem_insts"] + text["uncoal_mem_insts"]
    assert counted["uncoal_mem_insts"] == pytest.approx(requests, rel=0.01)
    assert text["comp_insts"] / 3 < counted["comp_insts"] < text["comp_insts"] * 3
    assert counted["time"] > 0


def test_a_search_for_parameters_ends_where_a_kernel_has_few(recorded):
    """GRAMSCHM's q: fewer parameters that vary than the search would take, and no fit of degree 2 through its sizes."""
    program, op = op_named("gramschm", "q")
    fits = fit_counts(program, op, recorded["gramschm", "q"])
    assert fits["requests"].held_out.largest < 1e-3


def test_functions_come_back_from_their_json(gemm):
    for found in gemm[2].values():
        again = msgspec.json.decode(msgspec.json.encode(found.to_json()), type=Fitted)
        assert (again.names, again.held_out) == (found.names, found.held_out)
        points = np.array([[100 + 7 * i for i in range(len(found.names))], [512] * len(found.names)])
        assert (again(points) == found(points)).all()


def test_too_few_launches(recorded):
    program, op = op_named("gemm", "gemm")
    with pytest.raises(UsageError, match="15 counted launches: too few"):
        fit_counts(program, op, recorded["gemm", "gemm"][:15])


def test_launches_that_are_all_alike():
    program, op = op_named("gemm", "gemm")
    counts = dict.fromkeys(
        ("instructions", "warps", "load_requests", "store_requests", "load_sectors", "store_sectors"), 1e6
    )
    same = [CountedLaunch({"ni": 512, "nj": 512, "nk": 512}, (32, 8, 1), counts)] * 20
    with pytest.raises(UsageError, match="all counted launches are alike"):
        fit_counts(program, op, same)


def launches_of(program, op, requests_of):
    """Launches whose warps make so many requests, as counters would say."""
    model = op_program(program, op)
    rng, out = np.random.default_rng(3), []
    for _ in range(48):
        n, bx, by = int(rng.integers(200, 4000)), int(2 ** rng.integers(5, 10)), int(2 ** rng.integers(0, 2))
        sizes = {"ni": n, "nj": n, "nk": n}
        values = machine_values(load_hardware("h200")) | sizes
        values |= {"blockDim_x": bx, "blockDim_y": by, "registers": 32}
        warps = float(evaluate_all(model, values)["active_warps"])
        requests = requests_of(n, bx) * warps
        counts = {"instructions": 10 * requests, "warps": warps, "load_requests": requests, "store_requests": 0.0}
        out.append(CountedLaunch(sizes, (bx, by, 1), counts | {"load_sectors": 4 * requests, "store_sectors": 0.0}))
    return out


@pytest.mark.thorough
def test_counts_of_a_row_for_each_block_need_the_block_and_not_its_lanes():
    program, op = op_named("gemm", "gemm")
    fits = fit_counts(program, op, launches_of(program, op, lambda n, bx: 5 + 8 * n / bx))
    assert "blockDim_x" in fits["requests"].names
    assert fits["requests"].held_out.largest < 0.01


def test_a_fit_that_is_far_off_is_refused():
    program, op = op_named("gemm", "gemm")
    noise = np.random.default_rng(5)
    launches = launches_of(program, op, lambda n, bx: 100 * np.exp(2 * noise.standard_normal()))
    with pytest.raises(UsageError, match=r"the fit of \w+ is off by \d+% at held-out launches"):
        fit_counts(program, op, launches)
