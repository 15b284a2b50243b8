"""Tiles in registers: results at every remainder, with and without vectors, and kernels that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc.build.mpi import find_mpi
from dagc.build.toolchain import find_cxx
from dagc.forms import forms_of, kernel_of, surroundings_of
from dagc.forms.tile import TILE
from dagc.forms.types import Refusal
from dagc.perf.geometry import read_accesses
from tests.emit.build import graph_of
from tests.forms.compared import Compared

TILES = Compared(
    "tile", ("product", "square", "stencil", "data", "unguarded", "planes"), "m * n", "x, m, n",
    ({}, {"tile": 2}, {"tile": 8}, {"wide": 2, "tile": 4}, {"wide": 4, "tile": 2}),
)  # fmt: skip


@pytest.mark.mpi
@pytest.mark.skipif(find_mpi() is None or find_cxx() is None, reason="needs an MPI and a C++ compiler")
def test_results_are_equal_at_every_remainder(tmp_path: Path) -> None:
    sizes = [(1, 8), (2, 7), (3, 6), (4, 33), (7, 4), (8, 8), (9, 3), (16, 12), (17, 2)]
    TILES.check(tmp_path, [{"tall": tall, "side": side} for tall, side in sizes])


# Body of a kernel with `y`, `x`, `m` and `n : i64`, launched with grid(ceil(n / 32), ceil(m / 4)) block(32, 4).
INDEX = (
    "const int j = blockIdx.x * 32 + threadIdx.x, i = blockIdx.y * 4 + threadIdx.y;\nif (i >= m || j >= n) return;\n"
)
REFUSED = {
    INDEX + "y[i * n + j] += y[i * n + n + j] * x[j];": ("`y[i * n + n + j]` may be what a neighbour stores by", 2),
    INDEX + "y[j] = x[j];": ("neighbours along y store one element by `y[j]`", 2),
    INDEX + "y[(int)x[j] * n + j] = x[j];": ("where `y[(int)x[j] * n + j]` is stored is not known", 2),
    INDEX + "y[i * i * n + j] = x[j];": ("`i * i * n + j` depends on more than", 2),
    INDEX + "y[i * n + j] = x[i * n + j];": ("neighbours along y load nothing in common in a loop", None),
    INDEX + "y[i * n + j] = x[j] * threadIdx.y;": ("`threadIdx.y` depends on more than", 2),
    INDEX + "y[i * n + j] = x[j] * gridDim.y;": ("`gridDim.y` is used", 2),
    INDEX + "__syncthreads();\ny[i * n + j] = x[j];": ("threads meet at `__syncthreads`", 2),
    INDEX + "for (int k = 0; k < 9; ++k) {\nif (x[i] > k) break;\ny[i * n + j] = x[j];\n}": (
        "some of the neighbours leave here",
        3,
    ),
    INDEX + "atomicAdd(&y[i * n + j], x[j]);": ("`atomicAdd` is not read", 2),
}


@pytest.mark.parametrize("body", REFUSED)
def test_a_kernel_is_refused_with_the_line(body: str) -> None:
    program = graph_of(
        "program one\nscalar m, n : i64\narray x : f32[m * n] in\narray y : f32[m * n] out\n"
        "kernel k(y: out f32[m * n], x: in f32[m * n], m: i64, n: i64) {\n"
        f'gpu {{ launch grid(ceil(n / 32), ceil(m / 4)) block(32, 4) cuda """{body}""" }} }}\n'
        "dag { a : gpu k(y, x, m, n) }"
    ).program
    kernel = program.kernels[0]
    found = dict(forms_of(kernel, kernel.impls[0], surroundings_of(program)))[TILE]
    assert isinstance(found, Refusal)
    reason, line = REFUSED[body]
    assert (found.reason[: len(reason)], found.line) == (reason, line)


def test_what_neighbours_share_is_loaded_once() -> None:
    """A product has R x V sums in registers, and R + V loads for R x V products: two of vectors, R of one element."""
    program = TILES.graph().program
    (op,) = (op for op in program.kernel_ops if op.site == "product_3")
    text = kernel_of(program, op)[1].code.text  # type: ignore[union-attr]
    assert text.count("form.tile = 4: a thread does 4 neighbours along y, together") == 1
    often = [
        a for a in read_accesses(program, op).accesses
        if a.weight > 0 and any(loop.trips.free_symbols for loop in a.loops)
    ]  # fmt: skip
    assert {(a.array, a.size, a.store) for a in often} == {("x", 4, False), ("x", 8, False)}
