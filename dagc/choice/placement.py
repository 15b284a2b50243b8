"""Placement: the device of each op of a program, chosen so that the program takes the least time, transfers included.

On two devices `dagc/placement.hpp` places, which emitted programs use: a chain by the two recurrences of MLCD (section
III-B), any other graph by a minimum cut, since its cost is a sum over ops and over values. Both are exact. More
devices, or an additional cost of the whole placement, are searched with a bound.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dagc.base.errors import UsageError
from dagc.base.resources import resource
from dagc.choice.compiled import library

HOST, DEVICE = 0, 1
NODES = 20_000  # nodes of a bounded search: about a second
Placement = tuple[int, ...]  # the device of each op
Row = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Transfer:
    """The time of a copy: `latency` in seconds, and its bytes over `bandwidth`, in bytes per second."""

    latency: float
    bandwidth: float

    def seconds(self, bytes: float) -> float:
        return self.latency + bytes / self.bandwidth


@dataclass(frozen=True, slots=True)
class Transfers:
    """Between host and device."""

    to_device: Transfer
    to_host: Transfer

    def moves(self, bytes: float) -> tuple[Row, Row]:
        """The `moves` of a value of this many bytes."""
        return two_way(self.to_device.seconds(bytes), self.to_host.seconds(bytes))


def fit_transfer(samples: Sequence[tuple[int, float]]) -> Transfer:
    """The latency and the bandwidth with the least squared relative errors over (bytes, seconds).

    Raises UsageError for fewer than two sizes, or times that do not grow with the size.
    """
    if len({size for size, _ in samples}) < 2 or any(not 0 < t < math.inf or size < 0 for size, t in samples):
        raise UsageError(f"{len(samples)} times of transfers", "give positive times of two sizes or more")
    # Minimizes the sum of (latency / t + rate bytes / t - 1)^2.
    ones, sizes = [1 / t for _, t in samples], [size / t for size, t in samples]
    aa, ab, bb = _dot(ones, ones), _dot(ones, sizes), _dot(sizes, sizes)
    a, b = math.fsum(ones), math.fsum(sizes)
    latency, rate = (a * bb - b * ab) / (aa * bb - ab * ab), (b * aa - a * ab) / (aa * bb - ab * ab)
    if latency < 0:
        latency, rate = 0.0, b / bb
    if rate <= 0:
        raise UsageError("the times of transfers do not grow with the bytes", "measure again on a quiet machine")
    return Transfer(latency, 1 / rate)


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


@dataclass(frozen=True, slots=True)
class Value:
    """The result of one write of an array, or of the set-up. It is moved at most once to each device.

    `producer`: the op that writes it; None: the set-up, which places it on the devices `begins`. `readers`: the ops
    that read it. `ends`: the devices where it must be when the program ends. `moves[a][b]`: seconds of a transfer from
    device a to device b.
    """

    producer: int | None
    readers: tuple[int, ...]
    moves: tuple[Row, ...]
    begins: tuple[int, ...] = (HOST,)
    ends: tuple[int, ...] = ()

    def seconds(self, holders: Iterable[int], wanted: Iterable[int]) -> float:
        """Seconds of the transfers to the devices where it is `wanted` and not present."""
        there = set(holders)
        return sum(min(self.moves[a][b] for a in there) for b in set(wanted) - there)


def two_way(to_device: float, to_host: float) -> tuple[Row, Row]:
    """The `moves` between the host and one device."""
    return ((0.0, to_device), (to_host, 0.0))


@dataclass(frozen=True, slots=True)
class Problem:
    """`seconds[op][device]`: infinite if the op cannot run there. Raises UsageError for a problem without a
    placement."""

    seconds: tuple[Row, ...]
    values: tuple[Value, ...] = ()

    def __post_init__(self) -> None:
        for i, row in enumerate(self.seconds):
            if len(row) != self.devices or any(math.isnan(v) or v < 0 for v in row):
                raise UsageError(f"op {i}: the seconds {row}", f"give {self.devices} that are not negative")
            if min(row, default=math.inf) == math.inf:
                raise UsageError(f"op {i} can run on no device", "give it an implementation that can run")
        for i, value in enumerate(self.values):
            self._check(i, value)

    def _check(self, i: int, value: Value) -> None:
        ops = value.readers if value.producer is None else (value.producer, *value.readers)
        if any(not 0 <= op < len(self.seconds) for op in ops):
            raise UsageError(f"value {i} names an op that does not exist", f"there are {len(self.seconds)}")
        if any(not 0 <= d < self.devices for d in (*value.begins, *value.ends)):
            raise UsageError(f"value {i} names a device that does not exist", f"there are {self.devices}")
        if value.producer is None and not value.begins:
            raise UsageError(f"value {i} is nowhere at the start", "name the devices where the set-up leaves it")
        if len(value.moves) != self.devices or any(
            len(row) != self.devices or not all(0 <= v < math.inf for v in row) for row in value.moves
        ):
            raise UsageError(f"value {i}: the moves {value.moves}", "give finite seconds from each device to each")

    @property
    def devices(self) -> int:
        return len(self.seconds[0]) if self.seconds else 2

    def cost(self, placement: Placement) -> float:
        """Seconds of the ops, plus one transfer of each value to each device that needs it."""
        total = math.fsum(row[d] for row, d in zip(self.seconds, placement, strict=True))
        return total + math.fsum(_moved(value, placement) for value in self.values)


def _moved(value: Value, placement: Placement) -> float:
    """Seconds of the transfers of a value between the ops placed so far, the first `len(placement)`."""
    if value.producer is not None and value.producer >= len(placement):
        return 0.0
    holders = value.begins if value.producer is None else (placement[value.producer],)
    placed = (placement[op] for op in value.readers if op < len(placement))
    return value.seconds(holders, (*value.ends, *placed))


@dataclass(frozen=True, slots=True)
class Solution:
    """`seconds` of `placement`; no placement takes less than `bound`."""

    placement: Placement
    seconds: float
    bound: float

    @property
    def gap(self) -> float:
        """Upper bound of the loss, relative to the seconds: 0 for the best placement."""
        return (self.seconds - self.bound) / self.seconds if self.seconds > self.bound else 0.0


def place(problem: Problem) -> Solution:
    """The best placement; by `place_search` on more than two devices, or if a value must be on the device at the end.
    Raises MissingTool without a C++ compiler."""
    values = problem.values
    if problem.devices != 2 or any(DEVICE in v.ends for v in values):
        return place_search(problem)
    begin = [0, *itertools.accumulate(len(v.readers) for v in values)]
    producers = [-1 if v.producer is None else v.producer for v in values]
    readers = [op for v in values for op in v.readers]
    moves = [seconds for v in values for seconds in (v.moves[HOST][DEVICE], v.moves[DEVICE][HOST])]
    places = [sum(1 << d for d in set(v.begins)) + 4 * (HOST in v.ends) for v in values]
    seconds = [s for row in problem.seconds for s in row]
    sides = (ctypes.c_int * len(problem.seconds))()
    function = library(resource("templates/choice/placement.cpp").read_text(encoding="utf-8"), "c++").dagc_place
    function.restype = ctypes.c_double
    total = function(
        len(sides), _array(ctypes.c_double, seconds), len(values), _array(ctypes.c_int, producers),
        _array(ctypes.c_int, begin), _array(ctypes.c_int, readers), _array(ctypes.c_double, moves),
        _array(ctypes.c_int, places), sides,
    )  # fmt: skip
    return Solution(tuple(sides), total, total)


def _array(kind: Any, values: Sequence[float]) -> Any:
    return (kind * len(values))(*values)


def place_search(
    problem: Problem, *, extra: Callable[[Placement], float] | None = None, nodes: int = NODES
) -> Solution:
    """Depth-first branch and bound over the ops in order, starting with the best placement reached by single changes.

    `extra`: additional seconds, not negative, of a whole placement. After `nodes` partial placements the search ends
    with its best placement and the bound of the rest.
    """
    ops, devices = len(problem.seconds), range(problem.devices)
    least = [0.0, *itertools.accumulate(min(row) for row in reversed(problem.seconds))][::-1]
    touched = _touched(problem)

    def total(placement: Placement) -> float:
        return problem.cost(placement) + (extra(placement) if extra else 0.0)

    best = _improved(problem, total)
    seconds = total(best)
    pending: list[tuple[float, Placement]] = [(math.fsum(_moved(v, ()) for v in problem.values), ())]
    for _ in range(nodes):
        if not pending or seconds <= least[0]:
            break
        spent, placement = pending.pop()
        i = len(placement)
        if spent + least[i] >= seconds:
            continue
        if i == ops:
            if (here := total(placement)) < seconds:
                best, seconds = placement, here
            continue
        before = sum(_moved(v, placement) for v in touched[i])
        steps = []
        for d in devices:
            after = sum(_moved(v, (*placement, d)) for v in touched[i])
            steps.append((spent + problem.seconds[i][d] + after - before, (*placement, d)))
        pending += sorted(steps, reverse=True)
    left = min((spent + least[len(p)] for spent, p in pending), default=math.inf)
    return Solution(best, seconds, min(seconds, max(left, least[0])))


def _touched(problem: Problem) -> list[list[Value]]:
    """The values that each op writes or reads."""
    out: list[list[Value]] = [[] for _ in problem.seconds]
    for value in problem.values:
        for op in {*value.readers, *(() if value.producer is None else (value.producer,))}:
            out[op].append(value)
    return out


def _improved(problem: Problem, total: Callable[[Placement], float]) -> Placement:
    """Local search, changing one op at a time: from all ops on one device, if that is possible, and from the fastest
    device of each op alone."""
    devices = range(problem.devices)
    quickest = tuple(min(devices, key=row.__getitem__) for row in problem.seconds)
    pairs = list(zip(problem.seconds, quickest, strict=True))
    starts = [tuple(d if row[d] < math.inf else q for row, q in pairs) for d in devices]
    best = min((quickest, *starts), key=total)
    while True:
        near = [(*best[:i], d, *best[i + 1 :]) for i in range(len(best)) for d in devices]
        better = min(near, key=total, default=best)
        if not total(better) < total(best):
            return best
        best = better
