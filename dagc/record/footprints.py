"""What kernels touch of arrays where it is not recorded, as on a GPU: read from their texts, with the values of each
launch. It is all of what they may touch, and may be more.

An address is followed as an interval over the indices of threads that the kernel's conditions admit, and over the
counters of its loops; an array with an address that is not known is touched as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias

import sympy as sp

from dagc.cuda.accesses import accesses_of
from dagc.cuda.constants import constants_of, sure_macros, type_names_of
from dagc.cuda.expressions import CountedLoop, MemoryAccess, either, is_known, real, symbol
from dagc.cuda.lexer import directives, expanded
from dagc.cuda.syntax import NotUnderstood
from dagc.ir.plan import AXES
from dagc.record.log import PIECES, Alloc, LaunchCall, Memory, RankLog, TouchedMemory, joined
from dagc.record.loop import Window
from dagc.record.sources import KernelSource, Sources, template_values
from dagc.record.sources import value_of as number_of

Number: TypeAlias = int | float | Fraction  # exact, or infinite: not known
Ends: TypeAlias = tuple[Number, Number]  # the least and the largest value
_ALL: Ends = (-math.inf, math.inf)
_PASSES = 4  # over the conditions of an access


def with_footprints(logs: Sequence[RankLog], found: Sequence[Window], sources: Sources) -> tuple[RankLog, ...]:
    """The logs, each launch of the rounds with what it touches, where its kernel's text says it."""
    return tuple(_of_rank(log, window, sources) for log, window in zip(logs, found, strict=True))


def _of_rank(log: RankLog, window: Window, sources: Sources) -> RankLog:
    memory, events = Memory(), []
    for index, event in enumerate(log.events):
        memory.apply(event)
        if isinstance(event, LaunchCall) and window.starts[0] <= index < window.starts[-1] and not event.touched:
            event = replace(event, touched=tuple(_touched(event, memory, sources)))
        events.append(event)
    return replace(log, events=tuple(events))


def _touched(event: LaunchCall, memory: Memory, sources: Sources) -> Iterator[TouchedMemory]:
    source = sources.kernel(event)
    if source is None or not source.body:
        return
    pieces = pieces_of_launch(event, source, sources.seen_by(source.file))
    of: dict[int, tuple[Alloc, list[tuple[int, int]], list[tuple[int, int]]]] = {}
    for index, one in enumerate(event.args):
        place = memory.place(one.p) if one.is_pointer else None
        if place is None or not isinstance(place.block, int):
            continue
        block = memory.block(place.block)
        known = of.setdefault(place.block, (block, [], []))
        if pieces is None:
            return
        for store, all_ in zip((False, True), known[1:], strict=True):
            for low, high in pieces.get((index, store), ()):
                begin, end = max(place.offset + low, 0), min(place.offset + high, block.bytes)
                all_ += [(int(begin), int(end))] if begin < end else []
    for number, (_, reads, writes) in of.items():
        ends = ([end for piece in joined(its, PIECES) for end in piece] for its in (reads, writes))
        yield TouchedMemory(n=event.n, memory=number, reads=tuple(next(ends)), writes=tuple(next(ends)))


Touches: TypeAlias = Mapping[tuple[int, bool], tuple[Ends, ...]]  # (argument, whether it is stored to) -> bytes


def pieces_of_launch(event: LaunchCall, source: KernelSource, text: str) -> Touches | None:
    """Bytes from each pointer that the launch may touch; None for a kernel whose text is not understood. `text`: the
    files that the kernel sees, for their macros."""
    numbers = {
        name: int(number_of(one))
        for name, one in zip(source.parameters, event.args, strict=True)
        if not one.is_pointer and (one.of[0] in "iu" or one.of == "bool")
    }
    pointers = tuple(
        (i, name, max(one.bytes, 1), bool(one.const))
        for i, (name, one) in enumerate(zip(source.parameters, event.args, strict=True))
        if one.is_pointer
    )
    reals = tuple(
        name
        for name, one in zip(source.parameters, event.args, strict=True)
        if not one.is_pointer and one.of in ("f32", "f64")
    )
    template = template_values(event.kernel, source)
    values = tuple(sorted(numbers.items()))
    return _pieces(_Launch(source.body, text, pointers, values, reals, template, event.grid, event.block))


@dataclass(frozen=True, slots=True)
class _Launch:
    """`pointers`: position, name, bytes of an element, and whether nothing is stored to it; `template`: values and
    types of the parameters of its template."""

    body: str
    text: str
    pointers: tuple[tuple[int, str, int, bool], ...]
    numbers: tuple[tuple[str, int], ...]
    reals: tuple[str, ...]
    template: tuple[tuple[str, str], ...]
    grid: tuple[int, ...]
    block: tuple[int, ...]


@lru_cache(maxsize=512)
def _pieces(launch: _Launch) -> Touches | None:
    if {directive.name for directive in directives(launch.body)} - {"pragma", "define"}:
        return None  # which part of it is compiled is not known
    arrays = {name: size for _, name, size, _ in launch.pointers}
    macros = sure_macros(launch.text)
    types = type_names_of(launch.text) | {
        name: text for name, text in launch.template if not text.lstrip("-").isdecimal()
    }
    values = constants_of(expanded(launch.text, macros))
    values |= {name: sp.Integer(int(text)) for name, text in launch.template if name not in types}
    values |= {name: sp.Integer(number) for name, number in launch.numbers}
    values |= {name: real(name) for name in launch.reals}
    constant = {name for _, name, _, const in launch.pointers if const}
    try:
        read = accesses_of(expanded(launch.body, macros), arrays, values, constant, types, calls=True)
    except NotUnderstood:
        return None
    found: dict[tuple[int, bool], list[Ends]] = {}
    for access in read.accesses:
        index = next((i for i, name, _, _ in launch.pointers if name == access.array), None)
        if index is None or access.shared:
            continue
        ends = _Intervals(launch.grid, launch.block).of(access)
        for store in (False, True) if access.atomic else (access.store,):
            if ends is not None:
                found.setdefault((index, store), []).append(ends)
    return {key: tuple(dict.fromkeys(ends)) for key, ends in found.items()}


class _Intervals:
    """The intervals of indices, of a launch with this grid and block."""

    def __init__(self, grid: Sequence[int], block: Sequence[int]) -> None:
        self._ranges: dict[sp.Symbol, Ends] = {}
        self._sizes: dict[sp.Symbol, sp.Expr] = {}
        self._least: list[sp.Expr] = []  # all at least 0
        self._whole: list[tuple[sp.Symbol, sp.Symbol, sp.Expr]] = []  # block, thread, and both by one index
        for axis, blocks, threads in zip(AXES, grid, block, strict=True):
            b, t, i = symbol(f"blockIdx_{axis}"), symbol(f"threadIdx_{axis}"), symbol(f"index_{axis}")
            self._ranges |= {b: (0, blocks - 1), t: (0, threads - 1), i: (0, blocks * threads - 1)}
            self._sizes |= {symbol(f"gridDim_{axis}"): sp.Integer(blocks)}
            self._sizes |= {symbol(f"blockDim_{axis}"): sp.Integer(threads)}
            self._whole.append((b, t, (i - t) / sp.Integer(threads)))
            self._both(i - threads * b - t)

    def of(self, access: MemoryAccess) -> Ends | None:
        """The bytes that an access may touch; None if no thread comes to it."""
        if not is_known(access.address):
            return _ALL
        for loop in access.loops:
            self._enter(loop)
        self._least += [self._reduced(guard.value) for guard in access.guards if not guard.period]
        for _ in range(_PASSES):
            for condition in self._least:
                self._narrow(condition)
        if any(low > high for low, high in self._ranges.values()):
            return None
        low, high = self._ends(self._reduced(access.address))
        low, high = (low if math.isinf(low) else math.ceil(low)), (high if math.isinf(high) else math.floor(high))
        return low * access.size, (high + 1) * access.size

    def _both(self, zero: sp.Expr) -> None:
        self._least += [zero, -zero]

    def _reduced(self, value: sp.Expr) -> sp.Expr:
        """With the sizes of the launch, and with one index where a block and a thread occur together."""
        value = sp.expand(value.xreplace(self._sizes))
        for block, thread, whole in self._whole:
            if block in value.free_symbols:
                other = sp.expand(value.xreplace({block: whole}))
                value = value if thread in other.free_symbols else other
        return value

    def _enter(self, loop: CountedLoop) -> None:
        """The counter lies between its first value and the last."""
        trips = loop.trips if loop.exact is None else loop.exact
        first, trips, step = (self._reduced(e) for e in (loop.first, trips, loop.step))
        counter = loop.counter
        self._ranges[counter] = _ALL
        rounded = isinstance(trips, sp.ceiling)
        low, high = self._ends(step)
        if low <= 0 <= high:
            return
        sign = 1 if low > 0 else -1
        # Of a count that is rounded up, n = ceil(x / step): step * (n - 1) < x.
        last = first + (step * trips.args[0] - sign if rounded else step * (trips - 1))
        self._least += [self._reduced(sign * (counter - first)), self._reduced(sign * (last - counter))]

    def _narrow(self, condition: sp.Expr) -> None:
        """The ranges of indices by a condition in which they are linear."""
        for name in condition.free_symbols:
            factor = condition.coeff(name, 1)
            if name not in self._ranges or not factor.is_Rational or factor == 0:
                continue
            rest = condition - factor * name
            if name in rest.free_symbols:
                continue
            bound = -self._ends(rest)[1] / _fraction(factor)  # of factor * name + rest >= 0
            low, high = self._ranges[name]
            if math.isinf(bound):
                continue
            self._ranges[name] = (
                (max(low, math.ceil(bound)), high) if factor > 0 else (low, min(high, math.floor(bound)))
            )

    def _ends(self, value: sp.Expr) -> Ends:
        if isinstance(value, sp.Rational):
            return _fraction(value), _fraction(value)
        if isinstance(value, sp.Symbol):
            return self._ranges.get(value, _ALL)
        parts = [self._ends(part) for part in value.args if isinstance(part, sp.Expr)]
        return _combined(value, parts)


def _fraction(number: sp.Rational) -> Fraction:
    return Fraction(int(number.p), int(number.q))


def _combined(value: sp.Expr, parts: Sequence[Ends]) -> Ends:
    if isinstance(value, sp.Add):
        return sum(low for low, _ in parts), sum(high for _, high in parts)
    if isinstance(value, sp.Mul):
        out: Ends = (1, 1)
        for part in parts:
            corners = [0 if 0 in (x, y) else x * y for x in out for y in part]
            out = min(corners), max(corners)
        return out
    if isinstance(value, (sp.floor, sp.ceiling)):
        rounded: Any = math.floor if isinstance(value, sp.floor) else math.ceil
        low, high = (end if math.isinf(end) else rounded(end) for end in parts[0])
        return low, high
    if isinstance(value, (sp.Min, sp.Max)):
        chosen = min if isinstance(value, sp.Min) else max
        return chosen(low for low, _ in parts), chosen(high for _, high in parts)
    if isinstance(value, either):
        return min(low for low, _ in parts), max(high for _, high in parts)
    if isinstance(value, sp.Mod) and parts[1][0] > 0:
        return 0, parts[1][1] - 1
    return _ALL
