"""Kernel calls: arguments against formals, and the decisions of one op."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import starmap
from typing import NoReturn

from dagc.base.errors import UsageError, counted
from dagc.base.source import Span
from dagc.cuda.text import names_read
from dagc.ir import program as ir
from dagc.ir import sym
from dagc.ir.choice import FORM, VARIANT, qualified
from dagc.ir.constraints import decidable, of_launch
from dagc.ir.enums import Mode, OpKind, Place, Role
from dagc.ir.program import AT_RUN_TIME, Device, on_units
from dagc.ir.regions import Regions
from dagc.ir.sym import Apply, Const, Sym, Var, show
from dagc.lang import ast
from dagc.lang.declarations import check_sizes, storage, touched
from dagc.lang.frames import Frame, GraphOut
from dagc.lang.held import HOST, arguments, by_host, by_pointer, chosen_way, computed, of_device, skipping
from dagc.lang.scope import (
    FIX_SOME,
    TOO_MANY_TRIALS,
    Context,
    ScalarKind,
    Skip,
    Storage,
    kind_of_type,
    listing,
    parse_choice,
    spelled,
    there_are,
)

BLOCK_LIMIT = "the limit of 1 to 1024 threads in a block"


@dataclass(frozen=True, slots=True)
class Argument:
    """An array argument of a call, and its formal. `touched`: what it uses of the array, if not what it gets."""

    formal: ir.Formal
    storage: Storage
    span: Span
    touched: tuple[Storage, ...] = ()

    @property
    def used(self) -> tuple[Storage, ...]:
        return self.touched or (self.storage,)


def kernel_op(out: GraphOut, frame: Frame, item: ast.Op, name: str, base: str) -> ir.KernelOp:
    """A kernel op with checked arguments and its decisions. May raise Skip."""
    kernel = _kernel(out, frame, item)
    positional = [a for a in item.call.args if not isinstance(a, ast.Named)]
    if len(positional) != len(kernel.formals):
        message = f"kernel `{kernel.name}` takes {counted(len(kernel.formals), 'argument')}, not {len(positional)}"
        help = f"pass {listing([f.name for f in kernel.formals], 12)}"
        frame.ctx.report.fail("wrong-arity", message, item.call.span, help, ((kernel.span, "declared here"),))
    values = computed(frame, item, kernel, positional)
    if values and chosen_way(frame, item, base, kernel, values) == HOST:
        values = by_host(out, frame, item, name, base, values)
    elif values:
        kernel = by_pointer(out, kernel, values)
    written = kernel
    if frame.held is not None:
        kernel = skipping(out, frame, item, kernel)
    call = _Call(frame, item, kernel, {a.name: a for a in item.call.args if isinstance(a, ast.Named)})
    device, unit = call.device(name)
    placed = device is None
    every = _implementations(kernel, device, unit, frame.ctx.devices)
    site = base if item.kind is not OpKind.ANY else name if device is None else qualified(base, device.value)
    impl = call.variant(every, site)
    chosen = call.tunables(impl, site)
    others = tuple(call.others(every, impl, site))
    if item.kind is OpKind.ANY and device is not None:
        call.choose_elsewhere(device, base)
    devices = {i.device for i in every.values()}
    args = _arguments(frame, written, positional, devices, chosen, arguments(values))
    if frame.held is not None:
        args = (Argument(kernel.formals[0], frame.held.holds, item.span), *args)
    scalars = {f.name: a for f, a in zip(kernel.formals, args, strict=True) if not isinstance(a, Argument)}
    _check_grid(frame, item, kernel, impl, {**chosen, **scalars})
    _check_reach(frame, args, every.values())
    accesses = _accesses(out, frame, name, args)
    accesses += tuple(out.use(frame, name, v.passed, Mode.IN, v.span) for v in values if v.passed is not None)
    fixed = item.call.callee.trailers
    _check_prepared(frame, args, [i for i in every.values() if i is impl or not fixed])
    _check_features(frame, args, kernel)
    worker = call.in_worker(every.values(), base)
    stream = pinned_stream(frame, item) if device is not Device.CPU or worker else None
    regions = tuple(a.storage.region if isinstance(a, Argument) else a for a in args)
    return ir.KernelOp(
        name, base, kernel.name, impl.device, impl.name, tuple(chosen.items()), regions, accesses, stream,
        frame.condition, others, placed, worker, pinned=tuple(call.pins), unit=impl.unit, span=item.span,
    )  # fmt: skip


def _kernel(out: GraphOut, frame: Frame, item: ast.Op) -> ir.Kernel:
    callee = item.call.callee
    report = frame.ctx.report
    if callee.name not in out.kernels or callee.name in out.deciding:
        own = [name for name in out.kernels if name not in out.deciding]
        if callee.name in out.dags:
            help = f"write `: dag {callee.name}(...)`"
            report.fail("unknown-name", f"`{callee.name}` is a dag, not a kernel", callee.span, help)
        declare = f"declare it: `kernel {callee.name}(...) {{ ... }}`; only `copy` needs no declaration"
        known = [*own, "copy"]
        help = report.did_you_mean(callee.name, known, there_are(known) if own else declare)
        report.fail("unknown-name", f"unknown kernel `{callee.name}`", callee.span, help)
    out.called.add(callee.name)
    return out.kernels[callee.name]


# ---- decisions --------------------------------------------------------------------------------------

THREADS = ("caller", "worker")  # which thread runs an op on the CPU
_NOT_IN_WORKER = re.compile(r"\b(?:MPI_\w+|cuda[A-Z]\w*)")


def _implementations(kernel: ir.Kernel, device: Device | None, unit: int, devices: ir.Devices) -> dict[str, ir.Impl]:
    """The implementations that an op may have, by name, the default first. Where the device is open, each name has it
    in front; unless a `select` of the kernel names the variant, the first on each device is the only one there."""
    if device is not None:
        return {i.name: replace(i, unit=unit) if unit else i for i in kernel.impls if i.device is device}
    every = [i for d in (Device.GPU, Device.CPU) for i in kernel.impls if i.device is d]
    if not any("variant" in s.names for s in kernel.selects):
        every = [i for n, i in enumerate(every) if not any(i.device is before.device for before in every[:n])]
    every = [replace(i, unit=unit) if unit else i for i, unit in on_units(every, devices)]
    return {f"{ir.device_name(i.device, i.unit)}.{i.name}": i for i in every}


@dataclass(frozen=True, slots=True)
class _Call:
    """The decisions of one op. `pins`: the tunables that the call gives; `base`, below: what stands before the names of
    its decisions. All may raise Skip."""

    frame: Frame
    item: ast.Op
    kernel: ir.Kernel
    pins: Mapping[str, ast.Named]

    def _fail(self, code: str, message: str, span: Span, help: str, *related: tuple[Span, str]) -> NoReturn:
        self.frame.ctx.report.fail(code, message, span, help, related)

    def device(self, name: str) -> tuple[Device | None, int]:
        """The device of the op, None where it is chosen when the program runs, and which one of its kind."""
        have = [d for d in (Device.GPU, Device.CPU) if any(i.device is d for i in self.kernel.impls)]
        if self.item.kind is not OpKind.ANY:
            device = Device(self.item.kind.value)
            if device not in have:
                message = f"kernel `{self.kernel.name}` has no {device.value} implementation"
                help = "add an implementation"
                if have:
                    help = f"add `{device.value} {{...}}` to the kernel, or make the op `{have[0].value}`"
                declared = (self.kernel.span, "declared here")
                self._fail("missing-implementation", message, self.item.call.span, help, declared)
            return device, 0
        if not have:
            raise Skip  # missing-implementation was reported for the kernel
        ctx = self.frame.ctx
        at_run_time = ctx.defines.get(qualified(name, ir.DEVICE)) == AT_RUN_TIME
        names = (ir.device_name(d, unit) for d in have for unit in ctx.devices.units(d))
        values = (AT_RUN_TIME,) if at_run_time else tuple(names)
        choice = ctx.choose(qualified(name, ir.DEVICE), values, self.item.span)
        choice.structural = True
        ctx.decides.add(choice.name)
        return (None, 0) if at_run_time else ir.device_named(str(choice.chosen))

    def choose_elsewhere(self, device: Device, base: str) -> None:
        """Enter the variant that an `any` op would have on its other device: a decision of the program, whichever
        device is chosen."""
        other = Device.CPU if device is Device.GPU else Device.GPU
        impls = _implementations(self.kernel, other, 0, self.frame.ctx.devices)
        several = len(impls) > 1 or self._excluded(impls.values())
        if several and not self.item.call.callee.trailers:
            self._choose_variant(impls, qualified(base, other.value))
        self.in_worker(impls.values(), base)

    def in_worker(self, impls: Iterable[ir.Impl], base: str) -> bool:
        """Whether a worker thread runs the op on the CPU: a `cpu` op with a stream, or as `OP.thread` is decided (of an
        `any` op `OP.cpu.thread`)."""
        item, ctx = self.item, self.frame.ctx
        on_cpu = [i for i in impls if i.device is Device.CPU]
        call = next((c for i in on_cpu for c in _calls_outside(ctx, i)), "")
        pinned = item.kind is OpKind.CPU and item.stream is not None
        name = f"{base}.thread" if item.kind is OpKind.CPU else f"{base}.cpu.thread"
        if call and (pinned or ctx.defines.get(name) == "worker"):
            span = item.stream.span if pinned and item.stream is not None else item.span
            message = f"kernel `{self.kernel.name}` uses `{call}`, and a worker thread may call neither MPI nor CUDA"
            help = "drop `stream ...`" if pinned else f"drop -D {name}=worker"
            self._fail("bad-worker", message, span, help, (self.kernel.span, "declared here"))
        if (pinned or ctx.defines.get(name) == "worker") and ctx.devices.sockets:
            message = "a worker thread shares the cores of the program, and `devices` divides them into sockets"
            help = "drop `socket`, or the stream or thread of the op"
            self._fail("bad-worker", message, item.span, help)
        if pinned or call or not on_cpu or ctx.devices.sockets:
            return pinned
        choice = ctx.choices.get(name) or ctx.choose(name, THREADS, item.span)
        choice.structural = True
        return choice.chosen == "worker"

    def variant(self, impls: Mapping[str, ir.Impl], base: str) -> ir.Impl:
        """The variant that the call names, else the one that is decided."""
        trailers = self.item.call.callee.trailers
        if trailers:
            member = trailers[0]
            if len(trailers) > 1 or not isinstance(member, ast.Member):
                help = "write `kernel(...)` or `kernel.variant(...)`"
                self._fail("bad-index", "a kernel takes no index", self.item.call.callee.span, help)
            named = [i for i in impls.values() if i.name == member.name]
            if not named:
                devices = {i.device.value for i in impls.values()}
                device = f"{devices.pop()} " if len(devices) == 1 else ""
                message = f"kernel `{self.kernel.name}` has no {device}variant `{member.name}`"
                code, given = "unknown-name", self._excluded(impls.values()).get(member.name)
                if given is not None:
                    code, message = "unsatisfiable-require", f"a `require` of `{member.name}` is false for {given}"
                help = self.frame.ctx.report.did_you_mean(member.name, impls, f"choose from {listing(impls)}")
                self._fail(code, message, member.span, help, (self.kernel.span, "declared here"))
            return named[0]
        if len(impls) == 1 and not self._excluded(impls.values()):
            return next(iter(impls.values()))
        return impls[self._choose_variant(impls, base)]

    def _excluded(self, impls: Iterable[ir.Impl]) -> dict[str, str]:
        """The implementations that compile-time values exclude on the devices of `impls`, and these values."""
        kernel, devices = self.kernel.name, {impl.device for impl in impls}
        never = self.frame.ctx.never.items()
        return {name: given for (k, device, name), given in never if k == kernel and device in devices}

    def _choose_variant(self, impls: Mapping[str, ir.Impl], base: str) -> str:
        """The default: the first that no `require` excludes under the chosen values of the program's decisions, and
        whose tunables have a legal combination; else the first."""
        ctx, name = self.frame.ctx, qualified(base, VARIANT)
        if name not in ctx.choices:
            allowed = (name for name, impl in impls.items() if not _is_excluded(impl) and self._has_legal(impl, base))
            ctx.choose(name, tuple(impls), self.item.span, default=next(allowed, next(iter(impls))))
        return str(ctx.choices[name].chosen)

    def _has_legal(self, impl: ir.Impl, base: str) -> bool:
        """Whether the tunables of an implementation have a legal combination, or too many to try them all."""
        ctx = self.frame.ctx
        try:
            candidates = self._candidates(impl, base, {})
        except UsageError:  # -D of a value that it does not have, which is reported if it is the default
            return True
        return first_legal(ctx, self.kernel, impl, candidates) is not None or ctx.trials.cut

    def tunables(self, impl: ir.Impl, base: str) -> dict[str, ir.Value]:
        """Values of all tunables: pinned in the call, or chosen once per base name."""
        ctx, tunables = self.frame.ctx, (*self.kernel.tunables, *impl.tunables)
        everywhere = {t.name for i in self.kernel.impls for t in i.tunables} | {t.name for t in tunables}
        for pin in self.pins.values():
            if pin.name not in everywhere:
                help = self.frame.ctx.report.did_you_mean(
                    pin.name, everywhere, there_are(sorted(everywhere)) if everywhere else "drop it"
                )
                self._fail("unknown-name", f"kernel `{self.kernel.name}` has no tunable `{pin.name}`", pin.span, help)
        decided = {t.name: ctx.choices[n].chosen for t in tunables if (n := qualified(base, t.name)) in ctx.choices}
        candidates = self._candidates(impl, base, decided)
        values = first_legal(ctx, self.kernel, impl, candidates)
        if values is None:
            _no_legal(ctx, self.item, self.kernel, impl, candidates)
        for tunable in tunables:
            if tunable.name not in self.pins and tunable.name not in decided:
                name, value = qualified(base, tunable.name), values[tunable.name]
                ctx.choose(name, tunable.values, tunable.span, self._stays(tunable), value)
        return values

    def _stays(self, tunable: ir.Tunable) -> bool:
        """Whether a tunable has its first value unless -D gives another."""
        return tunable.name.startswith(FORM) and not self.frame.ctx.forms

    def others(self, every: Mapping[str, ir.Impl], own: ir.Impl, base: str) -> Iterator[ir.OtherVariant]:
        """The other implementations that may be chosen, with the first legal values of their tunables. One for which
        -D, pins and `require`s leave no value is not among them."""
        choice = self.frame.ctx.choices.get(qualified(base, VARIANT))
        for impl in every.values() if choice is not None and not choice.fixed else ():
            if impl is not own:
                with suppress(UsageError):  # -D of a value that only others have
                    yield from self._other(impl, base)

    def _other(self, impl: ir.Impl, base: str) -> Iterator[ir.OtherVariant]:
        ctx, candidates = self.frame.ctx, self._candidates(impl, base, {})
        values = first_legal(ctx, self.kernel, impl, candidates)
        if values is not None:
            ctx.defined |= {qualified(base, name) for name in values} & set(ctx.defines)
            choices = (
                ir.Decision(qualified(base, t.name), candidates[t.name], values[t.name], False, span=t.span)
                for t in (*self.kernel.tunables, *impl.tunables)
                if t.name not in self.pins
            )
            yield ir.OtherVariant(impl.device, impl.name, tuple(values.items()), tuple(choices), impl.unit)

    def _candidates(self, impl: ir.Impl, base: str, decided: Mapping[str, ir.Value]) -> dict[str, tuple[ir.Value, ...]]:
        """The values that each tunable may take: only one if the call or -D gives it, or if it is decided already."""
        defines = self.frame.ctx.defines
        out = {}
        for tunable in (*self.kernel.tunables, *impl.tunables):
            name, values = qualified(base, tunable.name), tunable.values
            if tunable.name in self.pins:
                values = (self._pinned(tunable, self.pins[tunable.name]),)
            elif tunable.name in decided:
                values = (decided[tunable.name],)
            elif name in defines:
                values = (parse_choice(name, defines[name], values),)
            elif self._stays(tunable):
                values = values[:1]
            out[tunable.name] = values
        return out

    def _pinned(self, tunable: ir.Tunable, pin: ast.Named) -> ir.Value:
        value = self.frame.ev.constant(pin.value, f"the value pinned for `{tunable.name}`")
        same = [v for v in tunable.values if v == value and isinstance(v, bool) is isinstance(value, bool)]
        if not same:
            help = f"choose from {listing([spelled(v) for v in tunable.values], 12)}"
            message, related = f"`{tunable.name}` cannot be {spelled(value)}", (tunable.span, "declared here")
            self._fail("bad-choice", message, pin.span, help, related)
        return same[0]


def _calls_outside(ctx: Context, impl: ir.Impl) -> Iterator[str]:
    """The names of MPI and CUDA in the code of an implementation."""
    if impl.code is None:
        return
    text, name = impl.code.text, impl.code.file
    if text is None:
        path = next((f.path for f in ctx.named.files if f.name == name), "")
        text = ctx.sources[path].text if path in ctx.sources else ""
    if _NOT_IN_WORKER.search(text):  # which is quick
        yield from sorted(n for n in names_read(text) if _NOT_IN_WORKER.fullmatch(n))


def first_legal(
    ctx: Context, kernel: ir.Kernel, impl: ir.Impl, candidates: Mapping[str, tuple[ir.Value, ...]]
) -> dict[str, ir.Value] | None:
    """The first combination that violates no `require` and gives blocks that a GPU accepts, None if there is none."""
    key = (kernel.name, impl.device, impl.name, tuple(candidates.values()))
    if key not in ctx.legal:
        legal = ctx.trials.first(candidates, of_launch(kernel, impl, candidates))
        if legal is None:
            return None
        ctx.legal[key] = legal
    return ctx.legal[key]


def _no_legal(
    ctx: Context, item: ast.Op, kernel: ir.Kernel, impl: ir.Impl, candidates: Mapping[str, tuple[ir.Value, ...]]
) -> NoReturn:
    """Report that the tunables of the op have no legal combination, and the reason."""
    _refuse_excluded(ctx, item, (kernel, impl))
    requires = decidable(kernel, impl, candidates)
    cut = ctx.trials.cut
    apart = of_launch(kernel, replace(impl, launch=None), candidates)
    blocks = not cut and ctx.trials.first(candidates, apart) is not None
    texts = BLOCK_LIMIT if blocks else listing([f"`{show(c)}`" for c in requires] or [BLOCK_LIMIT])
    open_names = [n for n, c in candidates.items() if len(c) > 1]
    fixed = ", ".join(f"{n} = {spelled(c[0])}" for n, c in candidates.items() if len(c) == 1)
    what = f"no choice of {listing(open_names)} satisfies {texts}" if open_names else f"{fixed} violates {texts}"
    where = (impl.launch.span, "the block is set here") if blocks and impl.launch else None
    related = (where or (kernel.span, f"of kernel `{kernel.name}`"),)
    help = "allow values with a smaller product" if blocks else "allow more values, or change the require"
    if cut:
        what, help = f"{TOO_MANY_TRIALS} of {listing(open_names)} that satisfies {texts}", FIX_SOME
    ctx.report.fail("unsatisfiable-require", what, item.span, help, related)


def _refuse_excluded(ctx: Context, item: ast.Op, owners: Sequence[ir.Kernel | ir.Impl]) -> None:
    """Report a kernel, or an implementation of it, that the program's decisions exclude."""
    for one in owners:
        if _is_excluded(one):
            decided = ", ".join(f"{n} = {spelled(c.chosen)}" for n, c in ctx.choices.items() if c.restricts)
            device = one.device if isinstance(one, ir.Impl) else None
            given = ctx.never.get((item.call.callee.name, device, one.name), decided)
            related = ((one.span, "declared here"),)
            message = f"a `require` of `{one.name}` is false for {given}"
            ctx.report.fail("unsatisfiable-require", message, item.span, "choose other values with -D", related)


def _is_excluded(one: ir.Kernel | ir.Impl) -> bool:
    return any(isinstance(c, Const) and not c.value for c in one.requires)


def _check_grid(
    frame: Frame, item: ast.Op, kernel: ir.Kernel, impl: ir.Impl, values: Mapping[str, ir.Value | Sym]
) -> None:
    """Report a grid that no GPU accepts, as far as its size is known."""
    if impl.launch is None:
        return
    env = {n: v if isinstance(v, Const | Var | Apply) else Const(v) for n, v in values.items()}
    for name, expr in (*kernel.lets, *impl.lets):
        env.setdefault(name, _folded(expr, env))
    limits = (ir.LARGEST_GRID_X, ir.LARGEST_GRID, ir.LARGEST_GRID)
    for axis, size, limit in zip("xyz", impl.launch.grid, limits, strict=False):
        blocks = _folded(size, env)
        if isinstance(blocks, Const) and isinstance(blocks.value, int) and not 0 <= blocks.value <= limit:
            message = f"the grid of this op has {blocks.value} blocks in {axis}; GPUs accept {limit} there"
            other = "" if axis == "x" else f", or move the large dimension to x, whose limit is {ir.LARGEST_GRID_X}"
            help = "give a size of at least 0" if blocks.value < 0 else f"let a block do more of the work{other}"
            frame.ctx.report.error("bad-launch", message, item.span, help, ((impl.launch.span, "the launch is here"),))


def _folded(expr: Sym, env: Mapping[str, Sym]) -> Sym:
    """An expression with the values of names; unchanged where they leave no value, such as a division by zero."""
    try:
        return sym.substitute(expr, env)
    except (ArithmeticError, ValueError, TypeError):
        return expr


# ---- arguments --------------------------------------------------------------------------------------


def _arguments(
    frame: Frame,
    kernel: ir.Kernel,
    args: list[ast.Expr],
    devices: Collection[Device],
    chosen: Mapping[str, ir.Value],
    passed: Mapping[str, Sym],
) -> tuple[Argument | Sym, ...]:
    """`passed`: by formal, those that the host reads."""
    out: list[Argument | Sym] = []
    failed = False
    for formal, arg in zip(kernel.formals, args, strict=True):
        try:
            if formal.dims is None:
                out.append(passed[formal.name] if formal.name in passed else by_value(frame, formal, arg))
            else:
                whole = arg.array if isinstance(arg, ast.Touched) else arg
                actual = array_argument(frame, formal, whole, devices)
                rows = arg.rows if isinstance(arg, ast.Touched) else ()
                out.append(Argument(formal, actual, arg.span, tuple(touched(frame.ev, actual, r) for r in rows)))
        except Skip:
            failed = True
    if failed:
        raise Skip
    env: dict[str, Sym] = {name: Const(value) for name, value in chosen.items()}
    env |= {f.name: a for f, a in zip(kernel.formals, out, strict=True) if not isinstance(a, Argument)}
    for argument in _arrays(out):
        check_argument_size(frame, argument, env)
    return tuple(out)


def _arrays(args: list[Argument | Sym]) -> Iterator[Argument]:
    return (a for a in args if isinstance(a, Argument))


def check_argument_size(frame: Frame, argument: Argument, env: Mapping[str, Sym]) -> None:
    """The shape of the actual argument against that of the formal, with actual scalars substituted."""
    formal = argument.formal
    assert formal.dims is not None
    try:
        dims = tuple(None if d is None else sym.substitute(d, env) for d in formal.dims)
    except (ArithmeticError, ValueError, TypeError) as error:
        code = "division-by-zero" if isinstance(error, ZeroDivisionError) else "overflow"
        message = f"the size of formal `{formal.name}` has no value here"
        frame.ctx.report.error(code, message, argument.span, "pass other sizes", ((formal.span, "declared here"),))
        return
    related = ((formal.span, "declared here"),)
    check_sizes(frame.ev, argument.storage, dims, f"formal `{formal.name}`", argument.span, related)


def by_value(frame: Frame, formal: ir.Formal, arg: ast.Expr) -> Sym:
    """A by-value argument of the formal's kind."""
    report = frame.ctx.report
    related = ((formal.span, f"formal `{formal.name}` is {formal.type.value}"),)
    if of_device(frame, arg) is not None:
        help = f"pass a scalar; to pass the array, declare the formal `in {formal.type.value}[1]`"
        report.fail("type-mismatch", "an array is passed to a by-value formal", arg.span, help, related)
    value = frame.ev.settled(arg)
    kind, wanted = frame.ev.kind(value), kind_of_type(formal.type)
    if kind is not wanted and (kind, wanted) != (ScalarKind.INT, ScalarKind.REAL):
        rounded = (kind, wanted) == (ScalarKind.REAL, ScalarKind.INT)
        help = "write `floor(...)` or `ceil(...)`" if rounded else "pass a value of that type"
        report.fail("type-mismatch", f"this is {kind.value}; {formal.type.value} is expected", arg.span, help, related)
    if formal.type.is_integer and isinstance(value, Const) and isinstance(value.value, int):
        low, high = formal.type.range
        if not low <= value.value <= high:
            help = "declare the formal with a wider type"
            report.fail("overflow", f"{value.value} does not fit {formal.type.value}", arg.span, help, related)
    return value


def _check_reach(frame: Frame, args: Iterable[Argument | Sym], impls: Iterable[ir.Impl]) -> None:
    """Refuse arrays of the first GPU where another one may run the op."""
    further = next((i for i in impls if i.device is Device.GPU and i.unit), None)
    for arg in args if further is not None else ():
        if isinstance(arg, Argument) and further is not None and arg.storage.array.place is Place.DEVICE:
            message = (
                f"`{arg.storage.label}` is on the first GPU, and the op may run on `{ir.device_name(Device.GPU, 1)}`"
            )
            help = "declare it `on any`, or make the op `gpu`, which is the first one"
            related = (arg.storage.array.span, "declared here")
            frame.ctx.report.fail("place-mismatch", message, arg.span, help, (related,))


def array_argument(frame: Frame, formal: ir.Formal, arg: ast.Expr, devices: Collection[Device] = ()) -> Storage:
    """An array argument of the formal's element type, in a place that the devices can access."""
    report = frame.ctx.report
    related = ((formal.span, f"formal `{formal.name}` is declared here"),)
    if not isinstance(arg, ast.Ref):
        report.fail("type-mismatch", "an array is expected here", arg.span, "name an array or a part of one", related)
    actual = storage(frame.ev, arg)
    if actual.array.type is not formal.type:
        message = f"`{actual.label}` holds {actual.array.type.value}; {formal.type.value} is expected"
        report.fail("type-mismatch", message, arg.span, "pass an array of that type", related)
    for device in sorted(devices, key=lambda d: d.value):
        check_place(frame, actual, device, arg.span, both=len(devices) > 1)
    return actual


def check_place(frame: Frame, actual: Storage, device: Device, span: Span, both: bool = False) -> None:
    """gpu ops access device and pinned memory, cpu ops host and pinned memory. `both`: the op may run on either."""
    unreachable = Place.HOST if device is Device.GPU else Place.DEVICE
    if actual.array.place is not unreachable:
        return
    other = "pinned" if device is Device.GPU else "pinned` or `on host"
    message = f"a {device.value} op cannot access `{actual.label}`, which is on the {unreachable.value}"
    copied = ", or copy it with `gpu copy`" if device is Device.CPU else ""  # which takes no array `on host` either
    help = "declare it `on any`" if both else f"declare it `on {other}`{copied}"
    frame.ctx.report.error("place-mismatch", message, span, help, ((actual.array.span, "declared here"),))


def _check_prepared(frame: Frame, args: tuple[Argument | Sym, ...], impls: list[ir.Impl]) -> None:
    """`prepare` of the implementations that the op may use reads arrays that nothing changes."""
    for impl in impls:
        if impl.prepare is None or impl.prepare.text is None:
            continue
        read = names_read(impl.prepare.text)
        for argument in _arrays(list(args)):
            array = argument.storage.array
            if argument.formal.name in read and argument.formal.mode is Mode.IN and array.role is not Role.CONST:
                message = f"`prepare` of `{impl.name}` reads `{array.name}`, which may change after it has run"
                help = f"declare `{array.name}` `const`, or call another variant"
                related = ((impl.prepare.span, f"it uses `{argument.formal.name}` here"),)
                frame.ctx.report.error("bad-prepare", message, argument.span, help, related)


def _check_features(frame: Frame, args: tuple[Argument | Sym, ...], kernel: ir.Kernel) -> None:
    """Features in code that the kernel's selectors need read arrays that the set-up provides."""
    values = {f.name: f.value for f in kernel.features}
    needed: set[str] = set()
    left = [n for s in kernel.selects for n in (values if not s.args else (n for a in s.args for n in sym.free(a)))]
    while left:
        name = left.pop()
        if name in values and name not in needed:
            needed.add(name)
            value = values[name]
            left += [] if isinstance(value, ir.CodeText) else sym.free(value)
    for name in sorted(needed):
        code = values[name]
        if not isinstance(code, ir.CodeText):
            continue
        used = names_read(code.text or "")
        for argument in _arrays(list(args)):
            array, formal = argument.storage.array, argument.formal
            if formal.name in used and formal.mode is Mode.IN and array.role not in (Role.CONST, Role.IN):
                message = f"feature `{name}` of `{kernel.name}` reads `{array.name}`, which may change before this op"
                before = "features are computed before the dag runs"
                help = f"select by others, or declare `{array.name}` `const` or `in`: {before}"
                related = ((code.span, f"it uses `{formal.name}` here"),)
                frame.ctx.report.error("bad-feature", message, argument.span, help, related)


def _accesses(out: GraphOut, frame: Frame, name: str, args: tuple[Argument | Sym, ...]) -> tuple[ir.Access, ...]:
    arrays = list(_arrays(list(args)))
    for i, a in enumerate(arrays):
        for b in arrays[:i]:
            written = a.formal.mode is not Mode.IN or b.formal.mode is not Mode.IN
            pairs = ((x.region, y.region) for x in a.used for y in b.used)
            if written and any(starmap(Regions(frame.ctx.facts).overlap, pairs)):
                names = f"`{b.formal.name}` and as `{a.formal.name}`"
                message = f"`{a.storage.label}` is passed as {names}, and one is written"
                related = ((b.span, "also passed here"),)
                frame.ctx.report.error("aliased-arguments", message, a.span, "make it one `inout` formal", related)
    return tuple(out.use(frame, name, used, a.formal.mode or Mode.IN, a.span) for a in arrays for used in a.used)


def pinned_stream(frame: Frame, item: ast.Op) -> int | None:
    """The number after `stream`: compile-time, and below `streams`."""
    if item.stream is None:
        return None
    report = frame.ctx.report
    number = frame.ev.integer(item.stream, "a stream", structural=True)
    streams = stream_choice(frame.ctx, item.span)
    if not 0 <= number < streams:
        help = (
            f"choose from 0 to {streams - 1}, or write `let streams = {number + 1}`" if number >= 0 else "count from 0"
        )
        report.fail("bad-stream", f"there is no stream {number}: `streams` is {streams}", item.stream.span, help)
    return number


def stream_choice(ctx: Context, span: Span) -> int:
    """The number of streams; 2 unless the text says otherwise."""
    choice = ctx.choices.get("streams") or ctx.choose("streams", (2,), span, fixed=True)
    choice.structural = True
    assert isinstance(choice.chosen, int)
    return choice.chosen
