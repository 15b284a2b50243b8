"""The runner library from Python, on ranks: handles, measurements, traces, positions; two libraries in one process."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from random import Random

import numpy as np
import pytest

from dagc.emit.forms import rows
from dagc.ir.traversal import Issue, Record, Traversal, Wait
from dagc.measure.launch import launch
from tests.measure.conftest import LOWERINGS, SPMV, Built, Make, needs_mpi

pytestmark = needs_mpi

PLAIN, CAPTURED = LOWERINGS["mpi_host"], LOWERINGS["captured"]
OF_EACH = 40  # traversals
CLOCKS = 0.2  # seconds; how well the GPU's clock is placed on the CPU's depends on how busy the machine is

WORK = """
import json, sys, threading, time
from pathlib import Path
import numpy as np
from dagc.base.errors import DagcError
from dagc.measure.runner import Runner, world

order = json.loads(Path(sys.argv[1]).read_text())
comm = world()
runners = [Runner(Path(one["library"]), Path(one["data"]), comm) for one in order["programs"]]
out = {"handles": [], "checked": [], "again": [], "measured": [], "refused": [], "seen": [], "names": []}

# Many tables at once, of two libraries; executed in turn.
tables = [[r.prepare(t) for t in one["tables"]] for r, one in zip(runners, order["programs"])]
out["handles"] = [[t.handle for t in of_one] for of_one in tables]
for pair in zip(*tables):
    for runner, table in zip(runners, pair):
        runner.reset()
        runner.execute(table, 2)
        out["checked"].append(runner.verify())

# A handle that was released is free again.
for runner, of_one, one in zip(runners, tables, order["programs"]):
    for table in of_one[1:]:
        runner.release(table)
    again = runner.prepare(one["tables"][-1])
    out["again"].append(again.handle)
    runner.reset()
    runner.execute(again)
    out["checked"].append(runner.verify())
    runner.release(again)

for runner, of_one in zip(runners, tables):
    seconds, iterations = runner.measure(of_one[0], 0.01)
    out["measured"].append([seconds, iterations])
    out["measured"].append(runner.measure(of_one[0], 0.01, guess=seconds))
    out["measured"].append(runner.measure(of_one[0], 0.01, guess=1000 * seconds))
    out["measured"].append(runner.measure(of_one[0], 0.01, guess=seconds / 1000))
    out["names"].append([runner.op_name(i) for i in range(one["ops"])])
    for wrong in order["wrong"]:
        try:
            out["refused"].append(runner.prepare(wrong).handle)
        except DagcError as error:
            out["refused"].append(error.message)

plain = runners[1].prepare(order["plain"])
np.save(f"{sys.argv[1]}.trace.{comm.Get_rank()}.npy", runners[1].trace(plain))

# What another thread sees while tables are executed.
before, seen, over = runners[0].position(), set(), threading.Event()
def look():
    while not over.is_set():
        seen.add(runners[0].position())
        time.sleep(1e-4)  # else it takes a core from the ranks
thread = threading.Thread(target=look)
thread.start()
while comm.allreduce(len(seen)) < 2 * comm.Get_size():
    runners[0].execute(tables[0][0], 100)
over.set()
thread.join()
out["seen"] = [before, runners[0].position(), *sorted(seen)]
for runner in runners:
    runner.close()
Path(f"{sys.argv[1]}.{comm.Get_rank()}").write_text(json.dumps(out))
"""

WRONG = [
    [[9, 0, 0]],
    [[0, 999, 0]],
    [[1, 0, -1]],
    [[4, 2, 0], [0, 0, 0], [5, 0, -1]],
    [[4, 1, 0], [3, 0, -1], [5, 0, -1]],
    [[5, 0, -1]],
]
REFUSED = [
    "row 0: no such kind: 9",
    "row 0: no such op or event: 999",
    "row 0: no such stream: -1",
    "row 0: a capture region without an end",
    "row 1: the CPU cannot take part in a capture region",
    "row 0: the end of a capture region is not where it should be",
]


class Ranks:
    """What the ranks have said."""

    def __init__(self, folder: Path, make: Make) -> None:
        self.built: list[Built] = [make(SPMV, **PLAIN), make(SPMV, **CAPTURED)]
        random, programs = Random(3), []
        for number, built in enumerate(self.built):
            drawn = [built.space.first(), *(built.space.sample(random) for _ in range(OF_EACH - 1))]
            tables = [rows(t, built.capture) for t in drawn]
            ops = len(built.space.graph.ops)
            data = Path(os.fsdecode(os.fsencode(folder) + b"/gr\xf6\xdfe-%d" % number))  # a name need not be UTF-8
            data.symlink_to(built.data)
            programs.append({"library": str(built.library), "data": str(data), "tables": tables, "ops": ops})
        self.traced: Traversal = self.built[1].space.sample(random)
        order = folder / "order.json"
        order.write_text(json.dumps({"programs": programs, "wrong": WRONG, "plain": rows(self.traced)}))
        launch([sys.executable, "-c", WORK, order], self.built[0].ranks, timeout=300).check()
        ranks = range(self.built[0].ranks)
        self.said = [json.loads(Path(f"{order}.{rank}").read_text()) for rank in ranks]
        self.traces = [np.load(f"{order}.trace.{rank}.npy") for rank in ranks]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory, make: Make) -> Ranks:
    return Ranks(tmp_path_factory.mktemp("runner"), make)


@pytest.mark.thorough
def test_many_handles_of_two_libraries(ranks: Ranks) -> None:
    for said in ranks.said:
        assert said["handles"] == [list(range(OF_EACH))] * 2
        assert said["again"] == [1, 1]
        assert said["checked"] == [""] * (2 * OF_EACH + 2)
        assert said["names"] == [[op.name for op in built.space.graph.ops] for built in ranks.built]


def test_a_measurement_is_long_enough_and_the_same_on_all_ranks(ranks: Ranks) -> None:
    for said in ranks.said:
        assert said["measured"] == ranks.said[0]["measured"]
    for seconds, iterations in ranks.said[0]["measured"]:
        assert iterations >= 1
        assert seconds * iterations >= 0.01 * (1 - 1e-9)


def test_tables_that_cannot_be_executed(ranks: Ranks) -> None:
    assert ranks.said[0]["refused"] == REFUSED * 2


def test_a_trace_keeps_the_order_of_the_traversal(ranks: Ranks) -> None:
    entries = ranks.traced.entries
    for trace in ranks.traces:
        assert trace.shape == (len(entries), 4)
        begins, ends = trace[:, 0], trace[:, 1]
        assert begins[0] >= 0
        assert (begins <= ends).all()
        assert (ends[:-1] <= begins[1:]).all()
        on_gpu = [isinstance(e, Issue) and e.stream is not None for e in entries]
        assert (~np.isnan(trace[:, 2:])).all(axis=1).tolist() == on_gpu
        assert np.isnan(trace[:, 2:]).all(axis=1).tolist() == [not on for on in on_gpu]
        gpu_ends: dict[int, float] = {}  # by stream
        recorded: dict[int, float] = {}  # by event: the end of what was last in its stream
        for entry, (_, cpu_end, gpu_begin, gpu_end) in zip(entries, trace.tolist(), strict=True):
            match entry:
                case Issue(_, int(stream)):
                    # Events have the precision of a float of milliseconds. The start is of the CPU's clock.
                    earliest = gpu_ends[stream] - 1e-6 if stream in gpu_ends else -CLOCKS
                    assert earliest <= gpu_begin <= gpu_end
                    gpu_ends[stream] = gpu_end
                case Record(event, stream):
                    recorded[event] = gpu_ends[stream]
                case Wait(event, None):
                    assert cpu_end >= recorded[event] - CLOCKS


def test_positions_are_rows(ranks: Ranks) -> None:
    table = rows(ranks.built[0].space.first())
    for before, after, *seen in (said["seen"] for said in ranks.said):
        assert (before, after) == (-1, -1)
        assert set(seen) - {-1}
        assert set(seen) <= set(range(-1, len(table)))
