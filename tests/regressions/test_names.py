"""Names that mean something in C++ or CUDA."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc import api
from tests.regressions.programs import DAG, HEAD, KERNEL, run, write
from tests.run.conftest import can_run

needs_mpi = pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI")


@pytest.mark.parametrize("word", ["int", "class", "float", "signed", "blockIdx", "threadIdx"])
@pytest.mark.parametrize(
    "text",
    [
        HEAD + KERNEL.replace("x: in", "WORD: in").replace("x[i]", "WORD[i]") + DAG,
        HEAD + KERNEL.replace("{\n  gpu", "{\n  tune WORD in {1, 2}\n  gpu") + DAG,
        HEAD + KERNEL.replace("cuda", "array WORD : f32[n]\n    cuda") + DAG,
        HEAD + "param WORD : i64 = 10\n" + KERNEL + DAG.replace("10", "WORD"),
        HEAD + "enum side {lo, WORD}\n" + KERNEL + DAG,
    ],
    ids=["formal", "tune", "scratch", "param", "label"],
)
def test_what_code_sees_is_no_word_of_cxx(tmp_path: Path, text: str, word: str) -> None:
    """g++ refused it, with lines of generated code."""
    found = api.check(write(tmp_path, text.replace("WORD", word))).diagnostics
    assert ("reserved-name", f"`{word}` is a word of") in [(d.code, d.message[: len(word) + 15]) for d in found]


@pytest.mark.mpi
@needs_mpi
@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("name", ["std", "cudaMalloc", "MPI_Send", "dim3", "stdout", "class"])
def test_kernels_may_be_named_so(tmp_path: Path, name: str) -> None:
    run(write(tmp_path, HEAD + KERNEL.replace("add", name) + DAG.replace("add", name)))


@pytest.mark.mpi
@needs_mpi
@pytest.mark.usefixtures("unoptimised")
def test_arrays_may_be_named_so(tmp_path: Path) -> None:
    array = "array cudaStream_t : f32[10]\n"
    run(write(tmp_path, HEAD + array + KERNEL + DAG.replace("{ a", "{ b : gpu copy(cudaStream_t, x)  a")))
