"""Which ops of a program use a region of an array, in text order."""

from __future__ import annotations

from bisect import bisect_left
from typing import TypeAlias

from dagc.ir import program as ir
from dagc.ir.enums import Mode
from dagc.ir.regions import Regions, TooManyRegions

_Uses: TypeAlias = dict[str, dict[ir.Region, list[int]]]


class Uses:
    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self.regions = Regions.of(program)
        self.reads, self.writes = _by_array(program)
        self._neighbours: dict[str, dict[ir.Region, list[ir.Region]]] = {}

    def producer(self, index: int, region: ir.Region) -> str | None:
        """The one GPU op whose result is sent; None if a copy cannot be fused with it."""
        if self.program.explicit:
            writers_before = self.others(region, self.writes, index)
            if len(writers_before) != 1:
                return None
        else:
            writers_before = self.meeting(region, self.writes, range(index), 1, last=True)
        if not writers_before:
            return None
        op = self.program.ops[writers_before[0]]
        writes = (a.region for a in accesses_of(op) if a.mode in (Mode.OUT, Mode.INOUT))  # others may add after it
        whole = any(self.regions.within(region, written) for written in writes)
        return op.name if on_gpu(op) and whole else None

    def others(self, region: ir.Region, uses: _Uses, index: int) -> list[int]:
        """The first two ops besides `index` whose access may share elements with the region."""
        ops = self.meeting(region, uses, range(len(self.program.ops)), 3)
        return [op for op in ops if op != index][:2]

    def meeting(self, region: ir.Region, uses: _Uses, within: range, most: int, last: bool = False) -> list[int]:
        """The first `most` ops of a range, or the last ones, whose access may share elements with the region."""
        by_region = uses.get(region.array, {})
        meeting: set[int] = set()
        for other in self._near(region):
            ops = by_region.get(other, ())
            start, stop = bisect_left(ops, within.start), bisect_left(ops, within.stop)
            meeting.update(ops[max(start, stop - most) : stop] if last else ops[start : min(stop, start + most)])
        return sorted(meeting, reverse=last)[:most]

    def _near(self, region: ir.Region) -> list[ir.Region]:
        """The regions of its array that may share elements with it, itself included."""
        array = region.array
        if array not in self._neighbours:
            used = dict.fromkeys((*self.reads.get(array, ()), *self.writes.get(array, ())))
            try:
                self._neighbours[array] = self.regions.neighbours(used)
            except TooManyRegions:  # reported as an error of the array when its conflicts are examined
                self._neighbours[array] = {}
        return self._neighbours[array].get(region, [])


def accesses_of(op: ir.Op) -> tuple[ir.Access, ...]:
    return () if isinstance(op, ir.ExchangeOp) else op.accesses


def message_accesses(op: ir.Op) -> list[tuple[ir.Region, Mode]]:
    """Regions that a message reads or writes; one entry per array, with its modes combined."""
    modes: dict[ir.Region, Mode] = {}
    for access in op.accesses if isinstance(op, ir.ExchangeOp | ir.CollectiveOp) else ():
        modes[access.region] = access.mode if modes.get(access.region, access.mode) is access.mode else Mode.INOUT
    return list(modes.items())


def _by_array(program: ir.Program) -> tuple[_Uses, _Uses]:
    """The readers and the writers of each region of each array: indices of ops, ascending."""
    reads: _Uses = {}
    writes: _Uses = {}
    for i, op in enumerate(program.ops):
        pairs = [(a.region, a.mode) for a in accesses_of(op)]
        if isinstance(op, ir.ExchangeOp):
            pairs += message_accesses(op)
        for region, mode in pairs:
            for table, unwanted in ((reads, Mode.OUT), (writes, Mode.IN)):
                if mode is not unwanted:
                    ops = table.setdefault(region.array, {}).setdefault(region, [])
                    if ops[-1:] != [i]:  # several arguments of an op may be of one region
                        ops.append(i)
    return reads, writes


def on_gpu(op: ir.Op) -> bool:
    return isinstance(op, ir.CopyOp) or (isinstance(op, ir.KernelOp) and op.on_stream)
