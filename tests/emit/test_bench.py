"""The emitted programs, built and run on the host target: results, exit codes, messages, JSON."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from dagc.build.mpi import find_mpi
from dagc.build.toolchain import find_cxx
from dagc.emit import emit, table_line
from dagc.ir.plan import Plan, Target
from dagc.measure.launch import Finished, launch
from dagc.setup import run_setup
from dagc.space import Space
from dagc.space.loops import unroll
from dagc.stages.program import read
from tests.emit.build import SINK, plan
from tests.emit.together import build_together
from tests.measure.conftest import SAMPLES

mpi = find_mpi()
pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(
        mpi is None or mpi.mpiexec is None or find_cxx() is None, reason="needs an MPI and a C++ compiler"
    ),
]
RANKS = 3
JACOBI = SAMPLES / "jacobi/jacobi.dag"


@dataclass(frozen=True)
class Made:
    plan: Plan
    bench: Path
    runner: Path
    data: Path

    def run(self, program: str, *options: str | Path, ranks: int = RANKS, data: Path | None = None) -> Finished:
        argv = [self.bench if program == "bench" else self.runner, "--data", data or self.data, *options]
        return launch(argv, ranks, timeout=300)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Made]:
    """By transport. A runner is optimised, with the bench of a program that has a loop, since loops are what compilers
    change: by -O1, since most of the time of -O3 is for the headers, and results are exact with either."""
    folder = tmp_path_factory.mktemp("sink")
    sink, other = (plan(SINK, Target.HOST, transport=transport) for transport in ("mpi_host", "mpi_cuda"))
    loop = plan_of_loop()
    optimised = {"runner": sink, "loop": loop}
    built = build_together(optimised, folder / "optimised", flags=("-O1",), runners={"runner"})
    fast = {"bench": other, "runner": other, "bench_of_sink": sink}
    built_fast = build_together(fast, folder / "unoptimised", runners={"runner"})
    run_setup(sink.program, SINK.parent, RANKS, 1, folder / "data")
    run_setup(loop.program, JACOBI.parent, RANKS, 1, folder / "loop")
    return {
        "mpi_host": Made(sink, built_fast["bench_of_sink"], built["runner"], folder / "data"),
        "mpi_cuda": Made(other, built_fast["bench"], built_fast["runner"], folder / "data"),
        "loop": Made(loop, built["loop"], built["runner"], folder / "loop"),
    }


def plan_of_loop() -> Plan:
    defines = {"transport": "mpi_host", "nx": 40, "rows": 6, "steps": 10, "streams": 3}  # more rounds than buffers
    folded = read(JACOBI, defines, folds=True).graph()
    space = Space(folded)
    traversal = space.at(space.count() // 3)
    made = Plan(*unroll(folded, traversal), Target.HOST, period=(folded, traversal))
    assert "for (std::int64_t turn" in emit(made)["iteration.hpp"]
    return made


@pytest.fixture(params=["mpi_host", "mpi_cuda"])
def each(request: pytest.FixtureRequest, programs: dict[str, Made]) -> Made:
    """For what depends on the transport."""
    return programs[request.param]


@pytest.fixture
def made(programs: dict[str, Made]) -> Made:
    return programs["mpi_host"]


def test_every_kind_of_op_gives_the_right_result(each: Made) -> None:
    done = each.run("bench", "--seconds", "0.001", "--repeats", "3")
    assert done.returncode == 0, done.stderr
    assert "agree with the reference" in done.stdout
    assert "median" in done.stdout


def test_a_program_with_a_loop_is_right(programs: dict[str, Made]) -> None:
    done = programs["loop"].run("bench", "--seconds", "0.001", "--repeats", "2")
    assert done.returncode == 0, done.stderr
    assert "agree" in done.stdout


def test_json(made: Made, tmp_path: Path) -> None:
    done = made.run("bench", "--seconds", "0.001", "--repeats", "3", "--json", "-")
    record = json.loads(done.stdout)
    assert record["program"] == "sink"
    assert record["traversal"].endswith(" end")
    assert record["environment"]["ranks"] == RANKS
    assert len(record["time"]["seconds"]) == 3
    assert min(record["time"]["seconds"]) > 0


def test_fifty_traversals_from_tables(each: Made, tmp_path: Path) -> None:
    from random import Random

    space, random = Space(each.plan.graph), Random(3)
    lines = []
    for _ in range(50):
        entries = []
        state = space.moves.start()
        while not space.moves.finished(state):
            offers = space.moves.offers(state)
            entry = random.choice(list(offers))
            entries.append(entry)
            state = space.moves.step(state, entry, offers[entry])
        lines.append(table_line(type(each.plan.traversal)(tuple(entries))))
    (tmp_path / "tables").write_text("# fifty\n" + "\n".join(lines) + "\n")
    done = each.run("runner", "--tables", tmp_path / "tables")
    assert done.returncode == 0, done.stderr
    assert [line.split(": ")[1] for line in done.stdout.splitlines()] == ["good"] * 50


def test_compare(made: Made) -> None:
    done = made.run("runner", "--compare", "--repeats", "3", "--seconds", "0.001", "--json", "-")
    record = json.loads(done.stdout)
    assert record["results"] == [{"traversal": 0, "good": True}]
    assert record["ratio"]["median"] > 0


# ---- what goes wrong ----------------------------------------------------------------------


@pytest.fixture
def broken(made: Made, tmp_path: Path) -> Path:
    """A copy of the data, to spoil."""
    return Path(shutil.copytree(made.data, tmp_path / "data"))


def fails(done: Finished, code: int, *words: str) -> None:
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    for word in words:
        assert word in done.stderr
    assert sum(line.startswith("dagc: ") for line in done.stderr.splitlines()) >= 1


def test_a_wrong_result(each: Made, broken: Path) -> None:
    file = broken / "rank-0001/expected/o.npy"
    values = np.load(file)
    values[17] += 1
    np.save(file, values)
    done = each.run("bench", data=broken)
    fails(done, 1, "rank 1: o is wrong: element 17 is")
    assert "median" not in done.stdout  # nothing that is wrong is timed
    fails_table = each.run("runner", data=broken)
    assert fails_table.returncode == 1
    assert "0: wrong: rank 1: o is wrong" in fails_table.stdout


def test_nan_is_wrong(made: Made, broken: Path) -> None:
    file = broken / "rank-0000/expected/out_h.npy"
    values = np.load(file)
    values[3] = np.nan
    np.save(file, values)
    fails(made.run("bench", data=broken), 1, "out_h is wrong: element 3")


def test_the_wrong_number_of_ranks(made: Made) -> None:
    fails(made.run("bench", ranks=2), 3, "made for 3 ranks, but started with 2")


def test_data_that_lack_a_rank(made: Made, broken: Path) -> None:
    """Not those of fewer ranks."""
    (broken / "rank-0001").rename(broken / "rank-1")
    for ranks in (1, 3):
        fails(made.run("bench", data=broken, ranks=ranks), 2, "has no rank-0001; create it with `dagc setup`")


def test_no_data(made: Made, tmp_path: Path) -> None:
    fails(made.run("bench", data=tmp_path / "none"), 2, "no such directory")


def test_a_wrong_shape(made: Made, broken: Path) -> None:
    np.save(broken / "rank-0002/a.npy", np.zeros(5))
    fails(made.run("bench", data=broken), 2, "rank-0002/a.npy: a has shape (5,), declared as (1002,)")


def test_a_wrong_type(made: Made, broken: Path) -> None:
    np.save(broken / "rank-0000/a.npy", np.zeros(1000, np.float32))
    fails(made.run("bench", data=broken), 2, "a.npy: has type f4, expected f8; write it again with `dagc setup`")


def test_a_slice_outside(each: Made, broken: Path) -> None:
    """count / 2 elements are copied, whatever the rank has."""
    rank = broken / "rank-0000"
    np.save(rank / "n.npy", np.int32(7))
    for name in ("a", "kept", "e"):
        np.save(rank / f"{name}.npy", np.zeros(7))
    np.save(rank / "grid2.npy", np.zeros((3, 7), np.int32))
    fails(each.run("bench", data=broken), 5, "in op low: the slice 0 .. 500 is not within 0 .. 7")


def test_a_peer_that_does_not_exist(each: Made, broken: Path) -> None:
    np.save(broken / "rank-0000/towards.npy", np.int32(3))
    fails(each.run("bench", data=broken), 5, "x: rank 3 does not exist, there are 3")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("0,1", "not a row"),
        ("7,0,0", "no such kind"),
        ("6,0,0", "the device cannot begin here"),
        ("0,99,0", "no such op"),
        ("0,0,-1", "no such stream"),
        ("1,0,-1", "no such stream"),
    ],
)
def test_bad_tables(made: Made, tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / "tables").write_text(line + "\n")
    fails(made.run("runner", "--tables", tmp_path / "tables"), 2, words)


def test_help_and_unknown_options(made: Made) -> None:
    done = launch([made.bench, "--help"], 1, timeout=300)
    assert done.returncode == 0
    for option in ("--data", "--seconds", "--repeats", "--json", "--check-only", "--mpi-takes-device-pointers"):
        assert option in done.stdout
    assert made.run("bench", "--repeat", "3").returncode == 2
