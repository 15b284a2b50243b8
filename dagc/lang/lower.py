"""A text with its includes to a `Program`.

All errors are collected. Neither the text nor its set-up is executed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dagc.base.errors import Diagnostic, Finding, ProgramError, Severity, UsageError
from dagc.base.python import uncollected
from dagc.base.source import Source, Span
from dagc.ir import program as ir
from dagc.ir import sym
from dagc.ir.choice import FORM, FUSE, own_name, qualified, site_of
from dagc.ir.constraints import condition, may_hold
from dagc.ir.enums import HOST_LIBRARIES, ElementType, Mode, OpKind, Place, Role
from dagc.ir.program import Device
from dagc.ir.regions import facts
from dagc.ir.sym import Apply, Const, Fn, Sym, show
from dagc.lang import ast
from dagc.lang.calls import stream_choice
from dagc.lang.checks import (
    check_additions,
    check_carried,
    check_reads,
    check_unreachable,
    check_unused,
    check_unused_axes,
    check_unused_values,
    check_verified,
    warn_of_races,
)
from dagc.lang.code import with_states
from dagc.lang.declarations import Declared, Declarer, feature, selects
from dagc.lang.evaluate import Evaluator, branch, refuse_too_many, turns
from dagc.lang.frames import Frame, GraphOut, OpScope, communicator, settled, setup, until, verify
from dagc.lang.includes import read_included
from dagc.lang.items import lower_edges, lower_items
from dagc.lang.kernels import code_text, lower_kernel, wrong_place
from dagc.lang.parse import parse
from dagc.lang.scope import (
    EXPANSION_LIMIT,
    FIX_SOME,
    PREDEFINED,
    TOO_MANY_TRIALS,
    WORDS,
    Aborted,
    CodeFiles,
    Context,
    Defines,
    Report,
    ScalarKind,
    What,
    listing,
    refuse_reserved,
    spelled,
)
from dagc.lang.transports import choose_transports, own_transports, with_transports

if TYPE_CHECKING:
    from dagc.forms.types import Surroundings

# ---- `on any` arrays have a host and a device side. A copy is inserted before the first op that uses a stale side ----

MAX_DEVICES = 64  # of a kind
_SIDES = {Device.GPU: "device", Device.CPU: "host"}


@dataclass(slots=True)
class _Sides:
    """The sides with current contents; none before the first write."""

    array: ir.Array
    fresh: set[Device]
    copies: int = 0


def insert_copies(ops: Sequence[ir.Op], arrays: Sequence[ir.Array]) -> tuple[ir.Op, ...]:
    """The ops, with `A.to_device` and `A.to_host` copies inserted.

    `const`: resident on both sides. `in` and `inout` start on the host, `out` and `inout` end there. Arrays of ops
    whose device is chosen when the program runs are copied by the program.
    """
    at_run_time = ir.two_sided(ops, arrays)
    sides = {a.name: _Sides(a, _initial(a)) for a in arrays if a.place is Place.ANY and a.name not in at_run_time}
    if not sides:
        return tuple(ops)
    out: list[ir.Op] = []
    for op in ops:
        if isinstance(op, ir.KernelOp):
            for access in op.accesses:
                state = sides.get(access.region.array)
                keeps = access.keeps or op.when is not None  # a rank that skips the op keeps all
                if state is not None and op.device not in state.fresh and state.fresh and keeps:
                    out.append(_copy(state, op.device))
            for access in op.accesses:
                state = sides.get(access.region.array)
                if state is not None and access.mode is not Mode.IN:
                    state.fresh = {op.device}
        out.append(op)
    for state in sides.values():
        ends_on_host = state.array.role in (Role.OUT, Role.INOUT)
        if ends_on_host and state.fresh and Device.CPU not in state.fresh:
            out.append(_copy(state, Device.CPU))
    return tuple(out)


def _initial(array: ir.Array) -> set[Device]:
    if array.role is Role.CONST:
        return {Device.GPU, Device.CPU}
    return {Device.CPU} if array.role in (Role.IN, Role.INOUT) else set()


def _copy(state: _Sides, to: Device) -> ir.CopyOp:
    state.fresh.add(to)
    state.copies += 1
    base = f"{state.array.name}.to_{_SIDES[to]}"
    name = base if state.copies == 1 else f"{base}.{state.copies}"
    region = ir.Region(state.array.name)
    return ir.CopyOp(name, base, region, region, inserted=True, span=state.array.span)


# ---- requirements of the program ----


class OtherChoices(Exception):
    """The defaults violate a `require`; lower again with `picked`."""

    def __init__(self, picked: dict[str, ir.Value]) -> None:
        super().__init__()
        self.picked = picked


def satisfy(ctx: Context, requires: Sequence[tuple[Sym, Span]]) -> tuple[ir.Require, ...]:
    """The requires left for run time. Raises `OtherChoices` if other choices satisfy those that are violated; reports
    unsatisfiable-require if none do."""
    left: list[ir.Require] = []
    broken: list[tuple[Sym, Span]] = []
    for require, span in requires:
        settled = ctx.settle(require)
        if not isinstance(settled, Const):
            left.append(ir.Require(settled, span=span))
        elif not settled.value:
            broken.append((require, span))
    if broken:
        _pick(ctx, requires, broken)
    return tuple(left)


def _pick(ctx: Context, requires: Sequence[tuple[Sym, Span]], broken: list[tuple[Sym, Span]]) -> None:
    places = {name: place for place, name in enumerate(ctx.choices)}

    def candidates_of(*conditions: Sym) -> dict[str, tuple[ir.Value, ...]]:
        names = sorted({n for c in conditions for n in sym.free(c) if n in places}, key=places.__getitem__)
        return {n: (c.chosen,) if c.fixed else c.values for n, c in ((n, ctx.choices[n]) for n in names)}

    candidates = candidates_of(*(c for c, _ in requires))
    open_names = [n for n in candidates if not ctx.choices[n].fixed]
    cut = False
    if open_names and ctx.may_pick:
        values = ctx.trials.first(candidates, [condition(c, may_hold) for c, _ in requires])
        if values is not None:
            raise OtherChoices({n: values[n] for n in open_names})
        cut = ctx.trials.cut
    for wrong, span in broken:
        message, help = _why(ctx, wrong, candidates_of(wrong), cut)
        ctx.report.error("unsatisfiable-require", message, span, help)


def _why(ctx: Context, wrong: Sym, candidates: dict[str, tuple[ir.Value, ...]], cut: bool) -> tuple[str, str]:
    """Message and help for a `require` that the present choices violate. `cut`: not all combinations were tried."""
    help = "allow other values, or change the require"
    free = [n for n in candidates if not ctx.choices[n].fixed]
    if free and cut:
        return f"{TOO_MANY_TRIALS} of {listing(free)} that satisfies `{show(wrong)}`", FIX_SOME
    if free and ctx.trials.first(candidates, [condition(wrong, may_hold)]) is not None:
        return f"no choice of {listing(free)} satisfies `{show(wrong)}` together with the other `require`s", help
    if free:
        return f"no choice of {listing(free)} satisfies `{show(wrong)}`", help
    if isinstance(wrong, Const):
        return "this is false for these params", help
    settings = ", ".join(f"{n} = {spelled(values[0])}" for n, values in candidates.items())
    return f"`{show(wrong)}` is false for {settings}", help


# ---- stages ----


@dataclass(slots=True)
class _Collected:
    """Items that are lowered once all values are known, with the evaluator of their place."""

    kernels: dict[str, ast.Kernel] = field(default_factory=dict)
    dags: dict[str, ast.SubDag] = field(default_factory=dict)
    mains: list[ast.MainDag] = field(default_factory=list)
    setups: list[tuple[ast.Setup, Evaluator]] = field(default_factory=list)
    verifies: list[tuple[ast.Verify, Evaluator]] = field(default_factory=list)
    selects: list[tuple[ast.Select, Evaluator]] = field(default_factory=list)
    features: list[ir.Feature] = field(default_factory=list)
    codes: list[ir.CodeText] = field(default_factory=list)
    devices: list[ast.Devices] = field(default_factory=list)


class Lowering:
    """One lowering, with one value for every decision."""

    def __init__(self, ctx: Context, module: ast.Module, source: Source) -> None:
        self.ctx = ctx
        self.module = module
        self.source = source
        self.declared = Declared()
        self.collected = _Collected()
        self.ev = Evaluator(ctx, ctx.program)

    def run(self, items: tuple[ast.Item, ...]) -> ir.Program | None:
        """The program; None where there are errors. Raises `OtherChoices`, `Aborted`, `UsageError`."""
        self._values(self.ev, items)
        requires = satisfy(self.ctx, self.declared.requires)
        comms = self._communicators(requires)
        kernels = self._with_forms({n: lower_kernel(self.ctx, k) for n, k in self.collected.kernels.items()})
        out = GraphOut(kernels, self.collected.dags)
        main = self._main(out)
        out.ops = with_states(self.ctx, kernels, self.collected.codes, out.ops)
        edges = lower_edges(out)
        repeat, stop = self._repeat(out, main)
        set_up, selects = self._setup(), self._selects()
        verifies = self._verifies(out, set_up is not None)
        self._checks(out, edges, verifies, stop)
        if self.ctx.report.failed:
            return None
        d = self.declared
        program = ir.Program(
            name=self.module.program or "",
            path=self.source.path,
            params=tuple(d.params),
            lets=tuple(d.lets),
            enums=tuple(d.enums),
            scalars=tuple(d.scalars),
            arrays=tuple(d.arrays),
            parts=tuple(d.parts),
            kernels=tuple(kernels.values()),
            code=tuple(self.collected.codes),
            features=tuple(self.collected.features),
            selects=(*selects, *out.selects),
            requires=(*requires, *self._runs_once(main, repeat)),
            decisions=(),
            ops=insert_copies(out.ops, d.arrays),
            edges=edges,
            explicit=out.explicit is not None,
            repeat=repeat,
            until=stop,
            setup=set_up,
            verifies=verifies,
            sources=dict(self.ctx.sources),
            loops=tuple(out.loops),
            files=self.ctx.named.files,
            directories=self.ctx.named.directories,
            comms=comms,
            devices=self.ctx.devices,
            domain=d.drawn.conditions,
            constraints=tuple(c for c, _ in d.requires if not sym.free(c).isdisjoint(self.ctx.choices)),
        )
        return self._warned(self._with_choices(program, out))

    def _warned(self, program: ir.Program) -> ir.Program:
        """The program, whose kernels are read for what goes against its text: races, additions that are none."""
        warn_of_races(self.ctx.report, program)
        check_additions(self.ctx.report, program)
        return program

    def _with_forms(self, kernels: dict[str, ir.Kernel]) -> dict[str, ir.Kernel]:
        """The kernels with tunables for the forms that are open or given by -D."""
        given = {own_name(name).removeprefix(FORM) for name in self.ctx.defines if f".{FORM}" in name}
        if not (self.ctx.forms or given) or self.ctx.report.failed:
            return kernels
        from dagc.forms import FORMS, with_forms  # only with forms
        from dagc.forms.functions import with_texts  # only with forms

        around = self._around()
        files = {file.name: (file.path, self.ctx.sources[file.path].text) for file in self.ctx.named.files}
        kernels = {name: with_texts(kernel, files) for name, kernel in kernels.items()}
        wanted = {form.name for form in FORMS} if self.ctx.forms else given
        opened = wanted - given if self.ctx.forms else set[str]()
        return {name: with_forms(kernel, around, wanted, opened) for name, kernel in kernels.items()}

    def _with_choices(self, program: ir.Program, out: GraphOut) -> ir.Program:
        """The program with its decisions, and what they choose of launches that may be fused and of transports."""
        fused = self._fused(program, out.fuse)
        decisions = self._decisions(out, program.ops)
        return with_transports(self.ctx, replace(fused, decisions=decisions), self.module.span)

    def _fused(self, program: ir.Program, allowed: ast.Fuse | None) -> ir.Program:
        """The program with the launches fused that a search or -D chooses. Names of a list are checked in any case."""
        listed = allowed is not None and not allowed.word
        if not (self.ctx.forms or listed or any(name.startswith(FUSE) for name in self.ctx.defines)):
            return program
        from dagc.lang.fusion import with_fusion  # only with forms

        return with_fusion(
            self.ctx, program, allowed, lambda kernel: self._with_forms({kernel.name: kernel})[kernel.name]
        )

    def _around(self) -> Surroundings:
        """What the texts of kernels may name beside what they declare."""
        from dagc.forms import surroundings  # only with forms

        files = [(file.path, self.ctx.sources[file.path].text) for file in self.ctx.named.files]
        chosen = [(name, choice.chosen) for name, choice in self.ctx.choices.items()]
        return surroundings(files, self.collected.codes, self.declared.params, self.declared.lets, chosen)

    def _communicators(self, requires: Sequence[ir.Require]) -> tuple[ir.Communicator, ...]:
        """The communicators; from then on they and what holds on every rank are known."""
        comms = settled(self.declared.comms, self.declared.scalars, tuple(requires))
        self.ctx.comms = {comm.name: comm for comm in comms}
        self.ctx.facts = facts(self.declared.scalars, requires, comms=comms)
        return comms

    # ---- values -------------------------------------------------------------------------------

    def _values(self, ev: Evaluator, items: tuple[ast.Item, ...]) -> None:
        """Declare all values in text order; keep the rest."""
        for item in items:
            with self.ctx.report.guard():
                if isinstance(item, ast.For):
                    for inner in turns(ev, item):
                        self._values(inner, item.items)
                elif isinstance(item, ast.If):
                    self._values(ev, branch(ev, item))
                elif isinstance(item, ast.Communicator):
                    self._communicator(ev, item)
                elif not Declarer(ev, self.declared).declare(item):
                    self._collect(ev, item)

    def _communicator(self, ev: Evaluator, item: ast.Communicator) -> None:
        declarer = Declarer(ev, self.declared)
        with declarer.breaking(item.name, What.COMM):
            comm = communicator(ev, item, declarer.display(item.name)[1])
            declarer.enter(What.COMM, item.name, comm)
            self.declared.comms.append(comm)

    def _collect(self, ev: Evaluator, item: ast.Item) -> None:
        collected = self.collected
        if isinstance(item, (ast.Kernel, ast.SubDag)):
            self._callable(item)
        elif isinstance(item, ast.MainDag):
            if collected.mains:
                at = ((_head(collected.mains[0].span, 3), "the first is here"),)
                help = "give one of them a name: `dag name(...)`"
                self.ctx.report.fail("two-main-dags", "a second main dag", _head(item.span, 3), help, at)
            collected.mains.append(item)
        elif isinstance(item, ast.Setup):
            if collected.setups:
                at = ((collected.setups[0][0].span, "the first is here"),)
                self.ctx.report.fail("duplicate-item", "a second set-up", item.span, "drop one", at)
            collected.setups.append((item, ev))
        elif isinstance(item, ast.Verify):
            collected.verifies.append((item, ev))
        elif isinstance(item, ast.Select):
            collected.selects.append((item, ev))
        elif isinstance(item, ast.Feature):
            collected.features.append(feature(ev, item))
        elif isinstance(item, ast.Devices):
            self._devices(ev, item)
        elif isinstance(item, ast.Code):
            if item.function is not None:
                help = (
                    f'name it in an implementation, or write `{item.lang.value} from "{item.file}"` for the whole file'
                )
                self.ctx.report.fail(
                    "wrong-place-of-item", "a function of a file cannot stand in the program", item.span, help
                )
            collected.codes.append(code_text(ev, item))
        else:
            wrong_place(self.ctx.report, item, "at program level")

    def _devices(self, ev: Evaluator, item: ast.Devices) -> None:
        report = self.ctx.report
        if collected := self.collected.devices:
            at = ((collected[0].span, "the first is here"),)
            report.fail("duplicate-item", "a second `devices`", item.span, "drop one", at)
        self.collected.devices.append(item)
        numbers: dict[str, int] = {}
        for word, expr in item.counts:
            number = ev.integer(expr, f"the number of devices `{word}`", structural=True)
            if word in numbers:
                report.fail("duplicate-item", f"a second `{word}`", expr.span, "drop one")
            if not 1 <= number <= MAX_DEVICES:
                report.fail("bad-size", f"{number} devices `{word}`", expr.span, f"give 1 to {MAX_DEVICES}")
            numbers[word] = number
        sockets = numbers.get("socket", 0)
        self.ctx.devices = ir.Devices(numbers.get("gpu", 1), sockets if sockets > 1 else 0)

    def _callable(self, item: ast.Kernel | ast.SubDag) -> None:
        """Kernels and named dags share one namespace."""
        report, collected = self.ctx.report, self.collected
        if item.name == "copy":
            help = "choose another name"
            report.fail("reserved-name", "`copy` is the device copy", item.name_span, help)
        refuse_reserved(report, item.name, item.name_span)
        known: dict[str, ast.Kernel | ast.SubDag] = {**collected.kernels, **collected.dags}
        if item.name in known:
            at = ((known[item.name].name_span, "first declared here"),)
            message = f"there is already a kernel or dag `{item.name}`"
            report.fail("duplicate-name", message, item.name_span, "choose another name", at)
        if isinstance(item, ast.Kernel):
            collected.kernels[item.name] = item
        else:
            collected.dags[item.name] = item

    # ---- graph ----------------------------------------------------------------------------------

    def _main(self, out: GraphOut) -> ast.MainDag | None:
        report = self.ctx.report
        if self.module.program is None:
            span = _head(self.module.items[0].span, 1) if self.module.items else Span(0, 0, self.source.path)
            report.error("no-program-name", "the file does not begin with `program`", span, "write `program name`")
        if not self.collected.mains:
            span = _head(self.module.span, len(f"program {self.module.program or ''}"))
            report.error("no-main-dag", "the program has no main dag", span, "add `dag { ... }`")
            return None
        main = self.collected.mains[0]
        refuse_too_many(self.ev, self.collected.dags, main)
        frame = Frame(self.ev, self.declared, OpScope())
        lower_items(out, frame, main.items, main=True)
        if not out.ops and not report.failed:
            report.error("empty-dag", "the main dag has no op", _head(main.span, 3), "add one")
        if out.explicit is not None:
            self._refuse_any(out.explicit)
            if out.packed is not None:
                what, span = out.packed
                help = "drop `edges explicit`, or copy into arrays of your own"
                report.error("explicit-any", f"{what}, and its copies follow text order", span, help)
        return main

    def _refuse_any(self, explicit: ast.EdgesExplicit) -> None:
        """Refuse `on any` arrays where text order has no meaning, since their copies follow it."""
        for array in self.declared.arrays:
            if array.place is Place.ANY and array.name in self.ctx.used:
                message = f"`{array.name}` is `on any`, whose copies follow text order"
                help = "drop `edges explicit`"
                self.ctx.report.error("explicit-any", message, explicit.span, help, ((array.span, "declared here"),))
                return

    def _repeat(self, out: GraphOut, main: ast.MainDag | None) -> tuple[Sym | None, ir.Until | None]:
        repeat: Sym | None = None
        stop: ir.Until | None = None
        if main is not None and main.repeat is not None:
            with self.ctx.report.guard():
                repeat = self.ev.settled(main.repeat, (ScalarKind.INT,))
                if isinstance(repeat, Const) and repeat.value < 1:  # type: ignore[operator]
                    message = f"a dag that runs {show(repeat)} times"
                    self.ctx.report.fail("bad-size", message, main.repeat.span, "give at least 1")
        if main is not None and main.until is not None:
            with self.ctx.report.guard():
                stop = until(self.ev, out, main.until)
        return repeat, stop

    def _runs_once(self, main: ast.MainDag | None, repeat: Sym | None) -> Iterator[ir.Require]:
        """What must hold of a number of runs that only the ranks know."""
        if main is not None and main.repeat is not None and not isinstance(repeat, Const | None):
            yield ir.Require(Apply(Fn.GE, (repeat, Const(1))), span=main.repeat.span)

    # ---- the world outside ------------------------------------------------------------------------

    def _setup(self) -> ir.Setup | None:
        for item, ev in self.collected.setups:
            with self.ctx.report.guard():
                return setup(ev, item)
        return None

    def _verifies(self, out: GraphOut, has_setup: bool) -> tuple[ir.Verify, ...]:
        verifies: list[ir.Verify] = []
        for item, ev in self.collected.verifies:
            with self.ctx.report.guard():
                verifies.append(verify(ev, out, item, has_setup or bool(self.collected.setups)))
        return tuple(verifies)

    def _selects(self) -> tuple[ir.Select, ...]:
        names = {n.split("[")[0] for n in self.ctx.choices if "." not in n}
        return selects(self.collected.selects, "", names)

    # ---- checks and decisions -----------------------------------------------------------------------

    def _checks(
        self, out: GraphOut, edges: tuple[ir.Edge, ...], verifies: tuple[ir.Verify, ...], stop: ir.Until | None
    ) -> None:
        report = self.ctx.report
        check_reads(self.ctx, out, edges)
        check_verified(self.ctx, verifies, out.uses)
        if report.failed:
            return  # the arrays that an op in error would have used are unknown
        check_unused(self.ctx, self.collected.kernels, self.declared, out)
        impls = [i for k in out.kernels.values() for i in k.impls]
        codes = [*self.collected.codes, *(c for i in impls for c in (i.code, i.prepare) if c)]
        features = [f for k in out.kernels.values() for f in k.features] + self.collected.features
        codes += [f.value for f in features if isinstance(f.value, ir.CodeText)]
        check_unused_values(self.ctx, self.declared, codes)
        check_unused_axes(report, impls, self.collected.codes)
        live = {v.region.array for v in verifies} | ({stop.array} if stop else set())
        live |= {a.name for a in self.declared.arrays if a.role in (Role.OUT, Role.INOUT)}
        check_unreachable(report, out.ops, out, live)
        check_carried(report, out.ops, self.declared.arrays)

    def _decisions(self, out: GraphOut, ops: Sequence[ir.Op]) -> tuple[ir.Decision, ...]:
        """transport, staging and streams always, those of transports and transfers where there are any, those of CUDA
        graphs where they are asked for, then the others as they came up."""
        ctx = self.ctx
        messages = any(isinstance(op, (ir.ExchangeOp, ir.CollectiveOp)) for op in out.ops)
        at_run_time = bool(ir.two_sided(ops, self.declared.arrays))
        copied = at_run_time or any(isinstance(op, ir.CopyOp) and op.inserted for op in ops)
        for name in (ir.TRANSPORT, "staging"):
            if name not in ctx.choices:
                ctx.choose(name, WORDS[name], self.module.span, fixed=not messages)
        choose_transports(ctx, ops, self.declared.arrays, self.module.span)
        for name, offered in (("host_memory", copied), ("transfers", at_run_time)):
            if name not in ctx.choices and (offered or name in ctx.defines):
                ctx.choose(name, WORDS[name], self.module.span, fixed=not offered)
        stream_choice(ctx, self.module.span)
        for name in ("capture", ir.GRAPH_EDGES, ir.LOOP, ir.TEST_EVERY, ir.PUT_WAIT, ir.RANK_ORDER):
            if name not in ctx.choices and name in ctx.defines:
                ctx.choose(name, PREDEFINED[name], self.module.span, fixed=True)
        for name in {ir.TRANSPORT, "staging", ir.PUT_WAIT} & ctx.choices.keys():
            ctx.choices[name].structural = True
        self._refuse_unknown_defines(out)
        first = [n for n in PREDEFINED if n in ctx.choices]
        return tuple(ctx.choices[n].decision() for n in (*first, *(n for n in ctx.choices if n not in first)))

    def _refuse_unknown_defines(self, out: GraphOut) -> None:
        for name in self.ctx.defines:
            if name not in self.ctx.defined:
                self._refuse_form(name, out)
                self._refuse_fusion(name)
                known = [p.name for p in self.declared.params] + list(self.ctx.choices)
                own = own_transports(out.ops, self.declared.arrays).values()
                help = self.ctx.report.did_you_mean(name, [*known, *own], f"choose from {listing(known, 30)}")
                raise UsageError(f"-D {name}: the program has no param or decision of this name", help)

    def _refuse_fusion(self, name: str) -> None:
        """Raises UsageError if -D fuses launches that are no group."""
        if name.startswith(FUSE):
            known = [n for n in self.ctx.choices if n.startswith(FUSE)]
            why = "`dagc show --forms KERNEL` says which launches can be one"
            help = f"choose from {listing(known)}" if known else why
            raise UsageError(f"-D {name}: there are no launches of this name to fuse", help)

    def _refuse_form(self, name: str, out: GraphOut) -> None:
        """Raises UsageError if -D gives a form that the kernel of an op does not allow."""
        ops = [op for op in out.ops if isinstance(op, ir.KernelOp) and qualified(op.site, FORM) in name]
        if not ops or site_of(name) != ops[0].site:
            return
        from dagc.forms import explained, forms_of  # only with forms

        kernel = out.kernels[ops[0].kernel]
        impl = kernel.impl_of(ops[0].device, ops[0].variant)
        every = {form.tunable: legal for form, legal in forms_of(kernel, impl, self._around())}
        refusal = every.get(own_name(name))
        if refusal is None:
            raise UsageError(f"-D {name}: there is no such form", f"choose from {listing(sorted(every))}")
        why = explained(refusal, impl, self.ctx.sources) if not isinstance(refusal, tuple) else "it has other forms"
        raise UsageError(f"-D {name}: kernel `{kernel.name}` does not allow this form: {why}", f"drop -D {name}")


def _head(span: Span, length: int) -> Span:
    """The first words of a long item."""
    return Span(span.start, min(span.end, span.start + length), span.file)


# ---- syntax tree to `Program` ----

_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Trail:
    """What a lowering has seen.

    opened    decisions of which it took one value: that value, and all
    params    values after `over` of the params, and of those that are true or false
    decides   the decisions among `opened` on which the structure of the program depends
    advice    what it advises to drop, with the names that it concerns; `refuted`: what is of use
    reached   as in `Context`; `mentioned` too
    """

    opened: Mapping[str, tuple[ir.Value, tuple[ir.Value, ...]]]
    params: Mapping[str, tuple[ir.Value, tuple[ir.Value, ...]]]
    decides: frozenset[str]
    advice: Mapping[Finding, frozenset[str]]
    refuted: frozenset[Finding]
    reached: frozenset[tuple[str, int, bool]]
    mentioned: frozenset[str]
    work: int

    @staticmethod
    def of(ctx: Context, declared: Declared) -> Trail:
        opened = {n: (c.chosen, c.values) for n, c in ctx.choices.items() if not c.fixed and len(c.values) > 1}
        params = {p.name: (p.value, _values(p)) for p in declared.params if not isinstance(p.value, ElementType)}
        report = ctx.report
        return Trail(
            opened, {n: v for n, v in params.items() if n not in ctx.defines and len(v[1]) > 1},
            frozenset(ctx.decides), report.advice, frozenset(report.refuted), frozenset(ctx.reached),
            frozenset(ctx.mentioned), ctx.expansions,
        )  # fmt: skip


def _values(param: ir.Param) -> tuple[ir.Value, ...]:
    return (False, True) if param.type == "bool" else param.over


@dataclass(frozen=True, slots=True)
class Lowered:
    """`program` is None where there are errors; `sources` has every file that a diagnostic may point into."""

    program: ir.Program | None
    diagnostics: tuple[Diagnostic, ...]
    sources: Mapping[str, Source]
    trail: Trail


@dataclass(frozen=True, slots=True)
class Parsed:
    """A text of the language and all that it includes, parsed. Any number of programs is lowered from it.

    `items` are those of the text, with includes replaced by what they include; `diagnostics` are those of parsing.
    `named`: the files of code.
    """

    source: Source
    module: ast.Module
    items: tuple[ast.Item, ...]
    sources: Mapping[str, Source]
    named: CodeFiles
    diagnostics: tuple[Diagnostic, ...]


@uncollected()
def parse_with_includes(
    source: Source, texts: Mapping[str, str] | None = None, opened: Mapping[str, str] | None = None
) -> Parsed:
    """`texts`: path -> text of included files, if not from the files; `opened`: resolved path -> text, instead of some.

    Raises `ProgramError` for the text's syntax.
    """
    module = parse(source)
    report, sources, named = Report(), {source.path: source}, CodeFiles()
    items: tuple[ast.Item, ...] = ()
    try:
        items, named = read_included(module.items, source, sources, report, texts, opened)
    except RecursionError:
        report.error("too-deep", "nested too deep", module.span, "split the text into smaller pieces")
    return Parsed(source, module, items, sources, named, report.sorted(sources))


def lower(parsed: Parsed, defines: Defines | None = None, forms: bool = False) -> ir.Program:
    """The program, for one value of every decision.

    defines: what -D gives: values of params, and choices for decisions.
    forms: whether the forms of kernels are open; those that -D gives are used in any case.
    Raises `ProgramError` with all errors, `UsageError` for a bad entry of `defines`.
    """
    lowered = analyse(parsed, defines, forms=forms)
    if lowered.program is None:
        errors = (d for d in lowered.diagnostics if d.severity is Severity.ERROR)
        raise ProgramError(errors, dict(lowered.sources))
    return lowered.program


@uncollected()
def analyse(
    parsed: Parsed, defines: Defines | None = None, most: int = EXPANSION_LIMIT, forms: bool = False
) -> Lowered:
    """The complete result of lowering: the program, errors, warnings and notes. Stops with `too-many-ops` beyond `most`
    expansions. Raises `UsageError` for a bad entry of `defines`."""
    plain = {name.replace(" ", ""): value for name, value in (defines or {}).items()}
    picked: Mapping[str, ir.Value] = {}
    for attempt in range(_ATTEMPTS):
        report, sources = Report(), dict(parsed.sources)
        for diagnostic in parsed.diagnostics:
            report.add(diagnostic)
        program = None
        context = Context(report, sources, plain, picked, parsed.named, attempt + 1 < _ATTEMPTS, forms, most=most)
        lowering = Lowering(context, parsed.module, parsed.source)
        try:
            program = lowering.run(parsed.items)
        except OtherChoices as other:
            picked = {**picked, **other.picked}
            continue
        except Aborted:
            pass
        except RecursionError:
            report.error("too-deep", "nested too deep", parsed.module.span, "split the text into smaller pieces")
        break
    trail = Trail.of(context, lowering.declared)
    return Lowered(None if report.failed else program, report.sorted(sources), sources, trail)


# ---- parts of a program that a target lacks ------------------------------------------------------------


# Of the CUDA toolkit, and those that need it. All CUDA programs are linked with `cudart`: naming it says that an
# implementation needs headers of the toolkit, such as CUB's.
CUDA_LIBRARIES = frozenset(
    """cublas cublasLt cuda cudart cudnn cufft cufile curand cusolver cusparse cusparseLt cutensor nccl npp nvml nvrtc
    nvshmem""".split()
)


def forms_listed(program: ir.Program, forms: str) -> tuple[dict[str, int], tuple[str, ...]]:
    """What -D would give for a list of forms in all ops on a GPU; why kernels do not allow one. Raises UsageError."""
    from dagc.forms import forms_asked  # only with --forms

    return forms_asked(program, forms, [op for op in program.kernel_ops if op.device is ir.Device.GPU])


def without_missing(
    parsed: Parsed, cuda: bool, installed: Callable[[str], bool] | None = None
) -> tuple[Parsed, tuple[str, ...]]:
    """The program without the implementations that link missing libraries, and a note for each: those of the CUDA
    toolkit where g++ compiles for the host, unless it has a part of them and the kernel nothing else, and others that
    are not `installed` here (None: all are).

    Raises ProgramError for a kernel of an op that has no other implementation for its device.
    """
    called = {(node.call.callee.name, node.kind) for node in ast.nodes(parsed.items) if isinstance(node, ast.Op)}
    notes: list[str] = []
    changed: dict[ast.Kernel, ast.Kernel] = {}
    for kernel in (item for item in parsed.items if isinstance(item, ast.Kernel)):
        missing = {impl: library for impl in _impls(kernel) if (library := _missing(impl, cuda, installed))}
        others = {impl.device for impl in _impls(kernel) if impl not in missing}
        for impl in [impl for impl in missing if impl.device not in others]:
            missing[impl] = _missing(impl, cuda, installed, HOST_LIBRARIES)
        missing = {impl: library for impl, library in missing.items() if library}
        left = [other for other in _impls(kernel) if other not in missing]
        for impl, library in missing.items():
            asked = ((kernel.name, impl.device) in called, (kernel.name, OpKind.ANY) in called)
            none = (asked[0] and not any(other.device is impl.device for other in left)) or (asked[1] and not left)
            if none:
                raise ProgramError([_no_other(kernel, impl, library)], dict(parsed.sources))
            name = f"{kernel.name}.{impl.name}" if impl.name is not None else kernel.name
            why = "which the host target does not have" if library in CUDA_LIBRARIES else "which is not installed"
            notes.append(f"{name}: links {library}, {why}")
        if missing:
            changed[kernel] = replace(kernel, items=tuple(item for item in kernel.items if item not in missing))
    if not changed:
        return parsed, ()
    items = tuple(changed.get(item, item) if isinstance(item, ast.Kernel) else item for item in parsed.items)
    return replace(parsed, items=items), tuple(notes)


def _impls(kernel: ast.Kernel) -> Iterator[ast.Impl]:
    return (item for item in kernel.items if isinstance(item, ast.Impl))


def _no_other(kernel: ast.Kernel, impl: ast.Impl, library: str) -> Diagnostic:
    device = impl.device.value
    if library in CUDA_LIBRARIES:
        message = f"without CUDA, kernel `{kernel.name}` has no {device} implementation"
        help = f'add one without `link "{library}"`, or compile with --target cuda'
    else:
        message = f"`{library}` is not installed, and kernel `{kernel.name}` has no other {device} implementation"
        help = f'install it, add one without `link "{library}"`, or name its directory by -L in DAGC_CXXFLAGS'
    return Diagnostic("missing-implementation", message, impl.span, help)


def _missing(
    impl: ast.Impl, cuda: bool, installed: Callable[[str], bool] | None, in_part: frozenset[str] = frozenset()
) -> str:
    """The first missing library that an implementation links; "" if none is missing. `in_part`: those of the CUDA
    toolkit of which the parts that the host target has will do."""
    for name in (name for item in impl.items if isinstance(item, ast.Link) for name in item.libraries):
        if name in CUDA_LIBRARIES:
            if not cuda and name not in in_part:
                return name
        elif installed is not None and not installed(name):
            return name
    return ""
