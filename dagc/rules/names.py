"""Names of the entries of a traversal, as rules speak of them, and what the program itself says about their order.

An op is called by its name. Sync ops are called by what they serve, as in the seed's tables: for an edge u -> v,

    CER-after-u    cudaEventRecord: the first record that follows u in its stream, where v needs one
    CES-b4-v       cudaEventSynchronize: the first one that makes the CPU wait for u, v being a CPU op
    CSWE-after-u   cudaStreamWaitEvent: the first one that makes v's stream wait for u, v being on another stream

So an entry that serves several ops bears several names. A name that several entries bear (v with several predecessors
on the GPU, waits of several streams) means the first of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from dagc.graph import Graph
from dagc.ir import OpId
from dagc.traversal import Issue, Record, Sync, Traversal, Wait


@dataclass(frozen=True, slots=True)
class Naming:
    """All that is needed to name the entries of the traversals of one graph.

    users      per op: ops that need its completion; empty for CPU ops
    """

    graph: Graph
    users: tuple[tuple[OpId, ...], ...]

    @staticmethod
    def of(graph: Graph) -> Naming:
        users: list[list[OpId]] = [[] for _ in graph.ops]
        for u, v in graph.completion:
            if graph.ops[u].gpu:
                users[u].append(v)
        return Naming(graph, tuple(tuple(sorted(set(found))) for found in users))

    def positions(self, traversal: Traversal) -> dict[str, int]:
        """Name -> position of the entry that bears it; names that no entry bears are left out."""
        ops, at, bound = self.graph.ops, [-1] * len(self.graph.ops), [-1] * len(self.graph.ops)
        records: dict[int, tuple[int, int]] = {}  # event -> its position, its stream
        syncs: list[tuple[int, int, int]] = []  # position, stream that waits (-1: the CPU), event; in issue order
        found: dict[str, int] = {}
        for position, entry in enumerate(traversal.entries):
            match entry:
                case Issue(op, stream):
                    at[op], bound[op] = position, -1 if stream is None else int(stream)
                    found[ops[op].name] = position
                case Record(event, stream):
                    records[int(event)] = position, int(stream)
                case Wait(event, stream):
                    syncs.append((position, int(stream), int(event)))
                case Sync(event):
                    syncs.append((position, -1, int(event)))
        for u, users in enumerate(self.users):
            crossing = [v for v in users if not ops[v].gpu or bound[v] != bound[u]]
            if not crossing:
                continue
            later = [p for p, s in records.values() if s == bound[u] and p > at[u]]
            if later:
                found[f"CER-after-{ops[u].name}"] = min(later)
            for v in crossing:
                waiter = bound[v]  # -1 for the CPU
                for position, who, waited in syncs:
                    recorded, lane = records[waited]
                    if who == waiter and lane == bound[u] and recorded > at[u]:
                        name = f"CES-b4-{ops[v].name}" if waiter < 0 else f"CSWE-after-{ops[u].name}"
                        found[name] = min(position, found.get(name, position))
                        break
        return found

    def always(self) -> frozenset[str]:
        """Names that every traversal of the graph has."""
        names = {op.name for op in self.graph.ops}
        for u, users in enumerate(self.users):
            hosts = [v for v in users if not self.graph.ops[v].gpu]
            if hosts:
                names.add(f"CER-after-{self.graph.ops[u].name}")
            names |= {f"CES-b4-{self.graph.ops[v].name}" for v in hosts}
        return frozenset(names)

    def may(self) -> frozenset[str]:
        """Names that some traversal of the graph may have."""
        ops = self.graph.ops
        names = {op.name for op in ops}
        for u, users in enumerate(self.users):
            for v in users:
                names.add(f"CER-after-{ops[u].name}")
                names.add(f"CSWE-after-{ops[u].name}" if ops[v].gpu else f"CES-b4-{ops[v].name}")
        return frozenset(names)

    def implied(self) -> frozenset[tuple[str, str]]:
        """(a, b): wherever both are, the edges of the program put a before b."""
        ops = self.graph.ops
        after: dict[str, set[str]] = {}

        def add(a: str, b: str) -> None:
            after.setdefault(a, set()).add(b)

        for first, second in (*self.graph.completion, *self.graph.order):
            add(ops[first].name, ops[second].name)
        needs: dict[int, set[int]] = {}
        for u, users in enumerate(self.users):
            for v in users:
                needs.setdefault(v, set()).add(u)
        for u, users in enumerate(self.users):
            record, wait = f"CER-after-{ops[u].name}", f"CSWE-after-{ops[u].name}"
            if users:
                add(ops[u].name, record)
            for v in users:
                if ops[v].gpu:
                    add(record, wait)
                    if sum(ops[w].gpu for w in users) == 1:
                        add(wait, ops[v].name)
                else:
                    sync = f"CES-b4-{ops[v].name}"
                    add(sync, ops[v].name)
                    if len(needs[v]) == 1:
                        add(record, sync)
        # Not through a wait: a traversal may have none where all users of u are on its stream.
        return frozenset(_closure(after, {f"CSWE-after-{op.name}" for op in ops}))


def _closure(after: dict[str, set[str]], ends: set[str]) -> set[tuple[str, str]]:
    """All pairs (a, b) with a path from a to b that passes none of `ends` on its way. The graph has no cycle."""
    reached: dict[str, set[str]] = {}

    def reach(name: str) -> set[str]:
        if name not in reached:
            reached[name] = set()
            for other in after.get(name, ()):
                reached[name] |= {other} if other in ends else {other} | reach(other)
        return reached[name]

    return {(a, b) for a in list(after) for b in reach(a)}
