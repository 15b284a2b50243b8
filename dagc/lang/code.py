"""What the code of kernels shows beyond their headers: variables beside the arguments, which order ops as arrays do,
and races of the blocks or lanes of a launch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from dagc.base.errors import LOOK
from dagc.base.source import Source, Span
from dagc.cuda.races import (
    BLOCKS,
    UNKNOWN,
    ElementPlace,
    LaunchOf,
    Race,
    Value,
    between_blocks,
    between_lanes,
    elements_named,
)
from dagc.cuda.state import Definitions, Variable, VariableUse, definitions_of
from dagc.ir import program as ir
from dagc.ir.enums import CodeLang, Mode
from dagc.ir.sym import Const, Sym, free, substitute
from dagc.lang.scope import Context

# ---- variables beside the arguments -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _TextPlace:
    """Where a text lies: in a source, from an offset on."""

    source: Source
    text: str
    start: int

    def span(self, line: int, word: str) -> Span:
        """The first place of a word in a line of the text, from 0; else the line."""
        lines = self.text.split("\n")
        before = sum(len(each) + 1 for each in lines[:line])
        column = lines[line].find(word) if line < len(lines) else -1
        at = self.start + before + max(0, column)
        return Span(at, at + (len(word) if column >= 0 else 1), self.source.path)


def with_states(
    ctx: Context, kernels: Mapping[str, ir.Kernel], codes: Sequence[ir.CodeText], ops: Sequence[ir.Op]
) -> list[ir.Op]:
    """The ops, each kernel op with the variables that its implementations use."""
    reader = _Reader(ctx, codes)
    used = {op.name: reader.of(op, kernels[op.kernel]) for op in ops if isinstance(op, ir.KernelOp)}
    shared = _storages([use for uses in used.values() for use in uses])
    return [
        replace(op, states=tuple(_states(reader, used[op.name], shared))) if isinstance(op, ir.KernelOp) else op
        for op in ops
    ]


def _storages(uses: Sequence[VariableUse]) -> dict[Variable, str]:
    """The name of the storage of each variable. One that may hold an address shares it with all whose address is
    kept somewhere."""
    variables = list(dict.fromkeys(use.variable for use in uses))
    linked = {use.variable for use in uses if use.escapes or use.variable.pointer}
    together = any(v.pointer for v in linked) and len(linked) > 1
    group = ", ".join(f"::{v.name}" for v in variables if v in linked)
    return {v: group if together and v in linked else f"::{v.name}" for v in variables}


def _states(reader: _Reader, uses: Sequence[VariableUse], shared: Mapping[Variable, str]) -> Iterator[ir.HiddenState]:
    by_storage: dict[str, list[VariableUse]] = {}
    for use in uses:
        by_storage.setdefault(shared[use.variable], []).append(use)
    for name, of_it in by_storage.items():
        mode = Mode.INOUT if any(use.written for use in of_it) else Mode.IN
        variable = of_it[0].variable
        place = reader.places[variable.text]
        yield ir.HiddenState(name, mode, span=place.span(variable.line, variable.name.rpartition("::")[2]))


class _Reader:
    """Reads the code of kernels, together with that of the program and its files."""

    def __init__(self, ctx: Context, codes: Sequence[ir.CodeText]) -> None:
        self.ctx = ctx
        self.places: dict[str, _TextPlace] = {}
        for file in ctx.named.files:
            source = ctx.sources[file.path]
            self.places[file.path] = _TextPlace(source, source.text, 0)
        own = [self._place(code) for code in codes if code.text is not None]
        texts = [
            *((f.path, self.places[f.path].text) for f in ctx.named.files),
            *((k, self.places[k].text) for k in own),
        ]
        self.code: Definitions = definitions_of(tuple(texts))
        self.known: dict[tuple[str, ir.Device, str], tuple[VariableUse, ...]] = {}

    def _place(self, code: ir.CodeText) -> str:
        """The key of a text of the program."""
        source, text = self.ctx.sources[code.span.file], code.text or ""
        start = max(code.span.start, source.text.find(text, code.span.start))
        key = f"{source.path}:{start}"
        self.places[key] = _TextPlace(source, text, start)
        return key

    def of(self, op: ir.KernelOp, kernel: ir.Kernel) -> tuple[VariableUse, ...]:
        """What the implementations use of which the op has one."""
        wanted = {(op.device, op.variant), *((o.device, o.variant) for o in op.others)}
        uses = [u for impl in kernel.impls if (impl.device, impl.name) in wanted for u in self._of_impl(kernel, impl)]
        return tuple(dict.fromkeys(uses))

    def _of_impl(self, kernel: ir.Kernel, impl: ir.Impl) -> tuple[VariableUse, ...]:
        key = (kernel.name, impl.device, impl.name)
        if key not in self.known:
            self.known[key] = self._read(kernel, impl)
            for use in self.known[key]:
                if use.keeps:
                    self._refuse(kernel, use)
        return self.known[key]

    def _refuse(self, kernel: ir.Kernel, use: VariableUse) -> None:
        """Report that code keeps the address of an argument: what is accessed through it cannot be seen."""
        name = use.variable.name
        message = f"kernel `{kernel.name}` keeps the address of an argument in `{name}`, for code that no header names"
        at = self.places[use.text].span(use.line, name)
        declared = self.places[use.variable.text].span(use.variable.line, name)
        related = ((kernel.span, f"`{kernel.name}` is declared here"), (declared, f"`{name}` is declared here"))
        help = "pass the array to the kernels that use it"
        self.ctx.report.error("kept-address", message, at, help, related)

    def _read(self, kernel: ir.Kernel, impl: ir.Impl) -> tuple[VariableUse, ...]:
        code = impl.code
        if code is None:
            return ()
        if code.text is None:
            return self.code.uses_of(code.function) if code.function is not None else ()
        arrays = [f.name for f in kernel.formals if f.mode is not None] + [s.name for s in impl.scratch]
        values = [f.name for f in kernel.formals if f.mode is None]
        values += [t.name for t in (*kernel.tunables, *impl.tunables)]
        values += [name for name, _ in (*kernel.lets, *impl.lets)]
        return self.code.uses(self._place(code), code.text, arrays, values, kernel.name)


# ---- races within a launch ------------------------------------------------------------------------

_SIZE = 4096  # for sizes that are not known: more than the threads that are executed
_BLOCK = (256, 1, 1)


@dataclass(frozen=True, slots=True)
class _Launched:
    """A kernel with the arguments of an op, as the key of what was found in it. `texts`: the files and the code outside
    of kernels; `code`: its text, or the name of its function; `written`: the arrays that it may read and write."""

    texts: tuple[tuple[str, str], ...]
    code: str
    function: bool
    arguments: tuple[tuple[str, Value], ...]
    constants: tuple[tuple[str, int], ...]
    template: tuple[Value, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    written: tuple[str, ...]

    def launch(self) -> LaunchOf | None:
        """It with its tree; None if there is no such function."""
        definitions = definitions_of(self.texts)
        every = definitions.functions
        names: dict[str, Value] = dict(definitions.numbers())
        if self.function:
            named = every.get(self.code.rpartition("::")[2], ())
            callee = next((c for c in named if len(c.parameters) == len(self.arguments)), None)
            if callee is None:
                return None
            body = callee.body
            names |= dict(zip(callee.template, self.template, strict=False))
            names |= {p: v for p, (_, v) in zip(callee.parameters, self.arguments, strict=True)}
        else:
            body = definitions.block(self.code)
            names |= {**dict(self.constants), **dict(self.arguments)}
        return LaunchOf(body, names, self.grid, self.block, every)


@lru_cache(maxsize=256)
def _between_blocks(launched: _Launched) -> tuple[Race, ...]:
    launch = launched.launch() if launched.written and max(launched.grid) > 1 else None
    return between_blocks(launch, launched.written) if launch is not None else ()


def block_races(program: ir.Program) -> Iterator[tuple[ir.KernelOp, ir.Impl, Race]]:
    """The kernels in which a block writes an element that another block of the launch reads."""
    others = [{race.array for race in _between_blocks(launched)} for _, _, launched in _launches(program, 1)]
    for (op, impl, launched), with_small in zip(_launches(program), others, strict=True):
        for race in _between_blocks(launched):
            if race.array in with_small:
                yield op, impl, race


def suspects(program: ir.Program) -> tuple[str, ...]:
    """What may make the results of a program wrong whatever the order of its ops, as texts for a message."""
    out = [
        f"`{op.kernel}` may race with itself: a block writes `{race.write}` while another reads `{race.read}`"
        for op, _, race in block_races(program)
    ]
    for op, _, launched in _launches(program):
        launch = launched.launch()
        for race in between_lanes(launch) if launch is not None else ():
            out.append(
                f"`{op.kernel}` relies on lanes of a warp that run in step: one writes `{race.write}` and another reads"
                f" `{race.read}` without `__syncwarp()` between, which the host target does not order"
            )
    return tuple(dict.fromkeys(out))


def where_to_look(program: ir.Program) -> str:
    """The help where results are wrong."""
    again = any(verify.runs > 1 for verify in program.verifies)
    repeated = "the reference is called for each run, with the arrays that its call before returned" if again else ""
    return "; ".join([*suspects(program), LOOK, *filter(None, [repeated])])


def _launches(program: ir.Program, unknown: int = _SIZE) -> Iterator[tuple[ir.KernelOp, ir.Impl, _Launched]]:
    """The CUDA kernels that ops launch, each with the arguments of the first op. `unknown`: the value of scalars that
    are not known and no sizes: what holds for a small and a large one does not come from the value."""
    files = [(f.path, program.sources[f.path].text) for f in program.files]
    texts = [(f"{c.span.file}:{c.span.start}", c.text) for c in program.code if c.text is not None]
    seen: set[tuple[str, str]] = set()
    for op in program.kernel_ops:
        kernel = program.kernel(op.kernel)
        impl = next((i for i in kernel.impls if (i.device, i.name) == (op.device, op.variant)), None)
        if impl is None or impl.launch is None or impl.code is None or impl.code.lang is not CodeLang.CUDA:
            continue
        if (kernel.name, impl.name) not in seen:
            seen.add((kernel.name, impl.name))
            yield op, impl, _launched((*files, *texts), program, op, kernel, impl, unknown)


def _launched(
    texts: tuple[tuple[str, str], ...], program: ir.Program, op: ir.KernelOp, kernel: ir.Kernel, impl: ir.Impl,
    unknown: int,
) -> _Launched:  # fmt: skip
    code, given = impl.code, impl.launch
    assert code is not None
    assert given is not None
    env = _constants(program, op, kernel, impl)
    sizes = {name for f in kernel.formals for d in f.dims or () if d is not None for name in free(d)}
    sizes |= {name for size in given.grid for name in free(size)}
    arguments = [
        (f.name, _argument(f, a if isinstance(a, ir.Region) else substitute(a, env), f.name in sizes, unknown))
        for f, a in zip(kernel.formals, op.args, strict=True)
    ]
    arguments += [(s.name, ElementPlace(s.name, 0, view=str(s.type.size))) for s in impl.scratch]
    constants = {n: v.value for n, v in env.items() if isinstance(v, Const) and isinstance(v.value, int)}
    written = [f.name for f in kernel.formals if f.mode in (Mode.INOUT, Mode.ACCUMULATE)]
    written += [s.name for s in impl.scratch if not s.const]
    if code.text is not None:  # an array with one expression for its elements is read where it is written
        named = {name: elements_named(code.text, name) for name in written}
        written = [name for name in written if len(named[name]) > 1 or "" in named[name]]
    return _Launched(
        texts, code.text or code.function or "", code.text is None, tuple(arguments), tuple(constants.items()),
        tuple(_number(a, env) for a in code.arguments), _sizes(given.grid, env, (BLOCKS, BLOCKS, BLOCKS)),
        _sizes(given.block, env, _BLOCK), tuple(written),
    )  # fmt: skip


def _constants(program: ir.Program, op: ir.KernelOp, kernel: ir.Kernel, impl: ir.Impl) -> dict[str, Sym]:
    """The values of names that are known when compiling."""
    env: dict[str, Sym] = {}
    for param in program.params:
        if isinstance(param.value, (int, float)):
            env[param.name] = Const(param.value)
    env |= {name: value for name, value in program.lets if isinstance(value, Const)}
    env |= {d.name: Const(d.chosen) for d in program.decisions}
    env |= {name: Const(value) for name, value in op.tunables}
    for formal, arg in zip(kernel.formals, op.args, strict=True):
        if not isinstance(arg, ir.Region):
            env[formal.name] = arg
    for name, expr in (*kernel.lets, *impl.lets):
        env[name] = substitute(expr, env)
    return env


def _argument(formal: ir.Formal, value: Sym | ir.Region, size: bool, unknown: int) -> Value:
    if isinstance(value, ir.Region):
        return ElementPlace(formal.name, 0, view=str(formal.type.size))
    if not formal.type.is_integer:
        return UNKNOWN
    return value.value if isinstance(value, Const) and isinstance(value.value, int) else _SIZE if size else unknown


def _number(argument: object, env: Mapping[str, Sym]) -> Value:
    value = substitute(argument, env) if isinstance(argument, Sym) else None
    return value.value if isinstance(value, Const) and isinstance(value.value, int) else UNKNOWN


def _sizes(written: tuple[Sym, ...], env: Mapping[str, Sym], default: tuple[int, int, int]) -> tuple[int, int, int]:
    out = [1, 1, 1]
    for k, size in enumerate(written):
        value = substitute(size, env)
        out[k] = value.value if isinstance(value, Const) and isinstance(value.value, int) else default[k]
    return out[0], out[1], out[2]
