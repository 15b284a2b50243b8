"""Occupancy: the rational program against CUDA's own answers, recorded on an H200."""

from __future__ import annotations

import csv
import lzma
import subprocess
from pathlib import Path

import numpy as np
import pytest

from dagc.build.toolchain import find_nvcc
from dagc.perf.evaluate import evaluate, evaluate_all
from dagc.perf.hardware import load_hardware
from dagc.perf.occupancy import Demand, limits_of, occupancies, occupancy_program

# Made by benchmarks/gpu/occupancy.cu: registers, threads, shared (bytes, static and dynamic), blocks.
RECORDED = Path(__file__).parents[1] / "data" / "occupancy-h200.csv.xz"
H200 = limits_of(load_hardware("h200"))
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


# Reads `threads registers shared` lines; writes the blocks of a multiprocessor by CUDA's own calculator.
CALCULATOR = r"""
#include <cstdio>
#include <cstdlib>
#include <cuda_occupancy.h>
int main(int, char** argv) {
    cudaOccDeviceProp device;
    device.computeMajor = atoi(argv[1]) / 10; device.computeMinor = atoi(argv[1]) % 10;
    device.maxThreadsPerBlock = 1024; device.maxThreadsPerMultiprocessor = atoi(argv[2]);
    device.regsPerBlock = device.regsPerMultiprocessor = atoi(argv[3]);
    device.warpSize = 32; device.numSms = 1;
    device.sharedMemPerBlock = 48 << 10; device.sharedMemPerMultiprocessor = atoi(argv[4]);
    device.reservedSharedMemPerBlock = atoi(argv[5]);
    device.sharedMemPerBlockOptin = device.sharedMemPerMultiprocessor - device.reservedSharedMemPerBlock;
    cudaOccDeviceState state;
    int threads, registers, shared;
    while (std::scanf("%d %d %d", &threads, &registers, &shared) == 3) {
        cudaOccFuncAttributes kernel;
        kernel.maxThreadsPerBlock = 1024; kernel.numRegs = registers; kernel.sharedSizeBytes = 0;
        kernel.partitionedGCConfig = PARTITIONED_GC_OFF; kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        kernel.maxDynamicSharedSizeBytes = device.sharedMemPerBlockOptin; kernel.numBlockBarriers = 1;
        cudaOccResult result;
        auto error = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, threads, shared);
        std::printf("%d\n", error == CUDA_OCC_SUCCESS ? result.activeBlocksPerMultiprocessor : 0);
    }
}
"""


@pytest.mark.nvcc
@pytest.mark.parametrize("gpu", ["rtx2080ti", "a100", "h100"])
def test_other_gpus_by_the_calculator_of_cuda(gpu: str, tmp_path: Path) -> None:
    hardware, nvcc = load_hardware(gpu), find_nvcc()
    assert nvcc is not None
    (tmp_path / "calculator.cpp").write_text(CALCULATOR)
    include = nvcc.path.resolve().parents[1] / "include"
    subprocess.run(["c++", f"-I{include}", "-o", "calculator", "calculator.cpp"], cwd=tmp_path, check=True)
    draw = np.random.default_rng(0)
    most = hardware.shared_per_multiprocessor
    shared = draw.integers(0, most, 3000) // 3 ** draw.integers(0, 9, 3000)
    rows = zip(
        draw.integers(1, 1025, 3000).tolist(), draw.integers(16, 256, 3000).tolist(), shared.tolist(), strict=True
    )
    demands = [Demand(*row) for row in rows]
    limits = hardware.max_threads_per_multiprocessor, hardware.registers_per_multiprocessor, most
    words = map(str, (hardware.arch[3:], *limits, hardware.shared_reserved_per_block))
    done = subprocess.run(
        ["./calculator", *words], cwd=tmp_path, check=True, text=True, capture_output=True,
        input="".join(f"{d.threads} {d.registers} {d.shared}\n" for d in demands),
    )  # fmt: skip
    assert [one.blocks for one in occupancies(demands, hardware)] == list(map(int, done.stdout.split()))


def test_what_allows_no_more_blocks() -> None:
    """Also without reserved shared memory, where a block may use none."""
    demands = [Demand(32, 16, 0), Demand(1024, 16, 0), Demand(96, 255, 0), Demand(64, 16, 40_000), Demand(1024, 255, 0)]
    of_each = occupancies(demands, load_hardware("v100"))
    assert [(o.blocks, o.limit) for o in of_each] == [
        (32, "blocks"), (2, "warps"), (2, "registers"), (2, "shared memory"), (0, "registers")
    ]  # fmt: skip
    assert of_each[1].text == "2 blocks, 64 warps, 100%"
