"""Times that SimGrid predicts: against timelines by hand, from recorded traces, and what cannot be simulated."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from dagc import api
from dagc.base import children
from dagc.base.errors import MissingTool, UsageError
from dagc.build.mpi import find_mpi
from dagc.build.toolchain import find_cxx, has_library
from dagc.cli.main import main
from dagc.ir.choice import Choice
from dagc.ir.program import Action, CollectiveKind, Graph, Value
from dagc.ir.traversal import Issue, Stream, Traversal, parse_traversal
from dagc.lab.candidate import Candidate
from dagc.lab.orders import Orders, domain_of
from dagc.space import Space
from dagc.store.records import load
from dagc.store.results import TraceSpan
from dagc.study import simulated, traced
from dagc.study.calibrated import CalibratedFactors, fitted
from dagc.study.loaded import Loaded
from dagc.study.simulated import (
    Factors,
    SimulatedMachine,
    compiled,
    deadlock_text,
    most_messages,
    problem_text,
    readable,
    rounds_of,
)
from dagc.study.traced import EntryTimes, Wakes
from tests.lab.test_strategies import domain
from tests.precompiled import compile_by_clang

RING = """
program ring
param n : i64 = 12500
tune far in {2, 1, 3}
setup "ring.py" given(n, far)
scalar left, right : i32
array s : f64[n] inout
array r : f64[n]
array y : f64[n] out
kernel fill(s: out f64[m], m: i64) {
  gpu { launch grid(ceil(m / 64)) block(64)
        cuda \"\"\" long i = (long)blockIdx.x * 64 + threadIdx.x; if (i < m) s[i] = i; \"\"\" }
}
dag {
  if rank != 0 { a : gpu fill(s, n) }
  halo : mpi exchange { m : send s to right  recv r from left }
  b : gpu copy(y, r)
}
"""
SETUP = """
import numpy as np
def given(rank, size, seed, n, far):
    if far == 3:
        raise ValueError("too far")
    return {"left": (rank - far) % size, "right": (rank + far) % size, "s": np.zeros(n)}
"""
PLATFORM = """<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="nodes" prefix="node-" suffix="" radical="0-3" speed="1Gf" bw="1GBps" lat="10us" core="1"/>
</platform>
"""
SUM = """
program sum
array x, y : f64[4] on host inout
dag { total : mpi allreduce(y, x, sum) }
"""
RECORDED = Path(__file__).parents[2] / "benchmarks/results/2026-11-22-2xh200-launch/heat-auto.db"
LOOPBACK = 'core="2" loopback_bw="100GBps" loopback_lat="0us"'
PAIRS = PLATFORM.replace("0-3", "0-1").replace('core="1"', LOOPBACK)  # two ranks on each host
ORDER = "a@s0 record(e0)@s0 sync(e0) post_recv post_send wait_recv wait_send b@s0 record(e1)@s0 sync(e1) end"
MICRO = 1e-6
CALLS = "record wait a b post_recv post_send wait_recv wait_send".split()
TIMES = EntryTimes({**dict.fromkeys(CALLS, MICRO), "sync": 3 * MICRO}, {"a": 10 * MICRO, "b": 20 * MICRO})

has_simgrid = find_cxx() is not None and has_library("simgrid")
mpi = find_mpi()


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulator is compiled in a third of the time."""
    compile_by_clang(monkeypatch)


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ring")
    for name, text in {"ring.dag": RING, "ring.py": SETUP, "platform.xml": PLATFORM}.items():
        (folder / name).write_text(text)
    return folder / "ring.dag"


def answer(
    ring: Path,
    folder: Path,
    n: int,
    ranks: int,
    times: EntryTimes = TIMES,
    order: str = ORDER,
    network: str = "",
    cores: int = 1,
) -> str:
    graph = api.load_graph(ring, {"n": n, "transport": "mpi_host", "capture": False})
    values = [{"n": n, "rank": r, "left": (r - 1) % ranks, "right": (r + 1) % ranks} for r in range(ranks)]
    (folder / "problem").write_text(problem_text([graph], times, [values], rounds=1))
    rows = ";".join(" ".join(map(str, entry.row)) for entry in parse_traversal(order, graph).entries)
    text = PLATFORM.replace("0-3", f"0-{ranks // cores - 1}").replace('core="1"', f'core="{cores}" {network}')
    (folder / "platform.xml").write_text(text)
    command = [compiled(folder), folder / "platform.xml", folder / "problem", "--log=root.thres:error"]
    return children.run(command, text=f"0 {rows}\n").stdout


def seconds(ring: Path, folder: Path, n: int, ranks: int, times: EntryTimes = TIMES) -> float:
    return float(answer(ring, folder, n, ranks, times).split()[0])


@pytest.mark.simgrid
@pytest.mark.skipif(not has_simgrid, reason="needs SimGrid")
@pytest.mark.parametrize(("n", "microseconds"), [(12500, 162), (1000, 70)])
def test_four_ranks_take_the_time_of_the_timeline(ring: Path, tmp_path: Path, n: int, microseconds: float) -> None:
    """Rank 0 does not run `a` and is early. The others: `a` until 11, the CPU has seen it at 14, posts at 15 and 16. A
    large message takes 20 + 100 from the later post, 136; its waits end at 138, `b` is launched at 139 and ends at
    159, which is seen at 162. A small one takes 20 + 8 and leaves when it is posted: 44, 46, 47, 67, 70."""
    assert seconds(ring, tmp_path, n, 4) == pytest.approx(microseconds * MICRO, abs=1e-9)


@pytest.mark.simgrid
@pytest.mark.skipif(not has_simgrid, reason="needs SimGrid")
def test_neighbours_on_a_torus_are_one_link_apart(ring: Path, tmp_path: Path) -> None:
    """As before with one link in place of two; of 2 x 2, ranks 1 and 2 are two links apart."""
    for shape, microseconds in (("4", 152), ("2,2", 162)):
        text = answer(ring, tmp_path, 12500, 4, network=f'topology="TORUS" topo_parameters="{shape}"')
        assert float(text.split()[0]) == pytest.approx(microseconds * MICRO, abs=1e-9)


@pytest.mark.simgrid
@pytest.mark.skipif(not has_simgrid, reason="needs SimGrid")
def test_streams_and_the_cpu_go_on_late_after_a_wait(ring: Path, tmp_path: Path) -> None:
    """`a` begins at 3 and ends at 13, which the CPU has seen at 13 + 3 + 3; then as above, 5 later, until `b` is
    launched at 52. It begins at 54 and ends at 74, which is seen at 74 + 3 + 3."""
    late = replace(TIMES, stream_wakes=2 * MICRO, cpu_wakes=3 * MICRO)
    assert seconds(ring, tmp_path, 1000, 4, late) == pytest.approx(80 * MICRO, abs=1e-9)


@pytest.mark.simgrid
@pytest.mark.skipif(not has_simgrid, reason="needs SimGrid")
def test_each_message_takes_the_transport_of_its_pair(ring: Path, tmp_path: Path) -> None:
    """Of four ranks on two hosts, with nothing else taking time: 8 kB within a host by 100 GB/s, between hosts by two
    links of 10 us and 1 GB/s. Each message is in one of both ops."""
    defines = {"n": 1000, "transport": "nccl", "within_host": "peer", "capture": False}
    graph = api.load_graph(ring, defines)
    (tmp_path / "pairs.xml").write_text(PAIRS)
    entries = [Issue(op.id, Stream(number)) for number, op in enumerate(op for op in graph.ops if op.gpu)][1:3]
    rows = ";".join(" ".join(map(str, entry.row)) for entry in entries)
    for ranks, microseconds in ((2, 0.08), (4, 28.0)):  # 8 kB
        values = [{"n": 1000, "rank": r, "left": (r - 1) % ranks, "right": (r + 1) % ranks} for r in range(ranks)]
        nothing = EntryTimes(dict.fromkeys(CALLS, 0.0), {})
        (tmp_path / "problem").write_text(problem_text([graph], nothing, [values], rounds=1))
        command = [compiled(tmp_path), tmp_path / "pairs.xml", tmp_path / "problem"]
        took = float(children.run(command, text=f"0 {rows}\n").stdout.split()[0])
        assert took == pytest.approx(microseconds * MICRO, abs=2e-9)


@pytest.mark.simgrid
@pytest.mark.skipif(not has_simgrid, reason="needs SimGrid")
def test_the_cpus_of_a_host_copy_messages_while_they_wait(ring: Path, tmp_path: Path) -> None:
    """Ranks of one host copy 100 KB each into shared memory and out of it. On two hosts of two, a rank does its half of
    what it sends to the other of its host while it waits for what comes from the other host."""

    def on(cores: int) -> float:
        """Microseconds, without latency within a host."""
        network = 'loopback_bw="1GBps" loopback_lat="0us"'
        return 1e6 * float(answer(ring, tmp_path, 12500, 4, network=network, cores=cores).split()[0])

    assert on(4) == pytest.approx(
        on(1) - 120 + 200, abs=2
    )  # two latencies of links, and 100 us, in place of two copies
    assert on(2) == pytest.approx(on(1), abs=2)


@pytest.mark.simgrid
@pytest.mark.skipif(not has_simgrid, reason="needs SimGrid")
def test_ranks_that_exchange_messages_share_a_host(ring: Path, tmp_path: Path) -> None:
    """As above: of four ranks, 0 and 2 exchange messages, 1 and 3 too; ordered by these, each pair is on one host: two
    messages of 8 kB by 100 GB/s."""
    graph = api.load_graph(ring, {"n": 1000, "transport": "nccl", "capture": False, "rank_order": "neighbours"})
    assert graph.program.orders_ranks
    (tmp_path / "pairs.xml").write_text(PAIRS)
    issued = [Issue(op.id, Stream(number)) for number, op in enumerate(op for op in graph.ops if op.gpu)][1:2]
    machine = SimulatedMachine(None, tmp_path / "pairs.xml", compiled(tmp_path), tmp_path / "problem", {})  # type: ignore[arg-type]
    values = [{"n": 1000, "rank": r, "left": (r + 2) % 4, "right": (r + 2) % 4} for r in range(4)]
    nothing = EntryTimes(dict.fromkeys(CALLS, 0.0), {})
    line = f"0 {';'.join(' '.join(map(str, entry.row)) for entry in issued)}"
    text = problem_text([graph], nothing, [values], 1, [0, 0, 2, 2])
    machine.problem.write_text(text)
    assert machine.run([line]) == [pytest.approx(36 * MICRO, abs=2e-9)]  # two messages of 8 kB each way
    order = machine.ranks(0)
    assert {*order[:2]} in ({0, 2}, {1, 3})
    machine.problem.write_text(problem_text([graph], nothing, [values], 1, [0, 0, 2, 2], {0: order}))
    assert machine.run([line]) == [pytest.approx(0.16 * MICRO, abs=0.09 * MICRO)]


@pytest.mark.simgrid
@pytest.mark.skipif(not has_simgrid, reason="needs SimGrid")
def test_ranks_that_wait_for_each_other_are_named(ring: Path, tmp_path: Path) -> None:
    """Each waits for its send before it receives: messages of up to 64 KiB leave, larger ones do not."""
    order = ORDER.replace("post_recv post_send wait_recv wait_send", "post_send wait_send post_recv wait_recv")
    assert float(answer(ring, tmp_path, 1000, 4, order=order).split()[0]) > 0
    text = deadlock_text(answer(ring, tmp_path, 12500, 8, order=order))
    waits = ", ".join(f"rank {r} waits for rank {r + 1} (`halo`, message 1)" for r in range(5))
    last = "... (2 more), rank 7 waits for rank 0 (`halo`, message 1)"
    assert text == f"deadlock of 8 ranks in a cycle: {waits}, {last}"


SEEN = [  # begin and end of the call, begin and end of the work
    (0, 1, 4, 9),  # a, late by 3
    (1, 2), (2, 14),  # record, sync: 5 after the end of `a`
    *((14, 15),) * 4,
    (15, 16, 15, 20),  # b, at once
    (16, 17), (25, 26),  # an event of before
    (26, 26),
]  # fmt: skip


def test_later_work_waits_for_what_fills_the_gpu(ring: Path, tmp_path: Path) -> None:
    """`b` begins in the middle of `a` and ends 1 after it: it is 1 long. Simulated, it begins after `a`."""
    graph = api.load_graph(ring, {"n": 1000, "transport": "mpi_host", "capture": False})
    order = ORDER.replace("b@s0 record(e1)@s0", "b@s1 record(e1)@s1")
    spans = [TraceSpan(0, 0, 0, 1, 4, 10), TraceSpan(0, 7, 2, 3, 5, 11)]
    one = traced.TracedRank(graph, parse_traversal(order, graph), spans)
    assert one.name(spans[1]) == "b"
    assert traced.filling([one]) == {"a"}
    assert [one.own_work(span, frozenset("a")) for span in spans] == [6, 1]
    assert [one.own_work(span, frozenset()) for span in spans] == [6, 6]


def test_how_late_they_go_on_is_traced(ring: Path) -> None:
    graph = api.load_graph(ring, {"n": 1000, "transport": "mpi_host", "capture": False})
    wakes = Wakes([], [], [])
    wakes.add([TraceSpan(0, n, *times) for n, times in enumerate(SEEN)], parse_traversal(ORDER, graph))
    assert wakes == Wakes([3, -1], [5], [1])


def test_traces_of_other_launch_settings_count() -> None:
    loaded = Loaded(RECORDED)
    number = next(iter(loaded.results.traces))
    results = replace(loaded.results, traces={number: loaded.results.traces[number]})
    traced = next(i.configuration for i in results.implementations if i.id == number)

    def searched(**changed: Value) -> Orders:
        configuration = Choice.of({**traced, **{name.replace("_", "."): value for name, value in changed.items()}})
        return domain_of([(configuration, loaded.graph(configuration))])

    times = EntryTimes.of(searched(), results)
    assert any(name.startswith("inner") for name in times.work)
    machine = results.runs[-1].machine
    sized = replace(results.runs[-1], machine=replace(machine, facts={"scalars": [{"n": 4096, "m": 2048}]}))
    larger = EntryTimes.of(searched(), replace(results, runs=(sized,)))
    assert larger.fills == {"inner"}  # more threads than the GPU holds
    assert EntryTimes.of(searched(inner_bx=128, capture=True), results) == times
    with pytest.raises(UsageError, match="only of configurations that are not searched: transport=nccl") as caught:
        EntryTimes.of(searched(transport="mpi_host"), results)
    assert caught.value.help == "search these too, with -D or --open, or record what is searched"


@pytest.mark.simgrid
@pytest.mark.skipif(not has_simgrid, reason="needs SimGrid")
@pytest.mark.mpi
@pytest.mark.skipif(mpi is None or mpi.mpiexec is None, reason="needs an MPI")
def test_from_a_measured_search_to_more_ranks(
    ring: Path, tmp_path: Path, unoptimised: None, capsys: pytest.CaptureFixture[str]
) -> None:
    results, platform = tmp_path / "ring.db", ring.with_name("platform.xml")
    base = [str(ring), "-D", "n=1000", "-D", "transport=mpi_host", "-D", "staging=fused", "-D", "streams=1"]
    few = ["--budget", "2", "--confirm", "0", "--strategy", "random", "--quiet"]
    assert main(["explore", *base, *few, "--target", "host", "-n", "2", "-o", str(results)]) == 0
    command = ["explore", *base, *few, "--replay", str(results), "--simulate"]
    capsys.readouterr()
    kept = ["-o", str(tmp_path / "kept.db")]
    assert main([*command, str(platform), "-n", "4"]) == 0
    text = "".join(capsys.readouterr())
    assert "times are predicted by SimGrid for 4 ranks" in text
    assert "predicted  " in text
    assert "measure" not in text
    assert main([*command, str(platform), "-n", "4", "--calibrate", str(platform), *kept]) == 0
    assert re.search(r"2 measured implementations take what is predicted with calls x \d", "".join(capsys.readouterr()))
    assert main(["best", kept[1], "--plan"]) == 0
    advised = "".join(capsys.readouterr())
    assert "(predicted by SimGrid on platform.xml, 4 ranks)" in advised
    assert "--resume" not in advised  # there is nothing to be measured again
    pairs = tmp_path / "pairs.xml"  # each host sends one message to the other if each rank sends to the next, else two
    pairs.write_text(PAIRS)
    assert main([*command, str(pairs), "-n", "4", "--open", "far", "--budget", "4"]) == 0
    assert " far=1 " in "".join(capsys.readouterr())
    assert main([*command, str(pairs), "-n", "4", "--open", "rank_order", "--budget", "4"]) == 0
    assert " rank_order=neighbours " in "".join(capsys.readouterr())  # sends to the second next
    predicted = load(kept[1])
    assert (len(predicted.measured()), predicted.runs[-1].machine.cpu) == (2, "predicted by SimGrid on platform.xml")
    plot = tmp_path / "scale.svg"
    assert main([*command, str(platform), "--scale", "2,4", "--plot", str(plot)]) == 0
    drawn = ET.parse(plot).getroot()
    assert {"ranks", "best", "ideal weak", "ideal strong"} <= {*drawn.itertext()}
    table = [line.split() for line in capsys.readouterr().out.splitlines()[-3:]]
    assert table[0][:2] == ["ranks", "us"]
    assert [row[0] for row in table[1:]] == ["2", "4"]
    assert table[1][2:4] == ["100.0%", "0.0%"]
    assert main([*command, str(platform), "-n", "4", "--time", "0.001s"]) == 2
    assert "--time is over while 4 ranks are set up" in capsys.readouterr().err
    assert main([*command, str(platform), "-n", "5"]) == 2
    assert "the platform has 4 cores, and there are 5 ranks" in capsys.readouterr().err
    (tmp_path / "bad.xml").write_text(PLATFORM.replace("1GBps", "1GXps"))
    assert main([*command, str(tmp_path / "bad.xml")]) == 2
    assert "bad.xml:4: unknown unit: GXps" in capsys.readouterr().err


def test_factors_explain_measured_times() -> None:
    shares = np.array([[10, 5, 1], [2, 5, 3], [3, 6, 10], [4, 4, 4]])

    class Machine(SimulatedMachine):
        def run(self, lines: Sequence[str], factors: Sequence[Factors] = ()) -> list[float]:
            return [float(shares[int(line)] @ one) for one in factors for line in lines]

        def line(self, candidate: Candidate) -> str:
            return str(candidate.space)

    machine = Machine(domain(), Path(), Path(), Path(), {})
    candidates = [Candidate(n, Traversal(())) for n in range(4)]
    assert fitted(machine, candidates, shares @ [0.6, 1.1, 3.0]) == pytest.approx((0.6, 1.1, 3.0), rel=0.1)
    found = CalibratedFactors(Factors(0.6, 1.1, 3.0), ())
    assert found.on("a.xml", "./a.xml") == found.factors
    assert found.on("b.xml", "a.xml") == (0.6, 1.1, 1.0)


def test_a_platform_that_is_not_xml(tmp_path: Path) -> None:
    (tmp_path / "bad.xml").write_text("<platform>\n <host")
    with pytest.raises(UsageError, match=r"bad\.xml:2:2: not XML: unclosed token"):
        readable(tmp_path / "bad.xml")


ROWS = SUM.replace("sum)", "sum) on row").replace("dag {", "comm row = split(floor(rank / 2), -rank)\ndag {")
ON_DEVICE = SUM.replace("x, y : f64[4] on host inout", "x, y : f64[4] inout")
BOTH_HOSTS = [0, 0, 2, 2]  # the first rank on the host of each


def problem(text: str, folder: Path, **defines: str) -> tuple[Graph, list[str]]:
    (folder / "p.dag").write_text(text)
    graph = api.load_graph(folder / "p.dag", defines)
    lines = problem_text([graph], EntryTimes({}, {}), [[{"rank": r, "ranks": 4} for r in range(4)]], 1, BOTH_HOSTS)
    return graph, lines.splitlines()


def test_a_collective_of_a_communicator_has_the_rounds_of_its_ranks(tmp_path: Path) -> None:
    graph, lines = problem(ROWS, tmp_path)
    assert [line for line in lines if line.startswith("group")] == ["group 2 1 0", "group 2 3 2"]
    post = next(op.id for op in graph.ops if op.action is Action.POST_COLLECTIVE)
    rounds = [line for line in lines if line.startswith(f"round {post} ")]
    assert rounds == [f"round {post} 0 1 32", f"round {post} 1 1 32"]
    assert most_messages("\n".join(lines)) == 4


def test_a_collective_in_two_levels_is_of_each_host_and_of_their_first_ranks(tmp_path: Path) -> None:
    graph, lines = problem(ON_DEVICE, tmp_path, transport="nccl", within_host="peer")
    assert [line for line in lines if line.startswith("group")] == ["group 2 0 1", "group 2 2 3", "group 2 0 2"]
    between = graph.by_name("total.between_hosts").id
    assert [line for line in lines if line.startswith(f"round {between} ")] == [f"round {between} 2 1 32"]
    assert [line for line in lines if line.startswith("idle")] == [f"idle {between} 1", f"idle {between} 3"]


def test_an_alltoallv_is_the_messages_that_have_elements(tmp_path: Path) -> None:
    text = """
program spread
array a, b : f64[8] on host inout
array sends, receives : i32[4] on host const
dag { all : mpi alltoallv(b, a, sends, receives) }
"""
    (tmp_path / "p.dag").write_text(text)
    graph = api.load_graph(tmp_path / "p.dag", {})
    sends = {0: [0, 3, 0, 0], 1: [0, 0, 0, 0], 2: [0, 0, 0, 2], 3: [0, 0, 0, 0]}
    values = [{"rank": r, "ranks": 4, "sends": sends[r], "receives": [sends[s][r] for s in range(4)]} for r in range(4)]
    post = next(op.id for op in graph.ops if op.action is Action.POST_COLLECTIVE)
    text = problem_text([graph], EntryTimes({}, {}), [values])
    assert most_messages(text) == 2
    lines = [line for line in text.splitlines() if "message" in line]
    assert [line for line in lines if line.startswith(f"message {post} ")] == [
        f"message {post} {rest}" for rest in ("0 0 1 24 -1", "1 0 -1 24 0", "2 0 3 16 -1", "3 0 -1 16 2")
    ]


def test_ranks_are_ordered_by_exchanges_of_all_as_in_a_program(tmp_path: Path) -> None:
    """Each once, also where it is two ops; not by those of communicators and by collectives."""
    text = """
program orders
comm row = split(floor(rank / 2))
array a : f64[8] in
array b, c : f64[8]
array s : f64[8] out
dag {
  next : mpi exchange { send a[0 .. 2] to rank + 1 < ranks ? rank + 1 : -1 recv b[0 .. 2] from rank - 1 }
  pair : mpi exchange on row { send a to 1 - row.rank recv c from 1 - row.rank }
  s : mpi allreduce(s, a, sum)
}
"""
    _, lines = problem(text, tmp_path, rank_order="neighbours", within_host="peer", transport="nccl")
    assert [line for line in lines if line.startswith("sends")] == [f"sends {r} {r + 1} 16" for r in range(3)]


@pytest.mark.simgrid
@pytest.mark.skipif(not has_simgrid, reason="needs SimGrid")
def test_a_collective_within_hosts_needs_no_network(tmp_path: Path) -> None:
    """Two ranks of each host take the time of the loopback; all four have two rounds, each with messages between
    hosts."""
    (tmp_path / "pairs.xml").write_text(PAIRS)
    took = []
    for text in (ROWS, SUM):
        graph, lines = problem(text, tmp_path)
        (tmp_path / "problem").write_text("\n".join(lines) + "\n")
        rows = ";".join(" ".join(map(str, entry.row)) for entry in Space(graph).first().entries)
        machine = simulated.SimulatedMachine(
            domain(), tmp_path / "pairs.xml", compiled(tmp_path), tmp_path / "problem", {}
        )
        assert machine.hosts() == BOTH_HOSTS
        took += machine.run([f"0 {rows}"])
    assert took[0] == pytest.approx(0, abs=1e-8)
    assert took[1] == pytest.approx(40 * MICRO, rel=0.1)


def test_ranks_and_counts_in_arrays_are_messages_of_their_own() -> None:
    spmv = Path(__file__).parents[2] / "samples/spmv/spmv.dag"
    graph = api.load_graph(spmv, {"transport": "mpi_cuda"})
    ends = {"send_ranks": [2, 1], "send_counts": [3, 0], "recv_ranks": [1], "recv_counts": [5]}
    number = graph.by_name("post_send").id
    lines = [line for line in problem_text([graph], TIMES, [[{"rank": 0, **ends}]]).splitlines() if "message" in line]
    assert [line.split()[3:] for line in lines if line.startswith(f"message {number} 0 ")] == [
        ["0", "2", "12", "-1"], ["0", "1", "0", "-1"], ["0", "-1", "20", "1"]
    ]  # fmt: skip


def test_every_rank_gets_the_elements_of_all_others() -> None:
    for ranks in range(1, 20):
        gathered = rounds_of(CollectiveKind.ALLGATHER, 8, ranks)
        assert sum(size for _, size in gathered) == 8 * (ranks - 1)
    large = rounds_of(CollectiveKind.ALLREDUCE, 1 << 20, 8)
    assert sum(size for _, size in large) == 2 * ((1 << 20) - (1 << 17))  # as with a ring
    assert [d for d, _ in rounds_of(CollectiveKind.ALLREDUCE, 8, 6)] == [1, 2, 4]


@pytest.mark.simgrid
@pytest.mark.skipif(not has_simgrid, reason="needs SimGrid")
def test_a_collective_takes_its_rounds(ring: Path, tmp_path: Path) -> None:
    """Two of four ranks, each two links of 10 us, and 32 bytes by 1 GB/s."""
    (tmp_path / "sum.dag").write_text(SUM)
    graph = api.load_graph(tmp_path / "sum.dag", {})
    (tmp_path / "problem").write_text(problem_text([graph], EntryTimes({}, {}), [[{"rank": r} for r in range(4)]], 1))
    rows = ";".join(" ".join(map(str, Issue(op.id).row)) for op in graph.ops)
    command = [compiled(tmp_path), ring.with_name("platform.xml"), tmp_path / "problem"]
    took = float(children.run(command, text=f"0 {rows}\n").stdout.split()[0])
    assert took == pytest.approx(2 * 20.032 * MICRO, abs=1e-9)


def test_without_simgrid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "has_library", lambda name: False)
    with pytest.raises(MissingTool, match="needs SimGrid") as missing:
        compiled(tmp_path)
    assert (missing.value.exit_code, missing.value.help) == (3, "apt-get install libsimgrid-dev")
