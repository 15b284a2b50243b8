"""A growing set of edges with its reachability, as bit masks."""

from __future__ import annotations

from dagc.ir.program import OpId


class Edges:
    """Completion and issue-order edges over `size` ops. Paths are paths of completion edges.

    What reaches an op is worked out when it is first asked for, and again after an edge further up was added. Ops that
    are asked about in the order of the edges cost one mask operation per edge.
    """

    def __init__(self, size: int) -> None:
        self._completion: dict[tuple[OpId, OpId], None] = {}
        self._order: dict[tuple[OpId, OpId], None] = {}
        self._before: list[list[OpId]] = [[] for _ in range(size)]
        self._after: list[list[OpId]] = [[] for _ in range(size)]
        self._above: list[int | None] = [None] * size  # ops that reach it; None: not known, nor of any op below

    def __len__(self) -> int:
        """The number of ops."""
        return len(self._before)

    @property
    def completion(self) -> tuple[tuple[OpId, OpId], ...]:
        return tuple(sorted(self._completion))

    @property
    def order(self) -> tuple[tuple[OpId, OpId], ...]:
        return tuple(sorted(e for e in self._order if e not in self._completion))

    def path(self, u: OpId, v: OpId) -> bool:
        """Is u == v, or is there a path of completion edges from u to v? There must be no cycle."""
        return u == v or bool(self.above(v) >> u & 1)

    def above(self, op: OpId) -> int:
        """The ops that reach `op`, as a mask. There must be no cycle."""
        known = self._above[op]
        return known if known is not None else self._work_out(op)

    def add(self, u: OpId, v: OpId) -> None:
        """A completion edge. One that closes a cycle is kept too: `cycle` finds it."""
        if (u, v) in self._completion:
            return
        self._completion[u, v] = None
        self._before[v].append(u)
        self._after[u].append(v)
        known, more = self._above[v], self._above[u]
        if known is not None:
            self._above[v] = None if more is None else known | more | 1 << u
            if self._above[v] != known:
                self._forget_below(v)

    def add_order(self, u: OpId, v: OpId) -> None:
        """u is issued before v."""
        self._order[u, v] = None

    def backward(self) -> int:
        """The ops that a completion edge enters from an op of a greater number, as a mask."""
        return sum(1 << v for v in {v for u, v in self._completion if u > v})

    def _work_out(self, op: OpId) -> int:
        above = self._above
        stack = [op]
        while stack:
            last = stack[-1]
            if above[last] is not None:
                stack.pop()
                continue
            missing = [u for u in self._before[last] if above[u] is None]
            if missing:
                stack += missing
                continue
            mask = 0
            for u in self._before[last]:
                mask |= (above[u] or 0) | 1 << u
            above[last] = mask
        return above[op] or 0

    def _forget_below(self, op: OpId) -> None:
        stack = [op]
        while stack:
            for w in self._after[stack.pop()]:
                if self._above[w] is not None:
                    self._above[w] = None
                    stack.append(w)

    def sorted(self) -> list[OpId]:
        """All ops in an order of the completion edges, small numbers first. There must be no cycle."""
        from heapq import heappop, heappush

        waits = [len(before) for before in self._before]
        ready = [OpId(op) for op, count in enumerate(waits) if not count]
        out: list[OpId] = []
        while ready:
            op = heappop(ready)
            out.append(op)
            for after in self._after[op]:
                waits[after] -= 1
                if not waits[after]:
                    heappush(ready, after)
        return out

    def cycle(self) -> list[OpId]:
        """Ops of one cycle of edges of either kind, in order; empty where there is none."""
        after: dict[OpId, list[OpId]] = {}
        for u, v in (*self._completion, *self._order):
            after.setdefault(u, []).append(v)
        state: dict[OpId, int] = {}
        for root in sorted(after):
            path: list[OpId] = []
            stack: list[tuple[OpId, bool]] = [(root, False)]
            while stack:
                op, leaving = stack.pop()
                if leaving:
                    state[op] = 2
                    path.pop()
                    continue
                if state.get(op) == 1:
                    return path[path.index(op) :]
                if state.get(op) == 2:
                    continue
                state[op] = 1
                path.append(op)
                stack.append((op, True))
                stack += [(v, False) for v in reversed(after.get(op, []))]
        return []
