"""The settings of a site that may be launched: the program's constraints and the device's limits."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace

from dagc.base.errors import UsageError
from dagc.choice.types import Site
from dagc.forms import is_sent, kernel_of, surroundings_of
from dagc.ir import sym
from dagc.ir.choice import FORM, VARIANT, Choice
from dagc.ir.plan import answers_of, feature_variable, is_open, only_explored, open_tunables, open_variants, variants_of
from dagc.ir.program import CodeText, Graph, Impl, Kernel, KernelOp, Program, Region
from dagc.ir.sym import Const, Number, Sym, Var, at_run_time, free, specialised, substitute

GRID_LIMITS = (2**31 - 1, 65535, 65535)
BLOCK_LIMITS = (1024, 1024, 64)
SHARED_LIMIT = 48 << 10  # bytes of a block that every GPU supports


def open_sites(graph: Graph, wanted: Iterable[str] = (), variants: bool = False) -> tuple[Site, ...]:
    """All ops with open tunables; with `wanted`, those whose op or kernel is named. `variants`: if a `select` names the
    variant of an op, the variant and what the same `select` names are open, and nothing else of the op.

    Raises UsageError if there is none.
    """
    names = dict.fromkeys(wanted)
    by_op: dict[str, Site] = {}
    for index, op in enumerate(graph.ops):
        if not isinstance(op.op, KernelOp) or op.op.site in by_op:
            continue
        if names and not {op.op.site, op.op.base, op.op.kernel} & names.keys():
            continue
        site = _site(graph, index, op.op, variants)
        if site is not None:
            by_op[op.op.site] = site
        elif op.gpu and op.op.tunables and names:
            open_tunables(graph.program, [op.op.site])  # raises
    ops = {o.op.site: o.op for o in graph.ops if isinstance(o.op, KernelOp)}
    known = {name for site in by_op for name in (site, ops[site].kernel, ops[site].base)}
    if not by_op or any(name not in known for name in names):
        bad = next((name for name in names if name not in known), "")
        every = ((i, o.op) for i, o in enumerate(graph.ops) if isinstance(o.op, KernelOp))
        have = [op.site for i, op in every if _site(graph, i, op, variants) is not None]
        raise UsageError(
            f"no op or kernel `{bad}` has anything to tune"
            if bad
            else "no kernel of the program has `tune` choices that are open",
            f"one of: {', '.join(dict.fromkeys(have))}"
            if have
            else only_explored(graph.program, ops.values())
            or "declare `tune bx in {32, 64, 128}` in a kernel, or drop -D OP.NAME=...",
        )
    return tuple(by_op.values())


def launched(graph: Graph) -> tuple[Site, ...]:
    """All kernel ops on the GPU, with what is open in each as in `open_sites` with variants, which may be nothing."""
    by_op: dict[str, Site] = {}
    for index, op in enumerate(graph.ops):
        if isinstance(op.op, KernelOp) and op.gpu and op.op.site not in by_op:
            by_op[op.op.site] = _site(graph, index, op.op, True) or Site(op.op.site)
    return tuple(by_op.values())


def open_site(graph: Graph, op: str, variants: bool) -> Site:
    """The site of the op of this base name. Raises UsageError if nothing of it is open."""
    return open_sites(graph, (op,), variants)[0]


def _site(graph: Graph, index: int, op: KernelOp, variants: bool) -> Site | None:
    """The site of an op; None if nothing of it is open."""
    opened = open_variants(graph.program, op) if variants else ()
    if opened:
        return Site(op.site, open=opened, variants=answers_of(graph.program, op))
    if graph.ops[index].gpu and is_open(graph.program, op):
        return Site(op.site, open=open_tunables(graph.program, [op.site]))
    return None


def check_in(graph: Graph, site: Site) -> None:
    """Raises UsageError if the same program at another size has no such site, or one without some of the variants."""
    op = op_of(graph, site)
    found = _site(graph, place_of(graph, site), op, bool(site.variants))
    have = found.open_variants if found is not None else (op.answer,)
    if not set(site.open_variants) <= set(have):
        raise UsageError(
            f"op `{op.site}` has other variants at this size: {', '.join(have)}, instead of"
            f" {', '.join(site.open_variants)}",
            "write the `require` of the variant on the kernel's arguments, which is tested at each size, not on params",
        )
    if found is None and not site.variants:
        raise _absent(site)


def place_of(graph: Graph, site: Site) -> int:
    """The index of the first op of a site. Raises UsageError if the program has none at this size."""
    for index, op in enumerate(graph.ops):
        if isinstance(op.op, KernelOp) and op.op.site == site.name:
            return index
    raise _absent(site)


def _absent(site: Site) -> UsageError:
    return UsageError(f"the program has no op `{site.name}` at this size", "drop this size")


def op_of(graph: Graph, site: Site) -> KernelOp:
    """The first op of a site. Raises UsageError if the program has none at this size."""
    op = graph.ops[place_of(graph, site)].op
    assert isinstance(op, KernelOp)
    return op


def op_under(program: Program, op: KernelOp, choice: Choice) -> KernelOp:
    """The op with the variant of a choice, if it has one, and with its values of tunables."""
    variant, own = choice.variant, choice.own
    one = next(one for one in variants_of(program, op) if one.answer == variant) if variant else op
    return replace(one, tunables=tuple((name, own.get(name, value)) for name, value in one.tunables))


def bindings(program: Program, op: KernelOp, choice: Choice) -> dict[str, Sym]:
    """The values of names in the kernel's expressions under a choice: sizes remain per-rank scalars, and code features
    `feature.OP.NAME`. `op`: with the variant of the choice."""
    return _bindings(program, *kernel_of(program, op), op, choice)


def _bindings(program: Program, kernel: Kernel, impl: Impl, op: KernelOp, choice: Choice) -> dict[str, Sym]:
    env: dict[str, Sym] = {d.name: Const(d.chosen) for d in program.decisions}
    env |= {n: Const(v) for n, v in op.tunables}
    env |= {n: Const(v) for n, v in choice.own.items() if n != VARIANT}
    for formal, arg in zip(kernel.formals, op.args, strict=True):
        if not isinstance(arg, Region):
            env[formal.name] = arg
    for _ in range(2):  # features may depend on lets, and lets on features
        for name, expr in (*kernel.lets, *impl.lets):
            env[name] = specialised(expr, env)
        for feature in kernel.features:
            value = feature.value
            measured = Var(feature_variable(op, feature.name))
            env[feature.name] = measured if isinstance(value, CodeText) else specialised(value, env)
    return env


def legal_settings(graph: Graph, site: Site, hardware: Mapping[str, int]) -> tuple[Choice, ...]:
    """Settings that the program's `require`s and the device's block limits allow, the default first.

    `hardware`: values of `hw.*` by name without the prefix (`max_threads_per_block`, ...), and `most_shared_per_block`,
    bytes of dynamic shared memory that a kernel can ask for. Sizes are not known here; `fits` checks a `require` on
    them.
    """
    program, op = graph.program, op_of(graph, site)
    hw: dict[str, Sym] = {f"hw.{n}": Const(v) for n, v in hardware.items()}
    out = []
    for choice in site.every:
        one = op_under(program, op, choice)
        kernel, impl = kernel_of(program, one)
        env = _bindings(program, kernel, impl, one, choice)
        allowed = all(_may_hold(specialised(specialised(c, env), hw)) for c in (*kernel.requires, *impl.requires))
        if allowed and _block_fits(impl, env, hardware) and is_sent(program, one):
            out.append(choice)
    return tuple(sorted(out, key=lambda s: s != site.default))


def settled_by(graph: Graph, sites: Iterable[Site]) -> Hashable:
    """What decides which settings of sites are legal, and which can be launched with the same scalars: equal for most
    configurations of a program."""
    program = graph.program
    ops = [op_of(graph, site) for site in sites]
    kernels = [program.kernel(op.kernel) for op in ops]
    named = frozenset().union(*map(_named, kernels))
    chosen = tuple((d.name, d.chosen) for d in program.decisions if d.name in named)
    return tuple(sites), tuple(ops), tuple(kernels), chosen, surroundings_of(program)


def _named(kernel: Kernel) -> frozenset[str]:
    """The names in expressions on which the settings of its ops depend."""
    launches = (impl.launch for impl in kernel.impls if impl.launch is not None)
    expressions = [
        *kernel.requires, *(e for _, e in kernel.lets),
        *(f.value for f in kernel.features if not isinstance(f.value, CodeText)),
        *(e for impl in kernel.impls for e in (*impl.requires, *(e for _, e in impl.lets))),
        *(e for one in launches for e in (*one.grid, *one.block, *([one.shared] if one.shared is not None else []))),
    ]  # fmt: skip
    return frozenset().union(*map(free, expressions))


def _may_hold(condition: Sym) -> bool:
    return not (isinstance(condition, Const) and not condition.value)


def block_of(program: Program, op: KernelOp, choice: Choice) -> tuple[int, int, int]:
    """The block in threads. Raises sym.UnboundName if a dimension depends on a size."""
    kernel, impl = kernel_of(program, op)
    assert impl.launch is not None
    return _sizes(impl.launch.block, _bindings(program, kernel, impl, op, choice), {})


def _block_fits(impl: Impl, env: Mapping[str, Sym], hardware: Mapping[str, int]) -> bool:
    if impl.launch is None:
        return True
    block = _sizes(impl.launch.block, env, {})
    threads = block[0] * block[1] * block[2]
    most = min(hardware.get("max_threads_per_block", 1024), 1024)
    if not 0 < threads <= most or not all(0 < b <= limit for b, limit in zip(block, BLOCK_LIMITS, strict=True)):
        return False
    return _shared_fits(impl, env, hardware.get("most_shared_per_block", SHARED_LIMIT))


def _shared_fits(impl: Impl, env: Mapping[str, Sym], most: int) -> bool:
    """Whether the dynamic shared memory fits; memory that depends on sizes is checked at the launch."""
    if impl.launch is None or impl.launch.shared is None:
        return True
    size = substitute(impl.launch.shared, env)
    return not isinstance(size, Const) or int(size.value) <= most


def _sizes(expressions: Iterable[Sym], env: Mapping[str, Sym], values: Mapping[str, Number]) -> tuple[int, int, int]:
    sizes = (int(sym.evaluate(substitute(e, env), values)) for e in expressions)
    x, y, z = [*sizes, 1, 1, 1][:3]
    return x, y, z


def grid_of(graph: Graph, site: Site, choice: Choice, scalars: Mapping[str, Number]) -> tuple[int, int, int]:
    """The grid in blocks, for the values of the rank's scalars, of a variant that is launched."""
    program, op = graph.program, op_under(graph.program, op_of(graph, site), choice)
    kernel, impl = kernel_of(program, op)
    assert impl.launch is not None
    return _sizes(impl.launch.grid, _bindings(program, kernel, impl, op, choice), scalars)


def fits(graph: Graph, site: Site, choice: Choice, values: Mapping[str, Number], constraints: bool = True) -> bool:
    """Whether the setting can be launched and is allowed. An empty grid launches nothing, so it cannot be timed.

    `values`: the rank's scalars, computed features (`feature.OP.NAME`) and `hw.memory`. The program checks a `require`
    of anything else. Without `constraints`, only those on the memory of the device count.
    """
    program, op = graph.program, op_under(graph.program, op_of(graph, site), choice)
    kernel, impl = kernel_of(program, op)
    env = _bindings(program, kernel, impl, op, choice)
    conditions = [substitute(c, env) for c in (*kernel.requires, *impl.requires)]
    if not all(_holds(c, values) for c in conditions if constraints or "hw.memory" in free(c)):
        return False
    if impl.launch is None:
        return True
    try:
        grid = _sizes(impl.launch.grid, env, values)
    except sym.UnboundName:
        return True  # it depends on a feature that is not known yet
    return all(0 < g <= limit for g, limit in zip(grid, GRID_LIMITS, strict=True))


def _holds(condition: Sym, values: Mapping[str, Number]) -> bool:
    if not free(condition) <= values.keys():
        return True
    try:
        return bool(at_run_time(condition, values))
    except (ArithmeticError, ValueError, TypeError):
        return False  # a feature that is not finite


def text_and_grid(program: Program, op: KernelOp) -> Hashable:
    """What a model reads of the kernel of an op under its forms."""
    _, impl = kernel_of(program, op)
    values = {name: Const(value) for name, value in op.tunables if name.startswith(FORM)}
    grid = impl.launch.grid if impl.launch is not None else ()
    return impl.code, tuple(substitute(size, values) for size in grid)
