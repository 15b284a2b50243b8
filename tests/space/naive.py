"""The contract of the space, written down a second time, naively: explicit bindings, renaming by comparison at the end.

Shares nothing with dagc.space. Exponential, for graphs of a few ops.
"""

from __future__ import annotations

from itertools import permutations

from dagc.ir.program import Graph


def all_traversals(graph: Graph) -> set[str]:
    """Texts of all traversals, up to renaming of streams that no op is pinned to."""
    found: set[tuple[tuple[str, ...], ...]] = set()
    _Walk(graph, found).go((), {}, {})
    return {_text(sequence) for sequence in {_canonical(s, graph) for s in found}}


class _Walk:
    def __init__(self, graph: Graph, found: set[tuple[tuple[str, ...], ...]]) -> None:
        self.graph, self.found = graph, found
        self.seen: set[object] = set()
        self.preds = {op.id: [u for u, v in graph.completion if v == op.id] for op in graph.ops}
        self.earlier = {op.id: [u for u, v in graph.order if v == op.id] for op in graph.ops}

    def go(self, sequence: tuple[tuple[str, ...], ...], issued: dict[int, int], bound: dict[int, int]) -> None:
        """`issued`: op -> stream (-1 for the CPU); `bound`: ready GPU op -> stream."""
        key = (sequence, tuple(sorted(bound.items())))
        if key in self.seen:
            return
        self.seen.add(key)
        if len(issued) == len(self.graph.ops):
            self.found.add(sequence)
            return
        for op in self.graph.ops:
            v = op.id
            if v in issued or any(u not in issued for u in self.preds[v] + self.earlier[v]):
                continue
            if op.gpu and v not in bound:
                for s in range(self.graph.streams) if op.stream is None else [op.stream]:
                    self.go(sequence, issued, {**bound, v: s})
                continue
            stream = bound.get(v, -1)
            missing = [e for u in self.preds[v] if (e := self._missing(sequence, u, stream)) is not None]
            for entry in missing:
                self.go((*sequence, entry), issued, bound)
            if not missing:
                rest = {w: s for w, s in bound.items() if w != v}
                name = ("op", op.name, str(stream)) if op.gpu else ("op", op.name)
                self.go((*sequence, name), {**issued, v: stream}, rest)

    def _missing(self, sequence: tuple[tuple[str, ...], ...], u: int, stream: int) -> tuple[str, ...] | None:
        op = self.graph.ops[u]
        if not op.gpu:
            return None
        place = next(i for i, e in enumerate(sequence) if e[0] == "op" and e[1] == op.name)
        home = sequence[place][2]
        if home == str(stream):
            return None
        records = [e[1] for e in sequence[place:] if e[0] == "record" and e[2] == home]
        done = (
            any(e[0] == "sync" and e[1] in records for e in sequence)
            if stream < 0
            else any(e[0] == "wait" and e[1] in records and e[2] == str(stream) for e in sequence)
        )
        if done:
            return None
        if not records:
            number = sum(e[0] == "record" for e in sequence)
            return ("record", str(number), home)
        return ("sync", records[0]) if stream < 0 else ("wait", records[0], str(stream))


def _canonical(sequence: tuple[tuple[str, ...], ...], graph: Graph) -> tuple[tuple[str, ...], ...]:
    """The renaming whose free streams appear in ascending order."""
    pinned = {str(op.stream) for op in graph.ops if op.stream is not None}
    free = [str(s) for s in range(graph.streams) if str(s) not in pinned]
    for choice in permutations(free):
        names = dict(zip(free, choice, strict=True))
        renamed = tuple((*e[:2], names.get(e[2], e[2])) if len(e) == 3 else e for e in sequence)
        order = list(dict.fromkeys(e[2] for e in renamed if len(e) == 3 and e[2] in free))
        if order == free[: len(order)]:
            return renamed
    raise AssertionError("no renaming is canonical")


def _text(sequence: tuple[tuple[str, ...], ...]) -> str:
    out = []
    for e in sequence:
        if e[0] == "op":
            out.append(e[1] if len(e) == 2 else f"{e[1]}@s{e[2]}")
        elif e[0] == "sync":
            out.append(f"sync(e{e[1]})")
        else:
            out.append(f"{e[0]}(e{e[1]})@s{e[2]}")
    return " ".join(out)
