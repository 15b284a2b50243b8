"""What kernels touch by their texts, beside what a recording without a GPU sees of them.

    python -m benchmarks.footprints --host heat.cu -o heat.dag -- mpiexec -n 2 ./heat 64 32 12

records as `dagc record` does, and prints a line for each array of a kernel, and how often what a launch reads, or what
it writes, of an array (of some nothing) is equal, larger by the text (`more`), not known by it, or missing there, which
must not happen.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from unittest.mock import patch

from dagc.cli.main import main
from dagc.record.footprints import with_footprints
from dagc.record.log import LaunchCall, RankLog, TouchedMemory
from dagc.record.loop import Window
from dagc.record.sources import Sources


def compared(logs: Sequence[RankLog], found: Sequence[Window], sources: Sources) -> tuple[RankLog, ...]:
    """The logs, after the comparison is printed."""
    total: Counter[str] = Counter()
    lines: dict[str, None] = {}
    for log, (launch, read) in _pairs(logs, found, sources):
        said = {one.memory: one for one in read.touched}
        for one in launch.touched:
            for what, real, text in _sides(one, said.get(one.memory)):
                how = _how(real, text)
                total[how] += 1
                if real or text != ():
                    name = log.memory()[one.memory].text.partition(",")[0]
                    lines[f"{how:8} {launch.kernel} {name} {what}: recorded {real}, by the text {text}"] = None
    print(*lines, f"total {dict(total)}", sep="\n")
    return tuple(logs)


def _pairs(
    logs: Sequence[RankLog], found: Sequence[Window], sources: Sources
) -> Iterator[tuple[RankLog, tuple[LaunchCall, LaunchCall]]]:
    bare = [
        replace(log, events=tuple(replace(e, touched=()) if isinstance(e, LaunchCall) else e for e in log.events))
        for log in logs
    ]
    for log, read in zip(logs, with_footprints(bare, found, sources), strict=True):
        for one, other in zip(log.events, read.events, strict=True):
            if isinstance(one, LaunchCall) and isinstance(other, LaunchCall) and one.touched:
                yield log, (one, other)


def _sides(
    one: TouchedMemory, text: TouchedMemory | None
) -> Iterator[tuple[str, tuple[int, ...], tuple[int, ...] | None]]:
    yield "read", one.reads, None if text is None else text.reads
    yield "written", one.writes, None if text is None else text.writes


def _how(real: tuple[int, ...], text: tuple[int, ...] | None) -> str:
    if text is None:
        return "unknown"
    if real == text:
        return "equal"
    return "more" if not real or (text and text[0] <= real[0] and real[-1] <= text[-1]) else "missing"


if __name__ == "__main__":
    with patch("dagc.recipes.record.with_footprints", compared):
        sys.exit(main(["record", *sys.argv[1:]]))
