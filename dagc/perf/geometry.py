"""The geometry of a launch as rational expressions: grid, warps with work, resident blocks, and the data they move.

All are expressions in the program's scalars, the block (`blockDim_x`, ...), the registers of a thread and the limits of
the GPU. Models (`volume`, `mwp_cwp`, `counted`) add their terms to its assignments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import sympy as sp

from dagc.base.python import Same
from dagc.base.source import Spanned
from dagc.cuda.accesses import Accesses, accesses_of
from dagc.cuda.constants import constants_of, sure_macros, type_names_of
from dagc.cuda.expressions import Guard, real, symbol
from dagc.cuda.lexer import expanded, macros_of
from dagc.cuda.syntax import NotUnderstood
from dagc.forms import kernel_of
from dagc.forms.functions import text_of
from dagc.forms.fuse import largest_call
from dagc.ir.choice import FORM
from dagc.ir.enums import ElementType, Mode
from dagc.ir.plan import AXES
from dagc.ir.program import Impl, Kernel, KernelOp, Program, Region
from dagc.ir.sym import Apply, Const, Fn, Sym, Var, free, substitute
from dagc.perf.algebra import ceil_div, int_div, maximum, minimum
from dagc.perf.guards import WARP, LaunchShape, extents_of, joint
from dagc.perf.program import (
    Assign,
    Number,
    Parameter,
    ParameterKind,
    RationalProgram,
    Statement,
    assignments,
    expressions,
)

# ---- inputs of the models for an op ----


def read_accesses(program: Program, op: KernelOp, known: Mapping[str, int] | None = None) -> Accesses:
    """Raises NotUnderstood, whose message begins with the place. Tunables that are block dimensions become
    `blockDim_x`, others `tunable` symbols, except those whose values are `known`: these are numbers, so branches on
    them are decided. Of an op that joins calls, those of its largest one."""
    op = largest_call(program, op)
    kernel, impl = kernel_of(program, op)
    constants: Mapping[str, sp.Expr] = {}
    type_names: Mapping[str, str] = {}
    if impl.code is not None and impl.code.text is None and impl.code.function is not None:
        impl, constants, type_names = _of_file(Same(program), Same(kernel), Same(impl))
    if impl.code is None or impl.code.text is None or impl.launch is None:
        raise NotUnderstood(f"{_place(program, impl)}kernel `{kernel.name}` has no CUDA text")
    arrays = {f.name: f.type.size for f in kernel.formals if f.mode is not None}
    values: dict[str, sp.Expr] = {**constants, **{f.name: symbol(f.name) for f in kernel.formals if f.mode is None}}
    for name, _ in op.tunables:
        values[name] = sp.Integer(known[name]) if known and name in known else tunable(name)
    for axis, size in zip(AXES, impl.launch.block, strict=False):
        if isinstance(size, Var) and size.name in values:
            values[size.name] = symbol(f"blockDim_{axis}")
    for param in program.params:
        if isinstance(param.value, (int, float)) and param.name not in values:
            values[param.name] = sp.Integer(param.value) if isinstance(param.value, int) else sp.Float(param.value)
    for decision in program.decisions:
        if isinstance(decision.chosen, int) and decision.name not in values:
            values[decision.name] = sp.Integer(int(decision.chosen))
    for name, expr in (*program.lets, *kernel.lets, *impl.lets):
        converted = to_sympy(expr)
        if converted is not None:
            values[name] = converted.subs({symbol(n): v for n, v in values.items()})
    constant = {f.name for f in kernel.formals if f.mode is Mode.IN}
    types = {**type_names} | {p.name: _C_TYPES[p.value] for p in program.params if isinstance(p.value, ElementType)}
    try:
        return accesses_of(_plain(program, impl.code.text), arrays, values, constant, types, impl.code.restrict)
    except NotUnderstood as error:
        raise NotUnderstood(f"{_place(program, impl.code, error.line or 0)}{error.message}") from None


@lru_cache(maxsize=256)
def _of_file(
    program: Same[Program], kernel: Same[Kernel], impl: Same[Impl]
) -> tuple[Impl, dict[str, sp.Expr], dict[str, str]]:
    """The implementation with the text of its function, and the constants and types that this may name. Raises
    NotUnderstood."""
    sources, code = program.value.sources, impl.value.code
    files = {file.name: (file.path, sources[file.path].text) for file in program.value.files}
    whole = "\n".join(text for _, text in files.values())
    macros = sure_macros(whole)
    found = text_of(kernel.value, impl.value, files, macros)
    if found is None:
        where = f"kernel `{kernel.value.name}` is a function of `{code.file if code else ''}`, which models do not read"
        raise NotUnderstood(f"{_place(program.value, impl.value)}{where}")
    return replace(impl.value, code=found.code), constants_of(expanded(whole, macros)), type_names_of(whole)


def _plain(program: Program, text: str) -> str:
    """The text of a kernel with the macros that it, or code outside of kernels, defines."""
    macros = macros_of((*(code.text for code in program.code if code.text is not None), text))
    return expanded(text, macros) if macros else text


def _place(program: Program, node: Spanned, lines: int = 0) -> str:
    """`file:line: ` of a line of a text of the program, "" if it is not known."""
    source = program.sources.get(node.span.file)
    return f"{source.path}:{source.line_column(node.span.start)[0] + lines}: " if source is not None else ""


def tunable(name: str) -> sp.Symbol:
    """A tunable that is not a dimension of the block: a parameter of the models, as the block is."""
    return symbol(f"{name.replace('.', '_')}{TUNABLE}")


TUNABLE = "_tunable"
_C_TYPES = {t: f"{'u' * t.value.startswith('u')}int{t.size * 8}_t" for t in ElementType}
_C_TYPES |= {ElementType.F32: "float", ElementType.F64: "double", ElementType.BOOL: "bool"}


# `hw.NAME` of the language: the descriptor's name, or the value
_HARDWARE: dict[str, str | int] = {
    "hw.sms": "multiprocessors", "hw.max_threads_per_sm": "max_threads_per_multiprocessor",
    "hw.max_blocks_per_sm": "max_blocks_per_multiprocessor", "hw.shared_per_sm": "shared_per_multiprocessor",
    "hw.registers_per_sm": "registers_per_multiprocessor", "hw.l2_bytes": "l2_bytes",
    "hw.warp_size": 32, "hw.max_threads_per_block": 1024, "hw.shared_per_block": 48 << 10,
}  # fmt: skip
_FUNCTIONS: dict[Fn, Callable[..., sp.Expr]] = {
    Fn.ADD: sp.Add, Fn.MUL: sp.Mul, Fn.MIN: sp.Min, Fn.MAX: sp.Max, Fn.FLOOR: sp.floor, Fn.CEIL: sp.ceiling,
    Fn.SUB: lambda a, b: a - b, Fn.DIV: lambda a, b: a / b, Fn.NEG: lambda a: -a,
    Fn.MOD: lambda a, b: a - b * sp.floor(a / b),
}  # fmt: skip


def _joined(size: Sym, formed: bool = False) -> Sym:
    """A size of a launch with the first alternative of those that forms have, for rows that begin at vectors."""
    if not isinstance(size, Apply):
        return size
    formed = formed or any(name.startswith(FORM) for name in free(size.args[0]))
    if size.fn is Fn.COND and formed:
        return _joined(size.args[1], formed)
    return replace(size, args=tuple(map(_joined, size.args)))


def to_sympy(expr: Sym) -> sp.Expr | None:
    """A symbolic scalar as a SymPy expression; None if it is not arithmetic."""
    if isinstance(expr, Const):
        return sp.sympify(expr.value) if not isinstance(expr.value, (str, bool)) else None
    if isinstance(expr, Var):
        known = _HARDWARE.get(expr.name, expr.name)
        return symbol(known) if isinstance(known, str) else sp.Integer(known)
    args = [to_sympy(a) for a in expr.args]
    return None if None in args or expr.fn not in _FUNCTIONS else _FUNCTIONS[expr.fn](*args)


_RELATIONS = {Fn.EQ: sp.Eq, Fn.NE: sp.Ne, Fn.LT: sp.Lt, Fn.LE: sp.Le, Fn.GT: sp.Gt, Fn.GE: sp.Ge}


def conditions_of(expr: Sym) -> tuple[sp.Basic, ...]:
    """The comparisons in a condition, which must all hold; parts that are not comparisons of numbers are skipped."""
    if not isinstance(expr, Apply):
        return ()
    if expr.fn is Fn.AND:
        return tuple(relation for arg in expr.args for relation in conditions_of(arg))
    if expr.fn not in _RELATIONS:
        return ()
    left, right = (to_sympy(a) for a in expr.args)
    return () if left is None or right is None else (_RELATIONS[expr.fn](left, right),)


# ---- grid, warps, resident blocks ----

SHARED_UNIT = 128  # bytes
HARDWARE = {
    "multiprocessors": ("", "SMs of the GPU"),
    "max_threads_per_multiprocessor": ("threads", "resident on an SM"),
    "max_blocks_per_multiprocessor": ("blocks", "resident on an SM"),
    "registers_per_multiprocessor": ("registers", "of 32 bits"),
    "shared_per_multiprocessor": ("bytes", "of shared memory of an SM"),
    "shared_reserved_per_block": ("bytes", "of shared memory that each block costs besides"),
    "l1_bytes": ("bytes", "of the L1 cache that loads can use"),
    "l2_bytes": ("bytes", "of the L2 cache"),
}
MEANINGS = {
    "blockDim_x": "threads of a block along x", "blockDim_y": "threads of a block along y",
    "blockDim_z": "threads of a block along z", "registers": "of a thread", "log2_threads": "of a block",
    "static_shared": "bytes of shared memory that the text of the kernel declares",
}  # fmt: skip


def parameter_of(name: str) -> Parameter:
    """The meaning of a symbol of the models: a limit of the GPU, a part of the setting, or a size."""
    if name in HARDWARE:
        return Parameter(name, ParameterKind.HARDWARE, Number.INTEGER, *HARDWARE[name])
    if name in MEANINGS:
        number = Number.REAL if name == "log2_threads" else Number.INTEGER
        return Parameter(name, ParameterKind.PROGRAM, number, "", MEANINGS[name])
    if name.endswith(TUNABLE):
        return Parameter(name, ParameterKind.PROGRAM, Number.INTEGER, "", "a tunable")
    return Parameter(name, ParameterKind.DATA, Number.INTEGER, "", "size")


class Builder:
    """Collects assignments; equal expressions are assigned once."""

    def __init__(self) -> None:
        self.body: list[Statement] = []
        self._names: dict[sp.Expr, sp.Symbol] = {}

    def let(self, name: str, value: sp.Expr, unit: str = "", meaning: str = "", *, integer: bool = False) -> sp.Expr:
        value = sp.sympify(value)
        if value.is_Atom:
            return value
        if value not in self._names:
            known = {a.name for a in assignments(tuple(self.body))}
            names = (name, *(f"{name}_{number}" for number in range(2, len(known) + 3)))
            variable = (symbol if integer else real)(next(n for n in names if n not in known))
            kind = Number.INTEGER if integer else Number.REAL
            self.body.append(Assign(variable.name, value, kind, unit, meaning))
            self._names[value] = variable
        return self._names[value]


def sizes_of(program: Program, op: KernelOp) -> dict[sp.Symbol, sp.Expr]:
    """By-value formals -> expressions in per-rank scalars, which may have the names of other formals: replace all at
    once, before anything that has values in these scalars."""
    op = largest_call(program, op)
    kernel, _ = kernel_of(program, op)
    out: dict[sp.Symbol, sp.Expr] = {}
    for formal, arg in zip(kernel.formals, op.args, strict=True):
        if not isinstance(arg, Region):
            value = to_sympy(arg)
            if value is not None:
                out[symbol(formal.name)] = value
    return out


def covered(grid: sp.Expr, block: sp.Expr) -> sp.Expr:
    """Threads with work of `grid` blocks of `block` threads each.

    `ceil(E / block)` blocks have a thread for each of E, and the threads beyond leave. In any other grid (a block for
    each row, a fixed number of blocks whose threads loop) all threads of all blocks have work.
    """
    if block == 1:
        return grid
    if isinstance(grid, (sp.ceiling, sp.floor)):
        elements = sp.expand(grid.args[0] * block)
        if isinstance(grid, sp.floor):  # (E + block - 1) / block in integers
            elements = sp.expand(elements - block + 1)
        if not elements.free_symbols & block.free_symbols:
            return grid.func(elements)
    return grid * block


class Geometry:
    """Geometry for one op. `place` writes the assignments and sets the attributes that depend on the block."""

    def __init__(
        self, program: Program, op: KernelOp, *, one_thread: bool = False, shared: sp.Expr | int = 0,
        guards: Iterable[Guard] = (),
    ) -> None:  # fmt: skip
        """`one_thread`: one thread of each block works. `shared`: bytes of shared memory of a block that the kernel's
        text declares, without those that the launch requests. `guards`: conditions that hold for all threads with
        work."""
        op = largest_call(program, op)
        self.b = Builder()
        self.one_thread = one_thread
        self.kernel, self.impl = kernel_of(program, op)
        self.sizes = sizes_of(program, op)
        self.bx, self.by, self.bz = (symbol(f"blockDim_{a}") for a in AXES)
        self.block, self.grid = self._launch(op)
        # Threads with work in each dimension; blocks of one thread: the grid.
        self.extent = self.grid if one_thread else [covered(*s) for s in zip(self.grid, self.block, strict=True)]
        shape = {symbol(f"blockDim_{a}"): n for a, n in zip("xyz", self.block, strict=True)}
        self.regarded: frozenset[Guard] = frozenset()  # the guards that extents and numbers of warps follow
        self._guards = frozenset() if one_thread else frozenset(guards)
        self._names = {scalar.name for scalar in program.scalars} | {s.name for s in (self.bx, self.by, self.bz)}
        self._names |= {tunable(n).name for n, _ in op.tunables}
        self.array_bytes = self._array_bytes()
        self.shared = sp.sympify(shared).xreplace(self.sizes).subs(shape) + self._dynamic(op)

    def _array_bytes(self) -> dict[str, sp.Expr]:
        """Bytes of the arrays that the kernel is called with, by formal, where their extents can be read."""
        out = {}
        for formal in self.kernel.formals:
            extents = [to_sympy(e) if e is not None else None for e in formal.dims or ()]
            if formal.mode is not None and extents and None not in extents:
                out[formal.name] = sp.Float(formal.type.size) * sp.prod(extents).xreplace(self.sizes)
        return out

    def _dynamic(self, op: KernelOp) -> sp.Expr:
        """Bytes of shared memory that the launch requests; 0 if they cannot be read."""
        asked = self.impl.launch.shared if self.impl.launch is not None else None
        size = to_sympy(asked) if asked is not None else None
        return sp.Integer(0) if size is None else size.xreplace({**self._values(op), **self.sizes})

    def _values(self, op: KernelOp) -> dict[sp.Symbol, sp.Expr]:
        """The symbols of tunables in the models: dimensions of the block, or parameters of their own; forms have their
        values, since each gives another text."""
        assert self.impl.launch is not None
        names = dict(zip(self.impl.launch.block, AXES, strict=False))
        out = {
            symbol(n): symbol(f"blockDim_{names[Var(n)]}") if Var(n) in names else tunable(n) for n, _ in op.tunables
        }
        return out | {symbol(n): sp.Integer(v) for n, v in op.tunables if n.startswith(FORM)}

    def _launch(self, op: KernelOp) -> tuple[list[sp.Expr], list[sp.Expr]]:
        """Block and grid, three dimensions each; 1 where a size cannot be read."""
        assert self.impl.launch is not None
        values = self._values(op)

        def of(sizes: Sequence[Sym]) -> list[sp.Expr]:
            read = [to_sympy(_joined(size)) for size in sizes]
            known = [sp.Integer(1) if one is None else one.xreplace({**values, **self.sizes}) for one in read]
            return known + [sp.Integer(1)] * (3 - len(known))

        return of(self.impl.launch.block), of(self.impl.launch.grid)

    def place(self) -> None:
        """Assign everything, in a computable order."""
        b, one = self.b, self.one_thread
        bx, one_row = self.bx, sp.Integer(1)
        dimensions = len(self.impl.launch.block) if self.impl.launch is not None else 1
        by, bz = (self.by if dimensions > 1 else one_row), (self.bz if dimensions > 2 else one_row)
        self.by, self.bz = by, bz
        extent, ranges = extents_of(self._guards, self.launch)
        narrow, self.extent = extent != list(self.launch.extent), extent
        ex, ey, ez = (
            b.let(f"extent_{a}", e, "threads", f"with work along {a}", integer=True)
            for a, e in zip("xyz", self.extent, strict=True)
        )
        self.extent = [ex, ey, ez]
        threads = b.let("threads", bx * by * bz, "threads", "of a block", integer=True)
        warps = b.let("warps", ceil_div(threads, WARP), "warps", "of a block", integer=True)
        blocks = b.let("blocks", self.grid[0] * self.grid[1] * self.grid[2], "blocks", "of the grid", integer=True)
        self.lx = b.let("lanes_x", minimum(bx, WARP), "threads", "of a warp along x", integer=True)
        self.ly = sp.Integer(1)
        if by != 1:
            rows = minimum(by, int_div(WARP, self.lx))
            self.ly = b.let("lanes_y", rows, "threads", "of a warp along y", integer=True)
        self.lz = sp.Integer(1)
        if bz != 1:
            planes = minimum(bz, int_div(WARP, self.lx * self.ly))
            self.lz = b.let("lanes_z", planes, "threads", "of a warp along z", integer=True)
        passing, lines = joint(self._guards, self.launch)
        self.regarded, self.share = frozenset(ranges | lines), sp.Float(1) * passing.grid
        active = blocks if one else blocks * warps if bz != 1 else self._active_warps(ex, ey, ez, threads)
        active = b.let("active_warps", active, "warps", "that have work", integer=True)
        if lines:
            active = b.let("passing_warps", active * passing.warps, "warps", "whose places pass the text's conditions")
        whole = active if one or bz != 1 else self.share * ex * ey * ez / WARP
        self.whole = b.let("whole_warps", whole, "warps", "that the threads with work would fill")
        sms = symbol("multiprocessors")
        resident = self._resident(threads, warps)
        busiest = b.let("busiest", ceil_div(blocks, sms), "blocks", "on the busiest SM", integer=True)
        together = b.let("together", minimum(resident, busiest) * warps, "warps", "resident on it", integer=True)
        share = sp.Float(1) * busiest * active / blocks
        on_sm = b.let("warps_sm", share, "warps", "with work, on the busiest SM, in all")
        self.working = self.busy = blocks
        if narrow or lines:
            of_range = sp.prod([ceil_div(e, n) for e, n in zip(self.extent, self.block, strict=True)])
            self.working = b.let("working_blocks", of_range * passing.blocks, "blocks", "that have work")
        self.busy = busiest if self.working == blocks else sp.Float(1) * busiest * self.working / blocks
        self.threads, self.warps, self.blocks, self.active = threads, warps, blocks, active
        self.resident, self.busiest, self.together, self.on_sm = resident, busiest, together, on_sm

    @property
    def launch(self) -> LaunchShape:
        """The shape of the launch, to evaluate conditions on a thread's indices; lanes of a warp are 1 before
        `place`."""
        values = {symbol(f"blockDim_{a}"): n for a, n in zip(AXES, self.block, strict=True)}
        values |= {symbol(f"gridDim_{a}"): n for a, n in zip(AXES, self.grid, strict=True)}
        lanes = tuple(getattr(self, n, sp.Integer(1)) for n in ("lx", "ly", "lz"))
        extent, block, grid = (tuple(v) for v in (self.extent, self.block, self.grid))
        return LaunchShape(extent, block, grid, lanes, values | self.sizes, self._names)

    def _active_warps(self, ex: sp.Expr, ey: sp.Expr, ez: sp.Expr, threads: sp.Expr) -> sp.Expr:
        bx, by, b = self.bx, self.by, self.b
        whole = b.let("whole_x", int_div(ex, bx), integer=True)
        wide = (whole * int_div(bx, WARP) + ceil_div(ex - whole * bx, WARP)) * ey * ez
        if by == 1:
            narrow = ceil_div(ex, bx) * ey * ez
        else:
            rows = b.let("whole_y", int_div(ey, by), integer=True)
            of_rows = rows * maximum(1, int_div(threads, WARP)) + ceil_div((ey - rows * by) * bx, WARP)
            narrow = ceil_div(ex, bx) * of_rows * ez
        return sp.Piecewise((wide, bx >= WARP), (narrow, True))

    def _resident(self, threads: sp.Expr, warps: sp.Expr) -> sp.Expr:
        """Blocks on an SM at a time, limited by threads, blocks, registers and shared memory."""
        rounded = 256 * ceil_div(symbol("registers") * WARP, 256)
        allocated = self.b.let("warp_registers", rounded, "registers", "a warp is given", integer=True)
        by_threads = int_div(symbol("max_threads_per_multiprocessor"), WARP * warps)
        by_registers = int_div(symbol("registers_per_multiprocessor"), allocated * warps)
        limits = [symbol("max_blocks_per_multiprocessor"), by_threads, by_registers]
        if self.shared != 0:
            shared = SHARED_UNIT * ceil_div(self.shared + symbol("shared_reserved_per_block"), SHARED_UNIT)
            block = self.b.let("block_shared", shared, "bytes", "of shared memory a block is given", integer=True)
            limits.append(int_div(symbol("shared_per_multiprocessor"), block))
        most = minimum(*limits)
        return self.b.let("resident", maximum(1, most), "blocks", "an SM holds at a time", integer=True)

    def parameters(self, known: Mapping[str, Parameter] | None = None) -> tuple[Parameter, ...]:
        """Parameters of everything used and not assigned, by name; `known` are those that the model declares."""
        body = tuple(self.b.body)
        used = {s.name for value in expressions(body) for s in value.free_symbols} - {a.name for a in assignments(body)}
        return tuple(known[n] if known is not None and n in known else parameter_of(n) for n in sorted(used))


def _required(program: Program, geometry: Geometry, op: KernelOp) -> list[sp.Basic]:
    """The `require`s that depend on sizes. Those on tunables and the GPU alone are checked with the settings."""
    kernel, impl = geometry.kernel, geometry.impl
    assert impl.launch is not None
    blocks = {s.name: f"blockDim_{a}" for s, a in zip(impl.launch.block, AXES, strict=False) if isinstance(s, Var)}
    tunables = {name: blocks.get(name, tunable(name).name) for name, _ in op.tunables}
    env: dict[str, Sym] = {name: Var(known) for name, known in tunables.items()}
    for name, expr in (*kernel.lets, *impl.lets):
        env[name] = substitute(expr, env)
    sizes = {scalar.name for scalar in program.scalars}
    out = []
    for require in (*kernel.requires, *impl.requires):
        for relation in conditions_of(substitute(require, env)):
            condition = relation.xreplace(geometry.sizes)
            names = {s.name for s in condition.free_symbols}
            if names & sizes and names <= sizes | set(tunables.values()):
                out.append(condition)
    return out


def launchable_program(program: Program, op: KernelOp) -> RationalProgram:
    """1 if the grid has blocks and is within CUDA's limits, and the kernel's `require`s on sizes hold, else 0.
    Parameters as for `volume_program`."""
    geometry = Geometry(program, op)
    conditions = _required(program, geometry, op)
    for size, limit in zip(geometry.grid, (2**31 - 1, 65535, 65535), strict=True):
        if size != 1:
            conditions += [size >= 1, size <= limit]
    good = sp.Piecewise((1, sp.And(*conditions)), (0, True)) if conditions else sp.Integer(1)
    parameters = tuple(parameter_of(name) for name in sorted(s.name for s in good.free_symbols))
    return RationalProgram(
        f"{geometry.kernel.name}_launchable", parameters, (Assign("good", good, Number.INTEGER),), "good", "",
        "CUDA C++ Programming Guide, technical specifications",
    )  # fmt: skip
