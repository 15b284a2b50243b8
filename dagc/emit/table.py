"""A traversal as the table that runners execute, optionally with capture regions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TypeAlias

from dagc.ir.enums import Opcode
from dagc.ir.program import CopyOp, Graph, KernelOp, blocks, two_sided
from dagc.ir.traversal import (
    Entry,
    Event,
    Row,
    Stream,
    Traversal,
    awaited,
    bound,
    in_order,
    recorded,
    streams_of,
)

# ---- runs of GPU entries that a CUDA graph captures ----


SMALLEST = 2  # GPU ops of a capture region: a graph of one op gains nothing


@dataclass(frozen=True, slots=True)
class BeginCapture:
    """A capture region begins; it is launched on `origin`. `length` entries follow until its `EndCapture`."""

    region: int
    origin: Stream
    length: int

    @property
    def row(self) -> Row:
        return Opcode.BEGIN, self.length, self.origin


@dataclass(frozen=True, slots=True)
class EndCapture:
    region: int

    @property
    def row(self) -> Row:
        return Opcode.END, 0, -1


Step: TypeAlias = Entry | BeginCapture | EndCapture


@dataclass(frozen=True, slots=True)
class PositionedStep:
    """A step, and the position of its entry in the traversal; None if capturing added it."""

    step: Step
    position: int | None


def never_captured(graph: Graph) -> frozenset[int]:
    """The ops that are in no capture region: those that use arrays whose sides the program copies when it runs, as
    placed ops do, which may run on the host, and copies that block the thread that issues them."""
    at_run_time = two_sided(graph.program.ops, graph.program.arrays)
    outside = {t.begin for t in graph.touches if t.region.array in at_run_time}
    outside |= {op.id for op in graph.ops if isinstance(op.op, KernelOp) and op.op.placed}
    outside |= {op.id for op in graph.ops if isinstance(op.op, CopyOp) and blocks(graph.program, op.op)}
    return frozenset(map(int, outside))


def with_capture_regions(traversal: Traversal, outside: Collection[int] = ()) -> tuple[PositionedStep, ...]:
    """The steps of a traversal with its capture regions marked. `outside`: ops that are in none."""
    return _CaptureRegions(traversal, outside).run()


def plain(traversal: Traversal) -> tuple[PositionedStep, ...]:
    """Only the entries."""
    return tuple(PositionedStep(entry, i) for i, entry in enumerate(traversal.entries))


class _CaptureRegions:
    def __init__(self, traversal: Traversal, outside: Collection[int]) -> None:
        self.entries = traversal.entries
        self.outside = frozenset(outside)
        self.events = len(recorded(self.entries))
        self.regions = 0
        self.out: list[PositionedStep] = []

    def run(self) -> tuple[PositionedStep, ...]:
        at = 0
        while at < len(self.entries):
            end = at
            while end < len(self.entries) and self._may_join(self.entries[end]):
                end += 1
            if len(bound(self.entries[at:end])) >= SMALLEST:
                self._capture(at, end)
                at = end
            else:
                stop = max(end, at + 1)
                self.out += [PositionedStep(self.entries[i], i) for i in range(at, stop)]
                at = stop
        return tuple(self.out)

    def _may_join(self, entry: Entry) -> bool:
        return entry.stream is not None and entry.op not in self.outside

    def _capture(self, start: int, end: int) -> None:
        inside = self.entries[start:end]
        own = recorded(inside)
        origin, *others = streams_of(inside)
        earlier = {i for i, e in enumerate(inside, start) if e.waits and e.event not in own}
        self.out += [PositionedStep(replace(e, stream=origin), i) for i, e in enumerate(inside, start) if i in earlier]
        for stream in others:
            if self._used(stream, 0, start):
                self._order(stream, origin)
        body: list[PositionedStep] = []
        if others:
            body += _added(*in_order(origin, self._event(), *others))
        body += [PositionedStep(entry, i) for i, entry in enumerate(inside, start) if i not in earlier]
        for stream in others:
            body += _added(*in_order(stream, self._event(), origin))
        self.out += [*_added(BeginCapture(self.regions, origin, len(body))), *body, *_added(EndCapture(self.regions))]
        self.regions += 1
        later = own.keys() & awaited(self.entries[end:])
        for event in sorted(later):
            self.out += _added(*in_order(origin, event))
        for stream in others:
            if self._used(stream, end, len(self.entries)):
                self._order(origin, stream)

    def _used(self, stream: Stream, start: int, end: int) -> bool:
        return stream in streams_of(self.entries[start:end])

    def _order(self, first: Stream, then: Stream) -> None:
        """Make later work of `then` wait for earlier work of `first`."""
        self.out += _added(*in_order(first, self._event(), then))

    def _event(self) -> Event:
        self.events += 1
        return Event(self.events - 1)


def _added(*steps: Step) -> list[PositionedStep]:
    return [PositionedStep(step, None) for step in steps]


# ---- its rows ----


def _steps(traversal: Traversal, capture: bool, outside: Collection[int]) -> tuple[PositionedStep, ...]:
    return with_capture_regions(traversal, outside) if capture else plain(traversal)


def rows(traversal: Traversal, capture: bool = False, outside: Collection[int] = ()) -> list[Row]:
    """One row per entry, in order. With `capture`, regions of GPU ops are marked for capture in CUDA graphs, except
    those `outside`."""
    return [placed.step.row for placed in _steps(traversal, capture, outside)]


def positions(traversal: Traversal, capture: bool = False) -> list[int | None]:
    """Per row of `rows`, the position of its entry in the traversal; None for rows that capturing added."""
    return [placed.position for placed in _steps(traversal, capture, ())]


def table_line(traversal: Traversal, capture: bool = False, outside: Collection[int] = ()) -> str:
    """A line of the file that `runner --tables` reads."""
    return ";".join(f"{int(kind)},{a},{b}" for kind, a, b in rows(traversal, capture, outside))
