"""Messages of one program by different transports: its choices, its space, and its results beside NumPy's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise, product
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dagc.base.errors import MissingTool, ProgramError, UsageError
from dagc.build import toolchain
from dagc.build.mpi import find_mpi
from dagc.build.ranks import several_hosts
from dagc.build.toolchain import find_cxx
from dagc.cli.main import main
from dagc.emit import emit, table_line, why_no_driver
from dagc.emit.kernels import Functions
from dagc.ir.constraints import configuration_of
from dagc.ir.enums import Pairs, Transport
from dagc.ir.plan import Plan, Target
from dagc.ir.program import Value
from dagc.ir.sym import Const
from dagc.lab.configurations import Configured, combinations, open_decisions
from dagc.lang.scope import WORDS
from dagc.learn.features import FeatureKind, RuleFeature, chosen, value_of
from dagc.measure.launch import launch
from dagc.report.counting import count_report
from dagc.setup import run_setup
from dagc.space import Counter, Space
from dagc.space.loops import unroll
from dagc.space.moves import Moves
from dagc.stages.options import ExploreOptions
from dagc.stages.program import read
from dagc.store.settings import check_fixed, values_fixed
from dagc.study.decisions import configured, with_automatic
from dagc.study.runners import by_promise, that_can_run
from tests.emit.build import ALLTOALLV, COLLECTIVES, COMMS, SPMV, graph, graph_of, plan
from tests.emit.test_ranks import drawn
from tests.emit.together import build_together
from tests.samples.load import SAMPLES
from tests.space.naive import all_traversals
from tests.space.test_loops import sample
from tests.tiers import representatives

DATA = Path(__file__).parent / "data"
TRANSPORTS = DATA / "transports.dag"
TYPES = DATA / "element_types.dag"
PUTS = DATA / "puts.dag"
OPS = ("halo", "again", "all", "most", "cast")

mpi = find_mpi()
can_run = pytest.mark.skipif(
    mpi is None or mpi.mpiexec is None or find_cxx() is None, reason="needs an MPI and a C++ compiler"
)
# 16 rows, in which any two ops have each pair of transports once: i, j, and i + k j over the field of four elements,
# whose addition is XOR and whose multiplication by the third element is a rotation of 1, 2, 3.
TIMES = ((0, 0, 0, 0), (0, 1, 2, 3), (0, 2, 3, 1), (0, 3, 1, 2))
MIXED = [(i, *(i ^ TIMES[k][j] for k in (1, 2, 3)), j) for i in range(4) for j in range(4)]

FEW = [MIXED[row] for row in (0, 6, 11, 13)]  # with each transport of almost each op


def mixed(row: tuple[int, ...]) -> dict[str, str]:
    chosen = [list(Transport)[number].value for number in row]
    return {f"{op}.transport": value for op, value in zip(OPS, chosen, strict=True)}


def test_any_two_ops_have_each_pair_of_transports() -> None:
    for a in range(len(OPS)):
        for b in range(a):
            assert len({(row[a], row[b]) for row in MIXED}) == 16


# ---- choices ----------------------------------------------------------------------------------------


def transports(**defines: str) -> dict[str, str]:
    return {op.name: op.transport.value for op in graph(TRANSPORTS, **defines).program.comm_ops}


def test_a_name_stands_for_all_messages_for_collectives_or_for_one() -> None:
    assert set(transports().values()) == {"mpi_host"}
    halo_by_peer = {"halo": "peer", "again": "peer", "all": "nccl", "most": "nccl", "cast": "nccl"}
    assert transports(transport="peer", collectives="nccl") == halo_by_peer
    own = {"transport": "peer", "collectives": "nccl", "cast.transport": "mpi_cuda", "again.transport": "mpi_host"}
    assert transports(**own) == {**halo_by_peer, "cast": "mpi_cuda", "again": "mpi_host"}


def test_only_messages_of_device_arrays_have_a_transport() -> None:
    groups = Path(__file__).parents[1] / "measure/data/groups.dag"
    for op in ("host", "sums", "meet", "y"):
        with pytest.raises(UsageError, match=f"-D {op}.transport: the program has no param or decision of this name"):
            graph(groups, **{f"{op}.transport": "peer"})


def test_a_choice_without_effect_is_no_further_configuration() -> None:
    program = graph(TRANSPORTS).program
    opened = open_decisions(program, ["transport", "collectives", "staging"], ())
    assert len(combinations(opened)) == 5 * 4 + 8  # pairs of transports, eight of which stage
    same = configuration_of(graph(TRANSPORTS, transport="nccl", collectives="nccl"))
    assert same == configuration_of(graph(TRANSPORTS, transport="nccl"))  # as files of before have it
    assert "collectives" not in same
    every = {f"{op}.transport": "peer" if op in OPS[:2] else "nccl" for op in OPS}
    ignored = [configuration_of(graph(TRANSPORTS, **every, transport=t)) for t in ("mpi_host", "nccl")]
    assert ignored[0] == ignored[1]


def test_a_tuned_file_of_before_is_of_the_same_transports() -> None:
    now = values_fixed(graph(TRANSPORTS).program)
    before = {**now, "decisions": {name: value for name, value in now["decisions"].items() if name != "collectives"}}
    check_fixed("t.db", before, now)
    with pytest.raises(UsageError, match="tuned with collectives=same, this is collectives=peer"):
        check_fixed("t.db", before, values_fixed(graph(TRANSPORTS, collectives="peer").program))


def test_the_transport_of_an_op_is_opened_by_its_name_alone() -> None:
    program = graph(TRANSPORTS).program
    assert "halo.transport" not in open_decisions(program, ["all"], ())
    assert open_decisions(program, ["halo.transport=peer,nccl"], ()) == {"halo.transport": ("peer", "nccl")}


TINY = '''
program tiny
array x, y : f64[4] inout
kernel fill(x: out f64[1]) { gpu { launch grid(1) block(1) cuda """x[0] = 1;""" } }
dag {
  fill : gpu fill(x[0 .. 1])
  halo : mpi exchange { send x[0 .. 1] to 0 recv x[3 .. 4] from 0 }
  sum  : mpi allreduce(y, y, sum)
}
'''


def test_the_space_is_the_sum_over_pairs_of_transports() -> None:
    """Each pair once, and with both stagings where one of the two stages."""
    report = count_report(lambda choices: graph_of(TINY, **{name: str(value) for name, value in choices.items()}))
    total = 0
    for halo, both in product(WORDS["transport"], WORDS["collectives"][1:]):
        for staging in ("fused", "ops") if "mpi_host" in (halo, both) else ("fused",):
            own = {"halo.transport": str(halo), "sum.transport": str(both), "staging": staging}
            total += Counter(Moves.of(graph_of(TINY, **own))).total()
    assert report.whole == total


def test_a_search_opens_the_transports_of_collectives_that_it_searches_for_the_others() -> None:
    values, _ = with_automatic(graph(TRANSPORTS).program, {"transport": ("nccl", "peer")}, {"transport"})
    assert values["collectives"] == ("same", "nccl", "peer")
    values, _ = with_automatic(graph(TRANSPORTS, transport="peer").program, {}, {"transport"})
    assert "collectives" not in values


def test_transports_that_a_machine_lacks_are_left_out_of_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "find_nccl", lambda: None)
    choices: list[dict[str, Value]] = [{"transport": "peer", "collectives": t} for t in ("nccl", "mpi_cuda", "peer")]
    graphs = [graph(TRANSPORTS, **{name: str(value) for name, value in one.items()}) for one in choices]
    every = [Configured(configuration_of(g), one, g) for one, g in zip(choices, graphs, strict=True)]
    gpu, notes = toolchain.TargetChoice(Target.CUDA, "sm_90", ""), list[str]()
    left = that_can_run(every, gpu, ExploreOptions(mpi_takes_device_pointers=True), notes)
    assert (left, notes) == (every[1:], ["without transport=nccl: no NCCL found (nccl.h and libnccl.so)"])
    assert that_can_run(every, toolchain.TargetChoice(Target.HOST, "sm_90", ""), ExploreOptions(), []) == every
    with pytest.raises(MissingTool, match="no NCCL found .*, which transport nccl needs"):
        that_can_run(every[:1], gpu, ExploreOptions(), [])


def test_rules_know_the_transport_of_collectives_that_follow_the_others() -> None:
    known = [
        configuration_of(graph(TRANSPORTS, transport="nccl", **more)) for more in ({}, {"collectives": "mpi_host"})
    ]
    assert [value_of(one, "collectives") for one in known] == ["nccl", "mpi_host"]
    feature = RuleFeature(FeatureKind.CHOICE, "collectives", "nccl", True)
    assert [chosen(feature, one) for one in known] == [True, False]


def test_a_text_declares_the_transport_of_collectives() -> None:
    text = TRANSPORTS.read_text().replace(
        "param n", "tune collectives in {nccl, mpi_cuda}\nlet transport = peer\nparam n"
    )
    ops = graph_of(text).program.comm_ops
    assert [op.transport.value for op in ops] == ["peer", "peer", "nccl", "nccl", "nccl"]


def test_of_two_messages_of_one_slice_only_the_staged_one_uses_the_buffer() -> None:
    """The other reads the array until its wait, and what writes there comes after it."""
    made = graph(TRANSPORTS, **{"halo.transport": "mpi_cuda", "again.transport": "mpi_host"})
    before = {made.ops[u].name for u, v in made.completion if made.ops[v].name == "grow"}
    assert "halo.wait_send" in before
    assert "again.wait_send" not in before


# ---- results ----------------------------------------------------------------------------------------


@pytest.mark.mpi
@can_run
@pytest.mark.parametrize("rows", representatives([FEW, MIXED], FEW), ids=len)
def test_every_transport_beside_every_other(rows: list[tuple[int, ...]], tmp_path: Path) -> None:
    """On four ranks, in orders drawn at random."""
    plans = {}
    for number, row in enumerate(rows):
        more = {"capture": "true"} if number % 2 else {"staging": "ops"}
        plans[f"mixed{number}"] = plan(TRANSPORTS, Target.HOST, **mixed(row), **more)
    run(TRANSPORTS, plans, 4, tmp_path)


@pytest.mark.mpi
@can_run
def test_messages_that_kernels_write(tmp_path: Path) -> None:
    """On four ranks that share memory, in a line and in a ring, and captured; waited for by an op and by readers; and
    within hosts of 2 and of 3, beside the other transports."""
    plans = {
        wait: plan(PUTS, Target.HOST, transport="put", capture=captured, put_wait=wait)
        for wait, captured in (("op", "true"), ("reader", "false"))
    }
    beside = {"mpi_host": {}, "nccl": {"capture": "true"}, "mpi_cuda": {"rank_order": "neighbours"}}
    for other, more in beside.items():
        plans[f"within_{other}"] = plan(PUTS, Target.HOST, transport=other, within_host="put", **more)
    command = run(PUTS, plans, 4, tmp_path, {name: (2, 3) for name in plans if name.startswith("within")})
    refused = launch(command, 4, timeout=60, env={"DAGC_HOST_IPC": "refused"})
    assert refused.returncode == 3
    assert "transport put cannot reach the memory of rank" in refused.stderr


def test_the_text_of_kernels_that_write_messages() -> None:
    """A kernel writes those of the exchange of its round; counts of runs begin anew before runs that are checked."""
    _, folded = sample(SAMPLES / "jacobi/jacobi.dag", transport="put")
    period = next(iter(Space(folded)))
    files = emit(Plan(*unroll(folded, period), Target.CUDA, period=(folded, period)))
    block = files["iteration.hpp"].partition("for (std::int64_t turn")[2]
    calls = re.findall(r"p\.(halo_\d+_group)\.(part\(p\.u_\d_\.data \+ \d+, \d\)|run)", block)
    groups = ["halo_0_group"] * 3 + ["halo_1_group"] * 3  # of exchanges with the same messages, the first
    assert [group for group, _ in calls] == groups
    assert [call for _, call in calls[:3]] == ["part(p.u_1_.data + 2048, 0)", "part(p.u_1_.data + 2097152, 1)", "run"]
    head = "stencil_put(float* dst_here, const float* src, std::int64_t m, std::int64_t n, const dagc::Put<1> "
    assert f"{head}sent_put)" in files["kernels.cu"]
    assert "const auto dst = dagc::put_array<0, 1>(dst_here, sent_put);" in files["kernels.cu"]
    assert "put_comm.restart({&halo_0_group, &halo_1_group});" in files["program.hpp"]


def test_the_text_of_kernels_that_wait() -> None:
    """Before their first load; without an op of the exchange in the loop."""
    _, folded = sample(SAMPLES / "jacobi/jacobi.dag", transport="put", put_wait="reader", capture="true")
    made = Plan(*unroll(folded, next(iter(Space(folded)))), Target.CUDA)
    function = emit(made)["kernels.cu"].partition("stencil_put_await(")[2]
    head, *begin = (line.strip() for line in function.splitlines()[:3])
    assert "const dagc::Put<1> sent_put, const dagc::PutWait<1> awaited)" in head
    assert begin == ["dagc::put_wait(awaited);", "const dagc::PutEnd sent_end(sent_put);"]
    period = next(iter(Space(folded)))
    text = emit(Plan(*unroll(folded, period), Target.CUDA, period=(folded, period)))["iteration.hpp"]
    assert text.count(".run(") == 1, "of the last step, whose messages no kernel reads"
    assert text.count("dagc::put_waits(") == text.count(".arrival(")
    _, joined = sample(
        SAMPLES / "jacobi/jacobi.dag", transport="put", put_wait="reader", **{"fuse.first_last_inner": "2"}
    )
    views = Functions(joined.unrolled, Target.CUDA).view().functions
    begins = next(view.begins for view in views if "await" in view.name)
    assert begins[-6:-3] == (  # the boundary rows; neither do the inner rows wait, nor do messages wait for them
        "const int sent_call = (blockIdx.y >= end_0) + (blockIdx.y >= end_1);",
        "dagc::put_wait(awaited, sent_call < 2 ? 0x3U : 0x0U);",
        "const dagc::PutEnd sent_end(sent_put, sent_call < 2 ? true : false, (end_1) * gridDim.x * gridDim.z);",
    )


def run(
    path: Path, plans: Mapping[str, Plan], ranks: int, folder: Path, hosts: Mapping[str, tuple[int, ...]] = {}
) -> list[str | Path]:
    """In three orders drawn at random each, beside NumPy's results; with each of these numbers of ranks a host, by the
    name of the plan. Returns the command of one on one host, or the last one."""
    random = Random(1)
    built = build_together(plans, folder, "runner", flags=("-O0", "-Werror"))
    run_setup(graph(path).program, path.parent, ranks, 1, folder / "data")
    pairs = [(name, each) for name in plans for each in hosts.get(name, (ranks,))]
    for name, each in sorted(pairs, key=lambda pair: pair[0] not in hosts):
        made = plans[name]
        lines = [table_line(drawn(made, random), made.capture) for _ in range(3)]
        (folder / "tables").write_text("".join(f"{line}\n" for line in lines))
        command: list[str | Path] = [built[name], "--data", folder / "data", "--tables", folder / "tables"]
        done = launch(command, ranks, timeout=300, env={"DAGC_RANKS_PER_HOST": str(each)})
        assert done.returncode == 0, (name, done.stderr)
        assert [line.split(": ")[1] for line in done.stdout.splitlines()] == ["good"] * len(lines), name
    return command


# ---- several hosts ----------------------------------------------------------------------------------

LEVELS = {"transport": "nccl", "within_host": "peer"}


@pytest.mark.parametrize("more", [{"transport": "nccl"}, {"transport": "mpi_cuda"}, {"staging": "ops"}], ids=str)
def test_messages_within_hosts_are_ops_of_their_own(more: dict[str, str]) -> None:
    """Neither half of the exchange waits for the other, what reads the result waits for both, and the space is that of
    a naive enumeration."""
    alone = TINY.replace("  sum  : mpi allreduce(y, y, sum)\n", "  c : gpu copy(y, x)\n")
    made = graph_of(alone, **more, within_host="peer")
    within, between = ([op.id for op in made.ops if op.pairs is p] for p in (Pairs.WITHIN_HOST, Pairs.BETWEEN_HOSTS))
    assert not any({(a, b), (b, a)} & {*made.completion} for a, b in product(within, between))
    reader = made.by_name("c")
    assert {u for u, v in made.completion if v == reader.id} >= {*within, *between[-1:]}
    assert Counter(Moves.of(made)).total() == len(all_traversals(made))


def test_halves_have_all_edges() -> None:
    """Both wait for what read their buffers before, and in the step before; and have all written edges."""
    loop = "for t in 0..2 { halo[t] : mpi exchange { send z to 0 recv x from 0 }  c[t] : gpu copy(y, x) }"
    text = f"program p\narray x, y, z : f64[4] inout\ndag {{\n  b : gpu copy(y, x)\n  {loop}\n}}"
    for transport, last in {"nccl": "", "mpi_cuda": ".post_recv", "mpi_host": ".stage_in"}.items():
        read = graph_of(text, transport=transport, within_host="peer", staging="ops")
        edges = {(read.ops[u].name, read.ops[v].name) for u, v in read.completion}
        for reader, halo in ("b", "halo[0]"), ("c[0]", "halo[1]"):
            assert {(reader, f"{halo}.within_host"), (reader, f"{halo}{last}")} < edges
    made = graph(SPMV, transport="nccl", within_host="peer")
    edges = {(made.ops[u].name, made.ops[v].name) for u, v in made.completion}
    halves = ("x", "x.within_host")
    assert {*product(["pack"], halves), *product(halves, ["yr"])} < edges
    each = graph(ALLTOALLV, **LEVELS)
    edges = {(each.ops[u].name, each.ops[v].name) for u, v in each.completion}
    halves = ("all", "all.within_host")
    assert {*product(["first"], halves), *product(halves, ["last"])} < edges
    assert not {*product(halves, halves)} & edges
    with pytest.raises(ProgramError, match="`x` has ranks in arrays: what the host receives would be copied over"):
        graph(SPMV, transport="mpi_host", within_host="peer")


def test_collectives_are_ops_of_each_host_and_between_hosts() -> None:
    """One after the other; a broadcast begins and a reduction to one rank ends with its root; the space is that of a
    naive enumeration; the Python driver leaves them to its library, which knows the hosts."""
    made = graph_of(TINY.replace(f"  halo{TINY.partition('  halo')[2].partition(chr(10))[0]}\n", ""), **LEVELS)
    levels = [made.by_name(f"sum.{name}") for name in ("within_host", "between_hosts", "to_host")]
    assert [op.comm for op in levels] == ["hosts.within", "hosts.between", "hosts.within"]
    assert {(a.id, b.id) for a, b in pairwise(levels)} < {*made.completion}
    assert Counter(Moves.of(made)).total() == len(all_traversals(made))
    several = graph(TRANSPORTS, within_host="peer")
    roots = {op.comm for op in several.ops if op.name.startswith("cast.")}
    assert roots == {"hosts.between[ranks - 1]", "hosts.within[ranks - 1]"}
    files = emit(Plan(several, Space(several).first(), Target.CUDA))
    assert "first_of_host" in files["program.hpp"]
    code = [line.partition("#")[0] for line in files["driver.py"].partition("def bind")[2].splitlines()]
    assert not any("Iallreduce" in line or "Ibcast" in line or "hosts_" in line for line in code)
    every = graph(COLLECTIVES, **LEVELS)
    assert {op.comm for op in every.ops} >= {"row", "hosts.within"}
    reduction = [(op.name, op.comm) for op in every.ops if op.name.startswith("top.")]
    assert reduction == [
        ("top.within_host", "hosts.within[ranks - 1]"), ("top.between_hosts", "hosts.between[ranks - 1]")
    ]  # fmt: skip
    partial = next(array for array in every.program.arrays if array.name == "top.of_host")
    assert (partial.dims, partial.role) == ((Const(5),), None)


def test_peer_for_all_messages_is_one_op(capsys: pytest.CaptureFixture[str]) -> None:
    """A warning says that `within_host` changes nothing, but where that depends on what is open."""
    for transport, warned in (["-D", "transport=peer"], True), ([], False):
        assert main(["check", str(TRANSPORTS), "-D", "within_host=peer", *transport]) == 0
        said = "".join(capsys.readouterr())
        assert ("warning: within_host=peer changes nothing: no message of device arrays has two" in said) == warned
    assert configuration_of(graph(TRANSPORTS, transport="peer", within_host="peer")) == configuration_of(
        graph(TRANSPORTS, transport="peer")
    )
    assert not any(op.pairs is not Pairs.ALL for op in graph(TRANSPORTS, transport="peer", within_host="peer").ops)


def test_a_search_opens_put_with_its_edges_and_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """With early edges, as `peer`; on the host target if it is asked for. What is compiled first is of both."""
    text = read(SAMPLES / "jacobi/jacobi.dag", {"steps": "2"})
    monkeypatch.setattr("dagc.study.decisions.compilers", lambda: 8)

    def found(gpus: bool, **options: Any) -> tuple[list[Configured], list[str]]:
        _, every, notes = configured(text, ExploreOptions(**options), gpus)
        return every, [note for note in notes if "not searched" in note]

    every, notes = found(gpus=True)
    assert notes == []
    kinds = {tuple(map(c.configuration.get, ("transport", "put_wait", "graph_edges"))) for c in every}
    assert kinds == {
        ("mpi_host", None, None), ("mpi_cuda", None, None), ("nccl", None, None), ("peer", None, None),
        ("peer", None, "early"), *(("put", wait, edges) for wait in (None, "reader") for edges in (None, "early")),
    }  # fmt: skip
    first = [c.configuration.get("transport") for c in by_promise(every)[:4]]
    assert first == ["peer", "put", "peer", "put"]
    assert {c.configuration.get("transport") for c in found(gpus=True, transport="put,peer")[0]} == {"put", "peer"}
    every, notes = found(gpus=False)
    assert "put" not in {c.configuration.get("transport") for c in every}
    says = "not searched on the host target, where it says nothing of a GPU: transport=put (--transport, --open)"
    assert notes == [says]
    assert "put" in {c.configuration.get("transport") for c in found(gpus=False, opened=("transport",))[0]}
    edges = found(gpus=True, opened=("graph_edges",), transport="nccl")[0]
    assert {c.configuration.get("graph_edges") for c in edges} == {None, "programmatic", "early"}


def test_a_search_on_several_hosts_opens_the_transport_within_them(monkeypatch: pytest.MonkeyPatch) -> None:
    text, options = read(TRANSPORTS), ExploreOptions(ranks=4)
    _, one, _ = configured(text, options, gpus=False)
    monkeypatch.setenv("DAGC_RANKS_PER_HOST", "2")
    _, both, _ = configured(text, options, gpus=False)
    transports = {c.configuration.get("transport") for c in both if c.configuration.get("within_host") == "peer"}
    assert transports == {"mpi_host", "mpi_cuda", "nccl"}
    orders = {c.configuration.get("rank_order") for c in both}
    assert orders == {None, "neighbours"}
    assert not any({"within_host", "rank_order"} & {*c.configuration} for c in one)
    gpu = toolchain.TargetChoice(Target.CUDA, "sm_90", "")
    left = that_can_run(both, gpu, ExploreOptions(ranks=4, mpi_takes_device_pointers=True), notes := [])
    assert not any(c.configuration.get("transport") == "peer" for c in left)
    assert "without transport=peer: the ranks are on several hosts, and not on one" in notes


@pytest.mark.parametrize(
    ("environment", "several"),
    [
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, True),
        ({"PMI_RANK": "0", "PMI_SIZE": "4", "MPI_LOCALNRANKS": "4"}, False),
        ({"PMI_RANK": "0", "PMI_SIZE": "4", "MPI_LOCALNRANKS": "2"}, True),
        ({"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "0", "SLURM_STEP_NUM_NODES": "2"}, True),
        ({"SLURM_STEP_NUM_NODES": "2"}, False),  # the shell of a job
        ({}, False),
    ],
)
def test_starters_say_whether_there_are_several_hosts(environment: dict[str, str], several: bool) -> None:
    assert several_hosts(4, environment) is several
    with pytest.raises(UsageError, match="DAGC_RANKS_PER_HOST=x is not a whole number of at least 1"):
        several_hosts(4, {"DAGC_RANKS_PER_HOST": "x"})


@pytest.mark.mpi
@can_run
def test_four_ranks_as_two_hosts(tmp_path: Path) -> None:
    """Each message by what its pair has, and collectives in levels: within hosts of 2 and of 3 ranks, and between
    them."""
    plans = {
        name: plan(TRANSPORTS, Target.HOST, within_host="peer", **more)
        for name, more in {
            "fused": {}, "ops": {"staging": "ops"}, "captured": {"transport": "nccl", "capture": "true"},
            "pointers": {"transport": "mpi_cuda"}, "ordered": {"rank_order": "neighbours"},
        }.items()
    }  # fmt: skip
    posts = [line for line in emit(plans["fused"])["iteration.hpp"].splitlines() if "dagc::post_send(" in line]
    assert posts
    assert all("p.hosts.between(" in line for line in posts)  # nothing is sent by both
    command = run(TRANSPORTS, plans, 4, tmp_path, dict.fromkeys(plans, (2, 3)))
    refused = launch(command, 4, timeout=60, env={"DAGC_RANKS_PER_HOST": "2.5"})
    assert refused.returncode == 2
    wrong = "DAGC_RANKS_PER_HOST=2.5 is not a whole number from 1 to 1e9; give one, or unset the variable"
    assert refused.stderr.count(wrong) == 1
    assert why_no_driver(plans["ordered"]).startswith("rank_order=neighbours")


@pytest.mark.mpi
@can_run
def test_parts_of_hosts_and_ranks_in_arrays(tmp_path: Path) -> None:
    """Communicators of which one is within hosts, another across them; ranks and counts in arrays, by which the ranks
    are ordered."""
    made = plan(COMMS, Target.HOST, **LEVELS, rank_order="neighbours")
    run(COMMS, {"comms": made}, 4, tmp_path, {"comms": (2, 3)})


@pytest.mark.mpi
@pytest.mark.thorough
@can_run
def test_alltoallv_of_hosts(tmp_path: Path) -> None:
    run(ALLTOALLV, {"all": plan(ALLTOALLV, Target.HOST, **LEVELS)}, 4, tmp_path, {"all": (2, 3)})


# ---- collectives ------------------------------------------------------------------------------------

LOWERINGS: dict[str, dict[str, str]] = {
    "mpi_host": {},
    "staging": {"staging": "ops"},
    "mpi_cuda": {"transport": "mpi_cuda"},
    "nccl": {"transport": "nccl", "capture": "true"},
    "peer": {"transport": "peer", "tol": "0.0"},  # sums in the order of the ranks, to the last bit
    "hosts": {**LEVELS, "capture": "true"},
}


@pytest.mark.mpi
@can_run
@pytest.mark.parametrize("names", representatives([["hosts", "peer"], [*LOWERINGS]], ["hosts", "peer"]), ids="-".join)
def test_every_collective_by_every_transport(names: list[str], tmp_path: Path) -> None:
    """On four ranks, of three communicators, large ones and reductions to one rank too; as two hosts, and three and
    one."""
    plans = {name: plan(COLLECTIVES, Target.HOST, **LOWERINGS[name]) for name in names}
    run(COLLECTIVES, plans, 4, tmp_path, {"hosts": (2, 3)})


def test_sizes_that_depend_on_the_ranks_are_checked_at_the_start() -> None:
    text = emit(plan(COLLECTIVES, Target.HOST))["program.hpp"]
    assert 'dagc::check_size(p.all.size, (p.one.size) * p.row.ranks, "all");' in text
    assert 'dagc::check_size(p.turned.size, p.many.size, "turn");' in text
    assert 'dagc::check_size(p.turned.size, ((p.many.size) / p.ranks) * p.ranks, "turn");' in text
    assert 'dagc::check_root(p.ranks - 1, p.ranks, "top");' in text


def test_sizes_of_reductions_are_checked_at_the_start() -> None:
    """Only where they may differ."""
    ops = ("allreduce(x, y[0 .. 1], sum)", "reduce(x[0 .. 2], y[0 .. 2], max, 0)", "allreduce(x, x, sum)")
    calls = "\n".join(f"  a{number} : mpi {op}" for number, op in enumerate(ops))
    head = 'program p\nsetup "none.py" none()\nscalar n : i64\narray x, y : f64[n] inout\n'
    made = graph_of(f"{head}dag {{\n{calls}\n}}")
    text = emit(Plan(made, next(iter(Space(made))), Target.HOST))["program.hpp"]
    assert [line.strip() for line in text.split("\n") if "check_size" in line] == [
        'dagc::check_size(1, p.n, "a0, `y[0 .. 1]`");'
    ]


@pytest.mark.mpi
@can_run
def test_reductions_of_every_type_by_peer(tmp_path: Path) -> None:
    run(TYPES, {"types": plan(TYPES, Target.HOST)}, 3, tmp_path)
