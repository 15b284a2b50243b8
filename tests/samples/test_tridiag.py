"""The tridiagonal sample: its set-up, its reference, and its program in sub-systems, chunks and types of every kind."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy.linalg import solve_banded

from dagc import api
from dagc.base.errors import WrongResult
from dagc.ir.plan import Target
from dagc.ir.program import CopyOp, KernelOp
from dagc.measure.bench import run_bench
from dagc.setup import run_setup
from dagc.space import Space
from tests.emit.build import ROOT, graph, plan
from tests.emit.together import build_together
from tests.measure.conftest import can_run
from tests.samples.load import SAMPLES, sample
from tests.tiers import representatives

TRIDIAG = SAMPLES / "tridiag/tridiag.dag"


@pytest.mark.parametrize("bytes", [4, 8])
@pytest.mark.parametrize("unknowns", [1, 2, 3, 100])
def test_solution_is_that_of_the_banded_solver(unknowns: int, bytes: int) -> None:
    tridiag = sample("tridiag/tridiag.py")
    data = tridiag.dominant(0, 1, 3, unknowns, bytes)
    a, b, c, d = data["lines"].reshape(-1, 4).astype(np.float64).T
    bands = np.stack([np.roll(c, 1), b, np.roll(a, -1)])  # as SciPy wants them; a[0] and c[-1] are 0
    x = tridiag.solution(data, rank=0, size=1, seed=3)["x"]
    assert x.dtype == np.dtype(f"f{bytes}")
    np.testing.assert_allclose(x[:, 0], solve_banded((1, 1), bands, d), rtol=1e-12 if bytes == 8 else 1e-6)


def test_rows_are_dominant_and_made_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    tridiag = sample("tridiag/tridiag.py")
    whole = tridiag.dominant(0, 1, 5, 1000, 8)["lines"].reshape(-1, 4)
    a, b, c, _ = whole.T
    assert (a[0], c[-1]) == (0, 0)
    np.testing.assert_allclose(b - np.abs(a) - np.abs(c), 0.1)
    monkeypatch.setattr(tridiag, "PIECE", 300)
    assert tridiag.dominant(0, 1, 5, 1000, 8)["lines"].tobytes() == whole.tobytes()


def test_data_depend_on_the_seed_alone() -> None:
    tridiag = sample("tridiag/tridiag.py")
    first, again, other = (
        tridiag.dominant(rank, 2, seed, 50, 4)["lines"].tobytes() for rank, seed in ((0, 1), (1, 1), (0, 2))
    )
    assert first == again != other


@pytest.mark.parametrize(("unknowns", "bytes"), [(0, 8), (5, 2)])
def test_sizes_without_a_system_are_refused(unknowns: int, bytes: int) -> None:
    with pytest.raises(ValueError, match="at least 1, of 4 or 8 bytes"):
        sample("tridiag/tridiag.py").dominant(0, 1, 0, unknowns, bytes)


@pytest.mark.parametrize("ranks", [1, 3])
def test_it_is_set_up(ranks: int, tmp_path: Path) -> None:
    run_setup(api.load(TRIDIAG, {"size": 101}), TRIDIAG.parent, ranks, 1, tmp_path / "out")
    assert len(list((tmp_path / "out").glob("rank-*/expected/x.npy"))) == ranks


# Every m, both types, one stream and several, chunks that divide nothing, levels of reduction, solutions in the place
# of right-hand sides; sizes in which the last sub-system is whole, short or a single row, and empty chunks.
CHOICES = [
    ("f64", 4, 1, 1, 0, "false", (1, 2, 5, 100, 1003)),
    ("f64", 8, 4, 2, 0, "true", (9, 1003)),
    ("f32", 16, 8, 8, 0, "false", (100, 1003)),
    ("f64", 20, 2, 2, 0, "false", (19, 1001)),
    ("f32", 32, 4, 4, 0, "true", (100, 1025)),
    ("f64", 64, 32, 4, 0, "false", (100, 2049)),
    ("f64", 12, 4, 2, 3, "true", (1, 13, 25, 10_007)),
    ("f32", 35, 1, 1, 1, "false", (36, 71, 2452)),
]
NAMES = ("m", "chunks", "streams", "depth", "overwrite")
SIZES = [(real, m, sizes) for real, m, *_, sizes in CHOICES]


@pytest.fixture(scope="module")
def benches(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By m."""
    plans = {
        str(values[0]): plan(TRIDIAG, Target.HOST, real=real, **dict(zip(NAMES, map(str, values), strict=True)))
        for real, *values, _ in CHOICES
    }
    return build_together(plans, tmp_path_factory.mktemp("tridiag"))


@pytest.mark.parametrize(("real", "m", "sizes"), representatives(SIZES, SIZES[0], SIZES[2], SIZES[6]))
@pytest.mark.mpi
@pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI")
def test_results(real: str, m: int, sizes: tuple[int, ...], benches: dict[str, Path], tmp_path: Path) -> None:
    """Wrong results raise."""
    for size in sizes:  # the program is the same
        data = tmp_path / f"data{size}"
        api.run_setup(TRIDIAG, 1, data, seed=1, defines={"real": real, "size": size})
        run_bench(benches[str(m)], data, ranks=1, seconds=1e-4, repeats=2)


# Rows a, b, c of a system of 12 that are put in place of dominant ones, and the rows that are named: a zero on the
# diagonal within a sub-system of 4, a pivot that elimination makes zero, a zero of the interface, no number.
PIVOTS = [
    ({5: (0.5, 0.0, 0.5)}, "rows 4 to 7"),
    ({9: (1.0, 2.0, 4.0), 10: (1.0, 2.0, 1.0)}, "rows 8 to 11"),
    ({0: (0.0, 0.0, 0.0)}, "rows 0 to 3"),
    ({3: (1.0, np.nan, 0.0)}, "rows 0 to 3"),
]


@pytest.mark.mpi
@pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI")
def test_zero_pivots_end_the_program_and_name_the_rows(benches: dict[str, Path], tmp_path: Path) -> None:
    deep = [(rows, "rows 0 to 2591") for rows, _ in PIVOTS[2:]]  # 12 rows, 6 times as many a level
    cases = [("4", *case) for case in PIVOTS] + [("12", *case) for case in deep]
    for number, (m, rows, named) in enumerate(cases):
        data = _with_rows(rows, tmp_path / f"data{number}")
        with pytest.raises(WrongResult, match=f"thomas: a pivot in {named} is zero or not finite"):
            run_bench(benches[m], data, ranks=1, seconds=1e-4, repeats=2)
    # In doubles 15 - (5 * (1 / 3)) * 9 is not zero and 15 - 5 * (9 * (1 / 3)) is one: all stages have to take the same.
    near = _with_rows({5: (0.0, 3.0, 9.0), 6: (5.0, 15.0, 1.0)}, tmp_path / "near")
    with pytest.raises(WrongResult, match=r"x is wrong: element \[\d+, 0\] is -?\d"):  # inexact, not NaN
        run_bench(benches["4"], near, ranks=1, seconds=1e-4, repeats=2)


def _with_rows(rows: dict[int, tuple[float, float, float]], data: Path) -> Path:
    """A system of 12 rows whose reference is far off whatever is computed."""
    api.run_setup(TRIDIAG, 1, data, seed=1, defines={"size": 12})
    lines = np.load(data / "rank-0000/lines.npy")
    for row, values in rows.items():
        lines[row, :3] = values
    np.save(data / "rank-0000/lines.npy", lines)
    return data


@pytest.mark.parametrize("streams", [1, 2, 4])
def test_chunks_go_around_the_streams(streams: int) -> None:
    made = graph(TRIDIAG, chunks="4", streams=str(streams))
    for name in ("up", "stage1", "down", "up3", "stage3", "down3"):
        ops = [made.by_name(f"{name}[{c}]").op for c in range(4)]
        found = [op.stream for op in ops if isinstance(op, KernelOp | CopyOp)]
        assert found == [c % streams for c in range(4)]


def test_tolerance_is_that_of_the_type() -> None:
    tolerances = [graph(TRIDIAG, real=real).program.verifies[0].rtol for real in ("f64", "f32")]
    assert tolerances == [1e-11, 1e-4]


def test_page_says_how_many_orders_there_are() -> None:
    space = Space(graph(TRIDIAG, chunks="2", streams="2"))
    assert f"{space.count()} orders" in (SAMPLES / "tridiag/README.md").read_text(encoding="utf-8")


# ---- benchmarks/gpu/tridiag.py ------------------------------------------------------------------


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark as a module; its dataclasses look for it in `sys.modules`, and it adds to `sys.path`."""
    spec = importlib.util.spec_from_file_location("benchmark_tridiag", ROOT / "benchmarks/gpu/tridiag.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "benchmark_tridiag", module)
    monkeypatch.syspath_prepend(ROOT)  # and restores what it adds
    spec.loader.exec_module(module)
    return module


def test_benchmark_has_the_published_sizes_and_goes_on_where_it_ended(bench: ModuleType, tmp_path: Path) -> None:
    assert (len(bench.SIZES), bench.SIZES[0], bench.SIZES[-1]) == (37, 100, 10**8)
    file = tmp_path / "t.csv"
    assert bench.known(file) == set()
    file.write_text(
        ",".join(bench.COLUMNS) + "\nf64,100,4,1,256,1,1,9.0,8.0,10.0,25,True\nf64,100,8,1,256,0,0,9.", encoding="utf-8"
    )
    assert bench.known(file) == {bench.Cell("f64", 100, 4, 1, 256, 1, 1)}
    assert file.read_text(encoding="utf-8").endswith("True\n")


def test_benchmark_loads_together_what_fits(bench: ModuleType) -> None:
    cells = [bench.Cell("f64", 1000, 64, chunks) for chunks in bench.CHUNKS]
    of_two = list(bench.batches(cells, 2.5 * cells[0].memory))
    assert of_two == [cells[:2], cells[2:4], cells[4:]]
    assert [len(batch) for batch in bench.batches(cells, 0)] == [1] * 6


def test_benchmark_measures_again_what_is_near_the_best_of_its_size(bench: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    cells = {"f32,100,4": 10.0, "f32,100,8": 11.4, "f32,100,16": 11.6, "f32,200,4": 20.0, "f64,100,4": 5.0}
    text = [f"{cell},1,32,0,0,{time},8.0,10.0,25,True" for cell, time in cells.items()]
    text.append("f32,100,64,1,32,0,0,1.0,1.0,1.0,25,False")
    file.write_text("\n".join([",".join(bench.COLUMNS), *text]) + "\n", encoding="utf-8")
    near = {("f32", 100, 4, 1), ("f32", 100, 8, 1), ("f32", 200, 4, 1), ("f64", 100, 4, 1)}
    assert bench.near_best(file, 0.15) == near


@pytest.mark.mpi
@pytest.mark.skipif(not can_run(), reason="needs a C++ compiler and an MPI")
@pytest.mark.usefixtures("unoptimised")
@pytest.mark.thorough
def test_benchmark_writes_a_line_a_cell(tmp_path: Path) -> None:
    """In a process of its own: it starts MPI."""
    out = tmp_path / "t.csv"
    few = "import tridiag; tridiag.SUBSYSTEMS, tridiag.CHUNKS = (8, 64), (2,); raise SystemExit(tridiag.main())"
    argv = ["--target", "host", "--sizes", "100,203", "--reals", "f32", "--cell", "0.001", "--jobs", "1"]
    command = [sys.executable, "-c", few, *argv, "-o", str(out), "--work", str(tmp_path / "work")]
    for _ in range(2):  # the second time, all is there
        subprocess.run(command, cwd=ROOT / "benchmarks/gpu", check=True)
        lines = out.read_text(encoding="utf-8").splitlines()
        assert len(lines) == 1 + 4
        assert all(line.endswith(",True") for line in lines[1:])
