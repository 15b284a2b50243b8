"""The threads, warps and blocks of a launch that pass the conditions on indices in a kernel's text.

A condition is linear in the indices (`dagc.cuda.expressions.Guard`). On one index it leaves a range; on two, the part
of a rectangle on one side of a line, whose area is taken for the number of its points.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import sympy as sp

from dagc.cuda.expressions import Guard, indices_of, symbol
from dagc.ir.plan import AXES
from dagc.perf.algebra import ceil_div, int_div, maximum, minimum

WARP = 32
ONE, ZERO = sp.Integer(1), sp.Integer(0)
HALF = sp.Rational(1, 2)
Triple = tuple[sp.Expr, sp.Expr, sp.Expr]


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """Threads with work, threads of a block, blocks of the grid, and lanes of a warp, along x, y and z. `values`: of
    the names in conditions; `names`: what may be left in one."""

    extent: Triple
    block: Triple
    grid: Triple
    lanes: Triple
    values: Mapping[sp.Symbol, sp.Expr]
    names: Collection[str]


@dataclass(frozen=True, slots=True)
class _Index:
    """An index in a condition: of a thread in the grid, of a thread in its block, or of a block, and its factor."""

    kind: Literal["grid", "block", "blocks"]
    axis: int
    factor: sp.Expr


@dataclass(frozen=True, slots=True)
class _Linear:
    """rest + sum of factor * index >= 0."""

    rest: sp.Expr
    indices: tuple[_Index, ...]
    period: int


@dataclass(frozen=True, slots=True)
class Reach:
    """The part of a launch that passes: threads of the grid along each axis, of a block, and lanes of a warp; the
    shares of the warps, of the blocks and of the threads with work. `part`: the axes along which a part of each block
    passes."""

    extent: Triple
    threads: Triple
    lanes: Triple
    warps: sp.Expr = ONE
    blocks: sp.Expr = ONE
    grid: sp.Expr = ONE
    part: tuple[bool, bool, bool] = (False, False, False)

    def times(self, other: Reach) -> Reach:
        """The part that passes both, with the product of the shares."""
        return replace(
            self, warps=self.warps * other.warps, blocks=self.blocks * other.blocks, grid=self.grid * other.grid
        )


def everything(launch: LaunchShape) -> Reach:
    return Reach(launch.extent, launch.block, launch.lanes)


def extents_of(guards: Iterable[Guard], launch: LaunchShape) -> tuple[list[sp.Expr], set[Guard]]:
    """Threads with work along each axis, and the conditions that determine it: those on one index of a thread in the
    grid."""
    extent = list(launch.extent)
    used: set[Guard] = set()
    for axis in range(3):
        mine = {g: c for g, c in _read(guards, launch) if [(i.kind, i.axis) for i in c.indices] == [("grid", axis)]}
        used |= mine.keys()
        if mine:
            low, high = _range(mine.values(), launch.extent[axis])
            if (low, high) != (ZERO, launch.extent[axis]):
                extent[axis] = maximum(ONE, sp.expand(high - low) if high.is_number is low.is_number else high - low)
    return extent, used


def joint(guards: Iterable[Guard], launch: LaunchShape) -> tuple[Reach, set[Guard]]:
    """The shares that pass conditions on two indices, and these conditions."""
    mine = {g: c for g, c in _read(guards, launch) if len(c.indices) == 2}
    conditions = list(mine.values())
    reach = everything(launch)
    ones = (ONE, ONE, ONE)
    for name, sizes in (("warps", launch.lanes), ("blocks", launch.block), ("grid", ones)):
        share: sp.Expr = ONE
        left = [(c, _share(c, launch, sizes)) for c in conditions]
        while left:
            condition, own = left.pop()
            facing = next((i for i, (c, _) in enumerate(left) if _opposite(condition, c)), None)
            if facing is not None:  # a band: what fails one of them passes the other
                own = maximum(ZERO, own + left.pop(facing)[1] - 1)
            share = share * own
        reach = replace(reach, **{name: share})
    return reach, set(mine)


def reach_of(guards: Iterable[Guard], launch: LaunchShape) -> Reach:
    """The part of the launch that passes all conditions."""
    guards = list(guards)
    reach, _ = joint(guards, launch)
    groups: dict[tuple[str, int, int], list[_Linear]] = {}
    for _, condition in _read(guards, launch):
        if len(condition.indices) == 1:
            (index,) = condition.indices
            groups.setdefault((index.kind, index.axis, condition.period), []).append(condition)
    for (kind, axis, period), conditions in groups.items():
        reach = _narrowed(reach, launch, kind, axis, period, conditions)
    return reach


def _narrowed(
    reach: Reach, launch: LaunchShape, kind: str, axis: int, period: int, conditions: Sequence[_Linear]
) -> Reach:
    """The part that also passes conditions on one index."""
    sizes = {"grid": launch.extent, "block": launch.block, "blocks": launch.grid}[kind]
    size: sp.Expr = sp.Integer(period) if period else sizes[axis]
    low, high = _range(conditions, size)
    if (low, high) == (ZERO, size):
        return reach
    count = maximum(ZERO, high - low)
    some, lanes = maximum(ONE, count), launch.lanes[axis]
    one = sp.Float(1)
    if kind == "blocks":
        share = one * count / size
        return reach.times(Reach(reach.extent, reach.threads, reach.lanes, share, share, share))
    warps = one * ceil_div(count, lanes) / ceil_div(size, lanes)
    if kind == "grid":
        blocks = one * ceil_div(count, launch.block[axis]) / ceil_div(size, launch.block[axis])
        narrow = replace(reach, extent=_with(reach.extent, axis, some))
        return narrow.times(Reach(reach.extent, reach.threads, reach.lanes, warps, blocks, sp.Float(1)))
    narrow = replace(reach, lanes=_with(reach.lanes, axis, minimum(some, lanes)))
    if not period:
        parts = tuple(part or a == axis for a, part in enumerate(reach.part))
        narrow = replace(narrow, threads=_with(reach.threads, axis, some), part=(parts[0], parts[1], parts[2]))
    return replace(narrow, warps=reach.warps * warps)


def _with(values: Triple, axis: int, value: sp.Expr) -> Triple:
    x, y, z = (value if a == axis else v for a, v in enumerate(values))
    return x, y, z


def _read(guards: Iterable[Guard], launch: LaunchShape) -> Iterator[tuple[Guard, _Linear]]:
    """The supported conditions, on one or two indices. Those on an index within less than a warp are omitted: each warp
    has threads that pass, in almost all of its sectors."""
    for guard in sorted(guards, key=str):
        value = sp.expand(guard.value.xreplace(launch.values))
        condition = _linear(value, launch, guard.period)
        left = {s.name for s in value.free_symbols - indices_of(value)}
        if condition is not None and left <= set(launch.names) and not 0 < guard.period < WARP:
            yield guard, condition


def _linear(value: sp.Expr, launch: LaunchShape, period: int) -> _Linear | None:
    rest, indices = value, []
    for axis, name in enumerate(AXES):
        thread, block = symbol(f"threadIdx_{name}"), symbol(f"blockIdx_{name}")
        own, apart = value.coeff(thread, 1), value.coeff(block, 1)
        rest = rest - own * thread - apart * block
        if own != 0 and apart != 0 and sp.expand(apart - own * launch.block[axis]) != 0:
            return None
        if own != 0 or apart != 0:
            kind: Literal["grid", "block", "blocks"] = "blocks" if own == 0 else "grid" if apart != 0 else "block"
            indices.append(_Index(kind, axis, own if own != 0 else apart))
    rest = sp.expand(rest)
    numbered = all(i.factor.is_Integer for i in indices) if period else True
    if not 1 <= len(indices) <= 2 or not numbered or rest.free_symbols & indices_of(value):
        return None
    return _Linear(rest, tuple(indices), period)


def _falls(factor: sp.Expr) -> bool:
    return bool(factor.could_extract_minus_sign())


def _range(conditions: Iterable[_Linear], size: sp.Expr) -> tuple[sp.Expr, sp.Expr]:
    """The indices from the first that pass up to the second that do not, of those from 0 to `size`."""
    low, high = [ZERO], [size]
    for condition in conditions:
        (index,) = condition.indices
        factor, rest = index.factor, condition.rest
        if _falls(factor):
            last = rest if factor == -1 else int_div(rest, sp.expand(-factor))
            high.append(sp.expand(last + 1) if factor == -1 else last + 1)
        else:
            low.append(sp.expand(-rest) if factor == 1 else ceil_div(sp.expand(-rest), factor))
    return maximum(*low), minimum(*high)


def _share(condition: _Linear, launch: LaunchShape, sizes: Triple) -> sp.Expr:
    """The fraction of pieces of this many threads in which some threads pass: the area on one side of a line."""
    rest, sides = sp.Float(1) * (condition.rest + HALF), []
    for index in condition.indices:
        factor, axis = index.factor, index.axis
        falls = _falls(factor)
        size = ONE if index.kind == "blocks" else sizes[axis]
        if not falls:  # the last thread of a piece passes first
            rest = rest + factor * (size - 1)
        counts = {"grid": launch.extent, "block": launch.block, "blocks": launch.grid}[index.kind]
        rest = rest - factor * size / 2 + (factor * counts[axis] if falls else 0)
        sides.append(sp.Float(1) * (-factor if falls else factor) * counts[axis])
    a, b = sides
    below = sum(
        sign * maximum(ZERO, -rest - away) ** 2 for sign, away in ((1, ZERO), (-1, a), (-1, b), (1, a + b))
    )  # fmt: skip
    return minimum(ONE, maximum(ZERO, 1 - below / (2 * a * b)))


def _opposite(one: _Linear, other: _Linear) -> bool:
    """Whether two conditions are the two sides of a band."""
    factors = {(i.kind, i.axis): i.factor for i in one.indices}
    return {(i.kind, i.axis): -i.factor for i in other.indices} == factors
