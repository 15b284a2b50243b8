"""Messages that kernels write (`transport=put`): which may be, where the ranks wait, and that too early is found."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from dagc.base.errors import ProgramError
from dagc.ir.program import Action, CallMessages, Graph
from dagc.ir.traversal import parse_traversal
from dagc.passes.puts import Puts
from dagc.space import Space
from dagc.space.proof import Prover
from tests.emit.build import graph as of_file
from tests.emit.build import graph_of
from tests.measure.conftest import SAMPLES

JACOBI = SAMPLES / "jacobi/jacobi.dag"
PACKED = """
program packed
let transport = {transport}
scalar left, right : i32
array a, snd, rcv : f64[8] inout
kernel pack(y: {mode} f64[m], x: in f64[m], m: i64) {{
  gpu {{ launch grid(1) block(8) cuda \"\"\"{body}\"\"\" }}
}}
kernel unpack(y: inout f64[m], x: in f64[m], m: i64) {{
  gpu {{ launch grid(1) block(8) cuda \"\"\"y[threadIdx.x] += x[threadIdx.x];\"\"\" }}
}}
dag {{
{dag}
}}
"""
WITHIN = {"transport": "nccl", "within_host": "put"}
ONCE = """pack : gpu pack(snd, a, 8)
halo : mpi exchange { send snd to left recv rcv from right }
use : gpu unpack(a, rcv, 8)"""


def packed(
    dag: str = ONCE, body: str = "y[threadIdx.x] = x[threadIdx.x];", mode: str = "out", transport: str = "put"
) -> Graph:
    return graph_of(PACKED.format(dag=dag, body=body, mode=mode, transport=transport))


def frees(graph: Graph) -> list[str]:
    return [op.name for op in graph.ops if op.action is Action.FREE]


def writes(graph: Graph) -> dict[str, list[str]]:
    kernels = [op.kernel for op in graph.ops if op.kernel is not None and op.kernel.puts]
    return {k.name: [f"{p.formal} {p.exchange} {list(p.messages)}" for p in k.puts] for k in kernels}


def test_a_packed_message_is_written_by_the_kernel_that_packs_it_once_all_ranks_have_come() -> None:
    graph = packed()
    names = [op.name for op in graph.ops]
    assert names == ["halo.free", "pack", "halo", "use", "end"]
    assert writes(graph) == {"pack": ["y halo [0]"]}
    assert {(names[u], names[v]) for u, v in graph.completion} == {
        ("halo.free", "pack"), ("pack", "halo"), ("halo", "use"), ("pack", "use"), ("use", "end"),
    }  # fmt: skip
    assert (Space(graph).count(), Space(packed(transport="peer")).count()) == (2**3, 2**2)  # chains on two streams


def test_where_messages_of_the_step_before_answer_the_ranks_wait_once() -> None:
    graph = of_file(JACOBI, transport="put", nx="64", rows="32")
    assert frees(graph) == ["halo[0].free"]
    assert len(writes(graph)) == 40
    assert writes(graph)["last[3]"] == ["dst halo[3] [1]"]
    assert frees(of_file(JACOBI, nx="64", rows="32", **WITHIN)) == ["halo[0].within_host.free"]


def test_what_a_kernel_updates_is_sent_if_both_ends_begin_alike_and_nothing_else_writes_it() -> None:
    (op,) = (op.kernel for op in packed(mode="inout").ops if op.kernel is not None and op.kernel.puts)
    assert [put.updates for put in op.puts] == [True]


def test_messages_in_one_direction_are_not_answered() -> None:
    dag = "\n".join(
        f"p{t} : gpu pack(snd, a, 8)\nx{t} : mpi exchange {{ send snd to left recv rcv from right }}\n"
        f"i{t} : gpu unpack(a, rcv, 8)"
        for t in range(3)
    )
    graph = packed(dag)
    assert frees(graph) == ["x0.free", "x1.free", "x2.free"]
    Prover(graph).prove(next(iter(Space(graph))))


# ---- what is refused --------------------------------------------------------------------------------

OTHER = "halo : mpi exchange { send snd to left recv rcv from right }"
PLAIN = "y[threadIdx.x] = 1;"
REFUSED = {
    "through a pointer": (ONCE, "double* p = y + 1; *p = 0;", "out", "has `y + 1`, where only `y[...] = ...`"),
    "its address": (ONCE, "atomicExch(&y[threadIdx.x], 1.0);", "out", "has `y[threadIdx.x]`"),
    "read": (ONCE, "y[threadIdx.x] = 1; y[0] = y[1];", "out", "has `y[1]`"),
    "added to": (ONCE, "y[threadIdx.x] += 1;", "out", "has `y[threadIdx.x]`"),
    "updated, and by another op": (
        f"use : gpu unpack(snd, a, 8)\n{ONCE.replace('use', 'then')}", PLAIN, "inout",
        "`pack` updates `snd`: what it leaves as it was would not be sent, and `use` writes `snd` too",
    ),
    "updated, and where it is received": (
        f"{ONCE}\nlast : gpu unpack(rcv, a, 8)", PLAIN, "inout", "and `last` writes `rcv` too",
    ),
    "a barrier and a return": (ONCE, "if (m > 6) return; __syncthreads(); y[0] = 1;", "out", "`return` beside"),
    "nothing writes it": (OTHER, PLAIN, "out", "no kernel on the GPU writes all of `snd` before it"),
    "half": (f"pack : gpu pack(snd[0 .. 4], a[0 .. 4], 4)\n{OTHER}", PLAIN, "out", "no kernel on the GPU writes all"),
    "used in between": (
        f"pack : gpu pack(snd, a, 8)\nuse : gpu unpack(a, rcv, 8)\n{OTHER}", PLAIN, "out",
        "`use` uses `rcv` after `pack`, with which others write it",
    ),
    "used by itself": (
        f"pack : gpu pack(snd, rcv, 8)\n{OTHER}", PLAIN, "out", "`pack` uses `rcv` while it writes messages",
    ),
    "explicit edges": (f"edges explicit\npack : gpu pack(snd, a, 8)\n{OTHER}", PLAIN, "out", "has `edges explicit`"),
}  # fmt: skip


@pytest.mark.parametrize(("dag", "body", "mode", "why"), REFUSED.values(), ids=REFUSED)
def test_a_message_that_no_kernel_can_write(dag: str, body: str, mode: str, why: str) -> None:
    with pytest.raises(Exception, match="cannot be put") as refused:
        packed(dag, body, mode)
    assert why in str(refused.value)
    assert "choose -D halo.transport=peer" in str(refused.value)


# ---- proof ------------------------------------------------------------------------------------------


def gaps(graph: Graph, traversal: str) -> list[str]:
    return [gap.reason for gap in Prover(graph).gaps(parse_traversal(traversal, graph))]


def test_waits_that_are_dropped_are_found() -> None:
    graph = packed()
    good = "halo.free@s0 record(e0)@s0 wait(e0)@s1 pack@s1 halo@s1 record(e1)@s1 wait(e1)@s0 use@s0 record(e2)@s0"
    good += " sync(e2) end"
    assert gaps(graph, good) == []
    reader = gaps(graph, good.replace("wait(e1)@s0 ", ""))
    assert "`use@s0` may start before `halo` has completed, which writes `rcv`" in reader
    writer = gaps(graph, good.replace("wait(e0)@s1 ", ""))
    assert "`pack` may write `rcv` of another rank before `halo` of the run before has completed there" in writer
    deadlock = gaps(graph, good.replace("pack@s1 halo@s1", "halo@s1 pack@s1"))
    assert "`halo@s1` must be issued after `pack`" in deadlock


def test_within_hosts_the_same_waits_are_needed_beside_another_transport() -> None:
    """What reads a message waits for both; the kernel for the ranks of its host."""
    graph = graph_of(
        PACKED.format(dag=ONCE, body="y[threadIdx.x] = x[threadIdx.x];", mode="out", transport="nccl"), **WITHIN
    )
    assert writes(graph) == {"pack": ["y halo.within_host [0]"]}
    good = "halo.within_host.free@s0 pack@s0 record(e0)@s0 halo.within_host@s0 wait(e0)@s1 halo@s1 record(e1)@s1"
    good += " wait(e1)@s0 use@s0 record(e2)@s0 sync(e2) end"
    assert gaps(graph, good) == []
    between = gaps(graph, good.replace("wait(e1)@s0 ", ""))
    assert "`use@s0` may start before `halo` has completed, which writes `rcv`" in between
    late = good.replace(" halo.within_host@s0", "").replace(" use@s0", " use@s0 halo.within_host@s0")
    within = gaps(graph, late)
    assert "`use@s0` may start before `halo.within_host` has completed, which writes `rcv`" in within
    early = "pack@s0 halo.within_host.free@s0" + good.partition("pack@s0")[2]
    assert any("of another rank before `halo.within_host` of the run before" in gap for gap in gaps(graph, early))
    with pytest.raises(ProgramError, match="`halo.within_host` cannot be put: kernel `pack` has `.y`") as caught:
        graph_of(PACKED.format(dag=ONCE, body="*y = 1;", mode="out", transport="nccl"), **WITHIN)
    assert caught.value.diagnostics[0].help == "choose -D within_host=peer"


@pytest.mark.parametrize("path", ["jacobi", "within hosts", "packed"])
def test_a_buffer_that_is_overwritten_a_step_early_is_found(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the wait of all ranks; and where the answer comes from another rank than the receiver."""
    monkeypatch.setattr(Puts, "_answered", lambda *_: True)
    whole = WITHIN if path == "within hosts" else {"transport": "put"}
    graph = packed() if path == "packed" else of_file(JACOBI, nx="64", rows="32", steps="4", **whole)
    assert frees(graph) == []
    found = gaps(graph, " ".join(_in_order(graph)))
    first = "pack" if path == "packed" else "first[0]"
    assert re.search(rf"`{re.escape(first)}` may write .* of another rank before .* of the run before has", found[0])
    assert len(set(found)) == (1 if path == "packed" else 2)  # later steps are answered


def _in_order(graph: Graph) -> list[str]:
    ops = [op.name if op.action is Action.END else f"{op.name}@s0" for op in graph.ops]
    return [*ops[:-1], "record(e0)@s0", "sync(e0)", ops[-1]]


def test_an_answer_from_elsewhere_is_none() -> None:
    text = JACOBI.read_text().replace("to down", "to up").replace("from up", "from down")
    graph = graph_of(text.replace("setup", "// setup").replace("verify", "// verify"), transport="put", steps="4")
    assert len(frees(graph)) == 4


# ---- kernels that wait themselves -------------------------------------------------------------------


def waits(graph: Graph) -> dict[str, list[str]]:
    kernels = [op.kernel for op in graph.ops if op.kernel is not None and op.kernel.awaits]
    return {k.name: [f"{exchange} {number}" for exchange, number in k.awaits] for k in kernels}


def test_the_first_kernel_that_reads_a_message_waits_for_it() -> None:
    """One in the next step, whose last exchange has no reader and keeps its op."""
    small = {"transport": "put", "put_wait": "reader", "nx": "64", "rows": "32", "steps": "3"}
    graph = of_file(JACOBI, **small)
    assert waits(graph) == {
        "first[1]": ["halo[0] 1"], "last[1]": ["halo[0] 0"], "first[2]": ["halo[1] 1"], "last[2]": ["halo[1] 0"],
    }  # fmt: skip
    assert [op.name for op in graph.ops if op.action is Action.GROUP] == ["halo[2]"]
    assert frees(graph) == ["halo[0].free"]
    joined = of_file(JACOBI, **small, **{"fuse.first_last_inner": "2"})
    names = [op.name for op in joined.ops]
    assert names == ["halo[0].free", *(f"first_last_inner[{t}]" for t in range(3)), "halo[2]", "end"]
    assert all(Prover(each).proved(next(iter(Space(each)))) for each in (graph, joined))


def by_reader(dag: str = ONCE, **more: str) -> Graph:
    return graph_of(PACKED.format(dag=dag, body=PLAIN, mode="out", transport="put"), put_wait="reader", **more)


def test_a_reader_that_comes_too_early_is_found() -> None:
    graph = by_reader()
    assert [op.name for op in graph.ops] == ["halo.free", "pack", "use", "end"]
    good = "halo.free@s0 pack@s0 record(e0)@s0 wait(e0)@s1 use@s1 record(e1)@s1 sync(e1) end"
    assert gaps(graph, good) == []
    early = gaps(graph, good.replace("wait(e0)@s1 ", ""))
    assert "`use@s1` may start before `pack` has completed, which reads `a`" in early
    assert "`use` may wait for other ranks on all of the GPU before `pack` has completed" in early
    before = gaps(graph, "halo.free@s0 use@s0 pack@s0 record(e0)@s0 sync(e0) end")
    assert "`use@s0` must be issued after `pack`" in before


def test_a_writer_that_waiting_blocks_may_keep_from_the_gpu_is_found() -> None:
    """What another kernel writes for another rank, on another stream: an edge puts it before, or the order of issue
    after."""
    dag = """one : gpu pack(snd, a, 8)
halo : mpi exchange { send snd to left recv rcv from right }
two : gpu pack(out2, b, 8)
back : mpi exchange { send out2 to left recv in2 from right }
use : gpu unpack(a, rcv, 8)
three : gpu unpack(b, in2, 8)"""
    text = PACKED.format(dag=dag, body=PLAIN, mode="out", transport="put").replace("array a,", "array b, out2, in2, a,")
    graph = graph_of(text, put_wait="reader")
    names = [op.name for op in graph.ops]
    assert {"one", "two"} == {names[u] for u, v in graph.completion if names[v] == "use"}
    good = "halo.free@s0 one@s0 back.free@s0 record(e0)@s0 two@s0 use@s0 three@s0 record(e1)@s0 sync(e1) end"
    apart = good.replace("record(e0)@s0 two@s0", "record(e0)@s0 wait(e0)@s1 two@s1 record(e2)@s1")
    assert gaps(graph, good) == []
    found = gaps(graph, apart.replace("three@s0", "wait(e2)@s0 three@s0"))
    assert "`use` may wait for other ranks on all of the GPU before `two` has completed" in found


COPIED = ONCE.replace("use : gpu unpack(a, rcv, 8)", "c : gpu copy(a, rcv)")


@pytest.mark.parametrize(("dag", "why"), [
    (COPIED, "`c`, which uses `rcv` first, is no kernel on the GPU"),
    (ONCE.replace("\nuse : gpu unpack(a, rcv, 8)", ""), "nothing uses `rcv` after it"),
    (f"{ONCE}\nhalo -> use", "an edge of the program names it"),
])  # fmt: skip
def test_a_message_that_no_kernel_waits_for(dag: str, why: str) -> None:
    with pytest.raises(Exception, match="no kernel waits for the messages of `halo`") as refused:
        by_reader(dag)
    assert why in str(refused.value)
    assert "drop -D put_wait=reader" in str(refused.value)


def test_loads_that_may_precede_the_wait_are_refused() -> None:
    text = PACKED.format(dag=ONCE, body=PLAIN, mode="out", transport="put").replace(
        "y[threadIdx.x] += x", "y[threadIdx.x] += __ldg(x + 0) + x"
    )
    with pytest.raises(Exception, match="of `use`, what it reads by `__restrict__` or `__ldg` counts as constant"):
        graph_of(text, put_wait="reader")


def test_launches_that_are_one_write_the_messages_of_each() -> None:
    """Their text stores to one of several arrays; one that is not sent stays beside the others."""
    joined = of_file(JACOBI, transport="put", nx="64", rows="32", **{"fuse.first_last_inner": "1"})
    assert writes(joined)["first_last[3]"] == ["dst_0 halo[3] [0]", "dst_1 halo[3] [1]"]
    assert frees(joined) == ["halo[0].free"]
    whole = of_file(JACOBI, transport="put", nx="64", rows="32", **{"fuse.first_last_inner": "2"})
    assert writes(whole)["first_last_inner[3]"] == ["dst_0 halo[3] [0]", "dst_1 halo[3] [1]", "dst_2  []"]


def joined_by_reader() -> Graph:
    small = {"transport": "put", "put_wait": "reader", "nx": "64", "rows": "32", "steps": "3"}
    return of_file(JACOBI, **small, **{"fuse.first_last_inner": "2"})


def test_of_a_launch_that_is_several_only_those_with_messages_wait_and_are_waited_for() -> None:
    graph = joined_by_reader()
    kernels = {op.name: op.kernel for op in graph.ops if op.kernel is not None}
    rows, inner = CallMessages((0, 1), True), CallMessages((), False)
    assert kernels["first_last_inner[1]"].by_call == (rows, rows, inner)
    assert kernels["first_last_inner[0]"].by_call == (CallMessages((), True), CallMessages((), True), inner)
    Prover(graph).prove(next(iter(Space(graph))))
    boundary = of_file(JACOBI, transport="put", put_wait="reader", **{"fuse.first_last_inner": "1"})
    assert not any(op.kernel.by_call for op in boundary.ops if op.kernel is not None)  # both do all


TOUCHING = """
program rows
scalar up, down : i32
let m = 6
for p in 0..2 { array u[p] : f64[m + 2, 9] inout }
kernel step(y: inout f64[*], x: in f64[*], k: i64) {
  gpu { launch grid(k) block(9) cuda \"\"\"
    const long at = (blockIdx.x + 1) * 9L + threadIdx.x;
    if (threadIdx.x > 0 && threadIdx.x < 8) y[at] = x[at - 9] + x[at + 9];
  \"\"\" }
}
dag {
  for t in 0..3 {
    first[t] : gpu step(u[(t + 1) % 2] touching [1 .. 2], u[t % 2] touching [0 .. 3], 1)
    last[t] : gpu step(u[(t + 1) % 2][5 .. 8] touching [6 .. 7], u[t % 2][5 .. 8] touching [5 .. 8], 1)
    halo[t] : mpi exchange {
      north : send u[(t + 1) % 2][1 .. 2] to up recv u[(t + 1) % 2][7 .. 8] from down
      south : send u[(t + 1) % 2][6 .. 7] to down recv u[(t + 1) % 2][0 .. 1] from up
    }
    inner[t] : gpu step(u[(t + 1) % 2][1 .. 7] touching [2 .. 6], u[t % 2][1 .. 7] touching [1 .. 7], 4)
  }
}
"""


def test_of_calls_that_are_given_more_than_they_touch_what_they_touch_counts() -> None:
    graph = graph_of(TOUCHING, transport="put", put_wait="reader", **{"fuse.first_last_inner": "2"})
    joined = {op.name: op.kernel for op in graph.ops if op.kernel is not None}["first_last_inner[1]"]
    assert joined.by_call == (CallMessages((0, 1), True), CallMessages((0, 1), True), CallMessages((), False))
    assert [put.updates for put in joined.puts if put.messages] == [True, True]
    Prover(graph).prove(next(iter(Space(graph))))


@pytest.mark.parametrize(("call", "does", "why"), [
    (0, CallMessages((1,), True), "call 0 of `first_last_inner[1]` does not wait for `u[1][33 .. 34"),
    (1, CallMessages((0, 1), False), "messages of `first_last_inner[1]` may be complete before call 1 has ended"),
])  # fmt: skip
def test_a_call_that_must_wait_and_does_not_is_found(call: int, does: CallMessages, why: str) -> None:
    graph = joined_by_reader()
    ops = list(graph.ops)
    number, kernel = next((op.id, op.kernel) for op in ops if op.name == "first_last_inner[1]")
    assert kernel is not None
    changed = tuple(does if k == call else one for k, one in enumerate(kernel.by_call))
    ops[number] = replace(ops[number], op=replace(kernel, by_call=changed))
    assert any(why in reason for reason in gaps(replace(graph, ops=tuple(ops)), " ".join(_in_order(graph))))
