"""What kernels touch of arrays where it is not recorded, as on a GPU: read from their texts (`dagc.cuda.touched`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dagc.record.libraries import library_function
from dagc.record.log import PIECES, Alloc, LaunchCall, Memory, Pieces, RankLog, TouchedMemory, joined
from dagc.record.loop import Window
from dagc.record.sources import KernelSource, Sources, template_values, value_of

if TYPE_CHECKING:
    from dagc.cuda.touched import Touches


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
    if source is None or not (source.body or event.calls):
        return
    if event.calls:
        pieces: Touches | None = dict(_of_library(event, source.parameters))
    else:
        pieces = pieces_of_launch(event, source, sources.seen_by(source.file))
    of: dict[int, tuple[Alloc, list[tuple[int, int]], list[tuple[int, int]]]] = {}
    for index, one in enumerate(event.args):
        place = memory.place(one.p) if one.is_pointer else None
        if place is None or not isinstance(place.block, int):
            continue
        block = memory.known[place.block]
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


def _of_library(event: LaunchCall, names: Sequence[str]) -> Iterator[tuple[tuple[int, bool], Pieces]]:
    """Bytes from each pointer that the call of a library may read, and write."""
    function = library_function(event.kernel)
    numbers = {
        n: int(value_of(a)) for n, a in zip(names, event.args, strict=True) if not a.is_pointer and a.of[0] in "iu"
    }
    for index, one in enumerate(event.args):
        if one.is_pointer and function is not None:
            touched = function.touched(numbers, index, one.bytes)
            yield (index, False), touched
            yield (index, True), () if one.const else touched


def pieces_of_launch(event: LaunchCall, source: KernelSource, text: str) -> Touches | None:
    """Bytes from each pointer that the launch may touch; None for a kernel whose text is not understood. `text`: the
    files that the kernel sees, for their macros."""
    from dagc.cuda.touched import LaunchedText, touched_by  # loads sympy

    numbers = {
        name: int(value_of(one))
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
    signed = frozenset(name for name, one in zip(source.parameters, event.args, strict=True) if one.of[0] == "i")
    launch = LaunchedText(source.body, text, pointers, values, reals, template, event.grid, event.block, signed)
    return touched_by(launch)
