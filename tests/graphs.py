"""Graphs built by hand, for tests of the stages that need no `.dag` text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dagc.ir.enums import Transport
from dagc.ir.program import Action, Graph, GraphOp, OpId, Program, Staging

EMPTY = Program(
    "test", "test.dag", (), (), (), (), (), (), (), (), (), (), (), (), (), (), True, None, None, None, (), {}
)  # fmt: skip


def make_graph(
    ops: Sequence[tuple[str, bool]],
    edges: Iterable[tuple[str, str]],
    streams: int = 2,
    order: Iterable[tuple[str, str]] = (),
    pins: dict[str, int] | None = None,
) -> Graph:
    """`ops` are (name, gpu); `end` is appended after all ops without successors."""
    ids = {name: OpId(i) for i, (name, _) in enumerate(ops)}
    pairs = list(dict.fromkeys((ids[u], ids[v]) for u, v in edges))
    end = OpId(len(ops))
    pairs += [(i, end) for i in ids.values() if not any(u == i for u, _ in pairs)]
    made = [GraphOp(ids[name], name, gpu, Action.KERNEL, stream=(pins or {}).get(name)) for name, gpu in ops] + [
        GraphOp(end, "end", False, Action.END)
    ]
    later = tuple((ids[u], ids[v]) for u, v in order)
    return Graph(
        EMPTY, Transport.MPI_CUDA, Staging.FUSED, streams, tuple(made), tuple(sorted(pairs)), later, (), (), (), ()
    )


def spmv(streams: int = 2) -> Graph:
    """The SpMV of "Machine Learning for CUDA+MPI Design Rules", Fig. 3c."""
    ops = [
        ("pack", True), ("post_recv", False), ("post_send", False), ("wait_send", False), ("wait_recv", False),
        ("yl", True), ("yr", True), ("y", True),
    ]  # fmt: skip
    edges = [("pack", "post_send"), ("wait_recv", "yr"), ("yl", "y"), ("yr", "y")]
    edges += [(p, w) for p in ("post_send", "post_recv") for w in ("wait_send", "wait_recv")]
    return make_graph(ops, edges, streams)


def halo(faces: int, streams: int = 2) -> Graph:
    """A halo exchange: per face pack -> send, receive -> wait -> unpack; every wait after all posts."""
    f = range(faces)
    ops = [(f"pack{i}", True) for i in f]
    ops += [(f"{what}{i}", False) for i in f for what in ("recv", "send")]
    ops += [("wait_send", False)] + [(f"wait{i}", False) for i in f] + [(f"unpack{i}", True) for i in f]
    edges = [(f"pack{i}", f"send{i}") for i in f] + [(f"wait{i}", f"unpack{i}") for i in f]
    waits = ["wait_send"] + [f"wait{i}" for i in f]
    edges += [(f"{what}{i}", w) for i in f for what in ("recv", "send") for w in waits]
    return make_graph(ops, edges, streams)
