"""Which launches may be fused: calls of one kernel that depend on each other in nothing (`fuse.py`), and chains of
calls of one launch, in which each thread does its own elements of one after the other (`chain.py`).

A group is a decision of the program, `fuse.NAME`. With 0 its launches are as written, with the largest value all are
one. Of independent calls, with 1 those are one that follow the same ops and are followed by the same. Ops of the text
between them that need a result of one come after the launch, all others before it, so every pair of ops that conflict
keeps its order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dagc.forms import surroundings_of
from dagc.forms.chain import ChainCall, apart, chained_op, elements_of, hidden_by, same_launch
from dagc.forms.fuse import fused_op, refused
from dagc.forms.types import Refusal, Surroundings
from dagc.ir.choice import AS_WRITTEN
from dagc.ir.names import common_name, last_name
from dagc.ir.plan import kernel_as_written
from dagc.ir.program import Access, Device, Edge, Kernel, KernelOp, Loop, Op, Program, Region, Turn
from dagc.ir.regions import Regions
from dagc.ir.sym import Const

MOST_CALLS = 16  # of a launch: their arguments are those of one kernel
MOST_OPS = 256  # of a part of the text in which groups are looked for, whose ops are compared with each other


@dataclass(frozen=True, slots=True)
class FusionGroup:
    """`name`: the base names of its ops, joined. `ways`: for each value of its decision from 1, the launches: the names
    of the ops that each joins. In a loop it has the launches of all turns. `chained`: they depend on each other."""

    name: str
    ways: tuple[tuple[tuple[str, ...], ...], ...]
    chained: bool

    @property
    def ops(self) -> int:
        """The number of ops that at most become one launch."""
        return max(len(launch) for launch in self.ways[-1])


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Ops that could be one launch otherwise, and why they are not; `kernel`: that they call."""

    kernel: str
    ops: tuple[str, ...]
    why: Refusal


def groups(program: Program, regions: Regions) -> tuple[tuple[FusionGroup, ...], tuple[LeftOut, ...]]:
    """The groups of a program, in text order, and what is left out."""
    several: dict[tuple[object, ...], list[KernelOp]] = {}
    for op in program.ops:
        if isinstance(op, KernelOp) and op.device is Device.GPU and not op.elsewhere:
            several.setdefault(_alike(op), []).append(op)
    several = {key: ops for key, ops in several.items() if len(ops) > 1}
    ordered, around = _ordered_otherwise(program), surroundings_of(program)
    chains = {} if ordered else dict(_in_chains(program, around))
    allowed: set[str] = set()
    out: list[LeftOut] = []
    known: dict[tuple[str, str, tuple[str, ...]], Refusal | None] = {}
    for ops in several.values():
        key = ops[0].kernel, ops[0].variant, ops[0].pinned
        if key not in known:
            known[key] = ordered or _refused(program, ops[0], around)
        why = known[key]
        if why is None:
            allowed |= {op.name for op in ops}
        else:
            out.append(LeftOut(ops[0].kernel, tuple(op.name for op in ops), why))
    found: dict[tuple[str, bool], list[list[tuple[tuple[str, ...], ...]]]] = {}
    for scope in _scopes(program, regions) if allowed or chains else ():
        if len(scope) > MOST_OPS:
            out += _too_many(scope, allowed)
            continue
        for name, chained, ways in _Scope(scope, program.edges, regions, around).groups(allowed, chains, out):
            found.setdefault((name, chained), []).append(ways)
    every = (FusionGroup(name, _all_turns(turns), chained) for (name, chained), turns in found.items())
    return tuple({group.name: group for group in every}.values()), tuple(dict.fromkeys(out))


def _all_turns(turns: Sequence[Sequence[tuple[tuple[str, ...], ...]]]) -> tuple[tuple[tuple[str, ...], ...], ...]:
    """The launches of all turns of a loop, for each value; one with fewer ways has its last for the values above."""
    most = max(map(len, turns))
    return tuple(tuple(launch for ways in turns for launch in ways[min(k, len(ways) - 1)]) for k in range(most))


def _alike(op: KernelOp) -> tuple[object, ...]:
    """Equal for calls of which one launch can be made."""
    prefix = op.name[: len(op.name) - len(last_name(op.name))]
    outer = op.base.rpartition(".")[0]
    return op.kernel, op.variant, op.when, op.stream, prefix, outer, op.pinned


def _ordered_otherwise(program: Program) -> Refusal | None:
    """Why the order of the text does not say what follows what."""
    if program.explicit:
        return Refusal("`edges explicit` orders the ops")
    place = {op.name: k for k, op in enumerate(program.ops)}
    turned = next((e for e in program.edges if place.get(e.u.op, 0) > place.get(e.v.op, 0)), None)
    if turned is None:
        return None
    return Refusal(f"an edge orders `{turned.u.op}` before `{turned.v.op}`, against the order of the text")


def _refused(program: Program, op: KernelOp, around: Surroundings) -> Refusal | None:
    if op.placed or op.others:
        return Refusal("its device or variant is open")
    return refused(*kernel_as_written(program, op), around, op.pinned)


def _in_chains(program: Program, around: Surroundings) -> Iterator[tuple[str, ChainCall]]:
    """The ops that a chain may have."""
    for op in program.kernel_ops:
        if op.device is Device.GPU and not (op.elsewhere or op.placed or op.others or op.pinned):
            kernel, impl = kernel_as_written(program, op)
            if not isinstance(elements_of(kernel, impl, around), Refusal):
                yield op.name, ChainCall(op, kernel, impl)


def _too_many(scope: Sequence[Op], allowed: set[str]) -> Iterator[LeftOut]:
    calls: dict[str, list[str]] = {}
    for op in scope:
        if isinstance(op, KernelOp) and op.name in allowed:
            calls.setdefault(op.kernel, []).append(op.name)
    why = Refusal(f"they are among {len(scope)} ops, and at most {MOST_OPS} are compared with each other")
    yield from (LeftOut(kernel, tuple(names), why) for kernel, names in calls.items())


# ---- parts of the text --------------------------------------------------------------------------


def _scopes(program: Program, regions: Regions) -> Iterator[list[Op]]:
    """The ops in parts in which groups are looked for: each turn of a loop whose turns depend on one another, and what
    stands between such loops."""
    turn_of: dict[str, tuple[int, int]] = {}
    by_name = {op.name: op for op in program.ops}
    for number, loop in enumerate(program.loops):
        if _turns_depend(loop, by_name, regions):
            turn_of |= {name: (number, k) for k, turn in enumerate(loop.turns) for name in turn.ops}
    scope: list[Op] = []
    at: tuple[int, int] | None = None
    for op in program.ops:
        if turn_of.get(op.name) != at and scope:
            yield scope
            scope = []
        at = turn_of.get(op.name)
        scope.append(op)
    if scope:
        yield scope


def _turns_depend(loop: Loop, ops: Mapping[str, Op], regions: Regions) -> bool:
    """Whether an op of the second turn depends on one of the first."""
    first, second = ([ops[name] for name in turn.ops if name in ops] for turn in (*loop.turns, *loop.turns)[:2])
    return len(loop.turns) > 1 and any(conflict(a, b, regions) for a in first for b in second)


def conflict(a: Op, b: Op, regions: Regions) -> bool:
    """Whether two ops use the same elements, or the same variable beside the arguments, and one changes them."""
    return any(True for _ in conflicts(a, b, regions))


def conflicts(a: Op, b: Op, regions: Regions) -> Iterator[tuple[Region, Region]]:
    """The regions that conflict."""
    for one in _accesses(a):
        for other in _accesses(b):
            if not one.mode.commutes(other.mode) and regions.overlap(one.region, other.region):
                yield one.region, other.region


def _accesses(op: Op) -> Iterator[Access]:
    yield from op.accesses
    for state in op.states if isinstance(op, KernelOp) else ():
        yield Access(Region(state.name), state.mode)


class _Scope:
    """The ops of a part, with those that each depends on."""

    def __init__(self, ops: Sequence[Op], edges: Sequence[Edge], regions: Regions, around: Surroundings) -> None:
        self.ops, self.regions, self.around = ops, regions, around
        place = {op.name: k for k, op in enumerate(ops)}
        self.direct: list[set[int]] = [set() for _ in ops]
        self.linked = {name for edge in edges for name in (edge.u.op, edge.v.op)}
        users: dict[str, list[int]] = {}
        for j, op in enumerate(ops):
            arrays = {access.region.array for access in _accesses(op)}
            for i in {i for array in arrays for i in users.get(array, ())}:
                if conflict(ops[i], op, regions):
                    self.direct[j].add(i)
            for array in arrays:
                users.setdefault(array, []).append(j)
        for edge in edges:
            if edge.u.op in place and edge.v.op in place:
                self.direct[place[edge.v.op]].add(place[edge.u.op])
        self.above: list[set[int]] = []
        for j in range(len(ops)):
            self.above.append(set().union(self.direct[j], *(self.above[i] for i in self.direct[j] if i < j)))

    def groups(
        self, allowed: set[str], chains: Mapping[str, ChainCall], out: list[LeftOut]
    ) -> Iterator[tuple[str, bool, list[tuple[tuple[str, ...], ...]]]]:
        """The name of each group, whether it is a chain, and its ways; those that stand between the ops of another are
        left out."""
        every = [(ops, False) for ops in self._independent(allowed)]
        every += [(ops, True) for ops in self._chains(chains, out)]
        taken: list[tuple[list[int], bool]] = []
        for ops, chained in sorted(every, key=self._rank):
            other = next((o for o, _ in taken if ops[0] <= o[-1] and o[0] <= ops[-1]), None)
            if other is None:
                taken.append((ops, chained))
                continue
            kernel = self.ops[ops[0]]
            assert isinstance(kernel, KernelOp)
            names = ", ".join(f"`{self.ops[k].name}`" for k in (other[0], other[-1]))
            why = Refusal(f"they stand among the ops of a larger group, {names}")
            out.append(LeftOut(kernel.kernel, tuple(self.ops[k].name for k in ops), why))
        for ops, chained in sorted(taken):
            name = "_".join(dict.fromkeys(self.ops[k].base.replace(".", "_") for k in ops))
            whole = tuple(self.ops[k].name for k in ops)
            yield name, chained, [(whole,)] if chained else self._ways(ops)

    def _rank(self, one: tuple[list[int], bool]) -> tuple[int, ...]:
        """The larger first; of equal ones chains in which something is passed on, then those of one kernel."""
        ops, chained = one
        passes = chained and any(i in self.above[j] for i in ops for j in ops)
        return -len(ops), 0 if passes else 1 + chained, *ops

    def _chains(self, calls: Mapping[str, ChainCall], out: list[LeftOut]) -> Iterator[list[int]]:
        """The longest chains of each launch from the first op of the text on."""
        growing: list[list[int]] = []
        for j, op in enumerate(self.ops):
            if op.name not in calls or op.name in self.linked:
                continue
            chain = next((chain for chain in growing if self._alike(chain[0], j, calls)), None)
            if chain is not None and self._continues(chain, j, calls, out):
                chain.append(j)
                continue
            if chain is not None:
                growing.remove(chain)
                yield from [chain] if len(chain) > 1 else ()
            growing.append([j])
        yield from (chain for chain in growing if len(chain) > 1)

    def _alike(self, i: int, j: int, calls: Mapping[str, ChainCall]) -> bool:
        """Whether two calls have the same launch, condition, stream and place in the text's dags."""
        one, other = (calls[self.ops[k].name] for k in (i, j))
        return _alike(one.op)[2:6] == _alike(other.op)[2:6] and same_launch(one, other)

    def _continues(self, chain: Sequence[int], j: int, calls: Mapping[str, ChainCall], out: list[LeftOut]) -> bool:
        """Whether an op can be the next of a chain: it needs a result of it or reads what it reads."""
        call, before = calls[self.ops[j].name], [calls[self.ops[k].name] for k in chain]
        if len(chain) >= MOST_CALLS:
            return False
        if any(not self.above[x].isdisjoint(chain) for x in self.above[j] - set(chain)):
            return False  # another op has to come between
        met = [list(conflicts(one.op, call.op, self.regions)) for one in before]
        mine = {region for _, region in call.arrays}
        if not any(met) and not any(mine & {region for _, region in one.arrays} for one in before):
            return False
        elements = elements_of(before[-1].kernel, before[-1].impl, self.around)
        assert not isinstance(elements, Refusal)
        whys = ["threads meet in it, or share memory"] if elements.meets else []
        whys += [why for one in before if (why := hidden_by(one, call, self.around))]
        whys += [why for one, of in zip(before, met, strict=True) if (why := apart(one, call, of, self.around))]
        if whys:
            names = (before[-1].op.name, call.op.name)
            out.append(LeftOut(before[-1].op.kernel, names, Refusal(f"in a thread, one after the other: {whys[0]}")))
        return not whys

    def _independent(self, allowed: set[str]) -> Iterator[list[int]]:
        """The largest groups from the first op of the text on. Ops that written edges name are in none."""
        growing: dict[tuple[object, ...], list[int]] = {}
        for j, op in enumerate(self.ops):
            if not isinstance(op, KernelOp) or op.name not in allowed or op.name in self.linked:
                continue
            group = growing.setdefault(_alike(op), [])
            if self.above[j].isdisjoint(group) and len(group) < MOST_CALLS:
                group.append(j)
                continue
            yield from [group] if len(group) > 1 else ()
            growing[_alike(op)] = [j]
        yield from (group for group in growing.values() if len(group) > 1)

    def _ways(self, ops: Sequence[int]) -> list[tuple[tuple[str, ...], ...]]:
        beside: dict[tuple[frozenset[int], frozenset[int]], list[int]] = {}
        for k in ops:
            after = frozenset(j for j in range(len(self.ops)) if k in self.direct[j])
            beside.setdefault((frozenset(self.direct[k]), after), []).append(k)
        alike = [group for group in beside.values() if len(group) > 1]
        ways = [alike, [list(ops)]] if alike and len(beside) > 1 else [[list(ops)]]
        return [tuple(tuple(self.ops[k].name for k in launch) for launch in way) for way in ways]


# ---- a program with launches fused --------------------------------------------------------------


def fused(
    program: Program, launches: Iterable[tuple[tuple[str, ...], bool]], regions: Regions,
    formed: Callable[[Kernel], Kernel] = lambda kernel: kernel,
) -> tuple[Program, dict[str, str]]:  # fmt: skip
    """The program in which each of the launches, ops of one group, is one op; and for each of these ops that one. With
    each launch, whether it is a chain, whose kernel gets tunables by `formed`."""
    out = _Fusing(program, regions, formed)
    for names, chained in launches:
        out.launch(names, chained)
    loops = (_renamed(loop, out.instead, out.ops) for loop in program.loops)
    kept = tuple(loop for loop in loops if loop is not None)
    return replace(program, ops=tuple(out.ops), kernels=tuple(out.kernels.values()), loops=kept), out.instead


class _Fusing:
    """`instead`: of each op that is fused, the op in its place."""

    def __init__(self, program: Program, regions: Regions, formed: Callable[[Kernel], Kernel]) -> None:
        self.formed = formed
        self.ops, self.kernels, self.regions = list(program.ops), {k.name: k for k in program.kernels}, regions
        self.linked = {(edge.u.op, edge.v.op) for edge in program.edges}
        self.instead: dict[str, str] = {}
        self._names = {op.name for op in program.ops}
        self._bases = {op.base for op in program.ops}

    def launch(self, names: Sequence[str], chained: bool) -> None:
        wanted = set(names)
        places = [k for k, op in enumerate(self.ops) if op.name in wanted]
        between = self.ops[places[0] : places[-1] + 1]
        calls = [op for op in between if isinstance(op, KernelOp) and op.name in wanted]
        one = self._op(calls, chained)
        before: list[Op] = []
        after: list[Op] = []
        started: list[Op] = []  # the calls so far, and what has to follow them
        for op in between:
            follows = any((o.name, op.name) in self.linked or conflict(o, op, self.regions) for o in started)
            if op.name in wanted or follows:
                started.append(op)
            if op.name not in wanted:
                (after if follows else before).append(op)
        self.ops[places[0] : places[-1] + 1] = [*before, one, *after]
        self.instead |= dict.fromkeys(names, one.name)

    def _op(self, calls: Sequence[KernelOp], chained: bool) -> KernelOp:
        own = {call.base for call in calls}
        names = [call.name for call in calls]
        outer = calls[0].base[: len(calls[0].base) - len(last_name(calls[0].base))]
        base = "_".join(dict.fromkeys(last_name(call.base) for call in calls))
        while (name := common_name(names, base)) in self._names - set(names) or outer + base in self._bases - own:
            base += "_"
        self._names.add(name)
        kernels = list(dict.fromkeys(call.kernel for call in calls))
        known = "_".join(kernels) if chained and len(kernels) > 1 else f"{kernels[0]}_{len(calls)}"
        while True:
            op, made = self._joined(calls, chained, name, outer + base, known)
            if self.kernels.setdefault(known, made) == made:
                return op
            known += "_"

    def _joined(
        self, calls: Sequence[KernelOp], chained: bool, name: str, base: str, known: str
    ) -> tuple[KernelOp, Kernel]:
        kernels = [self.kernels[call.kernel] for call in calls]
        if chained:
            impls = [k.impl_of(c.device, c.variant) for k, c in zip(kernels, calls, strict=True)]
            op, kernel = chained_op(list(map(ChainCall, calls, kernels, impls)), name, base, known)
        else:
            op, kernel = fused_op(calls, kernels[0], name, base, known)
            own = {name for call in kernel.fused for _, name in call.names}
            if not any(isinstance(a, Const) and f.name in own for f, a in zip(kernel.formals, op.args, strict=True)):
                return op, kernel
        kernel = self.formed(kernel)
        values = dict(op.tunables)
        forms = tuple((t.name, AS_WRITTEN) for t in kernel.impls[0].tunables if t.name not in values)
        return replace(op, tunables=(*op.tunables, *forms)), kernel


def _renamed(loop: Loop, instead: Mapping[str, str], ops: Sequence[Op]) -> Loop | None:
    """The loop with the ops of a dag; None if some are launched together with those of another turn."""
    place = {op.name: k for k, op in enumerate(ops)}
    turns = [{instead.get(name, name) for name in turn.ops} for turn in loop.turns]
    if sum(map(len, turns)) > len(set().union(*turns)):
        return None
    ordered = (tuple(sorted(names, key=place.__getitem__)) for names in turns)
    return replace(loop, turns=tuple(Turn(t.value, ops) for t, ops in zip(loop.turns, ordered, strict=True)))
