"""Kernels: header, decisions, features, implementations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod

from dagc.cuda.lexer import KEYWORDS, words_of
from dagc.cuda.text import functions_defined, names_read
from dagc.ir import program as ir
from dagc.ir.constraints import block_fits
from dagc.ir.enums import CodeLang, ElementType, Mode, OpKind, Role
from dagc.ir.program import Device
from dagc.ir.sym import Apply, Const, Sym, Var, free, show
from dagc.lang import ast
from dagc.lang.declarations import MAX_CHOICES, dimension, feature, selects, tunable_values
from dagc.lang.evaluate import Evaluator
from dagc.lang.scope import (
    PREDEFINED,
    TYPES,
    Bound,
    Context,
    Label,
    ListValue,
    Report,
    ScalarKind,
    Scope,
    Skip,
    Storage,
    TypeValue,
    What,
    as_sym,
    element_type,
    kind_of_constant,
    kind_of_type,
    listing,
    spelled,
)

# A formal may reuse labels (x, y, z) and the names that are not visible in a kernel.
FORMALS_HIDE = frozenset((What.ARRAY, What.SCALAR, What.COMM, What.PART, What.LABEL))


@dataclass(slots=True)
class _Parts:
    """The items of a kernel or of an implementation."""

    tunables: list[ir.Tunable] = field(default_factory=list)
    lets: list[tuple[str, Sym]] = field(default_factory=list)
    requires: list[Sym] = field(default_factory=list)
    # The compile-time values under which a `require` is false, whatever the program decides; None: no `require` is.
    never: str | None = None
    forms: tuple[str, ...] | None = None


def lower_kernel(ctx: Context, kernel: ast.Kernel) -> ir.Kernel:
    """The kernel. Continues after errors; the result then lacks the wrong items."""
    codes = (item for item in ast.nodes(kernel.items) if isinstance(item, ast.Code))
    scope = Scope(parent=ctx.program, kernel=True, called=any(code.function is not None for code in codes))
    ev = Evaluator(ctx, scope)
    formals = lower_formals(ev, kernel.formals)
    parts = _Parts()
    features: list[ir.Feature] = []
    impls: list[ir.Impl] = []
    selected: list[ast.Select] = []
    for item in kernel.items:
        with ctx.report.guard():
            if isinstance(item, ast.Impl):
                impls.append(_impl(ctx, scope, item, kernel.name))
            elif isinstance(item, ast.Feature):
                features.append(feature(ev, item))
            elif isinstance(item, ast.Select):
                selected.append(item)
            elif not _common(ev, parts, item):
                wrong_place(ctx.report, item, "in a kernel")
    _check_impls(ctx.report, kernel, impls, formals)
    names = {t.name for t in parts.tunables} | {t.name for i in impls for t in i.tunables} | {"variant", "device"}
    _check_devices(ctx.report, selected, impls)
    if parts.never is not None:
        ctx.never[kernel.name, None, kernel.name] = parts.never
    impls = [impl if impl.forms is not None else replace(impl, forms=parts.forms) for impl in impls]
    impls = _possible(ctx, kernel.name, impls)
    _check_defaults(ctx.report, impls, formals, features)
    _check_features(ctx.report, features, formals)
    chosen = selects(((item, ev) for item in selected), kernel.name, names)
    return ir.Kernel(
        kernel.name, formals, tuple(impls), tuple(parts.tunables), tuple(parts.requires), tuple(parts.lets),
        tuple(features), chosen, span=kernel.name_span,
    )  # fmt: skip


def wrong_place(report: Report, item: ast.Item, place: str) -> None:
    help = f"move it to {_BELONGS.get(type(item), 'program level')}"
    report.error("wrong-place-of-item", f"{item_word(item)} is not allowed {place}", item.span, help)


_BELONGS: dict[type, str] = {
    ast.Op: "a dag", ast.Collective: "a dag", ast.Exchange: "a dag", ast.Edge: "a dag",
    ast.EdgesExplicit: "the main dag", ast.Fuse: "the main dag", ast.Message: "an exchange",
    ast.Launch: "an implementation `gpu {...}`",
    ast.Link: "an implementation", ast.Prepare: "an implementation", ast.Impl: "a kernel",
}  # fmt: skip


def item_word(item: ast.Item) -> str:
    """The name of an item in messages."""
    words: dict[type, str] = {
        ast.EnumDecl: "an enum", ast.MainDag: "the main dag", ast.SubDag: "a dag", ast.Op: "an op",
        ast.Collective: "a collective", ast.Edge: "an edge", ast.EdgesExplicit: "`edges explicit`",
        ast.For: "`for`", ast.If: "`if`", ast.Impl: "an implementation", ast.Array: "an array",
        ast.Code: "code", ast.Message: "a message", ast.Exchange: "an exchange",
        ast.Communicator: "a communicator",
    }  # fmt: skip
    return words.get(type(item), f"`{type(item).__name__.lower()}`")


# ---- formals ------------------------------------------------------------------------------------


def lower_formals(ev: Evaluator, groups: Sequence[ast.Formal]) -> tuple[ir.Formal, ...]:
    """Formals of a kernel, in order. By-value ones are declared first, since sizes use them."""
    report = ev.ctx.report
    types: dict[int, ElementType] = {}
    for i, group in enumerate(groups):
        with report.guard():
            types[i] = element_type(ev.ctx, ev.scope, group.type, group.span)
        with report.guard():
            _check_mode(report, group)
            if group.dims is None:
                for name in group.names:
                    declare_formal(ev, name, Var(name.name))
                    ev.scope.kinds[name.name] = kind_of_type(types.get(i, ElementType.I64))  # else reported
    out: list[ir.Formal] = []
    for i, group in enumerate(groups):
        dims: tuple[Sym | None, ...] | None = None
        if group.dims is not None:
            with report.guard():
                dims = tuple(dimension(ev, d) for d in group.dims)
            dims = dims or (None,)
        for name in group.names:
            if group.dims is not None:
                with report.guard():
                    declare_formal(ev, name, None)
            mode = None if dims is None else group.mode or Mode.IN
            out.append(ir.Formal(name.name, types.get(i, ElementType.F64), mode, dims, span=name.span))
    return tuple(out)


def declare_formal(ev: Evaluator, name: ast.DeclName, value: Sym | Storage | None) -> None:
    """Enter a formal in the scope. Reports reserved-name, shadowed-name, duplicate-name, bad-index (Skip)."""
    report = ev.ctx.report
    if name.indices:
        report.fail("bad-index", f"a formal takes no index: `{name.name}`", name.span, "use a plain name")
    if name.name in ("rank", "ranks", "hw") or name.name in TYPES or name.name in PREDEFINED:
        report.fail("reserved-name", f"`{name.name}` is a predefined name", name.span, "choose another name")
    ev.scope.declare(report, What.FORMAL, name.name, (), Bound(name.name, value, name.span), FORMALS_HIDE)


def _check_mode(report: Report, group: ast.Formal) -> None:
    if group.dims is not None and group.mode is None:
        help = f"write `{group.names[0].name}: in {group.type}[...]`, `out`, `inout` or `accumulate`"
        report.error("missing-mode", "an array formal needs a mode", group.span, help)
    if group.dims is None and group.mode is not None:
        help = f"drop `{group.mode.value}`; for a computed value write `{group.type}[1]`"
        report.error("missing-mode", "a by-value formal takes no mode", group.span, help)


# ---- items of kernels and implementations ---------------------------------------------------------


def _common(ev: Evaluator, parts: _Parts, item: ast.Item) -> bool:
    """let, tune, require and forms; False for other items."""
    if isinstance(item, ast.Forms):
        if parts.forms is not None:
            ev.ctx.report.error("duplicate-item", "a second list of forms", item.span, "write one list")
        parts.forms = _forms(ev.ctx.report, item)
    elif isinstance(item, ast.Let):
        value = ev.value(item.value)
        scalar = as_sym(value)
        _declare(ev, What.LET, item.name, value)
        if scalar is not None:
            parts.lets.append((item.name.name, ev.settle(scalar, item.value.span)))
    elif isinstance(item, ast.Tune):
        _tune(ev, parts, item)
    elif isinstance(item, ast.Require):
        parts.requires.append(_condition(ev, parts, item))
    else:
        return False
    return True


def _forms(report: Report, item: ast.Forms) -> tuple[str, ...]:
    """The names of a list of forms; none of `forms none`. Reports unknown-name."""
    if item.word and item.names == ("none",):
        return ()
    from dagc.forms import FORMS  # only with forms

    known = [form.name for form in FORMS]
    for name in item.names:
        if name not in known:
            help = report.did_you_mean(name, known, f"choose from {listing(known)}, or write `forms none`")
            report.fail("unknown-name", f"there is no form `{name}`", item.span, help)
    if item.word:
        message, help = "a list of forms has braces", f"write `forms {{{item.names[0]}}}`"
        report.fail("unknown-name", message, item.span, help)
    return item.names


def _condition(ev: Evaluator, parts: _Parts, item: ast.Require) -> Sym:
    """The condition under the chosen values of the program's decisions, on which the choices left depend. A condition
    that is false under these values alone excludes the kernel or implementation that contains it, and one that is
    false under compile-time values always does. Reports unsatisfiable-require if it is false without such values."""
    used, ev.ctx.used = ev.ctx.used, set()
    try:
        written = ev.sym(item.condition, (ScalarKind.BOOL,))
    finally:
        read, ev.ctx.used = ev.ctx.used, used | ev.ctx.used
    condition = ev.settle(written, item.condition.span)
    decisions = free(written) & ev.ctx.choices.keys()
    for name in decisions:
        ev.ctx.choices[name].restricts = True
    if isinstance(condition, Const) and not condition.value and not decisions:
        given = _given(ev, read)
        if not given:
            ev.ctx.report.fail("unsatisfiable-require", "this is never true", item.condition.span, "correct or drop it")
        if parts.never is None:
            parts.never = given
    return condition


def _given(ev: Evaluator, names: Iterable[str]) -> str:
    """`n = 33, real = f64, w[1] = 16`: the values of compile-time names."""
    out = []
    for name in sorted(names):
        entry = ev.scope.find(name.partition("[")[0])
        bounds = () if entry is None or entry[0].what is What.LABEL else entry[0].instances.values()
        text = next((_value_text(b.value) for b in bounds if b.display == name), None)
        if text is not None:
            out.append(f"{name} = {text}")
    return listing(out)


def _value_text(value: object) -> str | None:
    """A compile-time value in the syntax of the language; None for other values."""
    if isinstance(value, ListValue):
        items = (show(item) if isinstance(item, Apply | Var) else _value_text(item) or "" for item in value.items)
        return f"{{{listing(items)}}}"
    if isinstance(value, Label):
        return spelled(value)
    constant = value.type if isinstance(value, TypeValue) else value.value if isinstance(value, Const) else None
    return None if constant is None else spelled(constant)


def _tune(ev: Evaluator, parts: _Parts, item: ast.Tune) -> None:
    name = item.name.name
    try:
        values = tunable_values(ev, item)
    except Skip:
        ev.scope.break_name(name, What.TUNE, item.name.span, 0)
        raise
    if name == "thread":  # of an op: which one runs it
        ev.ctx.report.fail("reserved-name", f"`{name}` is a predefined decision", item.name.span, "choose another name")
    _declare(ev, What.TUNE, item.name, Var(name))
    ev.scope.kinds[name] = kind_of_constant(values[0])
    parts.tunables.append(ir.Tunable(name, values, span=item.span))


def _declare(ev: Evaluator, what: What, name: ast.DeclName, value: object) -> None:
    report = ev.ctx.report
    if name.indices:
        report.fail("bad-index", "names in a kernel take no index", name.span, "use a plain name")
    if name.name in PREDEFINED or name.name == "variant" or name.name == "device":
        report.fail("reserved-name", f"`{name.name}` is a predefined name", name.span, "choose another name")
    ev.scope.declare(report, what, name.name, (), Bound(name.name, value, name.span))  # type: ignore[arg-type]


# ---- implementations --------------------------------------------------------------------------------


def _impl(ctx: Context, kernel: Scope, item: ast.Impl, owner: str) -> ir.Impl:
    scope = Scope(parent=kernel)
    ev = Evaluator(ctx, scope)
    parts = _Parts()
    scratch: list[ir.Scratch] = []
    launches: list[ir.Launch] = []
    codes: list[ir.CodeText] = []
    links: list[str] = []
    prepares: list[ir.CodeText] = []
    for child in item.items:
        with ctx.report.guard():
            if isinstance(child, ast.Array):
                scratch += _scratch(ev, child)
            elif isinstance(child, ast.Launch):
                _refuse_second(ctx.report, launches, child, "launch")
                launches.append(_launch(ev, child, parts))
            elif isinstance(child, ast.Code):
                _refuse_second(ctx.report, codes, child, "code")
                codes.append(code_text(ev, child))
            elif isinstance(child, ast.Prepare):
                _refuse_second(ctx.report, prepares, child, "`prepare`")
                prepares.append(_prepare(ev, child))
            elif isinstance(child, ast.Link):
                links += _libraries(ctx.report, child)
            elif not _common(ev, parts, child):
                wrong_place(ctx.report, child, "in an implementation")
    device = Device.GPU if item.device is OpKind.GPU else Device.CPU
    if parts.never is not None:
        ctx.never[owner, device, item.name or "default"] = parts.never
    launch, code = launches[0] if launches else None, codes[0] if codes else None
    _check_impl(ctx.report, item, device, launch, any(isinstance(i, ast.Launch) for i in item.items), code)
    return ir.Impl(
        item.name or "default", device, launch, code, tuple(parts.tunables), tuple(scratch), tuple(parts.requires),
        tuple(parts.lets), tuple(links), prepares[0] if prepares else None, parts.forms, span=item.span,
    )  # fmt: skip


def _refuse_second(report: Report, have: Sequence[ir.Launch | ir.CodeText], item: ast.Item, what: str) -> None:
    if have:
        at = ((have[0].span, "the first is here"),)
        report.fail("duplicate-item", f"a second {what} in one implementation", item.span, "drop one", at)


def _scratch(ev: Evaluator, item: ast.Array) -> list[ir.Scratch]:
    if item.place is not None or item.role not in (None, Role.CONST):
        word = item.place.value if item.place else item.role.value if item.role else ""
        help = f"drop `{word}`: scratch lives where the implementation runs; `const` is what only `prepare` writes"
        message = "scratch of an implementation has no place, and no role but `const`"
        ev.ctx.report.error("wrong-place-of-item", message, item.span, help)
    type_ = element_type(ev.ctx, ev.scope, item.type, item.span)
    dims = tuple(_scratch_dimension(ev, d) for d in item.dims)
    if None in dims:
        ev.ctx.report.fail("bad-size", "scratch needs a size", item.span, "write an expression instead of `*`")
    for name in item.names:
        _declare(ev, What.ARRAY, name, None)
    const = item.role is Role.CONST
    return [ir.Scratch(name.name, type_, dims, const, span=name.span) for name in item.names]


def _scratch_dimension(ev: Evaluator, dim: ast.Expr | ast.Every) -> Sym | None:
    """A dimension that may use features of the kernel: real numbers, which the program checks to be whole."""
    if isinstance(dim, ast.Every):
        return None
    size = ev.settled(dim, (ScalarKind.INT, ScalarKind.REAL))
    entries = (ev.scope.find(name) for name in free(size))
    if any(entry is not None and entry[0].what is What.FEATURE for entry in entries):
        return size
    return dimension(ev, dim)


def _prepare(ev: Evaluator, item: ast.Prepare) -> ir.CodeText:
    """May raise Skip."""
    report, code = ev.ctx.report, item.code
    if code.lang is not CodeLang.CPP:
        help = "write `prepare cpp`, and launch kernels that code outside of kernels defines"
        report.fail("wrong-code-language", "`prepare` is host code", code.span, help)
    if code.file is not None and code.function is None:
        help = "name a function: `prepare cpp FUNCTION from ...`"
        report.fail("wrong-place-of-item", "a whole file cannot be a `prepare`", code.span, help)
    return code_text(ev, code)


def _launch(ev: Evaluator, item: ast.Launch, parts: _Parts) -> ir.Launch:
    report = ev.ctx.report
    for exprs, word in ((item.grid, "grid"), (item.block, "block")):
        if len(exprs) > 3:
            report.fail("bad-launch", f"`{word}` has {len(exprs)} dimensions", exprs[3].span, "give at most three")
    grid = tuple(ev.settled(e, (ScalarKind.INT,)) for e in item.grid)
    block = tuple(ev.settled(e, (ScalarKind.INT,)) for e in item.block)
    for expr, value in zip(item.block, block, strict=True):
        _check_block(ev, expr, value)
    _check_threads(report, item, block)
    _restrict(ev, item)
    shared = ev.settled(item.shared, (ScalarKind.INT,)) if item.shared else None
    return ir.Launch(grid, block, shared, span=item.span)


def _restrict(ev: Evaluator, item: ast.Launch) -> None:
    """Decisions of the program in a block restrict it, unless it fits whatever they are."""
    block = tuple(ev.sym(e, (ScalarKind.INT,)) for e in item.block)
    names = set().union(*map(free, block))
    decisions = {n: ev.ctx.choices[n] for n in sorted(names & ev.ctx.choices.keys())}
    values = [c.values for c in decisions.values()]
    few = decisions.keys() == names and prod(map(len, values)) <= MAX_CHOICES
    if few and all(block_fits(block, dict(zip(decisions, some, strict=True))) for some in product(*values)):
        return
    for decision in decisions.values():
        decision.restricts = True


def _check_block(ev: Evaluator, expr: ast.Expr, value: Sym) -> None:
    """A block size is a compile-time value: constexpr in the kernel's code."""
    for name in sorted(free(value)):
        entry = ev.scope.find(name)
        if entry is None or entry[0].what is not What.TUNE:
            message = f"a block size must be known when compiling, but `{name}` is known only when the program runs"
            ev.ctx.report.fail("not-compile-time", message, expr.span, "use a number or a `tune`")


def _check_threads(report: Report, item: ast.Launch, block: tuple[Sym, ...]) -> None:
    threads = 1
    for value in block:
        if not isinstance(value, Const) or not isinstance(value.value, int):
            return
        if value.value < 1:
            report.fail("bad-launch", f"a block of {value.value} threads", item.span, "give at least 1")
        threads *= value.value
    if threads > 1024:
        report.fail("bad-launch", f"a block of {threads} threads; GPUs allow 1024", item.span, "use a smaller block")


def _libraries(report: Report, item: ast.Link) -> tuple[str, ...]:
    """Names as they follow -l. They become words of command lines and of CMake."""
    for library in item.libraries:
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*", library) or library.endswith((".a", ".so")):
            help = 'write the name that follows -l, as `link "cublas"`; DAGC_CXXFLAGS and DAGC_NVCCFLAGS take -LDIR'
            report.fail("bad-link", f"`{library}` is not the name of a library", item.span, help)
    return item.libraries


def code_text(ev: Evaluator, code: ast.Code) -> ir.CodeText:
    """May raise Skip."""
    if code.file is None:
        return ir.CodeText(code.lang, code.text, span=code.span)
    ctx = ev.ctx
    file = ctx.named.written.get((code.span.file, code.file))
    if file is None:
        raise Skip  # it was reported that it cannot be read
    if code.function is not None:
        _check_function(ctx, code.function, file, code)
    arguments = tuple(_template_argument(ev, a) for a in code.arguments)
    return ir.CodeText(code.lang, None, code.function, file, arguments, span=code.span)


def _check_function(ctx: Context, function: str, name: str, code: ast.Code) -> None:
    """Reports unknown-name if neither the file nor its included files contain the word, which macros may define."""
    plain = function.rpartition("::")[2]
    texts = {f.name: ctx.sources[f.path].text for f in ctx.named.files}
    if plain not in KEYWORDS and any(plain in text and plain in words_of(text) for text in texts.values()):
        return
    help = ctx.report.did_you_mean(plain, sorted(functions_defined(texts[name])), f"name a function of `{code.file}`")
    ctx.report.fail("unknown-name", f"`{code.file}` has no function `{function}`", code.span, help)


def _template_argument(ev: Evaluator, expr: ast.Expr) -> Sym | ElementType:
    """A type, or a value that is known when compiling."""
    value = ev.value(expr)
    if isinstance(value, TypeValue):
        return value.type
    settled = ev.settled(expr)
    for name in sorted(free(settled)):
        entry = ev.scope.find(name)
        if entry is None or entry[0].what is not What.TUNE:
            message = f"a template argument must be known when compiling, but `{name}` is known only when it runs"
            ev.ctx.report.fail("not-compile-time", message, expr.span, "use a number, a type or a `tune`")
    return settled


def _check_impl(
    report: Report, item: ast.Impl, device: Device, launch: ir.Launch | None, launched: bool, code: ir.CodeText | None
) -> None:
    if code is not None and code.file is not None and code.function is None:
        help = f"name a function: `{code.lang.value} FUNCTION from ...`; a whole file belongs to program level"
        report.error("wrong-place-of-item", "a whole file cannot be an implementation", code.span, help)
    if code is None:
        if not any(isinstance(i, ast.Code) for i in item.items):
            report.error(
                "missing-code", "this implementation has no code", item.span, 'add `cuda """..."""` or `cpp """..."""`'
            )
        return
    if device is Device.CPU and code.lang is CodeLang.CUDA:
        report.error(
            "wrong-code-language", "CUDA code in a cpu implementation", code.span, "write `cpp`, or `gpu {...}`"
        )
    if device is Device.GPU and code.lang is CodeLang.CUDA and not launched:
        help = "add `launch grid(ceil(n / 256)) block(256)`"
        report.error("missing-launch", "a gpu implementation in CUDA needs a launch", item.span, help)
    if launch is not None and code.lang is CodeLang.CPP:
        report.error(
            "wrong-place-of-item", "a launch belongs to CUDA code", launch.span, "drop it: `cpp` code launches itself"
        )


def _check_impls(
    report: Report,
    kernel: ast.Kernel,
    impls: list[ir.Impl],
    formals: tuple[ir.Formal, ...],
) -> None:
    if not any(isinstance(i, ast.Impl) for i in kernel.items):
        help = "add `gpu {...}` or `cpu {...}`"
        report.error("missing-implementation", f"kernel `{kernel.name}` has no implementation", kernel.name_span, help)
    seen: dict[tuple[Device, str], ir.Impl] = {}
    for impl in impls:
        _check_prepare(report, impl, formals)
        key = (impl.device, impl.name)
        if key in seen:
            word = "unnamed" if impl.name == "default" else f"called `{impl.name}`"
            message = f"two {impl.device.value} implementations {word}"
            help = "name each of them"
            report.error("duplicate-name", message, impl.span, help, ((seen[key].span, "the first is here"),))
        seen[key] = impl


def _possible(ctx: Context, kernel: str, impls: list[ir.Impl]) -> list[ir.Impl]:
    """The implementations that compile-time values do not exclude; all of a device on which they exclude every one."""
    possible = [impl for impl in impls if (kernel, impl.device, impl.name) not in ctx.never]
    devices = {impl.device for impl in possible}
    return [impl for impl in impls if impl.device not in devices or impl in possible]


def _check_defaults(
    report: Report, impls: Sequence[ir.Impl], formals: Sequence[ir.Formal], features: Sequence[ir.Feature]
) -> None:
    """Check the first implementation on each device, which is the default there."""
    run_time = {*(f.name for f in formals), *(f.name for f in features), "hw.memory"}
    for first in {impl.device: impl for impl in reversed(impls)}.values():
        _check_default(report, first, run_time)


def _check_devices(report: Report, selected: Sequence[ast.Select], impls: Sequence[ir.Impl]) -> None:
    """Warn of a `select device` for which only one device can be chosen."""
    devices = {impl.device for impl in impls}
    for item in selected:
        if "device" in item.names:
            here, other = ("gpu", "cpu") if Device.GPU in devices else ("cpu", "gpu")
            message = f"there is no device to select: all implementations are for the {here}"
            help = f"add `{other} {{...}}`, or drop `device`"
            report.advise("one-device", len(devices) == 1, message, item.span, help)


def _check_features(report: Report, features: Sequence[ir.Feature], formals: Sequence[ir.Formal]) -> None:
    """Check features in code: they are computed before the first run, so they may not read what the kernel writes."""
    for each in features:
        if not isinstance(each.value, ir.CodeText):
            continue
        used = names_read(each.value.text or "")
        for formal in formals:
            if formal.mode not in (None, Mode.IN) and formal.name in used:
                message = f"feature `{each.name}` reads `{formal.name}`, which the kernel writes"
                help = "read `const` and `in` arrays: features are computed before the dag runs"
                report.error("bad-feature", message, each.value.span, help, ((formal.span, "declared here"),))


def _check_prepare(report: Report, impl: ir.Impl, formals: tuple[ir.Formal, ...]) -> None:
    """Check `prepare`: it runs before the first run, so it may only read what no run changes, and write the
    implementation's own scratch (the `const` scratch, if there is any)."""
    if impl.prepare is None:
        for scratch in impl.scratch:
            if scratch.const:
                help = "add `prepare cpp`, or drop `const`"
                message = f"`{scratch.name}` is `const`, and no `prepare` fills it"
                report.error("bad-prepare", message, scratch.span, help)
        return
    if not impl.scratch:
        help = "declare what it fills: `array NAME : TYPE[SIZE]` in this implementation"
        report.error("bad-prepare", "this `prepare` has no scratch to fill", impl.prepare.span, help)
    read = names_read(impl.prepare.text) if impl.prepare.text is not None else frozenset()
    for formal in formals:
        if formal.mode not in (None, Mode.IN) and formal.name in read:
            message = f"`prepare` uses `{formal.name}`, which the kernel writes"
            help = "read `const` arrays, and write scratch of this implementation"
            related = ((formal.span, "declared here"),)
            report.error("bad-prepare", message, impl.prepare.span, help, related)
    for scratch in impl.scratch:
        if impl.shares and not scratch.const and scratch.name in read:
            message = f"`prepare` uses `{scratch.name}`, which is not `const` as other scratch of it"
            help = (
                f"declare `{scratch.name}` `const` if it keeps what `prepare` writes; the rest is undefined at each run"
            )
            report.error("bad-prepare", message, impl.prepare.span, help, ((scratch.span, "declared here"),))


def _check_default(report: Report, impl: ir.Impl, run_time: set[str]) -> None:
    """Report a default that has a `require` on what is known only when the program runs."""
    tunables = {t.name for t in impl.tunables}
    for condition in impl.requires:
        names = sorted(n for n in free(condition) if n in run_time and n not in tunables)
        if names:
            first = f"the first {impl.device.value} implementation"
            message = f"{first} is the default, but has a `require` on `{names[0]}`"
            help = "put an implementation without requirements first"
            report.error("default-with-require", message, impl.span, help)
