"""Forms of kernels: rewritings of a kernel's text and launch that leave its results as they are.

Each form that a kernel allows is a tunable of its implementation, `form.coarsen`, which the compiler adds where forms
are asked for; `kernel_of` gives the kernel as the values of an op's tunables make it. A new form is a module with one
`Form`, and its entry in FORMS.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from itertools import product
from math import prod

from dagc.base.errors import UsageError
from dagc.base.python import Same
from dagc.base.source import Source
from dagc.cuda.lexer import names_used
from dagc.cuda.text import stores_of
from dagc.forms.coarsen import COARSEN, COLUMNS, PERSIST, STRIDED
from dagc.forms.freedom import BOUNDS, FREEDOM, LITERALS, divides_by_numbers, numbers_of_calls
from dagc.forms.functions import read_as_texts
from dagc.forms.fuse import fused_impl
from dagc.forms.index import INDEX
from dagc.forms.loops import JAM, UNROLL
from dagc.forms.pragma import PRAGMA
from dagc.forms.stream import STREAM
from dagc.forms.text import longer
from dagc.forms.tile import TILE
from dagc.forms.types import Form, Refusal, Surroundings
from dagc.forms.wide import WIDE
from dagc.ir.choice import AS_WRITTEN, FORM, qualified
from dagc.ir.enums import CodeLang, ElementType
from dagc.ir.plan import kernel_as_written
from dagc.ir.program import CodeText, Device, Impl, Kernel, KernelOp, Launch, Param, Program, Tunable, Value
from dagc.ir.sym import Apply, Const, Fn, Sym, Var, apply

# In the order in which they are applied.
FORMS: tuple[Form, ...] = (
    UNROLL, JAM, WIDE, TILE, COLUMNS, COARSEN, STRIDED, PERSIST, INDEX, STREAM, PRAGMA, BOUNDS, LITERALS, FREEDOM,
)  # fmt: skip


# ---- what a kernel allows -----------------------------------------------------------------------


def forms_of(
    kernel: Kernel, impl: Impl, around: Surroundings, among: Iterable[Form] = FORMS
) -> Iterator[tuple[Form, tuple[int, ...] | Refusal]]:
    """Each form with the values that an implementation allows, or the reason why it allows none. A fused kernel has the
    forms of its calls."""
    fused = bool(kernel.fused)
    if fused:
        kernel, impl = kernel.fused[0].kernel, kernel.fused[0].impl
    for form in among:
        alone = Refusal("it is several launches as one") if fused and form.alone else None
        yield form, alone or _legal(form, kernel, impl, around)


@lru_cache(maxsize=256)
def _legal(form: Form, kernel: Kernel, impl: Impl, around: Surroundings) -> tuple[int, ...] | Refusal:
    if impl.device is Device.CPU or impl.code is None or impl.code.lang is not CodeLang.CUDA or impl.launch is None:
        return Refusal("it is not a CUDA kernel that is launched")
    if impl.forms is not None and form.name not in impl.forms:
        return Refusal("`forms` of the kernel leaves it out")
    return form.legal(kernel, impl, around)


def explained(refusal: Refusal, impl: Impl, sources: Mapping[str, Source]) -> str:
    """The reason, with the line of the program in front where it is known: `jacobi.dag:24: ...`."""
    source = sources.get(impl.code.span.file) if impl.code is not None else None
    if refusal.line is None or source is None or impl.code is None:
        return refusal.reason
    start = impl.code.begin(source.text)
    return f"{source.path}:{source.line_column(start)[0] + refusal.line}: {refusal.reason}"


def forms_asked(program: Program, asked: str, ops: Iterable[KernelOp]) -> tuple[dict[str, int], tuple[str, ...]]:
    """What -D would give for a list of forms, `wide=4,coarsen`, in all `ops` whose kernels allow them, without a value
    the largest one; and for each kernel that does not allow one, why. Raises UsageError for a list that gives nothing.
    """
    program = read_as_texts(program)
    names, around = {form.name: form for form in FORMS}, surroundings_of(program)
    given: dict[str, int] = {}
    left: dict[str, None] = {}
    seen: set[str] = set()
    for item in asked.split(","):
        name, equals, value = (part.strip() for part in item.partition("="))
        if name not in names or (equals and not (value.isdecimal() and value.isascii())):
            close = get_close_matches(name, names, 1)
            help = f"did you mean `{close[0]}`?" if close and name not in names else f"choose from {', '.join(names)}"
            raise UsageError(f"{item.strip() or asked!r}: not a form, or a form and its value, `wide=4`", help)
        if name in seen:
            raise UsageError(f"{asked}: `{name}` is given twice", "give each form once, with one value")
        seen.add(name)
        for op in ops:
            kernel, impl = kernel_as_written(program, op)
            ((form, legal),) = forms_of(kernel, impl, around, (names[name],))
            if isinstance(legal, Refusal):
                left[f"kernel `{kernel.name}`: {name}: {explained(legal, impl, program.sources)}"] = None
            elif value and int(value) not in legal:
                left[f"kernel `{kernel.name}`: {name}={value}: it has {', '.join(map(str, legal))}"] = None
            else:
                given[qualified(op.site, form.tunable)] = int(value) if value else legal[-1]
    if not given:
        raise UsageError(f"no kernel allows {asked}", "; ".join(left) or "the program launches no kernel on a GPU")
    return given, tuple(left)


# Each combination of values is a compiled kernel, as each of other tunables that are constants of the code is.
# nvcc needs up to a second for each. Of 37 kernels on an H200 the best of all 12 combinations of `wide` and `coarsen`
# were 1.161 times as fast as the kernels as written, the best of the six that this leaves 1.159 times
# (`benchmarks.tune.forms` with 24 and with 12).
MOST_COMPILED = 12  # of an implementation, as far as forms add to them


def with_forms(kernel: Kernel, around: Surroundings, wanted: Collection[str], opened: Collection[str] = ()) -> Kernel:
    """The kernel with tunables for those of the `wanted` forms that its implementations allow. `opened`: those whose
    values are all compiled, so that they are no more than MOST_COMPILED. Of launches that are one, whose calls have
    their own, `literals` where calls differ in numbers by which they may divide, beside no other form: the faces of
    halo3d took 21.4 us in place of 29.9 on two H200s (benchmarks/results/2026-11-30-2xh200-short-6)."""
    if kernel.fused:
        return _with_numbers(kernel, around) if LITERALS.name in wanted else kernel
    return replace(kernel, impls=tuple(_with_forms(kernel, impl, around, wanted, opened) for impl in kernel.impls))


def _with_forms(
    kernel: Kernel, impl: Impl, around: Surroundings, wanted: Collection[str], opened: Collection[str]
) -> Impl:
    given = {name for name in wanted if name not in opened} | {*(impl.forms or ())}
    offered = [f for f in FORMS if f.name in wanted and (f.name in given or not f.unproven(impl))]
    legal = forms_of(kernel, impl, around, offered)
    allowed = {form: values for form, values in legal if not isinstance(values, Refusal)}
    few = _few(kernel, impl, {form: values for form, values in allowed.items() if form.name in opened})
    allowed = {
        form: few.get(form, values) for form, values in allowed.items() if form in few or form.name not in opened
    }
    tunables = (Tunable(form.tunable, values, span=impl.span) for form, values in allowed.items())
    apart = (_either(form, other) for form in allowed for other in allowed if other.name in form.excludes)
    return replace(impl, tunables=(*impl.tunables, *tunables), requires=(*impl.requires, *apart))


def _with_numbers(kernel: Kernel, around: Surroundings) -> Kernel:
    impl = kernel.impls[0]
    ((_, legal),) = forms_of(kernel, impl, around, (LITERALS,))
    own = [t.name for t in impl.tunables if t.name.startswith(FORM)]
    if LITERALS.tunable in own or isinstance(legal, Refusal) or not divides_by_numbers(kernel, around):
        return kernel
    apart = (_either(LITERALS, form) for form in FORMS if form.tunable in own)
    impl = replace(impl, tunables=(*impl.tunables, Tunable(LITERALS.tunable, legal, span=impl.span)))
    return replace(kernel, impls=(impl,), requires=(*kernel.requires, *apart))


# What is left out first where that would be more. On an H200 a tile with vectors did without `coarsen` and `freedom`,
# and the product and SYRK of PolyBench lost up to 2 % without vectors of two elements, up to a third with tiles of four
# alone (benchmarks/results/2026-11-29-h200-tiles). `columns` gained where `wide` is not legal, and little beside it
# (benchmarks/results/2026-11-29-h200-forms-3).
_LEAST = (
    ("columns", 2), ("columns", 4), ("coarsen", 8), ("coarsen", 4), ("coarsen", 2), ("wide", 2), ("freedom", 2),
    ("tile", 2), ("jam", 2), ("jam", 4), ("tile", 4), ("wide", 4), ("tile", 8), ("jam", 8),
)  # fmt: skip


def _few(kernel: Kernel, impl: Impl, allowed: Mapping[Form, tuple[int, ...]]) -> dict[Form, tuple[int, ...]]:
    """The forms with so few values that no more than MOST_COMPILED kernels are compiled."""
    blocks = impl.launch.block if impl.launch is not None else ()
    constants = prod(len(t.values) for t in (*kernel.tunables, *impl.tunables) if Var(t.name) not in blocks)
    left, least = dict(allowed), iter(_LEAST)
    while left and constants * _combinations(left) > MOST_COMPILED:
        name, value = next(least)
        left = {f: tuple(v for v in values if (f.name, v) != (name, value)) for f, values in left.items()}
        left = {form: values for form, values in left.items() if len(values) > 1}
    return left


def _combinations(of: Mapping[Form, tuple[int, ...]]) -> int:
    """The number of combinations of values in which none excludes another one."""
    return sum(
        not any(other.name in form.excludes for form in changed for other in changed)
        for values in product(*of.values())
        for changed in [[form for form, value in zip(of, values, strict=True) if value != AS_WRITTEN]]
    )


def _either(form: Form, other: Form) -> Sym:
    """The condition that one of two forms is as written."""
    plain = (Apply(Fn.EQ, (Var(each.tunable), Const(AS_WRITTEN))) for each in (form, other))
    return Apply(Fn.OR, tuple(plain))


def surroundings(
    files: Collection[tuple[str, str]], codes: Collection[CodeText], params: Collection[Param],
    lets: Collection[tuple[str, Sym]], decisions: Iterable[tuple[str, Value]],
) -> Surroundings:  # fmt: skip
    """`files`: paths and texts. `decisions`: names and chosen values."""
    texts = ((f"{c.span.file}:{c.span.start}", c.text) for c in codes if c.text is not None)
    values = ((p.name, p.value if isinstance(p.value, ElementType) else Const(p.value)) for p in params)
    known = ((name, value) for name, value in lets if isinstance(value, Const))
    named = ((name, value) for name, value in decisions if name.isidentifier() and name != "streams")
    chosen = ((name, Const(value)) for name, value in named if type(value) is int)
    return Surroundings((*files, *texts), (*values, *known, *chosen))


def surroundings_of(program: Program) -> Surroundings:
    files = [(f.path, program.sources[f.path].text) for f in program.files]
    return surroundings(
        files, program.code, program.params, program.lets, ((d.name, d.chosen) for d in program.decisions)
    )


# ---- the kernel that runs -----------------------------------------------------------------------


def kernel_of(program: Program, op: KernelOp) -> tuple[Kernel, Impl]:
    """The kernel and the implementation of an op, with the code of its forms, and with a launch in their tunables.
    Raises KeyError if it has none on its device."""
    kernel, impl = kernel_as_written(program, op)
    chosen = tuple((name, value) for name, value in op.tunables if name.startswith(FORM))
    if not chosen:
        return kernel, impl
    around = _around(Same(program))
    if dict(chosen).get(LITERALS.tunable, AS_WRITTEN) != AS_WRITTEN:
        pairs = zip(kernel.formals, op.args, strict=True)
        numbers = ((f.name, a.value) for f, a in pairs if isinstance(a, Const))
        around = replace(around, given=tuple((n, v) for n, v in numbers if isinstance(v, int)))
    return kernel, _formed_same(Same(kernel), Same(impl), Same(around), chosen)


@lru_cache(maxsize=64)
def _around(program: Same[Program]) -> Surroundings:
    return surroundings_of(program.value)


@lru_cache(maxsize=1024)
def _formed_same(
    kernel: Same[Kernel], impl: Same[Impl], around: Same[Surroundings], chosen: tuple[tuple[str, Value], ...]
) -> Impl:
    return _formed(kernel.value, impl.value, around.value, chosen)


CONSTANT_READS = frozenset(("__restrict__", "__restrict", "__ldg"))
AS_CONSTANT = "what it reads by `__restrict__` or `__ldg` counts as constant while a kernel runs"


def reads_as_constant(program: Program, code: CodeText) -> bool:
    """Whether the compiler may move loads of a kernel, of this code, to before a wait in it."""
    texts = (code, *(each for each in program.code if each.file is None))
    return code.restrict or any(not CONSTANT_READS.isdisjoint(names_used(each.text or "")) for each in texts)


def is_sent(program: Program, op: KernelOp) -> bool:
    """Whether the text of an op under its forms can write the messages that it has to (transport `put`), and wait for
    those that it reads."""
    if not (op.puts or op.awaits):
        return True
    code = kernel_of(program, op)[1].code
    if op.awaits and (code is None or reads_as_constant(program, code)):
        return False
    around = tuple(each.text for each in program.code if each.text is not None)
    found = [stores_of(code.text or "", formal, around) for formal in op.sent] if code is not None else []
    return code is not None and all(not stores.other and stores.together <= op.sent.keys() for stores in found)


def includes_of(op: KernelOp) -> Iterator[str]:
    """The headers of the runtime that the code of an op's forms uses."""
    values = dict(op.tunables)
    return (form.include for form in FORMS if form.include and values.get(form.tunable, AS_WRITTEN) != AS_WRITTEN)


@lru_cache(maxsize=1024)
def _formed(kernel: Kernel, impl: Impl, around: Surroundings, chosen: tuple[tuple[str, Value], ...]) -> Impl:
    values, settled, symbolic = dict(chosen), impl, impl.launch
    if kernel.fused:
        call = kernel.fused[0]
        formed = _formed(call.kernel, call.impl, around, chosen)
        constants = values.get(LITERALS.tunable, AS_WRITTEN) != AS_WRITTEN
        numbers = numbers_of_calls(call.kernel, call.impl, around, kernel) if constants else {}
        return fused_impl(kernel, impl, formed, {name: Const(value) for name, value in chosen}, numbers)
    for form in FORMS:
        value = values.get(form.tunable)
        if value is None or settled.launch is None or symbolic is None:
            continue
        symbolic = _launched(form, symbolic, Var(form.tunable), kernel, impl, around)
        if value != AS_WRITTEN:
            code = form.rewrite(kernel, settled, around, int(value))
            launch = _launched(form, settled.launch, Const(int(value)), kernel, impl, around)
            settled = replace(settled, code=code, launch=launch)
    return replace(impl, code=settled.code, launch=symbolic)


def _launched(form: Form, launch: Launch, value: Sym, kernel: Kernel, impl: Impl, around: Surroundings) -> Launch:
    """The launch under a value of a form."""
    number = _joined(form, value, kernel, impl, around)
    more: Sym = Const(0)
    legal = _legal(form, kernel, impl, around)
    if form.ahead is not None and not isinstance(legal, Refusal):
        each = {v: form.ahead(kernel, impl, around, v) for v in legal if v != AS_WRITTEN}
        for v in (v for v, places in each.items() if places):
            more = apply(Fn.COND, apply(Fn.EQ, number, Const(v)), Const(each[v]), more)
    return form.launch(longer(launch, 0, more), number)


def _joined(form: Form, value: Sym, kernel: Kernel, impl: Impl, around: Surroundings) -> Sym:
    """The value of a form that its launch has: AS_WRITTEN where `Form.holds` does not."""
    legal = _legal(form, kernel, impl, around)
    if form.holds is None or isinstance(legal, Refusal):
        return value
    out = value
    for each in (number for number in legal if number != AS_WRITTEN):
        joined = apply(Fn.COND, form.holds(kernel, impl, around, each), value, Const(AS_WRITTEN))
        out = apply(Fn.COND, apply(Fn.EQ, value, Const(each)), joined, out)
    return out
