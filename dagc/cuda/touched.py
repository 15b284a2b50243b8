"""What a launch of a kernel touches of arrays, read from its text with the values of the launch. It is all of what it
may touch, and may be more.

An address is followed as an interval over the indices of threads that the kernel's conditions admit, and over the
counters of its loops; an array with an address that is not known is touched as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias

import sympy as sp

from dagc.cuda.accesses import accesses_of
from dagc.cuda.constants import constants_of, signed_names_of, sure_macros, type_names_of
from dagc.cuda.expressions import CountedLoop, MemoryAccess, either, is_known, real, symbol, toward_zero
from dagc.cuda.lexer import directives, expanded
from dagc.cuda.syntax import NotUnderstood

Number: TypeAlias = int | float | Fraction  # exact, or infinite: not known
Ends: TypeAlias = tuple[Number, Number]  # the least and the largest value
Touches: TypeAlias = Mapping[tuple[int, bool], tuple[Ends, ...]]  # (argument, whether it is stored to) -> bytes
_ALL: Ends = (-math.inf, math.inf)
_PASSES = 4  # over the conditions of an access


@dataclass(frozen=True, slots=True)
class LaunchedText:
    """A launch of a kernel with this body. `text`: the files that it sees; `pointers`: position, name, bytes of an
    element, and whether nothing is stored to it; `numbers`: whole numbers by value, of which those of `signed` have a
    signed type, and `reals` the names of others; `template`: values and types of the parameters of its template."""

    body: str
    text: str
    pointers: tuple[tuple[int, str, int, bool], ...]
    numbers: tuple[tuple[str, int], ...]
    reals: tuple[str, ...]
    template: tuple[tuple[str, str], ...]
    grid: tuple[int, ...]
    block: tuple[int, ...]
    signed: frozenset[str]


@lru_cache(maxsize=512)
def touched_by(launch: LaunchedText) -> Touches | None:
    """Bytes from each pointer that a launch may touch; None for a text that is not understood."""
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
    signed = launch.signed | (signed_names_of(launch.text) - {name for name, _ in launch.numbers})
    constant = {name for _, name, _, const in launch.pointers if const}
    try:
        read = accesses_of(expanded(launch.body, macros), arrays, values, constant, types, signed=signed)
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
        for axis, blocks, threads in zip("xyz", grid, block, strict=True):
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


_ROUNDED = {sp.floor: math.floor, sp.ceiling: math.ceil, toward_zero: math.trunc}


def _combined(value: sp.Expr, parts: Sequence[Ends]) -> Ends:
    if isinstance(value, sp.Add):
        return sum(low for low, _ in parts), sum(high for _, high in parts)
    if isinstance(value, sp.Mul):
        out: Ends = (1, 1)
        for part in parts:
            corners = [0 if 0 in (x, y) else x * y for x in out for y in part]
            out = min(corners), max(corners)
        return out
    if isinstance(value, (sp.floor, sp.ceiling, toward_zero)):
        rounded: Any = next(of for kind, of in _ROUNDED.items() if isinstance(value, kind))
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
