"""Views of the kernel that repeats iterations by itself (`loop=persistent`): its functions, phases and arguments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dagc.emit.iteration import StepBuilder, describe
from dagc.emit.kernels import FunctionView
from dagc.emit.layout import Layout
from dagc.emit.render import Names
from dagc.forms.types import Refusal
from dagc.forms.within import Within, within
from dagc.ir.enums import Transport
from dagc.ir.plan import Plan
from dagc.ir.program import Action, CollectiveOp, CopyOp, GraphOp, KernelOp, Region
from dagc.ir.repetition import Tested, changes_tested, tested


@dataclass(frozen=True, slots=True)
class BlockCall:
    """`condition`: C++ text of when it is this function of several, "" for one. `shares`: whether it shares memory."""

    function: str
    condition: str
    shares: bool


@dataclass(frozen=True, slots=True)
class WholeOp:
    """An op as the kernel does it: blocks of the grid with this number; without `calls`, `function` by all threads."""

    comment: str
    args: str
    calls: tuple[BlockCall, ...] = ()
    number: int = 0
    function: str = ""


class PhaseView(NamedTuple):
    """`waits`: whether all blocks wait after it; else each has waited by itself."""

    ops: tuple[WholeOp, ...]
    waits: bool


class GridView(NamedTuple):
    """C++ texts of the members of `dagc::OpGrid`."""

    blocks: str
    threads: str
    meets: str
    shaped: str


@dataclass(frozen=True, slots=True)
class WholeView:
    """`test`: the template arguments of its `dagc::LoopTest`; `waits`: whether an iteration may change what is tested
    before all blocks have read it; `messages`: whether ranks send some in it."""

    name: str
    test: str
    waits: bool
    functions: tuple[FunctionView, ...]
    phases: tuple[PhaseView, ...]
    grids: tuple[GridView, ...]
    parameters: tuple[str, ...]
    arguments: tuple[str, ...]
    messages: bool
    ends: tuple[str, ...]  # statements after all iterations


def whole_view(plan: Plan, layout: Layout, steps: StepBuilder) -> WholeView | None:
    """None where the host, or a graph, repeats the dag."""
    test = tested(plan.graph)
    if not plan.graph.phases or plan.loop is None or not isinstance(test, Tested):
        return None
    writer = _Writer(layout, steps)
    phases = tuple(writer.phase([plan.graph.ops[op] for op in phase]) for phase in plan.graph.phases)
    types = "int, int"
    if test.region is not None:
        type_ = layout.arrays[test.region.array].type
        types = f"{type_.cxx}, {'double' if type_.is_float else 'std::int64_t'}"
    return WholeView(
        writer.names.new("iterations"), types, changes_tested(plan.graph, test), tuple(writer.functions.values()),
        phases, tuple(writer.grids), tuple(f"{type_} {name}" for type_, name in writer.given.values()),
        tuple(text for _, text in writer.given), any(op.action is Action.GROUP for op in plan.graph.ops),
        tuple(f"put_ran({group}, {runs})" for group, runs in writer.put.items()),
    )  # fmt: skip


def _is_put(op: GraphOp) -> bool:
    return op.action is Action.GROUP and op.transport is Transport.PUT


def _times(number: int) -> str:
    return "repeated.done()" if number == 1 else f"{number} * repeated.done()"


_SUMS = {"sum": "Sum", "prod": "Product", "min": "Least", "max": "Largest"}


class _Writer:
    def __init__(self, layout: Layout, steps: StepBuilder) -> None:
        self.layout, self.steps = layout, steps
        self.names = steps.functions.further_names()
        self.locals = Names(("state", "test", "of", "repeated", "tile", "tiles", "lane", "lanes"))
        self.functions: dict[str, FunctionView] = {}
        self.grids: dict[GridView, int] = {}
        self.given: dict[tuple[str, str], tuple[str, str]] = {}  # an argument -> type and name of the parameter
        # Of an iteration, in which exchanges of the same messages have one group.
        self.times = Counter(layout.group(op.name) for op in layout.graph.ops if _is_put(op))
        self.seen: Counter[str] = Counter()
        self.put: dict[str, str] = {}  # parameter -> C++ text of its runs in iterations that have ended

    def phase(self, ops: Sequence[GraphOp]) -> PhaseView:
        """Messages by `put` are signalled first, and waited for last."""
        put = [self._put(op) for op in ops if _is_put(op)]
        others = [self.op(op) for op in ops if not _is_put(op)]
        return PhaseView((*(first for first, _ in put), *others, *(last for _, last in put)), bool(others))

    def op(self, op: GraphOp) -> WholeOp:
        if op.kernel is not None:
            return self._kernel(op, op.kernel)
        if op.action is Action.FREE:
            comm = f"p.{self.layout.connections[op.transport, op.comm]}"
            free = self._given("const dagc::PutFree", f"{comm}.within()", "free")
            return WholeOp(describe(op), free, function="free_within")
        if op.action is Action.GROUP:
            return self._messages(op)
        assert isinstance(op.op, CopyOp)
        dst, src = op.op.dst, op.op.src
        whole = src if not self.layout.is_whole(src) else dst
        type_ = self.layout.arrays[dst.array].type.cxx
        args = (
            self._given(f"{type_}*", self.layout.pointer(dst), dst.array),
            self._given(f"const {type_}*", self.layout.pointer(src), src.array),
            self._given("const std::int64_t", self.layout.extent(whole).count, f"{whole.array}_count"),
        )
        return WholeOp(describe(op), ", ".join(args), function="copy_together")

    def _put(self, op: GraphOp) -> tuple[WholeOp, WholeOp]:
        name = self.layout.group(op.name)
        group = self._given("const dagc::PutWithin", f"{name}.within()", op.name)
        self.seen[name] += 1
        self.put[group] = _times(self.times[name])
        args = f"{group}, {self.put[group]} + {self.seen[name]}"
        signal = WholeOp(f"{op.name}: its messages are stored", args, function="signal_within")
        return signal, WholeOp(describe(op), args, function="await_within")

    def _messages(self, op: GraphOp) -> WholeOp:
        group = self._given("const dagc::PeerWithin", f"{self.layout.group(op.name)}.within()", op.name)
        if not isinstance(op.op, CollectiveOp) or not op.op.collective.reduces:
            return WholeOp(describe(op), group, function="exchange_within")
        to, source = op.op.regions
        type_ = self.layout.arrays[to.array].type.cxx
        args = (
            group,
            self._given(f"const {type_}*", self.layout.pointer(source), source.array),
            self._given(f"{type_}*", self.layout.pointer(to), to.array),
            self._given("const std::int64_t", self.layout.extent(op.op.given).count, f"{op.name}_count"),
        )
        return WholeOp(
            describe(op), ", ".join(args), function=f"reduce_within<dagc::peer::{_SUMS[op.op.reduce or 'sum']}>"
        )

    def _kernel(self, op: GraphOp, call: KernelOp) -> WholeOp:
        several = self.steps.functions.settled(call)
        found = [self._within(one) for one in several]
        formals = self.steps.functions.parameters(several[0], found[0])
        texts = self.steps.arguments(several[0])
        named = [a.array if isinstance(a, Region) else "" for a in call.args] + [""] * len(texts)
        args = [
            self._given(type_, text, array or name or "unused")
            for (type_, name), text, array in zip(formals, texts, named, strict=False)
        ]
        chosen = self._given("const int", self.steps.which(several), f"which_{op.name}") if len(several) > 1 else ""
        calls = tuple(
            BlockCall(self._function(one), f"{chosen} == {k}" if chosen else "", within.meets)
            for k, (one, within) in enumerate(zip(several, found, strict=True))
        )
        grid, block = self.steps.shape(several[0])
        meets, shaped = (str(any(getattr(one, what) for one in found)).lower() for what in ("meets", "shaped"))
        number = self.grids.setdefault(GridView(grid, block, meets, shaped), len(self.grids))
        return WholeOp(describe(self.steps.functions.shown(op)), ", ".join(args), calls, number)

    def _within(self, op: KernelOp) -> Within:
        found = within(self.layout.program, op)
        assert not isinstance(found, Refusal), found.reason
        return found

    def _function(self, op: KernelOp) -> str:
        """The name of the function that does a block of it."""
        own = self.steps.functions.name(op)
        if own not in self.functions:
            name = self.names.new(f"{own}_block")
            self.functions[own] = self.steps.functions.block(op, self._within(op), name)
        return self.functions[own].name

    def _given(self, type_: str, text: str, name: str) -> str:
        """The parameter with this value: one for what some ops read and others write."""
        plain = type_.removeprefix("const ")
        before, own = self.given.get((plain, text), (type_, ""))
        own = own or self.locals.new(name)
        self.given[plain, text] = (before if before == type_ else plain), own
        return own
