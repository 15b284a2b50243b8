"""Search for the first combination of choices that satisfies every condition, with bounded work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dagc.ir import program as ir
from dagc.ir import sym
from dagc.ir.sym import Sym

Assignment = Mapping[str, ir.Value]
MOST_WORK = 500_000  # nodes of expressions evaluated in one lowering: about a second

_LEAST = 300  # that every search may evaluate, even if others used up the budget
TOO_MANY_TRIALS = "too many combinations to try all; found no choice"
FIX_SOME = "list values that satisfy it first, allow fewer values, or fix some with -D"


@dataclass(frozen=True, slots=True)
class Constraint:
    """`holds` is called as soon as all of `names` are assigned. `work`: nodes that it evaluates."""

    names: frozenset[str]
    holds: Callable[[Assignment], bool]
    work: int


def condition(expr: Sym, holds: Callable[[Sym, Assignment], bool]) -> Constraint:
    """The condition for an expression, which `holds` evaluates."""
    return Constraint(sym.free(expr), lambda env: holds(expr, env), nodes(expr))


def nodes(expr: Sym) -> int:
    return 1 + sum(nodes(a) for a in expr.args) if isinstance(expr, sym.Apply) else 1


@dataclass(slots=True)
class Trials:
    """Budget of evaluations for one lowering. `cut`: the last search ended before it had tried everything."""

    left: int = MOST_WORK
    cut: bool = False

    def first(
        self, candidates: Mapping[str, Sequence[ir.Value]], conditions: Sequence[Constraint]
    ) -> dict[str, ir.Value] | None:
        """The first combination in lexicographic order that satisfies all conditions; None if none was found.

        A value is rejected as soon as a condition on it and the values before it is false.
        """
        self.cut = False
        self.left = max(self.left, _LEAST)
        names = list(candidates)
        at = {name: place for place, name in enumerate(names)}
        due: list[list[Constraint]] = [[] for _ in range(len(names) + 1)]
        for each in conditions:
            due[max((at[n] + 1 for n in each.names if n in at), default=0)].append(each)
        env: dict[str, ir.Value] = {}
        if not self._hold(due[0], env):
            return None
        tried = [0] * len(names)
        depth = 0
        while 0 <= depth < len(names):
            name, values = names[depth], candidates[names[depth]]
            env.pop(name, None)
            while tried[depth] < len(values) and not self.cut:
                env[name] = values[tried[depth]]
                tried[depth] += 1
                if self._hold(due[depth + 1], env):
                    break
                del env[name]
            if name in env:
                depth += 1
                continue
            tried[depth] = 0
            depth -= 1
        return None if depth < 0 or self.cut else env

    def _hold(self, conditions: Sequence[Constraint], env: Assignment) -> bool:
        for each in conditions:
            self.left -= each.work
            if self.left < 0:
                self.cut = True
                return False
            if not each.holds(env):
                return False
        return True
