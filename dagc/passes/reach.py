"""A growing set of edges with its reachability, as bit masks."""

from __future__ import annotations

from dagc.ir import OpId


class Edges:
    """Completion and issue-order edges over `size` ops. Paths are paths of completion edges."""

    def __init__(self, size: int) -> None:
        self._completion: dict[tuple[OpId, OpId], None] = {}
        self._order: dict[tuple[OpId, OpId], None] = {}
        self._above = [0] * size  # ops that reach it
        self._below = [0] * size

    @property
    def completion(self) -> tuple[tuple[OpId, OpId], ...]:
        return tuple(sorted(self._completion))

    @property
    def order(self) -> tuple[tuple[OpId, OpId], ...]:
        return tuple(sorted(e for e in self._order if e not in self._completion))

    def path(self, u: OpId, v: OpId) -> bool:
        """Is u == v, or is there a path of completion edges from u to v?"""
        return u == v or bool(self._above[v] >> u & 1)

    def add(self, u: OpId, v: OpId) -> None:
        """A completion edge. One that closes a cycle is kept too: `cycle` finds it."""
        if (u, v) in self._completion:
            return
        self._completion[u, v] = None
        if self._above[v] >> u & 1:
            return
        above, below = self._above[u] | 1 << u, self._below[v] | 1 << v
        for w in range(len(self._above)):
            if below >> w & 1:
                self._above[w] |= above
            if above >> w & 1:
                self._below[w] |= below

    def add_order(self, u: OpId, v: OpId) -> None:
        """u is issued before v."""
        self._order[u, v] = None

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
