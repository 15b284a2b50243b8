"""Placement: the device of each op of a program, chosen so that the program takes the least time, transfers included.

A chain is placed by the two recurrences of MLCD (section III-B), for any number of devices. The published Algorithm 2
differs from them: line 16 reads a value that line 15 has overwritten.

A problem is separable: its cost is a sum over ops and over values. With two devices and separable costs it is a minimum
cut, which is exact for every graph. More devices, or an additional cost of the whole placement, are searched with a
bound.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from dagc.base.errors import UsageError

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
    """The best placement: of a chain by dynamic programming, on two devices by a minimum cut, else by a search."""
    chain = chain_of(problem)
    if chain is not None:
        return place_chain(problem, chain)
    return place_cut(problem) if problem.devices == 2 else place_search(problem)


@dataclass(frozen=True, slots=True)
class Chain:
    """Op i+1 reads what op i writes. `links[i][a][b]`: seconds between op i on device a and op i+1 on device b.

    Transfers of values that only one op uses are part of the seconds of that op.
    """

    seconds: tuple[Row, ...]
    links: tuple[tuple[Row, ...], ...]


def chain_of(problem: Problem) -> Chain | None:
    """The problem as a chain; None if a transfer depends on ops that are not consecutive."""
    n, devices = len(problem.seconds), range(problem.devices)
    if n == 0:
        return None
    seconds = [list(row) for row in problem.seconds]
    links = [[[0.0 for _ in devices] for _ in devices] for _ in range(n - 1)]
    for v in problem.values:
        readers = set(v.readers)
        if v.producer is None and (len(readers) <= 1 or len(set(v.begins)) == problem.devices):
            for b in devices:  # a value that no op uses costs the same wherever the first op is
                seconds[next(iter(readers), 0)][b] += v.seconds(v.begins, (*v.ends, b) if readers else v.ends)
        elif v.producer is not None and not readers:
            for a in devices:
                seconds[v.producer][a] += v.seconds([a], v.ends)
        elif v.producer is not None and readers == {v.producer + 1}:
            for a, b in itertools.product(devices, devices):
                links[v.producer][a][b] += v.seconds([a], (*v.ends, b))
        else:
            return None
    return Chain(tuple(map(tuple, seconds)), tuple(tuple(map(tuple, link)) for link in links))


def place_chain(problem: Problem, chain: Chain) -> Solution:
    """Dynamic programming: the least seconds up to op i for each device of op i, from those up to op i-1."""
    devices = range(len(chain.seconds[0]))
    best, origins = chain.seconds[0], []
    for row, link in zip(chain.seconds[1:], chain.links, strict=True):
        arrivals = [min((best[a] + link[a][b], a) for a in devices) for b in devices]
        origins.append([a for _, a in arrivals])
        best = tuple(row[b] + arrivals[b][0] for b in devices)
    last = min(devices, key=best.__getitem__)
    placement = [last]
    for origin in reversed(origins):
        placement.append(origin[placement[-1]])
    return _exact(problem, tuple(reversed(placement)))


def _exact(problem: Problem, placement: Placement) -> Solution:
    seconds = problem.cost(placement)
    return Solution(placement, seconds, seconds)


def place_cut(problem: Problem) -> Solution:
    """The minimum cut between host and device, as its linear program, whose vertices are whole numbers (Picard and
    Ratliff 1975). The unknowns: for each op whether it is on the device; for each value whether it is moved to the
    device, and to the host. Raises UsageError unless there are two devices."""
    if problem.devices != 2:
        raise UsageError(f"a minimum cut between {problem.devices} devices", "use place_search")
    import numpy as np
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    n = len(problem.seconds)
    objective, rows, right = list(_preference(problem)), _Rows(), []
    bounds = [(float(host == math.inf), float(device < math.inf)) for host, device in problem.seconds]
    for value in problem.values:
        for to in (HOST, DEVICE):
            moved = len(objective)
            objective.append(value.moves[1 - to][to])
            bounds.append((0.0, 1.0))
            for coefficients, least in _moved_if(value, to, moved):
                rows.append(coefficients)
                right.append(-least)
    scale = max(objective, key=abs, default=0.0) or 1.0
    matrix = csr_array((rows.data, (rows.row, rows.column)), shape=(len(right), len(objective))) if right else None
    solution = linprog(np.array(objective) / abs(scale), matrix, right or None, bounds=bounds, method="highs-ds")
    return _exact(problem, tuple(int(x > 0.5) for x in solution.x[:n]))


def _preference(problem: Problem) -> Iterator[float]:
    """The additional cost of an op on the device relative to the host; 0 if it can run on one of them only."""
    for host, device in problem.seconds:
        yield device - host if max(host, device) < math.inf else 0.0


class _Rows:
    """Rows of a sparse matrix."""

    def __init__(self) -> None:
        self.data: list[float] = []
        self.row: list[int] = []
        self.column: list[int] = []
        self._n = 0

    def append(self, coefficients: dict[int, float]) -> None:
        for column, x in coefficients.items():
            self.data.append(-x)
            self.row.append(self._n)
            self.column.append(column)
        self._n += 1


def _moved_if(value: Value, to: int, moved: int) -> Iterator[tuple[dict[int, float], float]]:
    """Conditions `coefficients * unknowns >= least`: the unknown `moved` is 1 if the value is not on `to` but wanted
    there. `sign` turns "on the device" into "on `to`"."""
    if value.producer is None and to in value.begins:
        return
    sign = 1.0 if to == DEVICE else -1.0
    offset = 0.0 if to == DEVICE else 1.0  # an op is on `to` if offset + sign * unknown is 1
    producer = {} if value.producer is None else {value.producer: sign}
    held = 0.0 if value.producer is None else offset
    if to in value.ends:  # moved >= 1 - held
        yield {moved: 1.0, **producer}, 1.0 - held
    for reader in set(value.readers) - {value.producer}:  # moved >= (reader is on `to`) - held
        yield {moved: 1.0, reader: -sign, **producer}, offset - held


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
    relaxed = place_cut(problem).seconds if problem.devices == 2 and ops else least[0]
    pending: list[tuple[float, Placement]] = [(math.fsum(_moved(v, ()) for v in problem.values), ())]
    for _ in range(nodes):
        if not pending or seconds <= relaxed:
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
    return Solution(best, seconds, min(seconds, max(left, relaxed)))


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
