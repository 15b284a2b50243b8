"""By-value arguments that ops compute: `y : gpu axpy(y, x, alpha, n)`, where `alpha` is an array of one element.

`OP.scalars` decides how the kernel gets the value: by a pointer, from which it reads the value at its start; or from
the host, which waits for the value, reads it, and launches the kernel with it. Copy and read are ops of their own, so
that others may be issued in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from dagc.base.source import Span
from dagc.cuda.text import names_read
from dagc.ir import program as ir
from dagc.ir.choice import qualified
from dagc.ir.enums import CodeLang, Mode, OpKind, Place
from dagc.ir.sym import Const, Sym, free
from dagc.lang import ast
from dagc.lang.declarations import storage
from dagc.lang.frames import Frame, GraphOut
from dagc.lang.held import after, free_name, is_text, of_device
from dagc.lang.scope import Storage

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
