"""Where the application defines its kernels, and what they need."""

from __future__ import annotations

from dagc.record.arrays import FreeNames, Values
from dagc.record.flow import KernelCall, PointerArgument
from dagc.record.log import MemoryPlace
from dagc.record.sources import Sources

HEADER = """
__global__ void shifted(point* x) { x[threadIdx.x] = x[threadIdx.x + 1]; }
"""
TEXTS = {"src/main.cu": 'typedef double point;\n#include "../include/kernels.h"', "include/kernels.h": HEADER}


def call(kernel: str) -> KernelCall:
    pointer = PointerArgument(MemoryPlace(0, 64, 8), "f64", 8, False, "double")
    return KernelCall("src/main.cu:9", kernel, (1, 1, 1), (32, 1, 1), 0, 0, (pointer,))


def test_a_kernel_of_a_header_is_that_of_the_file_which_is_compiled() -> None:
    """The header needs names that the file defines before it."""
    source = Sources(TEXTS, ["src/main.cu"]).kernel(call("shifted"))
    assert source is not None
    assert source.file == "src/main.cu"


def test_files_whose_functions_and_variables_are_used_are_linked() -> None:
    texts = {
        "k.cu": "extern const float most; float half(float); float f() { return half(1); }",
        "half.cu": "extern const float most;\nfloat half(float x) { return x < most ? x / 2 : 0; }",
        "constants.cu": "const float most = 2;",
        "main.cu": "int main() { return 0; }",
    }
    assert Sources(texts, list(texts)).needed_by(["k.cu"]) == ["half.cu", "constants.cu"]


def test_bounds_that_differ_between_ranks_are_ordered_by_requires() -> None:
    """Without what others imply: rows of 10 .. 30 on one rank, and 20 .. 40 on another, of arrays of 64."""
    values = Values(FreeNames(), 2)
    texts = [values.bound(column, hint) for column, hint in (([64, 64], "size"), ([10, 20], "low"), ([30, 40], "high"))]
    assert texts == ["64", "low", "high"]
    assert list(values.requires()) == ["require low <= high", "require high <= 64"]
    assert values.scalars == {"low": (10, 20), "high": (30, 40)}
