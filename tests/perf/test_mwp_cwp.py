"""MWP-CWP: its cases against the published equations written out, its counts, and the same numbers in C."""

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagc import api
from dagc.choice.legal import op_of, open_sites
from dagc.perf.cprint import C_TYPES, HELPERS, to_c
from dagc.perf.evaluate import evaluate, evaluate_all
from dagc.perf.hardware import load_hardware
from dagc.perf.mwp_cwp import COUNTS, MACHINE, machine_values, mwp_cwp_program, op_program
from dagc.perf.program import Number, ParameterKind

POLYBENCH = Path(__file__).parents[2] / "samples" / "polybench"
BLOCKS = [(x, y) for x in (1, 2, 4, 8, 16, 32, 64, 256) for y in (1, 4, 8, 32) if 32 <= x * y <= 1024]

# A machine and a kernel of the size of those in the paper.
BASE = {
    "coal_mem_insts": 6.0, "uncoal_mem_insts": 0.0, "uncoal_per_mw": 0.0, "load_bytes_per_warp": 128.0,
    "comp_insts": 27.0, "synch_insts": 6.0, "grid_blocks": 800, "threads_per_block": 128, "resident_blocks": 5,
    "mem_latency": 420.0, "departure_del_coal": 4.0, "departure_del_uncoal": 10.0, "mem_bandwidth": 80e9,
    "issue_cycles": 4.0, "clock": 1e9, "multiprocessors": 16,
}  # fmt: skip


def by_hand(v):
    """The equations of the paper, one after the other."""
    n = v["resident_blocks"] * v["threads_per_block"] / 32
    insts = v["coal_mem_insts"] + v["uncoal_mem_insts"]
    share = v["uncoal_mem_insts"] / insts
    apart = v["mem_latency"] + (v["uncoal_per_mw"] - 1) * v["departure_del_uncoal"]
    latency = apart * share + v["mem_latency"] * (1 - share)
    departure = v["departure_del_uncoal"] * v["uncoal_per_mw"] * share + v["departure_del_coal"] * (1 - share)
    bandwidth = v["mem_bandwidth"] / (v["clock"] * v["load_bytes_per_warp"] / latency * v["multiprocessors"])
    mwp = min(latency / departure, bandwidth, n)
    comp = v["issue_cycles"] * (v["comp_insts"] + insts)
    wait = apart * v["uncoal_mem_insts"] + v["mem_latency"] * v["coal_mem_insts"]
    cwp = min((wait + comp) / comp, n)
    rep = v["grid_blocks"] / (v["resident_blocks"] * v["multiprocessors"])
    barriers = departure * (mwp - 1) * v["synch_insts"] * v["resident_blocks"]
    if mwp == n and cwp == n:
        return "enough of neither", (wait + comp + comp / insts * (mwp - 1) + barriers) * rep
    if cwp >= mwp or comp > wait:
        return "memory", (wait * n / mwp + comp / insts * (mwp - 1) + barriers) * rep
    return "arithmetic", (latency + comp * n + barriers) * rep


@pytest.mark.parametrize(
    ("case", "change"),
    [
        ("memory", {}),
        ("memory", {"uncoal_mem_insts": 2.0, "uncoal_per_mw": 8.0}),
        ("enough of neither", {"resident_blocks": 1, "threads_per_block": 64, "comp_insts": 1.0}),
        ("arithmetic", {"comp_insts": 300.0, "mem_bandwidth": 8e12, "threads_per_block": 512}),
    ],
)
def test_each_case_is_the_papers(case, change):
    values = BASE | change
    assert by_hand(values)[0] == case
    assert evaluate(mwp_cwp_program(), values) == pytest.approx(by_hand(values)[1], rel=1e-12)


def test_without_memory_instructions_the_time_is_the_arithmetics():
    values = BASE | {"coal_mem_insts": 0.0, "load_bytes_per_warp": 0.0, "synch_insts": 0.0}
    assert evaluate(mwp_cwp_program(), values) == 4.0 * 27 * 20 * 10


def test_a_grid_smaller_than_the_gpu_uses_a_block_of_each():
    values = BASE | {"grid_blocks": 3}
    steps = evaluate_all(mwp_cwp_program(), values)
    assert (steps["active_sms"], steps["active_blocks"], steps["rep"]) == (3, 1, 1.0)


@given(
    uncoal=st.floats(0.5, 50), more=st.floats(0, 31), bandwidth=st.floats(1e9, 1e13), threads=st.integers(1, 32)
)  # fmt: skip
def test_more_transactions_never_cost_less_latency(uncoal, more, bandwidth, threads):
    values = BASE | {
        "uncoal_mem_insts": uncoal, "mem_bandwidth": bandwidth, "threads_per_block": 32 * threads
    }  # fmt: skip
    one = evaluate_all(mwp_cwp_program(), values | {"uncoal_per_mw": 1.0})
    many = evaluate_all(mwp_cwp_program(), values | {"uncoal_per_mw": 1.0 + more})
    assert many["mem_cycles"] >= one["mem_cycles"]
    assert np.isfinite(many["time"])
    assert many["time"] > 0


def test_every_parameter_is_documented():
    assert all(p.meaning for p in mwp_cwp_program().parameters)
    assert all(p.unit for p in (*COUNTS, *MACHINE) if p.name != "multiprocessors")
    page = (Path(__file__).parents[2] / "docs" / "explanation" / "mwp-cwp.md").read_text(encoding="utf-8")
    assert [p.name for p in mwp_cwp_program().parameters if f"`{p.name}`" not in page] == []


def program_of(name, op):
    graph = api.load_graph(POLYBENCH / f"{name}.dag")
    site = next(site for site in open_sites(graph) if site.name == op)
    return op_program(graph.program, op_of(graph, site))


def values_of(program, bx, by, size=1024):
    sizes = {p.name: size for p in program.of_kind(ParameterKind.DATA)}
    return machine_values(load_hardware("h200")) | sizes | {"blockDim_x": bx, "blockDim_y": by, "registers": 32}


@pytest.fixture(scope="module")
def gemm():
    return program_of("gemm", "gemm")


def test_transactions_are_those_of_one_instruction(gemm):
    """Rows of 32 lanes are coalesced. With 8 lanes a row, a request of B touches 4 lines, however long the loop is."""
    wide = evaluate_all(gemm, values_of(gemm, 32, 8))
    assert wide["uncoal_mem_insts"] == 0
    assert wide["coal_mem_insts"] > 2048
    narrow = [evaluate_all(gemm, values_of(gemm, 8, 32, size)) for size in (1024, 2048)]
    assert narrow[0]["uncoal_per_mw"] == narrow[1]["uncoal_per_mw"] == 4
    assert narrow[1]["uncoal_mem_insts"] > 1.9 * narrow[0]["uncoal_mem_insts"]


def test_blocks_and_limits_are_those_of_the_gpu(gemm):
    steps = evaluate_all(gemm, values_of(gemm, 32, 8))
    assert steps["grid_blocks"] == 32 * 128
    assert steps["threads_per_block"] == 256
    assert steps["resident_blocks"] == 8
    assert steps["n_warps"] == 64


@pytest.mark.parametrize("name", sorted(p.stem for p in POLYBENCH.glob("*.dag")))
def test_all_kernels_have_a_time_for_all_blocks(name):
    graph = api.load_graph(POLYBENCH / f"{name}.dag")
    for site in open_sites(graph):
        program = op_program(graph.program, op_of(graph, site))
        bx, by = np.array(BLOCKS).T
        times = evaluate(program, values_of(program, bx, by))
        assert np.isfinite(times).all()
        assert (times > 0).all()


def test_c_and_numpy_give_the_same_bits(gemm, tmp_path):
    order = [p.name for p in gemm.parameters]
    arguments = ", ".join(f"{C_TYPES[p.number]} {p.name}" for p in gemm.parameters)
    source = tmp_path / "model.c"
    call = f"double at({arguments}) {{ return model({', '.join(order)}); }}\n"
    source.write_text(HELPERS + to_c(gemm, "model") + call)
    library = tmp_path / "model.so"
    flags = "-std=c99 -O2 -Wall -Werror -ffp-contract=off -shared -fPIC".split()
    subprocess.run(["gcc", *flags, source, "-o", library], check=True)
    at = ctypes.CDLL(str(library)).at
    at.argtypes = [ctypes.c_int64 if p.number is Number.INTEGER else ctypes.c_double for p in gemm.parameters]
    at.restype = ctypes.c_double
    bx, by = np.array(BLOCKS).T
    in_numpy = evaluate(gemm, values_of(gemm, bx, by))
    in_c = [at(*(values_of(gemm, x, y)[n] for n in order)) for x, y in BLOCKS]
    assert in_c == in_numpy.tolist()
