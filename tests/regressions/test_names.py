"""Names that mean something in C++ or CUDA."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from dagc import api
from dagc.cuda.lexer import KEYWORDS, is_macro, is_reserved
from tests.emit.build import ALIKE
from tests.measure.conftest import can_run
from tests.regressions.programs import DAG, HEAD, KERNEL, SETUP, run, write

needs_mpi = pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI")


@pytest.mark.parametrize("word", ["int", "class", "float", "signed", "and_eq", "typeof", "blockIdx", "threadIdx"])
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
    assert ("reserved-name", f"`{word}` is a keyword of") in [(d.code, d.message[: len(word) + 18]) for d in found]


COMPILER_WORDS = (
    "_Complex __int128 _Pragma __restrict __global__ __launch_bounds__ __FILE__ __COUNTER__ __func__".split()
)
PLACES = {
    "array": HEAD + "array WORD : f32[10]\n" + KERNEL + DAG,
    "scalar": HEAD + "scalar WORD : i64\n" + KERNEL + DAG,
    "formal": HEAD + KERNEL.replace("x: in", "WORD: in").replace("x[i]", "WORD[i]") + DAG,
    "op": HEAD + KERNEL + DAG.replace("a : gpu", "WORD : gpu"),
    "kernel": HEAD + KERNEL.replace("add", "WORD") + DAG.replace("add", "WORD"),
}


@pytest.mark.parametrize("word", COMPILER_WORDS)
@pytest.mark.parametrize("place", PLACES)
def test_words_of_compilers_name_nothing(tmp_path: Path, place: str, word: str) -> None:
    """The compiler refused them, with lines of generated code."""
    found = api.check(write(tmp_path, PLACES[place].replace("WORD", word))).diagnostics
    found = [d for d in found if d.code == "reserved-name"]
    assert [d.message.split(" ")[0] for d in found] == [f"`{word}`"]


@pytest.mark.parametrize(
    "compiler", [pytest.param("g++"), pytest.param("clang++"), pytest.param("nvcc", marks=pytest.mark.nvcc)]
)
def test_built_in_macros_of_compilers_name_nothing(tmp_path: Path, compiler: str) -> None:
    found = shutil.which(compiler)
    if found is None:
        pytest.skip(f"needs {compiler}")
    (tmp_path / "empty.cu").write_text("")
    language = ("-Xcompiler", "-dM") if compiler == "nvcc" else ("-dM", "-x", "c++")
    command = [found, "-E", *language, "empty.cu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300)
    macros = re.findall(r"^#define (\w+)", done.stdout, re.MULTILINE)
    # The host's headers that nvcc includes by itself bring macros of C: another test.
    macros = [m for m in macros if compiler != "nvcc" or m.startswith("_")]
    assert len(macros) > 100
    assert [m for m in macros if not (is_reserved(m) or is_macro(m) or m in KEYWORDS)] == []


@pytest.mark.mpi
@needs_mpi
@pytest.mark.usefixtures("unoptimised")
def test_kernels_and_arrays_may_be_named_so(tmp_path: Path) -> None:
    """One program of all of them, each with its result."""
    names = "std cudaMalloc MPI_Send dim3 stdout class".split()
    arrays = "cudaStream_t size_t MPI_Comm float4 errno main".split()
    declared = "".join(f"array {array} : f32[10] out\n" for array in arrays)
    kernels = "".join(KERNEL.replace("add", name) for name in names)
    ops = " ".join(f"o{i} : gpu {name}({arrays[i]}, cudaEvent_t, 10)" for i, name in enumerate(names))
    checks = "".join(f"verify {array} ~ expected() rtol 0\n" for array in arrays)
    setup = SETUP.replace('{"y": data["x"] + 1}', f'{{name: data["x"] + 1 for name in {arrays}}}')
    head = HEAD.replace("array y : f32[10] out\n", "")
    copied = "array cudaEvent_t : f32[10]\n", "copy : gpu copy(cudaEvent_t, x)"
    run(write(tmp_path, head + copied[0] + declared + kernels + f"dag {{ {copied[1]} {ops} }}\n{checks}", setup))


@pytest.mark.mpi
@needs_mpi
@pytest.mark.usefixtures("unoptimised")
def test_names_that_are_alike_are_not_one(tmp_path: Path) -> None:
    """`u[0, 1]` and `u_0[1]` were one file: the result of one was compared with the reference of the other."""
    for file in (ALIKE, ALIKE.with_suffix(".py")):
        shutil.copy(file, tmp_path)
    run(tmp_path / ALIKE.name, ranks=1)
