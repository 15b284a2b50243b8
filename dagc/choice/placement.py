"""Placement: the device of each op of a program, chosen so that the program takes the least time, transfers included.

`dagc/placement.hpp` places, which emitted programs use: a chain by the recurrences of MLCD (section III-B), on any
number of devices; any other graph on two of them by a minimum cut, since its cost is a sum over ops and over values.
Both are exact. Any other graph on more devices is searched with a bound.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dagc.base.errors import UsageError
from dagc.base.resources import resource
from dagc.choice.selector import library

HOST, DEVICE = 0, 1  # of a rank; its further GPUs follow
NODES = 20_000  # of a search, at most: about 10 ms
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
class DeviceLink:
    """The time of copies from one device to another."""

    source: int
    target: int
    time: Transfer


@dataclass(frozen=True, slots=True)
class Transfers:
    """Between the host and the first GPU, and over the `links` of further ones."""

    to_device: Transfer
    to_host: Transfer
    links: tuple[DeviceLink, ...] = ()

    def between(self, source: int, target: int) -> Transfer:
        """A further GPU without a link of its own has those of the first one, and to another GPU the way through the
        host."""
        link = next((one.time for one in self.links if (one.source, one.target) == (source, target)), None)
        if link is not None or source == target:
            return link or Transfer(0.0, math.inf)
        if HOST in (source, target):
            return self.to_device if source == HOST else self.to_host
        back, there = self.between(source, HOST), self.between(HOST, target)
        return Transfer(back.latency + there.latency, 1 / (1 / back.bandwidth + 1 / there.bandwidth))

    def moves(self, bytes: float, devices: int = 2) -> tuple[Row, ...]:
        """The `moves` of a value of this many bytes."""
        every = range(devices)
        return tuple(tuple(self.between(a, b).seconds(bytes) for b in every) for a in every)


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

    def places(self, placement: Placement) -> tuple[set[int], set[int]]:
        """The devices where it is, and where it is needed."""
        there = self.begins if self.producer is None else (placement[self.producer],)
        return set(there), {*self.ends, *(placement[op] for op in self.readers)}

    def seconds(self, there: set[int], wanted: set[int]) -> float:
        """Seconds of the transfers to the devices where it is `wanted` and not `there`."""
        return math.fsum(min(self.moves[a][b] for a in there) for b in wanted - there)


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
        return total + math.fsum(value.seconds(*value.places(placement)) for value in self.values)

    def transfers(self, placement: Placement) -> tuple[int, ...]:
        """The transfers of each value."""
        places = (value.places(placement) for value in self.values)
        return tuple(len(wanted - there) for there, wanted in places)

    @property
    def alone(self) -> Placement:
        """The fastest device of each op, without regard to transfers."""
        return tuple(min(range(self.devices), key=row.__getitem__) for row in self.seconds)


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


def place(problem: Problem, *, nodes: int = NODES) -> Solution:
    """The best placement; for a graph that is no chain, on more than two devices, the best one of a search of so many
    `nodes`. Raises MissingTool without a C++ compiler."""
    values, devices = problem.values, problem.devices
    begin = [0, *itertools.accumulate(len(v.readers) for v in values)]
    producers = [-1 if v.producer is None else v.producer for v in values]
    readers = [op for v in values for op in v.readers]
    moves = [seconds for v in values for row in v.moves for seconds in row]
    begins, ends = ([sum(1 << d for d in set(places)) for places in of]
                    for of in ([v.begins for v in values], [v.ends for v in values]))  # fmt: skip
    seconds = [s for row in problem.seconds for s in row]
    sides, bound = (ctypes.c_int * len(problem.seconds))(), ctypes.c_double()
    text = resource("templates/choice/placement.cpp").read_text(encoding="utf-8")
    function = library(f"#define DEVICES {devices}\n{text}", "c++").dagc_place
    function.restype = ctypes.c_double
    total = function(
        len(sides), _array(ctypes.c_double, seconds), len(values), _array(ctypes.c_int, producers),
        _array(ctypes.c_int, begin), _array(ctypes.c_int, readers), _array(ctypes.c_double, moves),
        _array(ctypes.c_int, begins), _array(ctypes.c_int, ends), nodes, sides, ctypes.byref(bound),
    )  # fmt: skip
    return Solution(tuple(sides), total, bound.value)


def _array(kind: Any, values: Sequence[float]) -> Any:
    return (kind * len(values))(*values)
