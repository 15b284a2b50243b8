"""Kernels whose blocks or lanes race with each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from dagc.base.errors import LOOK
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
from dagc.cuda.state import definitions_of
from dagc.ir import program as ir
from dagc.ir.enums import CodeLang, Mode
from dagc.ir.sym import Const, Sym, free, substitute

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
        every = definitions.functions()
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
    return "; ".join([*suspects(program), LOOK])


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
    written = [f.name for f in kernel.formals if f.mode is Mode.INOUT]
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
