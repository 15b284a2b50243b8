"""What ranks do differently: ops that only some run, messages of slices that are not contiguous, alltoallv."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

import numpy as np
import pytest

from dagc import api
from dagc.base.errors import ProgramError
from dagc.base.source import Source
from dagc.build.builder import Build, build
from dagc.build.mpi import find_mpi, require_mpi
from dagc.build.toolchain import find_cxx
from dagc.emit import never_captured, table_line
from dagc.emit.layout import Layout
from dagc.ir.plan import Plan, Target
from dagc.ir.program import Action, ExchangeOp, KernelOp
from dagc.ir.sym import show
from dagc.ir.traversal import Traversal
from dagc.lang.lower import lower, parse_with_includes
from dagc.measure.launch import launch
from dagc.setup import run_setup
from dagc.space import Space
from tests.emit.build import ACCUMULATE, ALLTOALLV, COLUMNS, COMMS, HEAT2D, RANKS, VALUES, graph, graph_of, plan
from tests.emit.together import build_together
from tests.precompiled import by_clang, do_not_optimise
from tests.tiers import representatives

mpi = find_mpi()
pytestmark = pytest.mark.mpi
can_run = pytest.mark.skipif(
    mpi is None or mpi.mpiexec is None or find_cxx() is None, reason="needs an MPI and a C++ compiler"
)
# With numbers of ranks.
PROGRAMS = {
    RANKS: (1, 3),
    COLUMNS: (1, 3),
    ALLTOALLV: (1, 4),
    COMMS: (1, 3, 4),
    HEAT2D: (4,),
    VALUES: (2,),
    ACCUMULATE: (2,),
}
READ = {VALUES: {"y.scalars": "host", "back.scalars": "host"}}  # the other ops get their values by pointers
LOWERINGS = {
    "mpi_host": {},
    "staging": {"staging": "ops"},
    "mpi_cuda": {"transport": "mpi_cuda", "capture": "true"},
    "nccl": {"transport": "nccl", "capture": "true"},
    "peer": {"transport": "peer"},
}
FEW, MORE = ["mpi_host", "mpi_cuda", "peer"], ["staging", "nccl"]


@pytest.fixture(scope="module", params=representatives([FEW, MORE], FEW), ids="-".join)
def programs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Plan, Path]]:
    """The runners of all programs by program and transport: one compilation."""
    plans = {
        f"{path.stem} {name}": plan(path, Target.HOST, **LOWERINGS[name], **READ.get(path, {}))
        for path in PROGRAMS
        for name in request.param
    }
    built = build_together(plans, tmp_path_factory.mktemp("programs"), "runner", flags=("-O0", "-Werror"))
    return {name: (made, built[name]) for name, made in plans.items()}


@can_run
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_every_rank_has_what_numpy_has(programs: dict[str, tuple[Plan, Path]], path: Path, tmp_path: Path) -> None:
    """Under every transport, in orders drawn at random."""
    random = Random(1)
    for ranks in PROGRAMS[path]:
        run_setup(graph(path).program, path.parent, ranks, 1, tmp_path / f"data-{ranks}")
    for name, (made, program) in programs.items():
        if name.split()[0] != path.stem:
            continue
        outside = never_captured(made.graph)
        lines = [table_line(drawn(made, random), made.capture, outside) for _ in range(8)]
        (tmp_path / "tables").write_text("".join(f"{line}\n" for line in lines))
        for ranks in PROGRAMS[path]:
            argv = [program, "--data", tmp_path / f"data-{ranks}", "--tables", tmp_path / "tables"]
            done = launch(argv, ranks, timeout=300)
            assert done.returncode == 0, (name, ranks, done.stderr)
            assert [line.split(": ")[1] for line in done.stdout.splitlines()] == ["good"] * 8


def drawn(made: Plan, random: Random) -> Traversal:
    moves, entries = Space(made.graph).moves, []
    state = moves.start()
    while not moves.finished(state):
        offers = moves.offers(state)
        entry = random.choice(list(offers))
        entries.append(entry)
        state = moves.step(state, entry, offers[entry])
    return Traversal(tuple(entries))


def test_the_posts_of_some_neighbours_have_a_wait_of_their_own() -> None:
    made = graph(ALLTOALLV, staging="ops")
    layout = Layout(made)
    waits = {op.name: layout.wait_of(op).name for op in made.ops if op.action is Action.POST_RECV}
    assert waits == {f"post_recv[{k}]": f"wait_recv[{k}]" for k in range(3)}


def test_a_message_without_a_partner_is_an_error_before_anything_runs(tmp_path: Path) -> None:
    text = RANKS.read_text().replace("if partner < ranks {", "if rank > 0 {")
    (tmp_path / "ranks.dag").write_text(text)
    (tmp_path / "ranks.py").write_text((RANKS.parent / "ranks.py").read_text())
    program = lower(parse_with_includes(Source(str(tmp_path / "ranks.dag"), text)))
    with pytest.raises(
        ProgramError, match=r"rank 1 sends 10 elements to rank 0 in pairs.both, which expects no message"
    ):
        run_setup(program, tmp_path, 2, 1, tmp_path / "data")


def test_conditions_are_those_of_all_branches_around() -> None:
    ops = {op.name: op for op in graph(RANKS).program.ops}
    pairs, even = ops["pairs"], ops["even"]
    assert isinstance(pairs, ExchangeOp)
    (front,) = (m for m in pairs.messages if m.label == "front")
    assert front.when is not None
    assert "rank < 2" in show(front.when)
    assert "< ranks" in show(front.when)
    assert isinstance(even, KernelOp)
    assert even.when is not None
    assert show(even.when) == "!(rank == 0) && rank % 2 == 0"


# ---- slices that are not contiguous ---------------------------------------------------------------

PLATE = """
program plate
array u : f64[10, 20] inout
kernel touch(u: inout f64[a, b], a: i64, b: i64) {
  gpu { launch grid(1) block(1) cuda \"\"\" u[0] += 1; \"\"\" }
}
dag {
  halo : mpi exchange {
    west : send u[1 .. 9, 1 .. 2] to 0    recv u[1 .. 9, 19 .. 20] from 0
    east : send u[1 .. 9, 18 .. 19] to 0  recv u[1 .. 9, 0 .. 1] from 0
  }
  after : gpu touch(u, 10, 20)
}
"""


def test_columns_apart_need_no_order() -> None:
    """The copies of the two sides; what uses the array waits for both."""
    made = graph_of(PLATE, transport="nccl")
    edges = {(made.ops[u].name, made.ops[v].name) for u, v in made.completion}
    copies = [f"halo.{side}.{copy}" for side in ("west", "east") for copy in ("pack", "unpack")]
    assert not {(u, v) for u in copies for v in copies} & edges
    assert {("halo.west.unpack", "after"), ("halo.east.unpack", "after"), ("halo.west.pack", "halo")} <= edges
    closer = graph_of(
        PLATE.replace("0 .. 1]", "17 .. 20]").replace("u[1 .. 9, 18 .. 19]", "u[1 .. 9, 15 .. 18]"), transport="nccl"
    )
    edges = {(closer.ops[u].name, closer.ops[v].name) for u, v in closer.completion}
    assert ("halo.west.unpack", "halo.east.unpack") in edges


def test_iterations_share_the_buffers_of_a_region() -> None:
    """Memory does not grow with the number of steps, and rounds of a loop use the same data."""
    ends = [f"{side}.{end}" for side in ("west", "east") for end in ("send", "recv")]
    for arrays in (1, 2):
        for steps in ("4", "9"):
            declared = graph(HEAT2D, arrays=str(arrays), steps=steps).program.arrays
            buffers = [a.name for a in declared if a.name.startswith("halo")]
            assert buffers == [f"halo[{t}].{end}" for t in range(arrays) for end in ends]


def test_iterations_with_slices_of_their_own_stay_independent() -> None:
    text = """
program chunks
for c in 0..4 { array u[c] : f64[10, 20] inout }
dag {
  for c in 0..4 { halo[c] : mpi exchange { send u[c][*, 1 .. 2] to 0  recv u[c][*, 0 .. 1] from 0 } }
}
"""
    made = graph_of(text, transport="nccl")
    edges = {(made.ops[u].name, made.ops[v].name) for u, v in made.completion if made.ops[v].name != "end"}
    pairs = (("halo[{}].message.pack", "halo[{}]"), ("halo[{}]", "halo[{}].message.unpack"))
    assert edges == {(u.format(c), v.format(c)) for c in range(4) for u, v in pairs}


# ---- alltoallv --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("counts = counts + (rank == 1)", "rank 0 sends 2 elements to rank 1 in all, which expects 3 elements"),
        ("whom *= rank != 1", "rank 1 sends 3 times in list with rank 0, but `split` divides ranks"),
        ("counts = counts[: 3 - rank]", "rank 1 has 2 counts in `to_all` for all, not one for each of 3 ranks"),
    ],
)
def test_counts_that_do_not_match_are_an_error_before_anything_runs(tmp_path: Path, line: str, message: str) -> None:
    text = ALLTOALLV.read_text().replace("i32[ranks]", "i32[*]").split("verify")[0]
    setup = (ALLTOALLV.parent / "alltoallv.py").read_text().replace("    n = int", f"    {line}\n    n = int", 1)
    (tmp_path / "alltoallv.dag").write_text(text)
    (tmp_path / "alltoallv.py").write_text(setup)
    program = lower(parse_with_includes(Source(str(tmp_path / "alltoallv.dag"), text)))
    with pytest.raises(ProgramError) as info:
        run_setup(program, tmp_path, 3, 1, tmp_path / "data")
    assert message in str(info.value)


# ---- communicators ----------------------------------------------------------------------------------


def test_groups_of_several_nccl_communicators_have_one_order() -> None:
    """Not those of one, and not with other transports."""
    groups = {"around", "up", "spread"}
    for transport, wanted in (("nccl", {("around", "up"), ("up", "spread")}), ("peer", {("around", "up")})):
        made = graph(COMMS, transport=transport)
        edges = {(made.ops[u].name, made.ops[v].name) for u, v in made.completion}
        assert {(u, v) for u, v in edges if {u, v} <= groups} == wanted
    text = COMMS.read_text().replace("exchange on col", "exchange on row").replace("col.", "row.")
    made = graph_of(text, transport="nccl")
    edges = {(made.ops[u].name, made.ops[v].name) for u, v in made.completion}
    assert ("up", "spread") not in edges


@pytest.mark.parametrize(
    ("old", "new", "message", "help"),
    [
        ("to (row.rank + 1) % row.ranks", "to (rank + 1) % ranks", "with rank 2, but there are 2 ranks in its", ""),
        ("from col.rank - 1", "from -1", "rank 2 sends 100 elements to rank 0 in up.next", "peers are ranks of `col`"),
        ("split(parity, -rank)", "split(parity, rank % (rank - rank))", "the colour or the key of a communicator", ""),
    ],
)
def test_messages_within_a_communicator(tmp_path: Path, old: str, new: str, message: str, help: str) -> None:
    text = COMMS.read_text().replace(old, new)
    (tmp_path / "comms.py").write_text((COMMS.parent / "comms.py").read_text())
    program = lower(parse_with_includes(Source(str(tmp_path / "comms.dag"), text)))
    with pytest.raises(ProgramError) as info:
        run_setup(program, tmp_path, 4, 1, tmp_path / "data")
    assert message in str(info.value)
    assert help in str(info.value)


@can_run
def test_messages_and_communicators_in_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes those of the application, and compares them and the messages of all ranks when it is created."""
    do_not_optimise(monkeypatch, "-Werror")
    api.compile(COMMS, tmp_path / "out", target="host", form="library")
    run_setup(graph(COMMS).program, COMMS.parent, 4, 1, tmp_path / "data")
    folder = tmp_path / "out"
    order = Build(
        [folder / "example/main.cpp"], mpi=require_mpi(), libraries=("comms",),
        include=(folder / "include", folder / "src/include"),
        flags=("-O0", *by_clang(), f"-L{folder / 'lib'}", f"-Wl,-rpath,{folder / 'lib'}"),
    )  # fmt: skip
    example = build(order, tmp_path / "example")
    done = launch([example, tmp_path / "data", "1"], 4, timeout=300)
    assert done.stdout.startswith("comms: right"), done.stderr
    said = said_of_communicators(folder, tmp_path / "data")
    totals = ["right 4", "right 4", "right 6", "right 6"]
    assert said["given"] == said["some"] == said["freed and rebound"] == totals
    assert said["bytes"] == ["True"] * 4
    for case, text in WRONG.items():
        assert len(said[case]) == 4
        assert all(text in one for one in said[case]), (case, said[case])
    file = tmp_path / "data/rank-0001/shares.npy"
    np.save(file, np.load(file) + np.array([1, -1], np.int32))
    done = launch([example, tmp_path / "data", "1"], 4, timeout=300)
    assert done.returncode != 0
    assert "message `spread`: rank 1 sends 124 bytes to rank 0, which expects 120" in done.stderr


WRONG = {
    "not on all": "rank 2: communicator `row`: given on other ranks, and not on this one",
    "null": "rank 1: communicator `col`: MPI_COMM_NULL on a rank that is in it, with the colour 1",
    "other order": "rank 0: communicator `col`: this is rank 0 of 2 in the one given, and must be rank 1 of 2",
    "other size": "rank 0: communicator `row`: this is rank 0 of 4 in the one given, and must be rank 0 of 2",
    "not a member": "communicator `io`: ",
    "no communicator": "row: 'row' is not a communicator",
}


def said_of_communicators(library: Path, data: Path) -> dict[str, list[str]]:
    """By case, what the ranks said, sorted."""
    words = [sys.executable, COMMS.parent / "communicators.py", library, data]
    environment = {"MPI4PY_RC_THREAD_LEVEL": "multiple", "PYTHONPATH": str(Path(api.__file__).parents[1])}
    said: dict[str, list[str]] = {}
    for line in launch(words, 4, env=environment, timeout=300).check().stdout.splitlines():
        case, _, text = line.partition(": ")
        said.setdefault(case, []).append(text)
    return {case: sorted(texts) for case, texts in said.items()}
