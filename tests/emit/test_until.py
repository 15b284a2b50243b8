"""`until`: a program that repeats until a reduced value satisfies a condition."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from dagc.build.mpi import find_mpi
from dagc.build.toolchain import find_cxx
from dagc.ir.plan import Target
from dagc.measure.launch import Finished, launch
from dagc.setup import run_setup
from tests.emit.build import plan
from tests.emit.together import build_together

NEWTON = Path(__file__).parent / "data/newton.dag"
RANKS, ROWS = 2, 100
mpi = find_mpi()
pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(
        mpi is None or mpi.mpiexec is None or find_cxx() is None, reason="needs an MPI and a C++ compiler"
    ),
]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Path], Path]:
    """The program, the same with at most 3 runs, and the data."""
    folder = tmp_path_factory.mktemp("newton")
    plans = {"newton": plan(NEWTON, Target.HOST), "three": plan(NEWTON, Target.HOST, most="3")}
    run_setup(plans["newton"].program, NEWTON.parent, RANKS, 0, folder / "data")
    return build_together(plans, folder / "bench", flags=("-O0", "-Werror")), folder / "data"


def runs_of_numpy() -> int:
    spec = importlib.util.spec_from_file_location("newton", NEWTON.with_suffix(".py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return int(module.runs(RANKS, 0, ROWS))


def bench(program: Path, data: Path, *options: str | Path) -> Finished:
    return launch([program, "--data", data, "--seconds", "0.001", "--repeats", "2", *options], RANKS, timeout=300)


def test_it_ends_when_numpy_does(built: tuple[dict[str, Path], Path], tmp_path: Path) -> None:
    programs, data = built
    done = bench(programs["newton"], data, "--json", tmp_path / "out.json")
    assert done.returncode == 0, done.stderr
    runs = runs_of_numpy()
    assert 3 < runs < 30
    assert f"until residual < tolerance: {runs} of at most 30 runs" in done.stdout
    record = json.loads((tmp_path / "out.json").read_text())
    assert (record["runs"], record["converged"]) == (runs, True)
    assert record["time"]["iterations"] <= runs  # then the data are reset: beyond the end they are of no interest


def test_the_number_of_runs_is_bounded(built: tuple[dict[str, Path], Path], tmp_path: Path) -> None:
    programs, data = built
    done = bench(programs["three"], data, "--json", tmp_path / "out.json")
    assert "until residual < tolerance: not converged, 3 of at most 3 runs" in done.stdout
    record = json.loads((tmp_path / "out.json").read_text())
    assert (record["runs"], record["converged"]) == (3, False)


def test_ranks_that_end_by_themselves_are_an_error_and_no_hang(
    built: tuple[dict[str, Path], Path], tmp_path: Path
) -> None:
    programs, data = built
    spoilt = Path(shutil.copytree(data, tmp_path / "data"))
    for rank in range(RANKS):
        np.save(spoilt / f"rank-{rank:04}/odd.npy", np.int32(1))
    done = bench(programs["newton"], spoilt)
    assert done.returncode == 5, done.stdout
    assert "the ranks do not agree on `until residual < tolerance`" in done.stderr
