"""PolyBench: every program is sound, compiles without a warning, and is right at odd sizes and with other blocks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dagc import api
from dagc.base.errors import Severity
from dagc.build.builder import build
from dagc.build.toolchain import find_nvcc, require_mpi
from dagc.emit import sources
from dagc.ir.plan import Target
from dagc.ir.program import Program
from dagc.measure.bench import run_bench
from tests.emit.build import graph, plan, write
from tests.run.conftest import SAMPLES, can_run

PROGRAMS = sorted((SAMPLES / "polybench").glob("*.dag"))

SIZES = (67, 35, 21, 29, 19), (43, 42, 50, 9, 7)
"""Of a program's dimensions, in the order of its text: none a power of two or a multiple of a block, no two equal. The
first is larger than the second, since GRAMSCHM needs no fewer rows than columns. The second ones run with the program
that was built for the first."""
STEPS = {"TMAX": "6", "STEPS": "3", "COLUMNS": "7"}
"""Of the programs with a loop: how often, and how much of it is one run of the dag, after which results are checked."""
WITH_DEFAULTS = {"gemm", "gesummv", "gramschm"}  # of two dimensions, of one, and several kernels in a loop
DEFAULTS = {(32, 8), (256,)}
OTHER = {2: (16, 4), 1: (64,)}  # dimensions of a block -> another block

every_program = pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
needs_mpi = pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI")
needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")


def sizes(path: Path, values: tuple[int, ...]) -> dict[str, str]:
    """The program's sizes, as `-D` gives them: its parameters in capitals."""
    names = [p.name for p in graph(path).program.params if p.name.isupper()]
    dimensions = zip((name for name in names if name not in STEPS), map(str, values), strict=False)
    return {name: STEPS[name] for name in names if name in STEPS} | dict(dimensions)


def blocks(program: Program) -> dict[str, dict[str, tuple[int, ...]]]:
    """Op -> the values of its `bx`, and of its `by` where its block has two dimensions."""
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for decision in program.decisions:
        op, _, name = decision.name.rpartition(".")
        if name in ("bx", "by"):
            found.setdefault(op, {})[name] = tuple(int(str(value)) for value in decision.values)
    return found


def other_blocks(path: Path) -> dict[str, str]:
    """Another block than the default for every op, as `-D` gives it."""
    return {
        f"{op}.{name}": str(value)
        for op, names in blocks(graph(path).program).items()
        for name, value in zip(("bx", "by"), OTHER[len(names)], strict=False)
    }


def test_programs_are_found() -> None:
    assert {"gemm", "2mm", "3mm", "syrk", "syr2k", "2dconv", "3dconv", "gesummv"} <= {path.stem for path in PROGRAMS}


@every_program
def test_text_is_sound_and_formatted(path: Path) -> None:
    assert [d for d in api.check(path).diagnostics if d.severity is Severity.ERROR] == []
    text, formatted = api.format_source(path)
    assert text == formatted


@every_program
def test_default_blocks_are_those_of_polybench(path: Path) -> None:
    found = blocks(graph(path).program)
    assert found
    for op, names in found.items():
        assert tuple(values[0] for values in names.values()) in DEFAULTS, op


def built(path: Path, defines: dict[str, str], directory: Path) -> Path:
    """A bench for the host. Not optimised: the compiler takes most of the time of these tests."""
    directory.mkdir()
    bench, _ = sources(Target.HOST)
    source = write(plan(path, Target.HOST, **defines), directory) / bench
    return build([source], directory / "bench", mpi=require_mpi(), flags=("-O0",))


@pytest.mark.mpi
@needs_mpi
@every_program
def test_results(path: Path, tmp_path: Path) -> None:
    """Built with other blocks than the default ones, and some with these, too; each serves all sizes.

    Wrong results raise.
    """
    runs = [sizes(path, values) for values in SIZES]
    choices: list[dict[str, str]] = [other_blocks(path), *([{}] if path.stem in WITH_DEFAULTS else [])]
    with ThreadPoolExecutor(len(choices)) as pool:
        binaries = list(
            pool.map(lambda i: built(path, runs[0] | choices[i], tmp_path / f"build-{i}"), range(len(choices)))
        )
    for seed, defines in enumerate(runs):
        data = tmp_path / f"data-{seed}"
        api.run_setup(path, 1, data, seed=seed, defines=defines)
        for binary in binaries:
            run_bench(binary, data, ranks=1, seconds=1e-4, repeats=2)


@pytest.mark.nvcc
@needs_nvcc
@needs_mpi
def test_cuda(tmp_path: Path) -> None:
    path = SAMPLES / "polybench/gemm.dag"
    bench, _ = sources(Target.CUDA)
    source = write(plan(path, Target.CUDA), tmp_path) / bench
    build([source], tmp_path / "bench", target="cuda", mpi=require_mpi(), flags=("-O0",))
