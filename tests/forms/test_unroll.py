"""Inner loops by groups of iterations: results at every remainder, and loops that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc.build.mpi import find_mpi
from dagc.build.toolchain import find_cxx
from dagc.forms import forms_of, kernel_of, surroundings_of
from dagc.forms.loops import UNROLL
from dagc.forms.types import Refusal
from tests.emit.build import graph_of
from tests.forms.compared import Compared

LOOPS = Compared(
    "unroll", ("sums", "windows", "products"), "n * 2", "x, n, m", ({}, {"unroll": 4}, {"unroll": 4, "wide": 4})
)
TILES = Compared("unroll", ("products",), "n * 2", "x, n, m", ({}, {"unroll": 4, "wide": 2, "tile": 2}))


@pytest.mark.mpi
@pytest.mark.skipif(find_mpi() is None or find_cxx() is None, reason="needs an MPI and a C++ compiler")
@pytest.mark.parametrize("compared", [LOOPS, TILES])
def test_results_are_equal_at_every_remainder(compared: Compared, tmp_path: Path) -> None:
    sizes = [(1, 1), (2, 3), (5, 4), (8, 8), (12, 7), (33, 6), (64, 9), (36, 16)]
    compared.check(tmp_path, [{"side": side, "width": width} for side, width in sizes])


def test_iterations_load_vectors_which_threads_share() -> None:
    program = TILES.graph().program
    (op,) = (op for op in program.kernel_ops if op.site == "products_1")
    text = kernel_of(program, op)[1].code.text  # type: ignore[union-attr]
    assert "x_0[row] = dagc::window<4>(&x[(i + row) * m + k]);" in text
    assert "x_1[lane] = dagc::window<4>(&x[(j + lane) * m + k]);" in text
    assert "y_1[row][lane] += x_0[row][step] * x_1[lane][step];" in text


# Body of a kernel with `y`, `x` and `n : i64`, launched with grid(ceil(n / 32)) block(32): the reason, the line.
INDEX = "const int j = blockIdx.x * 32 + threadIdx.x;\nif (j >= n) return;\nfloat s = 0;\n"
REFUSED = {
    INDEX + "y[j] = x[j];": ("it has no loop that counts by one", None),
    INDEX + "for (int k = 0; k < n; k += 2) s += x[j * n + k];\ny[j] = s;": ("it has no loop that counts by one", None),
    INDEX + "for (int k = 0; k < n; ++k) s += x[k * n + j];\ny[j] = s;": ("iterations of the loop over `k` load no", 3),
    INDEX + "for (int k = 0; k < n; ++k) s += x[j + k];\ny[j] = s;": ("iterations of the loop over `k` load no", 3),
    INDEX + "for (int k = 0; k < n; ++k) {\nif (x[j * n + k] > 0) break;\ns += 1;\n}\ny[j] = s;": (
        "`break;` leaves an iteration early",
        4,
    ),
    INDEX + "for (int k = 0; k < n; ++k) y[j * n + k] = y[j * n + k] + s;": (
        "`y[j * n + k]` may be what a later iteration loads",
        3,
    ),
    INDEX + "for (int k = 0; k < n; ++k) { s += x[j * n + k]; ++k; }\ny[j] = s;": ("`k` changes in its loop", 3),
    INDEX + "int m = n;\nfor (int k = 0; k < m; ++k) s += x[j * n + k], --m;\ny[j] = s;": (
        "the end of the loop over `k` may change",
        4,
    ),
}


@pytest.mark.parametrize("body", REFUSED)
def test_a_loop_is_refused_with_the_line(body: str) -> None:
    program = graph_of(
        "program one\nscalar n : i64\narray x : f32[n * n] in\narray y : f32[n * n] out\n"
        "kernel k(y: out f32[n * n], x: in f32[n * n], n: i64) {\n"
        f'gpu {{ launch grid(ceil(n / 32)) block(32) cuda """{body}""" }} }}\ndag {{ a : gpu k(y, x, n) }}'
    ).program
    kernel = program.kernels[0]
    found = dict(forms_of(kernel, kernel.impls[0], surroundings_of(program)))[UNROLL]
    assert isinstance(found, Refusal)
    reason, line = REFUSED[body]
    assert (found.reason[: len(reason)], found.line) == (reason, line)
