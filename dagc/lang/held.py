"""`if` whose condition is a value on the device.

A kernel of one thread compares the value, once, and keeps what it finds in an array of its own. The kernels below are
launched in any case, and return at once where the condition does not hold: so nothing waits for the host, and the order
of the ops, its proof and graphs are as without a condition. What a skipped kernel would have written stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dagc.base.source import Span
from dagc.cuda.text import names_read
from dagc.ir import program as ir
from dagc.ir.choice import FORM
from dagc.ir.enums import CodeLang, ElementType, Mode, OpKind, Place
from dagc.ir.sym import Const, Fn, Sym
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
