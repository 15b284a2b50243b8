"""The happens-before proof. Nothing is emitted without it.

For each entry of a traversal the proof derives which ops are *known to have completed* before it starts, from the
order of a stream, events, host waits and MPI completion alone, and demands that this covers every edge, every data
hazard, issue-order edges, matching of messages (no wait before a post that its partner needs) and, at `end`, all ops.
Where kernels write what other ranks receive, these must have used it before, and the kernel must know (`Remote`).
It shares no code with the generation of traversals, so it checks the space too.

CUDA guarantees: an op of a stream starts after all earlier ops of that stream have completed and after the CPU has
issued it; `cudaStreamWaitEvent` and `cudaEventSynchronize` wait for what the event's last record covers, and for
nothing where the event was not recorded yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from dagc.base.errors import DagcError
from dagc.ir.enums import Mode
from dagc.ir.program import Action, ExchangeOp, Graph, Message, OpId, Region
from dagc.ir.regions import Regions
from dagc.ir.traversal import Entry, Event, Issue, Stream, Traversal, awaited, recorded
from dagc.space.loops import unroll


@dataclass(frozen=True, slots=True)
class Gap:
    """Why a traversal is not proved. `second` starts at `position` (from 0) of the traversal."""

    position: int
    first: OpId | None
    second: OpId | None
    reason: str


SHOWN = 12  # gaps in a message: each round of a loop has the same


class NotProved(DagcError):
    """A traversal that would race, deadlock or leave work behind (exit code 2)."""

    def __init__(self, gaps: tuple[Gap, ...], where: str = "traversal") -> None:
        self.gaps = gaps
        lines = "".join(f"\n  entry {gap.position + 1}: {gap.reason}" for gap in gaps[:SHOWN])
        if len(gaps) > SHOWN:
            lines += f"\n  and {len(gaps) - SHOWN} more"
        super().__init__(
            f"{where} is not proved:{lines}", "add the missing record, wait or sync, or take an ID of `dagc list`"
        )


@dataclass(frozen=True, slots=True)
class Remote:
    """A kernel that writes what another rank receives: `message` says what, of the exchange `op`.

    `op` waits for it on the receiver: an op of the exchange, or the kernel that reads it, at its start. The receiver
    runs the same traversal. That its ops `users` (bits) have completed, and its run before, is known to the kernel if
    it has waited

    - for one of `frees`, which ends once all ranks have come there, and so after all that is known to have completed
      before it; or
    - for a message from the receiver: of `answers`, (the kernel that wrote it there, the op that waits for it, which
      may be this kernel). Its flag follows all that was known to have completed before that kernel, and what the
      kernel itself has read, by release and acquire at system scope.
    """

    kernel: OpId
    op: OpId
    message: str
    users: int
    frees: tuple[OpId, ...]
    answers: tuple[tuple[OpId, OpId], ...]

    def unknown(self, known: Sequence[int]) -> int:
        """The users of which the kernel does not know that they have completed; also `op`, in the run before, where it
        has heard nothing from the receiver."""
        here = known[self.kernel]
        done = [known[free] for free in self.frees if here >> free & 1]
        here |= 1 << self.kernel  # it waits before it writes
        done += [known[kernel] | 1 << kernel for kernel, waiter in self.answers if here >> waiter & 1]
        left = self.users
        for some in done:
            left &= ~some
        return left if done else self.users | 1 << self.op


def remote_writes(graph: Graph) -> tuple[Remote, ...]:
    """Those of an unrolled graph."""
    exchanges = {put.name: put for e in graph.program.ops if isinstance(e, ExchangeOp) and (put := e.put) is not None}
    frees = tuple(op.id for op in graph.ops if op.action is Action.FREE)
    waiters = {(op.name, number): op.id for op in graph.ops if op.action is Action.GROUP for number, _ in op.messages}
    waiters |= {message: op.id for op in graph.ops if op.kernel is not None for message in op.kernel.awaits}
    messages = [
        (op.id, put.exchange, number, waiters[put.exchange, number])
        for op in graph.ops
        for put in (op.kernel.puts if op.kernel is not None else ())
        for number in put.messages
    ]
    users: dict[tuple[OpId, Region], int] = {}
    for i, j in graph.hazards:
        later = (graph.touches[j].end, graph.touches[j].region)
        users[later] = users.get(later, 0) | 1 << graph.touches[i].end
    out = []
    for kernel, name, number, waiter in messages:
        exchange = exchanges[name]
        message = exchange.messages[number]
        answers = tuple(
            (other, at)
            for other, back, place, at in messages
            if back != name
            and exchange.comm == exchanges[back].comm
            and _turned(message, exchanges[back].messages[place])
        )
        of = users.get((waiter, message.recv), 0) & ~(1 << waiter)
        out.append(Remote(kernel, waiter, message.recv.text, of, frees, answers))
    return tuple(out)


def launches_apart(graph: Graph) -> tuple[tuple[OpId, str], ...]:
    """Launches that join several, of which some blocks neither wait for messages nor are waited for before those of the
    launch are complete, although they must; with the reasons. `Remote` takes a launch as one."""
    ops = [op for op in graph.ops if op.kernel is not None and op.kernel.by_call]
    if not ops:
        return ()
    regions, program = Regions.of(graph.program), graph.program
    exchanges = {put.name: put for e in program.ops if isinstance(e, ExchangeOp) and (put := e.put) is not None}
    received = dict.fromkeys(message.recv for exchange in exchanges.values() for message in exchange.messages)
    out = []
    for op in ops:
        assert op.kernel is not None
        kernel = program.kernel(op.kernel.kernel)
        arguments = dict(zip((f.name for f in kernel.formals), op.kernel.args, strict=True))
        awaited = [exchanges[name].messages[number].recv for name, number in op.kernel.awaits]
        sent = {put.formal for put in op.kernel.puts if put.messages}
        for number, (call, does) in enumerate(zip(kernel.fused, op.kernel.by_call, strict=True)):
            own = {dict(call.names).get(f.name, f.name) for f in call.kernel.formals}
            used = [one for name in own if isinstance(one := arguments[name], Region)]
            what = f"call {number} of `{op.name}`"
            for place, region in enumerate(awaited):
                if place not in does.awaits and (own & sent or any(regions.overlap(region, one) for one in used)):
                    out.append((op.id, f"{what} does not wait for `{region.text}`, which it uses, or answers"))
            met = any(regions.overlap(region, one) for region in received for one in used)
            if not does.counted and (own & sent or met):
                out.append((op.id, f"messages of `{op.name}` may be complete before call {number} has ended"))
    return tuple(out)


def _turned(one: Message, other: Message) -> bool:
    """Whether `other` goes to where `one` comes from, on every rank."""
    unconditional = one.when is None and other.when is None and not isinstance(one.to, str)
    return unconditional and one.to == other.source and one.source == other.to


class Prover:
    """Proves traversals of one graph. Its preparation pays off from the first proof: a few mask operations each.

    Of a folded graph every round is proved; positions and names are those of the unrolled traversal.
    """

    def __init__(self, graph: Graph) -> None:
        self._given = graph
        self.graph = graph = graph.unrolled
        n = len(graph.ops)
        # Per op: what must have completed before it starts, and what must have been issued before it is.
        self._complete = [0] * n
        self._issued = [0] * n
        for u, v in graph.completion:
            self._complete[v] |= 1 << u
        for i, j in graph.hazards:
            first, second = graph.touches[i].end, graph.touches[j].begin
            if first != second:
                self._complete[second] |= 1 << first
        for u, v in graph.order:
            self._issued[v] |= 1 << u
        for wait, post in graph.matches:
            self._issued[wait] |= 1 << post
        self._remote = remote_writes(graph)
        self._apart = launches_apart(graph)
        for remote in self._remote:
            self._issued[remote.op] |= 1 << remote.kernel
        for before, free in pairwise(op.id for op in graph.ops if op.action is Action.FREE):  # they share their flags
            self._complete[free] |= 1 << before
        kernels = [(op.id, op.kernel) for op in graph.ops if op.kernel is not None]
        self._waiting = [op for op, kernel in kernels if kernel.awaits]
        self._writing = [op for op, kernel in kernels if kernel.sends]
        self._gpu = [op.gpu for op in graph.ops]
        self._end = OpId(n - 1)
        self._all = (1 << n) - 1
        self._complete[self._end] |= self._all & ~(1 << self._end)

    def proved(self, traversal: Traversal) -> bool:
        """Whether the traversal is proved. Fast; `gaps` gives the reasons if it is not."""
        return not self._run(traversal, first_only=True)

    def gaps(self, traversal: Traversal) -> tuple[Gap, ...]:
        """Everything that is missing; empty if the traversal is proved."""
        return tuple(self._run(traversal, first_only=False))

    def prove(self, traversal: Traversal, where: str = "traversal") -> None:
        """Raises NotProved."""
        gaps = self.gaps(traversal)
        if gaps:
            raise NotProved(gaps, f"{where}, unrolled," if self._given.folding is not None else where)

    def _run(self, traversal: Traversal, *, first_only: bool) -> list[Gap]:
        _, traversal = unroll(self._given, traversal)
        gaps: list[Gap] = []
        issued = 0
        at: dict[OpId, tuple[int, int]] = {}  # of what is issued: position, what is known to have completed
        complete, before = self._complete, self._issued
        for position, entry, known in _issues(traversal):
            op, bit = entry.op, 1 << entry.op
            if (
                complete[op] & ~known
                or before[op] & ~issued
                or issued & bit
                or self._gpu[op] != (entry.stream is not None)
            ):
                gaps += self._missing(position, entry, known, issued)
                if first_only:
                    return gaps
            issued |= bit
            at[op] = position, known
        gaps += self._overwritten(at)
        gaps += self._blocked(at)
        gaps += [Gap(at[op][0], None, op, reason) for op, reason in self._apart if op in at]
        if issued != self._all or traversal.entries[-1] != Issue(self._end):
            gaps.append(self._incomplete(traversal, issued))
        return gaps

    def _overwritten(self, at: Mapping[OpId, tuple[int, int]]) -> Iterator[Gap]:
        """What other ranks may write too early. Only in traversals that issue every op."""
        ops = self.graph.ops
        known = [at[op.id][1] for op in ops] if self._remote and len(at) == len(ops) else []
        for remote in self._remote if known else ():
            left = remote.unknown(known)
            for u in (u for u in range(len(ops)) if left >> u & 1):
                name = ops[remote.kernel].name
                user = f"`{ops[u].name}`{' of the run before' if u == remote.op else ''}"
                reason = f"`{name}` may write `{remote.message}` of another rank before {user} has completed there"
                yield Gap(at[remote.kernel][0], OpId(u), remote.kernel, reason)

    def _blocked(self, at: Mapping[OpId, tuple[int, int]]) -> Iterator[Gap]:
        """Kernels whose waiting blocks may keep others from the GPU that other ranks wait for.

        They wait for kernels that are issued before them. Suppose that one of all kernels that write messages never
        completes on some rank, take the first, and of what must complete before it the first that never does. It waits
        for none but earlier ones, and so has no room: a kernel that waits has it, and was issued later, as it waits
        for earlier ones. But it started once all writers that were issued before it had completed.
        """
        for op in self._waiting:
            position, known = at.get(op, (0, -1))
            for writer in self._writing:
                if writer != op and at.get(writer, (position,))[0] < position and not known >> writer & 1:
                    name, other = self.graph.ops[op].name, self.graph.ops[writer].name
                    reason = f"`{name}` may wait for other ranks on all of the GPU before `{other}` has completed"
                    yield Gap(position, writer, op, reason)

    def known(self, traversal: Traversal) -> list[int]:
        """For each op of the unrolled graph, the set of ops (as bits) that have completed before it starts."""
        out = [0] * len(self.graph.ops)
        for _, entry, known in _issues(unroll(self._given, traversal)[1]):
            out[entry.op] = known
        return out

    # ---- explanations -------------------------------------------------------------------

    def _missing(self, position: int, entry: Issue, known: int, issued: int) -> list[Gap]:
        ops, v = self.graph.ops, entry.op
        name = entry.text(self.graph)
        out = []
        if issued >> v & 1:
            out.append(Gap(position, v, v, f"`{name}` is issued twice"))
        if self._gpu[v] != (entry.stream is not None):
            out.append(Gap(position, None, v, f"`{name}`: a GPU op needs a stream, a CPU op has none"))
        for u in range(len(ops)):
            if (self._issued[v] & ~issued) >> u & 1:
                out.append(Gap(position, OpId(u), v, f"`{name}` must be issued after `{ops[u].name}`"))
            elif (self._complete[v] & ~known) >> u & 1:
                out.append(Gap(position, OpId(u), v, self._race(OpId(u), v, name)))
        return out

    def _race(self, u: OpId, v: OpId, name: str) -> str:
        reason = f"`{name}` may start before `{self.graph.ops[u].name}` has completed"
        for i, j in self.graph.hazards:
            a, b = self.graph.touches[i], self.graph.touches[j]
            if a.end == u and b.begin == v:
                verbs = {Mode.IN: "reads", Mode.OUT: "writes", Mode.INOUT: "updates", Mode.ACCUMULATE: "adds to"}
                return f"{reason}, which {verbs[a.mode]} `{a.region.array}`"
        return reason

    def _incomplete(self, traversal: Traversal, issued: int) -> Gap:
        position = max(0, len(traversal.entries) - 1)
        left = [op.name for op in self.graph.ops if not issued >> op.id & 1]
        if left:
            return Gap(position, None, self._end, "never issued: " + ", ".join(left))
        return Gap(position, None, self._end, "`end` must be the last entry")


def _issues(traversal: Traversal) -> Iterator[tuple[int, Issue, int]]:
    """(position, entry, what is known to have completed before the op starts) of each op, in the order issued."""
    done: dict[Stream | None, int] = {None: 0}  # completed before whatever a stream, or the CPU, starts next
    events: dict[Event, int] = {}
    for position, entry in enumerate(traversal.entries):
        known = done.get(entry.stream, 0) | done[None]
        if entry.op is not None:
            done[entry.stream] = known | 1 << entry.op
            yield position, entry, known
        elif entry.records:
            events[entry.event] = known
        else:
            done[entry.stream] = known | events.get(entry.event, 0)


# ---- redundant sync ops (`--prune-syncs`); comparisons with the Tenzing paper run without it ---------


def prune(traversal: Traversal, prover: Prover) -> Traversal:
    """Drop waits and host syncs that the proof does not need, then unused records.

    Later ones first: what an earlier sync op establishes makes later ones redundant. Events are renumbered.
    Traversals that become equal do the same work and are measured once.
    """
    entries = list(traversal.entries)
    for i in reversed(range(len(entries))):
        if entries[i].waits:
            shorter = entries[:i] + entries[i + 1 :]
            if prover.proved(Traversal(tuple(shorter))):
                entries = shorter
    return renumbered(entries)


def renumbered(entries: Sequence[Entry]) -> Traversal:
    """Entries without the records that nothing waits for. Events are numbered by their records, from 0."""
    used = awaited(entries)
    kept = [e for e in entries if not e.records or e.event in used]
    numbers = {event: Event(number) for number, event in enumerate(recorded(kept))}
    # All at once: in a loop a wait may stand before its record.
    return Traversal(tuple(e if e.op is not None else replace(e, event=numbers[e.event]) for e in kept))
