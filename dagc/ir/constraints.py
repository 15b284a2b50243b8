"""Conditions on choices: whether one holds, and how many combinations satisfy several."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dagc.ir import sym
from dagc.ir.program import Impl, Kernel, Value
from dagc.ir.sym import Const, Sym

Assignment: TypeAlias = Mapping[str, Value]
MOST_PARTIAL = 100_000  # assignments that a count keeps at a time

MOST_THREADS = 1024  # of a block


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
    """The size of an expression."""
    return 1 + sum(nodes(a) for a in expr.args) if isinstance(expr, sym.Apply) else 1


def may_hold(expr: Sym, env: Assignment) -> bool:
    """Whether a condition of the program is not certainly false; other names in it have unknown values."""
    try:
        settled = sym.substitute(expr, {name: Const(value) for name, value in env.items()})
    except (ArithmeticError, ValueError, TypeError):
        return False
    return not isinstance(settled, Const) or bool(settled.value)


def of_launch(kernel: Kernel, impl: Impl, names: Collection[str]) -> list[Constraint]:
    """What the tunables `names` of an implementation must satisfy: the `require`s on nothing but these and the machine,
    and that the launch has a block that a GPU accepts."""
    block = () if impl.launch is None else impl.launch.block
    fits = Constraint(
        frozenset().union(*map(sym.free, block)), lambda env: block_fits(block, env), sum(map(nodes, block))
    )
    return [*(condition(c, _holds) for c in decidable(kernel, impl, names)), *([fits] if block else [])]


def decidable(kernel: Kernel, impl: Impl, names: Collection[str]) -> list[Sym]:
    """The `require`s on nothing but these tunables and the machine."""
    return [c for c in (*kernel.requires, *impl.requires) if all(n in names or n[:3] == "hw." for n in sym.free(c))]


def _holds(expr: Sym, env: Assignment) -> bool:
    """False only if it is certainly false; conditions on the machine may hold."""
    try:
        return bool(sym.evaluate(expr, env))
    except sym.UnboundName:
        return True
    except (ArithmeticError, ValueError, TypeError):
        return False


def block_fits(block: Sequence[Sym], env: Assignment) -> bool:
    """Whether a block has 1 to 1024 threads, as far as is known."""
    threads = 1
    for size in block:
        try:
            value = sym.evaluate(size, env)
        except (sym.UnboundName, ArithmeticError, ValueError, TypeError):
            return True
        if not isinstance(value, int) or value < 1:
            return False
        threads *= value
    return threads <= MOST_THREADS


class TooManyAssignments(Exception):
    """A count would have to keep more than MOST_PARTIAL assignments at a time."""


def assignments(candidates: Mapping[str, Sequence[Value]], constraints: Sequence[Constraint]) -> int:
    """The number of combinations that satisfy all constraints. Those that agree in the names that later constraints
    ask for are counted together, so many names that few constraints connect are no work.

    Raises TooManyAssignments.
    """
    names = list(candidates)
    place = {name: k for k, name in enumerate(names)}
    due: list[list[Constraint]] = [[] for _ in (*names, "")]
    last = dict.fromkeys(names, -1)  # the place after which a name is not asked for
    for each in constraints:
        asked = [name for name in each.names if name in place]
        at = max((place[name] for name in asked), default=-1)
        due[at].append(each)  # those on no name at the end of the list
        last |= {name: max(at, last[name]) for name in asked}
    if not all(each.holds({}) for each in due[-1]):
        return 0
    counts: dict[tuple[tuple[str, Value], ...], int] = {(): 1}
    for k, name in enumerate(names):
        new: dict[tuple[tuple[str, Value], ...], int] = {}
        for known, count in counts.items():
            for value in candidates[name]:
                env = {**dict(known), name: value}
                if all(each.holds(env) for each in due[k]):
                    kept = tuple((n, v) for n, v in env.items() if last[n] > k)
                    new[kept] = new.get(kept, 0) + count
        if len(new) > MOST_PARTIAL:
            raise TooManyAssignments
        counts = new
    return sum(counts.values())
