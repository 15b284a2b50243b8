"""Arrays of which iterations in flight may each have a copy of their own: array privatization, as of a loop whose
rounds run at once.

An array of the program, without a role, is private if no iteration reads what an earlier one has left in it. Of each
read one of these must hold:

- an op that all ranks run writes all elements of its region, and completes before it in the same iteration; or
- all ops that write elements of its region complete before it in the same iteration. A rank runs the same ops, and
  sends and receives the same messages, in all iterations: an element that this one has not written before the read has
  been written by none, and is undefined either way.

So an op that updates elements needs the first, as does one that reads what a later one writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dagc.ir.enums import Mode, Place
from dagc.ir.program import CopyOp, Graph, KernelOp, Touch
from dagc.ir.regions import Regions
from dagc.passes.edges import Edges


def private_arrays(graph: Graph) -> dict[str, str]:
    """For each array on the device that is the program's own and that an iteration of an unrolled graph writes: "" if
    it is private, else the reason why not."""
    program, reads = graph.program, _Reads(graph)
    own = {a.name for a in program.arrays if a.role is None and a.place is Place.DEVICE}
    uses: dict[str, list[Touch]] = {}
    for touch in graph.touches:
        if touch.region.array in own and not touch.staged:
            uses.setdefault(touch.region.array, []).append(touch)
    written = {name: of for name, of in uses.items() if any(touch.mode is not Mode.IN for touch in of)}
    out = {name: next(reads.earlier(of), "") for name, of in written.items()}
    if program.until is not None and program.until.array in out:
        out[program.until.array] = "the repetition ends by its value"
    return out


class _Reads:
    """Finds the reads of what an earlier iteration may have written."""

    def __init__(self, graph: Graph) -> None:
        self.ops, self.regions = graph.ops, Regions.of(graph.program)
        self.edges = Edges(len(graph.ops))
        for u, v in graph.completion:
            self.edges.add(u, v)

    def earlier(self, uses: Sequence[Touch]) -> Iterator[str]:
        """A sentence for each of them, of all accesses of an iteration to one array."""
        writes = [touch for touch in uses if touch.mode is not Mode.IN]
        for read in (touch for touch in uses if touch.mode is not Mode.OUT):
            before = [w for w in writes if w.end != read.begin and self.edges.path(w.end, read.begin)]
            if any(self._defines(write, read) for write in before):
                continue
            later = (w for w in writes if w not in before and self.regions.overlap(read.region, w.region))
            if (write := next(later, None)) is not None:
                reader, writer = self.ops[read.begin].name, self.ops[write.begin].name
                verb = "updates" if write is read else "reads"
                by = "" if write is read else f", which `{writer}` may have written"
                yield f"`{reader}` {verb} `{read.region.text}`{by} in the iteration before"

    def _defines(self, write: Touch, read: Touch) -> bool:
        """Whether an access certainly writes all that the other one reads."""
        op = self.ops[write.begin].op
        runs = isinstance(op, KernelOp | CopyOp) and op.when is None
        return runs and write.mode is Mode.OUT and self.regions.within(read.region, write.region)
