"""`compile`, end to end: what it writes builds, runs on four ranks, is checked, and is refused where it is wrong."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from dagc import api
from dagc.base.errors import DagcError, UsageError, WrongResult
from dagc.build.mpi import require_mpi
from dagc.build.toolchain import find_cmake
from dagc.ir.plan import Plan, Target
from dagc.ir.traversal import traversal_text
from dagc.measure.bench import BenchResult, run_bench
from dagc.measure.launch import Finished, launch, launch_command
from dagc.space.proof import NotProved
from dagc.stages.artifacts import Compiled
from tests.measure.conftest import HALO, LOWERINGS, RANKS, SMALL, SPMV, Lowered, needs_mpi
from tests.tiers import representatives

pytestmark = [*needs_mpi, pytest.mark.usefixtures("strict")]
QUICK = {"seconds": 0.001, "repeats": 3}


@pytest.fixture(scope="module")
def strict(unoptimised: None) -> Iterator[None]:
    """Without a warning. Of the whole module: programs that are compiled with equal flags are compiled once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGC_CXXFLAGS", f"{os.environ['DAGC_CXXFLAGS']} -Werror")
        yield


def _compile(path: Path, out: Path, **more: object) -> Compiled:
    defines = {**SMALL[path], **more.pop("defines", {})}  # type: ignore[dict-item]
    return api.compile(path, out, target="host", defines=defines, **more)  # type: ignore[arg-type]


# ---- good runs -------------------------------------------------------------------------------


def _good(result: BenchResult, plan: Plan) -> None:
    assert (result.ranks, result.repeats) == (4, 3)
    assert 0 < result.minimum <= result.median <= result.maximum
    assert result.low <= result.median <= result.high
    assert result.record["traversal"] == traversal_text(plan.traversal, plan.graph)


@pytest.mark.parametrize("lowering", LOWERINGS)
@pytest.mark.parametrize("path", representatives([SPMV, HALO], SPMV), ids=["spmv", "halo"])
def test_the_program_of_every_lowering(lowered: Lowered, path: Path, lowering: str) -> None:
    made = lowered(path, lowering, program="bench", flags=("-O0", "-Werror"))
    assert made.built is not None
    _good(run_bench(made.built, made.data, RANKS, **QUICK), made.plan)


@pytest.mark.parametrize(
    ("path", "lowering"),
    representatives([(SPMV, "mpi_host"), (SPMV, "captured"), (HALO, "nccl")], (SPMV, "captured"), (HALO, "nccl")),
    ids=["spmv", "captured", "halo"],
)
def test_compile_and_run(tmp_path: Path, path: Path, lowering: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One program is compiled as it is for users (as those of tests/emit/test_bench.py), the others are not
    optimised."""
    if lowering == "mpi_host":
        monkeypatch.setenv("DAGC_CXXFLAGS", "-Werror")
    done = _compile(path, tmp_path / "out", defines=LOWERINGS[lowering], run=True, **QUICK)
    assert (done.plan.target, done.number, done.target_reason) == (Target.HOST, 0, "as requested")
    assert done.result is not None
    _good(done.result, done.plan)
    assert {"plan.json", "traversal.txt", "kernels.cu", "bench.cpp", "iteration.hpp"} <= set(done.files)
    assert all((done.directory / name).is_file() for name in done.files)


VARIANTS = {"yl.variant": "warp_per_row", "yl.block": "64", "yr.variant": "warp_per_row"}


@pytest.fixture(scope="module")
def chosen(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """Other variants and another traversal than the first."""
    folder = tmp_path_factory.mktemp("chosen")
    return _compile(SPMV, folder / "out", defines=VARIANTS, traversal="1234", run=True, **QUICK)


def test_variants_and_blocks(chosen: Compiled) -> None:
    assert chosen.result is not None
    made = dict(chosen.plan.decisions)
    assert (made["yl.variant"], made["yl.block"], made["yr.variant"]) == ("warp_per_row", 64, "warp_per_row")
    assert "__shfl_down_sync" in (chosen.directory / "kernels.cu").read_text()


@pytest.mark.parametrize("ranks", representatives([1, 3], 1))
def test_other_numbers_of_ranks(tmp_path: Path, ranks: int) -> None:
    """On one rank there are no messages, on one or three the faces of a dimension meet the same rank."""
    for path, transport in ((SPMV, "mpi_host"), (HALO, "mpi_host"), *([(HALO, "nccl")] if ranks == 1 else [])):
        defines = {"transport": transport}
        done = _compile(path, tmp_path / f"{path.stem}-{transport}", defines=defines, run=True, ranks=ranks, **QUICK)
        assert done.result is not None
        assert done.result.ranks == ranks


# ---- which traversal -------------------------------------------------------------------------


def test_traversal_by_id_by_text_and_by_plan(chosen: Compiled, tmp_path: Path) -> None:
    assert chosen.number == 1234
    for wanted in ("traversal.txt", "plan.json"):
        traversal = str(chosen.directory / wanted)
        again = _compile(SPMV, tmp_path / wanted, defines=VARIANTS, traversal=traversal, build=False)
        assert (again.number, again.plan.traversal) == (1234, chosen.plan.traversal)
        written = (again.directory / "iteration.hpp").read_text()
        assert written == (chosen.directory / "iteration.hpp").read_text()


def test_a_traversal_that_is_not_proved_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "mine.txt"
    text.write_text("pack@s0 post_recv post_send wait_recv wait_send yl@s0 yr@s0 y@s0 record(e0)@s0 sync(e0) end\n")
    with pytest.raises(NotProved, match=r"entry 3: `post_send` may start before `pack` has completed") as refused:
        _compile(SPMV, tmp_path / "out", traversal=str(text), run=True)
    assert refused.value.exit_code == 2
    assert not (tmp_path / "out").exists()


def test_a_pruned_traversal_is_taken(tmp_path: Path) -> None:
    """Right, though not in the counted space: yr on pack's stream needs no record of its own."""
    text = tmp_path / "mine.txt"
    text.write_text(
        "pack@s0 post_recv record(e0)@s0 sync(e0) post_send wait_recv wait_send yl@s0 record(e1)@s0 sync(e1) "
        "yr@s0 y@s0 record(e2)@s0 sync(e2) end\n"
    )
    done = _compile(SPMV, tmp_path / "out", traversal=str(text), run=True, **QUICK)
    assert done.number is None
    assert done.result is not None


@pytest.mark.parametrize("wanted", ["2036", "nowhere.txt", "-1"])
def test_traversals_that_are_not_there(tmp_path: Path, wanted: str) -> None:
    with pytest.raises(UsageError):
        _compile(SPMV, tmp_path / "out", traversal=wanted, build=False)


def test_a_plan_of_another_program(tmp_path: Path) -> None:
    other = _compile(SPMV, tmp_path / "other", defines={"rows": "2001"}, build=False)
    with pytest.raises(UsageError, match="written for program"):
        _compile(SPMV, tmp_path / "out", traversal=str(other.directory / "plan.json"), build=False)


# ---- the output directory --------------------------------------------------------------------


def test_what_dagc_did_not_write_is_kept(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="files that dagc did not write"):
        _compile(SPMV, tmp_path, build=False)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]
    _compile(SPMV, tmp_path, build=False, force=True)
    assert (tmp_path / "mine.txt").read_text() == "mine"
    assert (tmp_path / "plan.json").is_file()
    _compile(SPMV, tmp_path, build=False)  # now it is dagc's


# ---- the program by itself -------------------------------------------------------------------


@pytest.fixture(scope="module")
def spmv(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return _compile(SPMV, tmp_path_factory.mktemp("spmv") / "out", run=True, **QUICK)


Bench = Callable[..., Finished]


@pytest.fixture
def bench(spmv: Compiled) -> Bench:
    def run(*options: str, ranks: int = 4, data: Path | None = None) -> Finished:
        assert spmv.binary is not None
        return launch([spmv.binary, "--data", data or spmv.directory / "data-4", *options], ranks, timeout=300)

    return run


def test_bench_explains_itself(spmv: Compiled) -> None:
    assert spmv.binary is not None
    done = subprocess.run([spmv.binary, "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    for option in ("--data", "--seconds", "--repeats", "--json", "--check-only"):
        assert option in done.stdout


def test_bench_prints_json(bench: Bench) -> None:
    done = bench("--seconds", "0.001", "--repeats", "4", "--json", "-")
    record = json.loads(done.check().stdout)
    assert record["program"] == "spmv"
    assert len(record["time"]["seconds"]) == 4
    assert all(s > 0 for s in record["time"]["seconds"])


def test_bench_only_checks(bench: Bench) -> None:
    done = bench("--check-only").check()
    assert done.stdout.startswith("spmv on 4 ranks: ")
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "ranks", "code", "says"),
    [
        (("--secnds", "1"), 1, 2, "--secnds"),
        (("--repeats", "0"), 1, 2, "at least 1"),
        ((), 2, 3, "made for 4 ranks, but started with 2"),
        ((), 5, 3, "made for 4 ranks, but started with 5"),
    ],
)
def test_bench_refuses(bench: Bench, options: tuple[str, ...], ranks: int, code: int, says: str) -> None:
    done = bench(*options, ranks=ranks)
    assert done.returncode == code
    lines = [line for line in done.stderr.splitlines() if line.startswith(("dagc:", "bench:"))]
    assert len(lines) == 1, done.stderr
    assert says in lines[0]


def _spoiled(spmv: Compiled, folder: Path, name: str, value: float) -> Path:
    """The arrays with one number changed, on rank 2."""
    shutil.copytree(spmv.directory / "data-4", folder)
    file = folder / "rank-0002" / name
    array = np.load(file)
    array[array.size // 2] = value
    np.save(file, array)
    return folder


@pytest.mark.parametrize("name", ["expected/y.npy", "x_l.npy", "val_l.npy"])
def test_a_wrong_result_is_told(spmv: Compiled, tmp_path: Path, name: str) -> None:
    data = _spoiled(spmv, tmp_path / "data", name, 1e3)
    assert spmv.binary is not None
    with pytest.raises(WrongResult, match=r"rank \d: y is wrong: element") as wrong:
        run_bench(spmv.binary, data, 4, 0.001, 3)
    assert wrong.value.exit_code == 1


def test_not_a_number_is_wrong(spmv: Compiled, tmp_path: Path) -> None:
    data = _spoiled(spmv, tmp_path / "data", "x_l.npy", float("nan"))
    assert spmv.binary is not None
    with pytest.raises(WrongResult, match="y is wrong"):
        run_bench(spmv.binary, data, 4, 0.001, 3)


@pytest.mark.parametrize("spoil", ["gone", "empty", "short", "other type"])
def test_arrays_that_do_not_fit(spmv: Compiled, tmp_path: Path, spoil: str) -> None:
    folder = tmp_path / "data"
    shutil.copytree(spmv.directory / "data-4", folder)
    file = folder / "rank-0001" / "x_l.npy"
    array = np.load(file)
    match spoil:
        case "gone":
            file.unlink()
        case "empty":
            file.write_bytes(b"")
        case "short":
            np.save(file, array[:-1])
        case "other type":
            np.save(file, array.astype(np.float64))
    assert spmv.binary is not None
    with pytest.raises(DagcError, match="x_l") as refused:
        run_bench(spmv.binary, folder, 4, 0.001, 3)
    assert refused.value.exit_code == 2
    assert "rank 1" in refused.value.message


@pytest.mark.skipif(find_cmake() is None, reason="no cmake: the emitted CMakeLists.txt was not tried")
@pytest.mark.parametrize("program", representatives(["bench", "runner"], "bench"))
def test_the_directory_builds_without_dagc(spmv: Compiled, tmp_path: Path, program: str) -> None:
    """A copy, elsewhere, with CMake and the MPI that is there."""
    source = tmp_path / "a b 'q' $x ${HOME} ünï"
    shutil.copytree(spmv.directory, source, ignore=shutil.ignore_patterns("bench", "data-*"))
    cmake, mpi = find_cmake(), require_mpi()
    assert cmake is not None
    assert mpi.mpiexec is not None
    wrapper = mpi.mpiexec.with_name(mpi.mpiexec.name.replace("mpiexec", "mpicxx"))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DAGC")}
    build, unoptimised = tmp_path / "build", "-DCMAKE_CXX_FLAGS_RELEASE=-O0"
    for command in (
        [*map(str, (cmake.path, "-S", source, "-B", build)), f"-DMPI_CXX_COMPILER={wrapper}", unoptimised],
        [str(cmake.path), "--build", str(build), "--target", program],
    ):
        made = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
        assert made.returncode == 0, made.stdout[-3000:] + made.stderr[-3000:]
    data = spmv.directory / "data-4"
    check_only = ["--check-only"] * (program == "bench")
    done = launch([build / program, "--data", data, *check_only], 4, timeout=300).check()
    assert done.stdout.startswith("spmv on 4 ranks" if program == "bench" else "0: good\n")


# ---- started by the user's own mpiexec -------------------------------------------------------


def _under_mpiexec(ranks: int, *arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "dagc", "compile", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(Path(api.__file__).parents[1])}
    command = launch_command(require_mpi(), argv, ranks)
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=300)


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The SpMV with a reference that is FACTOR times the right one; at one path, which is in what is emitted."""
    folder = tmp_path_factory.mktemp("scaled") / "sample"
    shutil.copytree(SPMV.parent, folder)
    code = (folder / "spmv.py").read_text()
    changes = {
        'return {"y": np': 'return {"y": float(os.environ.get("FACTOR", "1")) * np',
    }
    for old, new in changes.items():
        assert code.count(old) == 1
        code = code.replace(old, new)
    (folder / "spmv.py").write_text(code)
    return folder / "spmv.dag"


def test_under_mpiexec_the_command_joins(scaled: Path, tmp_path: Path) -> None:
    arguments = (scaled, "-o", "out", "--target", "host", "--run", "-D", "rows=2000", "--repeats", "2")
    done = _under_mpiexec(2, *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("results agree with the reference") == 1
    assert len(re.findall(r"^ +2 ", done.stdout, re.M)) == 1  # the times, of two ranks
    assert (tmp_path / "out" / "data-2" / "rank-0001").is_dir()


@pytest.mark.parametrize(
    ("wrong", "says"),
    representatives(
        [("-Drows=many", "rows"), ("-Dno_such=1", "no_such"), ("-n3", "3 ranks are needed, but this command runs as")],
        ("-Drows=many", "rows"),
    ),
)
def test_under_mpiexec_an_error_is_told_once(tmp_path: Path, wrong: str, says: str) -> None:
    done = _under_mpiexec(2, SPMV, "-o", "out", "--target", "host", "--run", wrong, cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.count("error:") == 1
    assert says in done.stderr


def test_under_mpiexec_one_rank_writes_for_all(tmp_path: Path) -> None:
    done = _under_mpiexec(3, SPMV, "-o", "out", "--target", "host", "--no-build", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("wrote ") == 1
    assert (tmp_path / "out" / "bench.cpp").is_file()


def test_under_mpiexec_a_wrong_result_is_told(scaled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FACTOR", "2")
    done = _under_mpiexec(2, scaled, "-o", "out", "--target", "host", "--run", "-Drows=2000", cwd=tmp_path)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.count("y is wrong: element") == 1, done.stderr
