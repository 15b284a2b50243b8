"""Registers and shared memory, as ptxas says them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc.base.errors import BuildFailed
from dagc.build.toolchain import find_nvcc, kernel_resources, read_resources
from dagc.cuda.ptx import Resources, function_of, unqualified

SAID = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'gemm' for 'sm_90'
ptxas info    : Function properties for gemm
    16 bytes stack frame, 12 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 28 registers, used 0 barriers
ptxas info    : Compiling entry function 'tiled_tile8' for 'sm_90'
ptxas info    : Used 12 registers, used 1 barriers, 32768 bytes smem, 16 bytes cmem[2]
"""
KERNELS = """extern "C" __global__ void plain(float* y) { y[threadIdx.x] = 1; }
extern "C" __global__ void tiled(float* y) {
  __shared__ float buffer[1000];
  buffer[threadIdx.x] = y[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = buffer[blockDim.x - threadIdx.x];
}
"""


def test_each_kernel_has_its_own() -> None:
    assert read_resources(SAID) == {"gemm": Resources(28, 0, spills=12), "tiled_tile8": Resources(12, 32768)}


def test_names_of_functions() -> None:
    symbols = {"plain": "plain", "_Z4stepPf": "step", "_ZN4heat4stepIfEEvPT_": "step", "_Z4stepILi16EEvPf": "step"}
    assert {symbol: function_of(symbol) for symbol in symbols} == symbols
    assert [unqualified(call) for call in ("::heat::step<ns::real>", "step", "::step")] == ["step"] * 3


def test_a_compiler_that_says_nothing() -> None:
    assert read_resources("error: no such thing\n") == {}


@pytest.mark.nvcc
@pytest.mark.skipif(find_nvcc() is None, reason="nvcc is not installed")
def test_kernels_are_asked_without_a_gpu(tmp_path: Path) -> None:
    source = tmp_path / "kernels.cu"
    source.write_text(KERNELS)
    found = kernel_resources(source, "sm_80")
    assert set(found) == {"plain", "tiled"}
    assert found["plain"].shared == 0
    assert found["tiled"].shared == 4000
    assert 0 < found["plain"].registers < 64
    counts = {name: taken.instructions for name, taken in found.items()}
    assert counts["plain"] is not None
    assert counts["tiled"] is not None
    assert 2 <= counts["plain"].once < counts["tiled"].once < 64
    assert counts["plain"].loops == ()
    source.write_text("__global__ void plain() {}\n__global__ void k(int* y) { *y = mystery(1); }\n")
    with pytest.raises(BuildFailed) as caught:
        kernel_resources(source, "sm_80")
    assert caught.value.first == 'kernels.cu(2): error: identifier "mystery" is undefined'
