"""Values on the device: `if` whose condition is one; and by-value arguments that ops compute.

For a condition, a kernel of one thread compares the value, once, and keeps what it finds in an array of its own. The
kernels below are launched in any case, and return at once where the condition does not hold: so nothing waits for the
host, and the order of the ops, its proof and graphs are as without a condition. What a skipped kernel would have
written stays as it was.

In `y : gpu axpy(y, x, alpha, n)`, `alpha` may be an array of one element. `OP.scalars` decides how the kernel gets the
value: by a pointer, from which it reads the value at its start; or from the host, which waits for the value, reads it,
and launches the kernel with it. Copy and read are ops of their own, so that others may be issued in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from dagc.base.source import Span
from dagc.cuda.text import names_read
from dagc.ir import program as ir
from dagc.ir.choice import FORM, qualified
from dagc.ir.enums import CodeLang, ElementType, Mode, OpKind, Place
from dagc.ir.sym import Const, Fn, Sym, free
from dagc.lang import ast
from dagc.lang.declarations import storage
from dagc.lang.frames import Frame, GraphOut, Held, warn_of_settled
from dagc.lang.scope import ScalarKind, Storage

_ALONE = ("tile",)  # forms of the kernel that decides: a launch of one axis has not that one
_KEPT = ("bounds", "literals")  # forms that are legal whatever the text does
_OPERATORS = {Fn.LT: "<", Fn.LE: "<=", Fn.GT: ">", Fn.GE: ">=", Fn.EQ: "==", Fn.NE: "!="}


def of_device(frame: Frame, test: ast.Expr) -> ast.Ref | None:
    """The array that the condition of an `if` names, if it compares one, or is one."""
    ref = test.left if isinstance(test, ast.Binary) and Fn(test.op.value) in _OPERATORS else test
    if not isinstance(ref, ast.Ref) or ref.name in frame.ev.loops:
        return None
    entry = frame.ev.scope.find(ref.name)
    return ref if entry and any(isinstance(b.value, Storage) for b in entry[0].instances.values()) else None


def decided(out: GraphOut, frame: Frame, item: ast.If, ref: ast.Ref) -> Iterator[tuple[tuple[ast.Item, ...], Frame]]:
    """The op that decides, and each branch with its frame. May raise Skip."""
    given = storage(frame.ev, ref)
    _check_element(frame, ref, given)
    operator = Fn.NE
    bound: Sym = Const(0)
    if isinstance(item.test, ast.Binary):
        kinds = (ScalarKind.INT, ScalarKind.REAL) if given.array.type.is_float else (ScalarKind.INT,)
        operator, bound = Fn(item.test.op.value), frame.ev.settled(item.test.right, kinds)
        if not frame.ev.loops:  # of several rounds, one bound may be at an end of the range
            warn_of_settled(frame.ctx.report, given, operator, bound, item.test.right.span)
    elif given.array.type.is_float:
        help = f"write `if {ref.name} < BOUND`"
        frame.ctx.report.fail("bad-condition", f"`{given.label}` is compared with nothing", item.test.span, help)
    entry = frame.enter_op(_name(frame, ref, item.test.span))
    array = ir.Array(entry.display, ElementType.I32, (Const(1),), Place.DEVICE, None, span=item.test.span)
    frame.declared.arrays.append(array)
    frame.ctx.used.add(array.name)
    holds = Storage(array, ir.Region(array.name), array.dims, array.name)
    kernel = _deciding(out, frame, given.array.type, operator, item.test.span)
    always = replace(frame, held=None)
    uses = [(always, holds, Mode.OUT), (frame, given, Mode.IN)]
    uses += [(always, frame.held.holds, Mode.IN)] if frame.held is not None else []
    accesses = tuple(out.use(of, entry.display, used, mode, item.test.span) for of, used, mode in uses)
    args: tuple[ir.Region | Sym, ...] = (*(used.region for _, used, _ in uses), bound)
    out.ops.append(
        ir.KernelOp(
            entry.display, entry.base, kernel.name, ir.Device.GPU, "default", (), args, accesses,
            when=frame.condition, span=item.test.span,
        )
    )  # fmt: skip
    entry.names.append(entry.display)
    frame.ctx.reached.update((item.span.file, item.span.start, each) for each in (True, False))
    for items, wanted in ((item.then, True), (item.otherwise or (), False)):
        yield items, replace(frame, held=Held(holds, wanted, frame.held))


def _check_element(frame: Frame, ref: ast.Ref, given: Storage) -> None:
    related = ((given.array.span, "declared here"),)
    if given.dims != (Const(1),) or given.region.start is not None:
        message, help = f"`{given.label}` is not an array of one element", "name one into which an op writes the value"
        frame.ctx.report.fail("bad-condition", message, ref.span, help, related)
    if given.array.place is not Place.DEVICE:
        message = f"`{given.label}` is declared `on {given.array.place.value}`, and the device decides"
        help = "declare it on the device; what the host decides ends the repetition: `dag repeat TIMES until ...`"
        frame.ctx.report.fail("bad-condition", message, ref.span, help, related)


def _name(frame: Frame, ref: ast.Ref, span: Span) -> ast.Ref:
    """`if_err[i]`, with the variables of the loops around; that of another `if` gets a number, as where the program has
    an array, or another value, of the name."""
    index = tuple(ast.Ref(variable, span=span) for variable in frame.ev.loops)
    trailers = (ast.Index(index, span=span),) if index else ()
    base = f"if_{ref.name}"
    names = frame.ops.decided.setdefault(base, {})
    number = len(names) + 1
    while span not in names:
        name = base if number == 1 else f"{base}_{number}"
        if not frame.ev.scope.find(name) and name not in frame.ops.families:
            names[span] = name
        number += 1
    return ast.Ref(names[span], trailers, span=span)


def _deciding(out: GraphOut, frame: Frame, of: ElementType, operator: Fn, span: Span) -> ir.Kernel:
    """The kernel that compares an element with a bound: 1, 0, or -1 where that around does not hold."""
    outer = "" if frame.held is None else f"outer[0] != {int(frame.held.wanted)} ? -1 : "
    name = f"decide_{of.value}_{operator.name.lower()}"
    if frame.held is not None:
        name += "_in_if" if frame.held.wanted else "_in_else"
    name = free_name(out, name)
    if name not in out.kernels:
        one = (Const(1),)
        bound = ElementType.F64 if of.is_float else ElementType.I64
        formals = [ir.Formal("holds", ElementType.I32, Mode.OUT, one), ir.Formal("value", of, Mode.IN, one)]
        formals += [ir.Formal("outer", ElementType.I32, Mode.IN, one)] if outer else []
        formals.append(ir.Formal("bound", bound, None, None))
        value = "double" if of.is_float else "std::int64_t"
        text = f"holds[0] = {outer}({value})value[0] {_OPERATORS[operator]} bound ? 1 : 0;\n"
        code = ir.CodeText(CodeLang.CUDA, text, span=span)
        launch = ir.Launch((Const(1),), (Const(1),), None)
        impl = ir.Impl("default", ir.Device.GPU, launch, code, (), (), (), (), (), forms=_ALONE)
        out.kernels[name] = ir.Kernel(name, tuple(formals), (impl,), (), (), (), (), (), span=span)
        out.deciding.add(name)
    out.called.add(name)
    return out.kernels[name]


def free_name(out: GraphOut, name: str) -> str:
    """The name of a kernel that is added: none of the program's."""
    while name in out.kernels and name not in out.deciding:
        name += "_"
    return name


# ---- what is below --------------------------------------------------------------------------------


def skipping(out: GraphOut, frame: Frame, item: ast.Op, kernel: ir.Kernel) -> ir.Kernel:
    """A kernel whose first argument is what was decided, and which returns at once where it must not run. May raise
    Skip."""
    assert frame.held is not None
    impls = [impl for impl in kernel.impls if is_text(impl)]
    if item.kind is not OpKind.GPU or not impls or kernel.selects:
        wrong = "is chosen by a `select`" if kernel.selects else "has no CUDA text of its own"
        message = f"the device decides whether `{kernel.name}` runs, and it {wrong}"
        if item.kind is not OpKind.GPU:
            message = f"the device decides whether `{kernel.name}` runs, which is no gpu op"
        refuse(frame, message, item.span)
    name = free_name(out, f"{kernel.name}_{'if' if frame.held.wanted else 'else'}")
    if name not in out.kernels:
        taken = {f.name for f in kernel.formals}.union(*(names_read(i.code.text or "") for i in impls if i.code))
        flag = next(n for n in ("holds", "holds_", "dagc_holds") if n not in taken)
        first = f"if ({flag}[0] != {int(frame.held.wanted)}) return;"
        formal = ir.Formal(flag, ElementType.I32, Mode.IN, (Const(1),), span=kernel.span)
        others = (replace(f, mode=Mode.INOUT) if f.mode is Mode.OUT else f for f in kernel.formals)
        skips = tuple(after(impl, first) for impl in impls)
        out.kernels[name] = replace(kernel, name=name, formals=(formal, *others), impls=skips)
        out.deciding.add(name)
    return out.kernels[name]


def refuse(frame: Frame, message: str, span: Span) -> None:
    """May raise Skip."""
    help = "move it out of the `if`; below, all are gpu ops whose kernels have CUDA text"
    frame.ctx.report.fail("bad-condition", message, span, help)


def is_text(impl: ir.Impl) -> bool:
    code = impl.code
    text = code is not None and code.lang is CodeLang.CUDA and code.text is not None and code.function is None
    return text and impl.device is ir.Device.GPU and impl.launch is not None and impl.prepare is None


def after(impl: ir.Impl, first: str) -> ir.Impl:
    """With those of its forms that do not depend on what the text was."""
    assert impl.code is not None
    lines = (impl.code.text or "").split("\n")
    begin = next((k for k, line in enumerate(lines) if line.strip()), 0)
    indent = " " * (len(lines[begin]) - len(lines[begin].lstrip()))
    text = "\n".join((f"{indent}{first}", *lines[begin:]))
    code = replace(impl.code, text=text, header=impl.code.header + 1 - begin)
    forms = tuple(name for name in _KEPT if impl.forms is None or name in impl.forms)
    own = {f"{FORM}{name}" for name in forms}
    tunables = tuple(t for t in impl.tunables if not t.name.startswith(FORM) or t.name in own)
    return replace(impl, code=code, forms=forms, tunables=tunables)


SCALARS = "scalars"  # the name of the decision
POINTER, HOST = "pointer", "host"


@dataclass(frozen=True, slots=True)
class Computed:
    """A by-value formal, and the array that has its value. `passed`: what stands for it if the host reads it."""

    formal: ir.Formal
    given: Storage
    span: Span
    passed: Storage | None = None


def computed(frame: Frame, item: ast.Op, kernel: ir.Kernel, args: list[ast.Expr]) -> tuple[Computed, ...]:
    """The arrays of one element that a gpu op passes to by-value formals. May raise Skip."""
    found: list[Computed] = []
    for formal, arg in zip(kernel.formals, args, strict=True):
        ref = of_device(frame, arg) if formal.dims is None and isinstance(arg, ast.Ref) else None  # not `a > 0`
        found += [Computed(formal, storage(frame.ev, ref), arg.span)] if ref is not None else []
    for one in found:
        _check(frame, item, kernel, one)
    return tuple(found)


def _check(frame: Frame, item: ast.Op, kernel: ir.Kernel, one: Computed) -> None:
    formal, array = one.formal, one.given.array
    related = ((formal.span, f"formal `{formal.name}` is {formal.type.value}"),)
    wrong, help = "", f"pass a scalar; to pass the array, declare the formal `in {formal.type.value}[1]`"
    if one.given.dims != (Const(1),) or one.given.region.start is not None:
        wrong = f"array `{one.given.label}` is passed to a by-value formal"
        help = help.replace("a scalar;", "a scalar, or an array of one element;")
    elif array.type is not formal.type:
        wrong = f"`{one.given.label}` holds {array.type.value}; {formal.type.value} is expected"
    elif item.kind is not OpKind.GPU or array.place is Place.ANY:
        wrong = f"array `{one.given.label}` is passed to a by-value formal, which gpu ops take from one place only"
    elif formal.name in _of_sizes(kernel):
        wrong = f"sizes depend on `{formal.name}`, and `{one.given.label}` is known when the op runs"
        help = "pass a scalar"
    if wrong:
        frame.ctx.report.fail("type-mismatch", wrong, one.span, help, related)


def _of_sizes(kernel: ir.Kernel) -> set[str]:
    """Names that what is known before the op runs depends on: sizes, launches, conditions, features."""
    used: list[Sym | None] = [d for f in kernel.formals for d in f.dims or ()]
    used += [*kernel.requires, *(e for _, e in kernel.lets), *(a for s in kernel.selects for a in s.args)]
    used += [f.value for f in kernel.features if not isinstance(f.value, ir.CodeText)]
    for impl in kernel.impls:
        used += [*impl.requires, *(e for _, e in impl.lets), *(d for s in impl.scratch for d in s.dims)]
        if impl.launch is not None:
            used += [*impl.launch.grid, *impl.launch.block, impl.launch.shared, *(e for _, e in impl.launch.numbers)]
    texts = [f.value.text for f in kernel.features if isinstance(f.value, ir.CodeText)]
    texts += [impl.prepare.text for impl in kernel.impls if impl.prepare is not None]
    read = {name for text in texts for name in names_read(text or "")}
    return read.union(*(free(e) for e in used if e is not None))


def chosen_way(frame: Frame, item: ast.Op, base: str, kernel: ir.Kernel, values: tuple[Computed, ...]) -> str:
    """How the values get to the kernel; by a pointer only from the device, to kernels whose text is in the program. Ops
    of one name share the choice, also those of other kernels: one that has no such way has its own."""
    texts = all(is_text(impl) for impl in kernel.impls) and all(v.given.array.place is Place.DEVICE for v in values)
    ways = ((POINTER,) if texts else ()) + ((HOST,) if frame.held is None else ())
    if not ways:
        message = f"the device decides whether `{kernel.name}` runs, and the host cannot read its argument"
        help = "move it out of the `if`, or give the kernel CUDA text of its own"
        frame.ctx.report.fail("bad-condition", message, item.span, help)
    name = qualified(base, SCALARS)
    choice = frame.ctx.choices.get(name) or frame.ctx.choose(name, ways, item.span)
    choice.structural = True
    return str(choice.chosen) if choice.chosen in ways else ways[0]


# ---- by a pointer ----------------------------------------------------------------------------------


def by_pointer(out: GraphOut, kernel: ir.Kernel, values: tuple[Computed, ...]) -> ir.Kernel:
    """The kernel with arrays in place of these formals, whose text begins with reads of the values."""
    places = (str(kernel.formals.index(v.formal)) for v in values)  # names of formals may be parts of others
    name = free_name(out, "_".join([kernel.name, "there", *places]))
    if name not in out.kernels:
        texts = (impl.code.text or "" for impl in kernel.impls if impl.code is not None)
        taken = {f.name for f in kernel.formals}.union(*map(names_read, texts))
        there = dict(_there(values, taken))
        reads = [f"[[maybe_unused]] {v.formal.type.cxx} {v.formal.name} = {there[v.formal.name]}[0];" for v in values]
        one = (Const(1),)
        formals = tuple(
            replace(f, name=there[f.name], mode=Mode.IN, dims=one) if f.name in there else f for f in kernel.formals
        )
        impls = tuple(after(impl, " ".join(reads)) for impl in kernel.impls)
        out.kernels[name] = replace(kernel, name=name, formals=formals, impls=impls)
        out.deciding.add(name)
    out.called.add(name)
    return out.kernels[name]


def _there(values: tuple[Computed, ...], taken: set[str]) -> Iterator[tuple[str, str]]:
    for value in values:
        name = f"{value.formal.name}_there"
        while name in taken:
            name += "_"
        yield value.formal.name, name


# ---- by the host ----------------------------------------------------------------------------------


def by_host(
    out: GraphOut, frame: Frame, item: ast.Op, name: str, base: str, values: tuple[Computed, ...]
) -> tuple[Computed, ...]:
    """Adds the ops that bring the values to the host and read them."""
    return tuple(replace(v, passed=_read(out, frame, item, (name, base), v)) for v in values)


def _read(out: GraphOut, frame: Frame, item: ast.Op, names: tuple[str, str], value: Computed) -> Storage:
    display, base = (f"{n}.{value.formal.name}" for n in names)
    out.packed = out.packed or (f"the host reads `{value.given.label}` for this op", value.span)
    there = value.given
    if there.array.place is Place.DEVICE:
        there = _buffer(out, frame, f"{base}.copy", value, Place.PINNED)
        out.use(frame, f"{display}.copy", value.given, Mode.IN, value.span)
        out.use(frame, f"{display}.copy", there, Mode.OUT, value.span)
        frame.ctx.expand_op(item.span)
        ends = there.region, value.given.region
        out.ops.append(ir.CopyOp(f"{display}.copy", f"{base}.copy", *ends, when=frame.condition, span=item.span))
    passed = _buffer(out, frame, f"{base}.value", value, Place.HOST)
    kernel = _reading(out, value)
    accesses = [out.use(frame, f"{display}.read", s, m, value.span) for s, m in ((passed, Mode.OUT), (there, Mode.IN))]
    frame.ctx.expand_op(item.span)
    out.ops.append(
        ir.KernelOp(
            f"{display}.read", f"{base}.read", kernel.name, ir.Device.CPU, "default", (),
            tuple(a.region for a in accesses), tuple(accesses), when=frame.condition, span=item.span,
        )
    )  # fmt: skip
    return passed


def _buffer(out: GraphOut, frame: Frame, name: str, value: Computed, place: Place) -> Storage:
    """Ops of one name share it: memory does not grow with the iterations of a loop, whose rounds are alike."""
    of, dims = value.formal.type, (Const(1),)
    if name in out.passed and out.passed[name].array.type is not of:  # of another kernel
        name = f"{name}.{of.value}"
    if name not in out.passed:
        array = ir.Array(name, of, dims, place, None, span=value.span)
        frame.declared.arrays.append(array)
        frame.ctx.used.add(name)
        out.passed[name] = Storage(array, ir.Region(name), dims, name)
    return out.passed[name]


def _reading(out: GraphOut, value: Computed) -> ir.Kernel:
    """The kernel that reads an element on the host."""
    of = value.formal.type
    name = free_name(out, f"read_{of.value}")
    if name not in out.kernels:
        formals = tuple(ir.Formal(n, of, mode, (Const(1),)) for n, mode in (("value", Mode.OUT), ("there", Mode.IN)))
        code = ir.CodeText(CodeLang.CPP, "value[0] = there[0];\n", span=value.span)
        impl = ir.Impl("default", ir.Device.CPU, None, code, (), (), (), (), ())
        out.kernels[name] = ir.Kernel(name, formals, (impl,), (), (), (), (), (), span=value.span)
        out.deciding.add(name)
    out.called.add(name)
    return out.kernels[name]


def arguments(values: tuple[Computed, ...]) -> Mapping[str, Sym]:
    """By formal, what stands for a value that the host has read."""
    return {v.formal.name: ir.passed_value(v.passed.array.name) for v in values if v.passed is not None}
