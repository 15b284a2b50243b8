"""Horizontal fusion: several launches of one kernel as one, whose blocks are those of each, one after the other.

The calls share no result, so their blocks may run in any order, hence also in one launch. The fused kernel has the
formals of all calls, those with equal arguments once. Its text is that of the kernel: before it, a block finds its
call, and the arguments and the place in the grid that it has there. So the test is the same for all threads of a block,
and barriers and shared memory are used as in the kernel.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate, pairwise

from dagc.cuda.lexer import names_in, names_used, words_of
from dagc.forms.text import PLACES, blank, expression, fresh, moved_refused, names_in_kernel, reading_of, unused
from dagc.forms.types import Refusal, Surroundings
from dagc.ir.enums import CodeLang
from dagc.ir.plan import kernel_as_written
from dagc.ir.program import (
    CodeText,
    Device,
    Formal,
    FusedCall,
    Impl,
    Kernel,
    KernelOp,
    Launch,
    Program,
    Region,
    Tunable,
)  # fmt: skip
from dagc.ir.sym import Const, Fn, Number, Sym, Var, apply, evaluate, free, substitute

# ---- which kernels ------------------------------------------------------------------------------


def refused_together(kernel: Kernel, impl: Impl, around: Surroundings) -> Refusal | None:
    """Why a kernel cannot be part of one that joins calls; None if it can."""
    launch = impl.launch
    if impl.device is Device.CPU or impl.code is None or impl.code.lang is not CodeLang.CUDA or launch is None:
        return Refusal("it is not a CUDA kernel that is launched")
    if impl.forms == ():
        return Refusal("`forms none` of the kernel")
    for what, has in (("scratch arrays", impl.scratch), ("`prepare`", impl.prepare), ("`link`", impl.links)):
        if has:
            return Refusal(f"its implementation has {what}")
    if kernel.features or kernel.selects:
        return Refusal("it has a `select` or a `feature`")
    reading = reading_of(impl, around)
    if isinstance(reading, Refusal):
        return reading
    values = {f.name for f in kernel.formals}
    for name, value in lets_of(kernel, impl).items():
        if free(value) & values and name in words_of(reading.text):
            return Refusal(f"`let {name}` depends on arguments")
    return None


def refused(kernel: Kernel, impl: Impl, around: Surroundings, pinned: Sequence[str] = ()) -> Refusal | None:
    """Why several launches of a kernel cannot be one; None if they can. `pinned`: the tunables that calls give."""
    apart = refused_together(kernel, impl, around)
    reading = reading_of(impl, around) if apart is None else apart
    if isinstance(reading, Refusal):
        return reading
    launch = impl.launch
    assert launch is not None
    inner = [name for name in pinned if Var(name) not in launch.block]
    if inner:
        return Refusal(f"calls give it `{inner[0]}`, which is not a dimension of its block")
    meeting = next(reading.together(), None)
    if pinned and (meeting is not None or "blockDim" in words_of(reading.text)):
        return Refusal(f"calls give it `{pinned[0]}`, and the threads of its block meet, or ask for its size")
    return moved_refused(reading)


def lets_of(kernel: Kernel, impl: Impl) -> dict[str, Sym]:
    """The `let`s of an implementation, in terms of formals and tunables."""
    out: dict[str, Sym] = {}
    for name, value in (*kernel.lets, *impl.lets):
        out[name] = substitute(value, out)
    return out


# ---- the kernel and the op ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Slot:
    """A formal of the fused kernel: of the calls that have the same argument there."""

    formal: Formal
    argument: Region | Sym
    calls: tuple[int, ...]


def fused_op(calls: Sequence[KernelOp], kernel: Kernel, name: str, base: str, known: str) -> tuple[KernelOp, Kernel]:
    """The op that joins calls of one kernel, which depend on each other in nothing, and the kernel that it calls,
    `known` by this name."""
    first = calls[0]
    impl = kernel.impl_of(first.device, first.variant)
    names: list[dict[str, str]] = [{} for _ in calls]
    slots = [slot for k, formal in enumerate(kernel.formals) for slot in _slots(formal, calls, k)]
    counts = {f.name: sum(s.formal is f for s in slots) for f in kernel.formals}
    taken = names_in_kernel(kernel, impl)
    for slot in slots:
        if counts[slot.formal.name] > 1:
            new = unused(f"{slot.formal.name}_{slot.calls[0]}", taken)
            for call in slot.calls:
                names[call][slot.formal.name] = new
    tunables = dict(first.tunables)
    acall: dict[str, tuple[str, ...]] = {}
    for tunable in first.pinned:
        values = [dict(call.tunables)[tunable] for call in calls]
        if len(set(values)) > 1:
            del tunables[tunable]
            acall[tunable] = tuple(unused(f"{tunable}_{k}", taken) for k in range(len(calls)))
            for k, new in enumerate(acall[tunable]):
                tunables[new] = values[k]
                names[k][tunable] = new
    fused = _kernel(kernel, impl, slots, [tuple(n.items()) for n in names], acall, known)
    accesses = tuple(dict.fromkeys(access for call in calls for access in call.accesses))
    return KernelOp(
        name, base, known, first.device, first.variant, tuple(tunables.items()), tuple(s.argument for s in slots),
        accesses, first.stream, first.when, states=tuple(dict.fromkeys(s for c in calls for s in c.states)),
        pinned=tuple(n for n in tunables if n in first.pinned or any(n in new for new in acall.values())),
        joined=tuple(call.accesses for call in calls), span=first.span,
    ), fused  # fmt: skip


def _slots(formal: Formal, calls: Sequence[KernelOp], number: int) -> Iterator[_Slot]:
    """The formals in the place of one: one for each argument that calls have there."""
    by_argument: dict[Region | Sym, list[int]] = {}
    for k, call in enumerate(calls):
        by_argument.setdefault(call.args[number], []).append(k)
    for argument, of in by_argument.items():
        yield _Slot(formal, argument, tuple(of))


def _kernel(
    kernel: Kernel, impl: Impl, slots: Sequence[_Slot], names: Sequence[tuple[tuple[str, str], ...]],
    acall: Mapping[str, tuple[str, ...]], known: str,
) -> Kernel:  # fmt: skip
    lets = lets_of(kernel, impl)
    envs = [lets_in(lets, dict(own)) for own in names]
    formals = []
    for slot in slots:
        own, env = dict(names[slot.calls[0]]), envs[slot.calls[0]]
        dims = slot.formal.dims and tuple(None if d is None else substitute(d, env) for d in slot.formal.dims)
        formals.append(replace(slot.formal, name=own.get(slot.formal.name, slot.formal.name), dims=dims))
    requires = tuple(dict.fromkeys(substitute(r, env) for r in (*kernel.requires, *impl.requires) for env in envs))
    fixed = {f.name for f in kernel.formals}
    kept = tuple((n, v) for n, v in (*kernel.lets, *impl.lets) if not free(lets[n]) & fixed)
    own_tunables = [t for t in kernel.tunables if t.name not in acall]
    own_tunables += [Tunable(n, t.values, span=t.span) for t in kernel.tunables for n in acall.get(t.name, ())]
    of_impl = [t for t in impl.tunables if t.name not in acall]
    of_impl += [Tunable(n, t.values, span=t.span) for t in impl.tunables for n in acall.get(t.name, ())]
    calls = tuple(FusedCall(kernel, impl.name, own) for own in names)
    out = replace(
        kernel, name=known, formals=tuple(formals), impls=(), tunables=tuple(own_tunables), requires=requires,
        lets=kept, fused=calls,
    )  # fmt: skip
    plain = replace(impl, tunables=tuple(of_impl), requires=(), lets=(), code=None)
    return replace(out, impls=(fused_impl(out, plain, impl, {}),))


def lets_in(lets: Mapping[str, Sym], names: Mapping[str, str]) -> dict[str, Sym]:
    """The values of names of a kernel in terms of those of the fused one."""
    env: dict[str, Sym] = {old: Var(new) for old, new in names.items()}
    return {**env, **{name: substitute(value, env) for name, value in lets.items()}}


def fused_impl(
    fused: Kernel, plain: Impl, formed: Impl, values: Mapping[str, Sym], numbers: Mapping[str, int] | None = None
) -> Impl:
    """The implementation of a fused kernel from that of its calls, under forms of these `values`: its code, and its
    launch in their tunables. `plain`: with what else the implementation has. `numbers`: arguments that are constants in
    the text; it is repeated for calls that differ in one."""
    assert formed.launch is not None
    assert formed.code is not None
    writer = _Writer(fused, plain, formed, values, numbers or {})
    code = writer.code()
    known = tuple((name, value) for name, value in writer.numbers.items() if name in names_used(code.text or ""))
    return replace(plain, code=replace(code, literals=known), launch=writer.launch())


def calls_of(program: Program, op: KernelOp) -> tuple[KernelOp, ...]:
    """The calls that an op joins, as ops; the op itself if it joins none."""
    fused = program.kernel(op.kernel)
    args, values = dict(zip((f.name for f in fused.formals), op.args, strict=True)), dict(op.tunables)
    out = []
    for call, accesses in zip(fused.fused, op.joined, strict=bool(fused.fused)):
        names = dict(call.names)
        own = tuple(args[names.get(f.name, f.name)] for f in call.kernel.formals)
        tunables = (t.name for t in (*call.kernel.tunables, *call.impl.tunables))
        chosen = tuple((n, values[names.get(n, n)]) for n in tunables if names.get(n, n) in values)
        out.append(replace(op, kernel=call.kernel.name, tunables=chosen, args=own, accesses=accesses, joined=()))
    return tuple(out) or (op,)


_ONCE = frozenset(("__shared__", "static", "goto"))
_MANY = 1000  # for a size that is not known


def largest_call(program: Program, op: KernelOp) -> KernelOp:
    """Of the calls that an op joins one with the most blocks, as far as their numbers are known: models read this."""
    calls = calls_of(program, op)
    return op if calls == (op,) else max(calls, key=lambda call: _blocks(program, call))


def _blocks(program: Program, call: KernelOp) -> float:
    kernel, impl = kernel_as_written(program, call)
    env = {f.name: a for f, a in zip(kernel.formals, call.args, strict=True) if not isinstance(a, Region)}
    lets = {name: substitute(value, env) for name, value in lets_of(kernel, impl).items()}
    total = 1.0
    for size in impl.launch.grid if impl.launch is not None else ():
        known = substitute(size, {**lets, **env, **{name: Const(value) for name, value in call.tunables}})
        values: dict[str, Number] = {**dict.fromkeys(free(known), _MANY), **dict(call.tunables)}
        with suppress(ArithmeticError, ValueError, TypeError):
            total *= float(evaluate(known, values | program.param_values))
    return total


# ---- its text and its launch --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Writer:
    """`impl`: of a call, in terms of its own kernel, with the code of forms."""

    fused: Kernel
    plain: Impl
    impl: Impl
    values: Mapping[str, Sym]
    numbers: Mapping[str, int]

    def _of_each(self, expr: Sym) -> list[Sym]:
        """An expression of a call's launch for each of the calls, in terms of the fused kernel."""
        kernel = self.fused.fused[0].kernel
        lets = lets_of(kernel, self.fused.fused[0].impl)
        return [substitute(expr, lets_in(lets, dict(call.names))) for call in self.fused.fused]

    @property
    def _launch(self) -> Launch:
        assert self.impl.launch is not None
        return self.impl.launch

    @property
    def _grids(self) -> list[list[Sym]]:
        """Of each axis of the grid the size in each call."""
        return [self._of_each(size) for size in self._launch.grid]

    @property
    def _joined(self) -> int | None:
        """The axis along which the grids follow each other: the last with several blocks, if all calls have the same
        size along the others; None if they do not, and all blocks are in one row."""
        grids = self._grids
        axis = next((k for k in reversed(range(len(grids))) if set(grids[k]) != {Const(1)}), 0)
        return axis if all(len(set(sizes)) == 1 for k, sizes in enumerate(grids) if k != axis) else None

    def launch(self) -> Launch:
        """The grid, the largest block, and where the blocks of each call end."""
        grids, axis = self._grids, self._joined
        lengths = grids[axis] if axis is not None else [reduce(_product, sizes) for sizes in zip(*grids, strict=True)]
        ends = list(accumulate(lengths, lambda a, b: apply(Fn.ADD, a, b)))
        numbers = list(zip(self._ends, ends[:-1], strict=True))
        if axis is None:
            for names, sizes in zip(self._across, grids, strict=False):
                numbers += zip(names, sizes, strict=True)
            grid: tuple[Sym, ...] = (ends[-1],)
        else:
            grid = tuple(ends[-1] if k == axis else sizes[0] for k, sizes in enumerate(grids))
        block = tuple(_largest(self._of_each(size)) for size in self._launch.block)
        shared = None if self._launch.shared is None else _largest(self._of_each(self._launch.shared))
        return replace(self._launch, grid=grid, block=block, shared=shared, numbers=tuple(numbers), along=axis or 0)

    @property
    def _ends(self) -> list[str]:
        return [self._fresh(f"end_{k}") for k in range(len(self.fused.fused) - 1)]

    @property
    def _across(self) -> list[list[str]]:
        """Names of the numbers of blocks of each call along x, and further axes but the last; along this too, if the
        text asks for the size of the grid. Where all blocks are in one row."""
        calls, axes = range(len(self.fused.fused)), "xyz"[: len(self._grids) - (not self._sized)]
        return [[self._fresh(f"blocks_{a}_{k}") for k in calls] for a in axes]

    @property
    def _sized(self) -> bool:
        """Whether the text asks for the size of the grid."""
        return self.impl.code is not None and "gridDim" in words_of(self.impl.code.text or "")

    def code(self) -> CodeText:
        """The text: which call, its arguments and places, and the text of the kernel."""
        code, calls = self.impl.code, self.fused.fused
        assert code is not None
        text = code.text or ""
        of, call = calls[0].kernel.name, self._fresh("call")
        head = [f"// fuse: the blocks of {len(calls)} launches of {of}, one after the other."]
        new = {word: self._fresh(name) for word, name in zip(PLACES, ("tile", "tiles"), strict=True)}
        head += self._places(call, new)
        head += self._arguments(call, names_used(text))
        lines = textwrap.dedent("\n".join(renamed(text, new).split("\n")[blank(text) :])).rstrip().split("\n")
        if self._constant:
            lines = list(self._by_numbers(call, lines))
        return replace(code, text="\n".join([*head, *lines]), header=code.header + len(head) - blank(text))

    @property
    def _constant(self) -> tuple[str, ...]:
        """The formals of the kernel that differ between the calls and are numbers in each; () for a text that cannot be
        repeated in a function."""
        if not _ONCE.isdisjoint(words_of((self.impl.code.text if self.impl.code is not None else "") or "")):
            return ()
        every = [dict(call.names) for call in self.fused.fused]
        return tuple(name for name in every[0] if all(own[name] in self.numbers for own in every))

    def _by_numbers(self, call: str, lines: Sequence[str]) -> Iterator[str]:
        """The text for each run of calls with the same numbers."""
        of_calls = [[(name, dict(c.names)[name]) for name in self._constant] for c in self.fused.fused]
        begins = [k for k, own in enumerate(of_calls) if k == 0 or own != of_calls[k - 1]]
        for begin, end in zip(begins, [*begins[1:], None], strict=True):
            test = "{" if end is None else f"if ({call} < {end}) {{"
            yield test if begin == 0 else f"}} else {test}"
            yield from (f"  [[maybe_unused]] constexpr auto {name} = {own};" for name, own in of_calls[begin])
            yield from (f"  {line}".rstrip() for line in lines)
        yield "}"

    def _fresh(self, name: str) -> str:
        one = self.fused.fused[0]
        names = {n for c in self.fused.fused for _, n in c.names} | {n for s in self._launch.grid for n in free(s)}
        taken = (replace(self.fused.formals[0], name=n) for n in sorted(names))
        return fresh(name, replace(one.kernel, formals=(*one.kernel.formals, *taken)), self.impl)

    def _places(self, call: str, new: Mapping[str, str]) -> Iterator[str]:
        """The number of the call, and the block and the grid there."""
        ends, axis, tile, tiles = self._ends, self._joined, new["blockIdx"], new["gridDim"]
        along = "xyz"[axis or 0]
        yield f"const int {call} = {number_of_call(ends, along)};"
        place = f"blockIdx.{along} - ({select(call, ['0', *ends])})"
        if axis is None:
            at = self._fresh("number")
            rest = f"{at} / {tiles}.x"
            if len(self._grids) > 2:
                rest = f"{rest} % {tiles}.y, {rest} / {tiles}.y"
            yield f"const unsigned {at} = {place};"
            yield f"const dim3 {tiles}({', '.join(select(call, names) for names in self._across)});"
            rest = rest if len(self._grids) > 2 else f"{rest}, 0"
            yield f"const dim3 {tile}({at} % {tiles}.x, {rest});"
            return
        beyond = ["0"] * (2 - axis)  # where `dim3` has 1
        yield f"const dim3 {tile}({', '.join([*(f'blockIdx.{a}' for a in 'xyz'[:axis]), place, *beyond])});"
        if self._sized:
            sizes = [ends[0], *(f"{b} - {a}" for a, b in pairwise([*ends, f"gridDim.{along}"]))]
            yield f"const dim3 {tiles}({', '.join([*(f'gridDim.{a}' for a in 'xyz'[:axis]), select(call, sizes)])});"

    def _arguments(self, call: str, used: frozenset[str]) -> Iterator[str]:
        """The formals and tunables of the kernel that differ between the calls, and the end of a small block."""
        renamed = [dict(call.names) for call in self.fused.fused]
        kernel = self.fused.fused[0].kernel
        blocks = [name for size in self._launch.block for name in sorted(free(size)) if name in renamed[0]]
        for name in (name for name in renamed[0] if name not in self._constant):
            kind = "auto" if any(f.name == name for f in kernel.formals) else "const int"
            # A macro may name it, and a text that declares the name in an inner block.
            kind = kind if name in used or name in blocks else f"[[maybe_unused]] {kind}"
            yield f"{kind} {name} = {select(call, [own[name] for own in renamed])};"
        for axis, size in zip("xyz", self._launch.block, strict=False):
            if free(size) & renamed[0].keys():
                text = expression(size, kernel, self.impl)
                yield f"if (threadIdx.{axis} >= static_cast<unsigned>({text})) return;"


def number_of_call(ends: Sequence[str], along: str) -> str:
    """That of the call of a block, from 0. `ends`: of all calls but the last."""
    return " + ".join(f"(blockIdx.{along} >= {end})" for end in ends)


def select(call: str, values: Sequence[str]) -> str:
    """The value of the call with the number `call`."""
    ends = [k for k in range(1, len(values)) if values[k] != values[k - 1]]
    tests = [f"{call} < {end} ? {values[end - 1]} : " for end in ends]
    return "".join([*tests, values[-1]])


def renamed(text: str, new: Mapping[str, str]) -> str:
    """A text with other names; those of members stay."""
    done, out = 0, list[str]()
    for name in names_in(text):
        if name.text in new and not name.member:
            out += [text[done : name.start], new[name.text]]
            done = name.start + len(name.text)
    return "".join([*out, text[done:]])


def _product(a: Sym, b: Sym) -> Sym:
    return b if a == Const(1) else a if b == Const(1) else apply(Fn.MUL, a, b)


def _largest(values: Sequence[Sym]) -> Sym:
    return reduce(lambda a, b: apply(Fn.MAX, a, b), dict.fromkeys(values))
