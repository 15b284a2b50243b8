"""PolyBench: every program is sound, compiles without a warning, and is right at odd sizes and with other blocks."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagc import api
from dagc.base.errors import Severity
from dagc.ir.plan import Target
from dagc.ir.program import Program
from dagc.measure.bench import run_bench
from tests.emit.build import graph, plan
from tests.emit.together import build_together
from tests.measure.conftest import SAMPLES, can_run
from tests.tiers import representatives

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

every_program = pytest.mark.parametrize("path", representatives(PROGRAMS, *PROGRAMS[::3]), ids=lambda path: path.stem)
needs_mpi = pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI")


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


@pytest.fixture(scope="module")
def benches(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each program with other blocks than the default ones, and some with these, too."""
    plans = {}
    for path in PROGRAMS:
        chosen = sizes(path, SIZES[0])
        plans[path.stem] = plan(path, Target.HOST, **chosen, **other_blocks(path))
        if path.stem in WITH_DEFAULTS:
            plans[f"{path.stem}-default"] = plan(path, Target.HOST, **chosen)
    return build_together(plans, tmp_path_factory.mktemp("polybench"))


@pytest.mark.mpi
@needs_mpi
@every_program
def test_results(path: Path, benches: dict[str, Path], tmp_path: Path) -> None:
    """Wrong results raise. A program serves all sizes."""
    for seed, values in enumerate(SIZES):
        data = tmp_path / f"data-{seed}"
        api.run_setup(path, 1, data, seed=seed, defines=sizes(path, values))
        run_bench(benches[path.stem], data, ranks=1, seconds=1e-4, repeats=2)
        if path.stem in WITH_DEFAULTS:
            run_bench(benches[f"{path.stem}-default"], data, ranks=1, seconds=1e-4, repeats=2)
