"""The operations of all ranks as those of one program: which are the same, which only some ranks run, which lines their
messages are, and the memory that they name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import chain
from typing import TypeAlias

from dagc.base.errors import UsageError
from dagc.record.flow import (
    Flow,
    HostWait,
    KernelCall,
    MessageEnd,
    Messages,
    Move,
    Op,
    PointerArgument,
    ScalarArgument,
    Set,
    Together,
    touched,
)
from dagc.record.log import PIECES, Alloc, MemoryPlace, RankLog, joined
from dagc.record.loop import Window

Key: TypeAlias = tuple[object, ...]


class Differs(UsageError):
    """The ranks, or the rounds, are not those of one loop; another beginning of its rounds may do."""


class OtherMemory(Differs):
    """Memory of the host with data for later rounds is other memory in each: rounds with several steps may do."""


@dataclass(frozen=True, slots=True)
class MessageLine:
    """A message of an exchange. `sends[r]`, `receives[r]`: positions among those of rank r's exchange; None: none."""

    sends: tuple[int | None, ...]
    receives: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class ProgramStep:
    """An operation of the program. `ops[r][t]`: that of rank r in round t; None on a rank that does not run it."""

    key: Key
    ops: tuple[tuple[Op, ...] | None, ...]
    lines: tuple[MessageLine, ...] = ()

    @property
    def first(self) -> Op:
        return next(ops[0] for ops in self.ops if ops)

    @property
    def partial(self) -> bool:
        return any(ops is None for ops in self.ops)

    def slot(self, rank: int, slot: str) -> str:
        """That of a place of an operation on all ranks: the ends of an exchange have other positions on other ranks,
        their lines do not. `send none-1` and the like: in no line."""
        kind, _, index = slot.partition(" ")
        if not index:
            return slot
        ends = [(line.sends if kind == "send" else line.receives)[rank] for line in self.lines]
        return f"{kind} {ends.index(int(index)) if int(index) in ends else f'none-{index}'}"


def steps_of(flows: Sequence[Flow]) -> tuple[ProgramStep, ...]:
    """Raises Differs."""
    of_ranks = []
    for rank, flow in enumerate(flows):
        keyed = [list(_keyed(ops)) for ops in flow.rounds]
        if any(keys != keyed[0] for keys in keyed):
            raise Differs(f"the operations of rank {rank} differ between the rounds of the loop")
        host = [_on_host(ops, flow.rounds) for ops in flow.rounds] if flow.carries else [[]]
        if any([at is None for at in one] != [at is None for at in host[0]] for one in host):
            raise Differs(f"the host of rank {rank} computes in some rounds what it keeps in others")
        if any(places != host[0] for places in host):
            raise OtherMemory(f"the host of rank {rank} keeps data for later rounds, each time in other memory")
        of_ranks.append(keyed[0])
    order = of_ranks[0]
    for keys in of_ranks[1:]:
        order = _merged(order, keys)
    return tuple(_step(key, flows, of_ranks) for key in order)


def _on_host(ops: Sequence[Op], rounds: Sequence[Sequence[Op]]) -> list[int | None]:
    """The addresses of the host in operations: 0 for one that no other round has; None for what the host computes."""
    used = Counter(at for one in rounds for at in {p.offset for op in one for _, p in places_in(op) if p.block is None})
    return [
        None if isinstance(op, Move) and op.computed else place.offset * (used[place.offset] > 1)
        for op in ops for _, place in places_in(op) if place.block is None
    ]  # fmt: skip


def _keyed(ops: Sequence[Op]) -> Iterator[Key]:
    """A key of each operation that is the same on all ranks that run it."""
    seen: Counter[Key] = Counter()
    for op in ops:
        match op:
            case KernelCall():
                key: Key = ("kernel", op.kernel, op.at)
            case Together():
                key = ("together", op.op, op.at)
            case Messages():
                key = ("exchange",)
            case Move():
                buffers = (place.block for place in (op.source, op.to) if isinstance(place.block, str))
                key = ("Move", op.at, *buffers)
            case _:
                key = (type(op).__name__, op.at)
        seen[key] += 1
        yield (*key, seen[key])


def _merged(a: list[Key], b: list[Key]) -> list[Key]:
    """A sequence that both are parts of."""
    out: list[Key] = []
    for kind, i, j, k, end in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        out += a[i:j] if kind == "equal" else [*a[i:j], *b[k:end]]
    twice = [key for key, count in Counter(out).items() if count > 1]
    if twice:
        raise UsageError(f"the ranks run {_shown(twice[0])} in different orders", "record a loop with one order")
    return out


def _shown(key: Key) -> str:
    return " ".join(str(part) for part in key[:-1])


def _step(key: Key, flows: Sequence[Flow], keys: Sequence[list[Key]]) -> ProgramStep:
    ops: list[tuple[Op, ...] | None] = []
    for flow, of_rank in zip(flows, keys, strict=True):
        at = of_rank.index(key) if key in of_rank else None
        ops.append(None if at is None else tuple(_alike([round[at] for round in flow.rounds])))
    lines: tuple[MessageLine, ...] = ()
    if key[0] in ("exchange", "together"):
        if any(op is None for op in ops):
            missing = [str(rank) for rank, op in enumerate(ops) if op is None]
            raise Differs(f"rank {', '.join(missing)} does not take part in {_shown(key)}")
        if key[0] == "exchange":
            lines = _lines([_named(op[0], flow) for op, flow in zip(ops, flows, strict=True) if op])
            if not lines:
                raise UsageError(
                    "all messages of an exchange are to or from MPI_PROC_NULL, so what it moves is not known",
                    "record with more ranks (mpiexec -n)",
                )
            ops = [tuple(_within(one, rank, lines) for one in op or ()) for rank, op in enumerate(ops)]
    return ProgramStep(key, tuple(ops), lines)


def _named(op: Op, flow: Flow) -> Messages:
    """The messages of a rank with memory by where it is allocated, which is the same on all ranks; events are not."""
    assert isinstance(op, Messages)
    names: dict[int, str] = {}
    seen: Counter[str] = Counter()
    for alloc in sorted(flow.memory.known.values(), key=lambda one: one.memory):
        seen[alloc.at] += 1
        names[alloc.memory] = f"{alloc.at} {seen[alloc.at]}"

    def end(one: MessageEnd) -> MessageEnd:
        place = one.place
        if place is None or not isinstance(place.block, int) or place.block not in names:
            return one
        return replace(one, place=replace(place, block=names[place.block]))

    return replace(op, sends=tuple(map(end, op.sends)), receives=tuple(map(end, op.receives)))


def _within(op: Op, rank: int, lines: Sequence[MessageLine]) -> Op:
    """The messages without the places of those to no rank that no line has: the program does not name them."""
    assert isinstance(op, Messages)
    sends, receives = ({line.sends[rank] for line in lines}, {line.receives[rank] for line in lines})
    return replace(
        op,
        sends=tuple(e if i in sends else replace(e, place=None) for i, e in enumerate(op.sends)),
        receives=tuple(e if i in receives else replace(e, place=None) for i, e in enumerate(op.receives)),
    )


def _alike(ops: Sequence[Op]) -> Iterator[Op]:
    """The operations of all rounds, each of which touches what they touch together."""
    for op in ops:
        if isinstance(op, KernelCall):
            columns = zip(*(one.args for one in ops if isinstance(one, KernelCall)), strict=True)
            op = replace(op, args=tuple(_together(op.args[k], column) for k, column in enumerate(columns)))
        yield op


def _together(
    one: PointerArgument | ScalarArgument, column: Sequence[PointerArgument | ScalarArgument]
) -> PointerArgument | ScalarArgument:
    if not isinstance(one, PointerArgument):
        return one
    pointers = [p for p in column if isinstance(p, PointerArgument)]
    reads = [p.reads for p in pointers if p.reads is not None]
    writes = [p.writes for p in pointers if p.writes is not None]
    if len(reads) < len(column) or len(writes) < len(column):
        return replace(one, reads=None, writes=None)
    return replace(one, reads=joined(chain(*reads), PIECES), writes=joined(chain(*writes), PIECES))


# ---- messages ----


def _lines(exchanges: Sequence[Messages]) -> tuple[MessageLine, ...]:
    """The messages of one exchange on all ranks: lines by the calls, or by the calls and the memory where ranks give
    one call different memory, such as a row to the rank above here, and to the rank below there."""
    lines = _lines_by(_site, exchanges)
    if not all(_of_one_kind(line, exchanges) for line in lines):
        lines = _lines_by(_site_and_memory, exchanges)
    return _joined(lines) if _crosses(exchanges) else lines


def _crosses(exchanges: Sequence[Messages]) -> bool:
    """Whether a rank sends from memory into which another receives, so that this has other variables for the same."""
    sends = [(rank, end.place) for rank, e in enumerate(exchanges) for end in e.sends if end.place is not None]
    receives = [(rank, end.place) for rank, e in enumerate(exchanges) for end in e.receives if end.place is not None]
    return any(a != b and one.block is not None and one.overlaps(other) for a, one in sends for b, other in receives)


def _joined(lines: Sequence[MessageLine]) -> tuple[MessageLine, ...]:
    """Those of different ranks, which have different calls, as one line."""
    out: list[MessageLine] = []
    for line in lines:
        for number, other in enumerate(out):
            pairs = [*zip(line.sends, other.sends, strict=True), *zip(line.receives, other.receives, strict=True)]
            if all(a is None or b is None for a, b in pairs):
                ends = [b if a is None else a for a, b in pairs]
                out[number] = MessageLine(tuple(ends[: len(line.sends)]), tuple(ends[len(line.sends) :]))
                break
        else:
            out.append(line)
    return tuple(out)


def _of_one_kind(line: MessageLine, exchanges: Sequence[Messages]) -> bool:
    """Whether all ranks send from one array and receive in one, and where both are the same in one order."""
    sends = [None if at is None else e.sends[at].place for at, e in zip(line.sends, exchanges, strict=True)]
    receives = [None if at is None else e.receives[at].place for at, e in zip(line.receives, exchanges, strict=True)]
    blocks = [{place.block for place in places if place is not None} for places in (sends, receives)]
    both = [(s, r) for s, r in zip(sends, receives, strict=True) if s is not None and r is not None]
    orders = {s.offset < r.offset for s, r in both if s.block == r.block}
    return all(len(of) <= 1 for of in blocks) and len(orders) <= 1


def _lines_by(
    site: Callable[[Sequence[MessageEnd], int], Key], exchanges: Sequence[Messages]
) -> tuple[MessageLine, ...]:
    """As few lines as possible in which no rank sends, or receives, twice."""
    messages = list(_matched(exchanges))
    lines: list[tuple[list[int | None], list[int | None], set[Key]]] = []
    for source, send, target, receive in messages:
        key = site(exchanges[source].sends, send)
        fits = [line for line in lines if line[0][source] is None and line[1][target] is None]
        line = next((line for line in fits if key in line[2]), None)
        if line is None:
            none: list[int | None] = [None] * len(exchanges)
            line = (none, none.copy(), {key})
            lines.append(line)
        line[0][source], line[1][target] = send, receive
    for rank, exchange in enumerate(exchanges):  # what a rank at the border would send and receive
        _borders(rank, exchange.sends, [(line[0], line[2]) for line in lines], site)
        sites = [{site(exchanges[r].receives, at) for r, at in enumerate(line[1]) if at is not None} for line in lines]
        _borders(rank, exchange.receives, [(line[1], keys) for line, keys in zip(lines, sites, strict=True)], site)
    return tuple(MessageLine(tuple(sends), tuple(receives)) for sends, receives, _ in lines)


def _borders(
    rank: int, ends: Sequence[MessageEnd], lines: Sequence[tuple[list[int | None], set[Key]]],
    site: Callable[[Sequence[MessageEnd], int], Key],
) -> None:  # fmt: skip
    for index, end in enumerate(ends):
        if end.peer < 0:
            free = (ranks for ranks, sites in lines if ranks[rank] is None and site(ends, index) in sites)
            for ranks in free:
                ranks[rank] = index
                break


def _site(ends: Sequence[MessageEnd], index: int) -> Key:
    end = ends[index]
    return end.at, end.tag, sum(other.at == end.at and other.tag == end.tag for other in ends[:index])


def _site_and_memory(ends: Sequence[MessageEnd], index: int) -> Key:
    place = ends[index].place
    return *_site(ends, index)[:2], *((place.block, place.offset) if place is not None else ())


def _matched(exchanges: Sequence[Messages]) -> Iterator[tuple[int, int, int, int]]:
    """(rank that sends, its send, rank that receives, its receive) of each message, in MPI's order."""
    taken: set[tuple[int, int]] = set()
    for source, exchange in enumerate(exchanges):
        for index, send in enumerate(exchange.sends):
            if send.peer < 0:
                continue
            others = exchanges[send.peer].receives if send.peer < len(exchanges) else ()
            found = next(
                (at for at, receive in enumerate(others)
                 if receive.peer == source and receive.tag == send.tag and (send.peer, at) not in taken),
                None,
            )  # fmt: skip
            if found is None:
                raise Differs(f"{send.at}: rank {source} sends to rank {send.peer}, which receives it in another round")
            taken.add((send.peer, found))
            yield source, index, send.peer, found
    for rank, exchange in enumerate(exchanges):
        for at, receive in enumerate(exchange.receives):
            if receive.peer >= 0 and (rank, at) not in taken:
                raise Differs(f"{receive.at}: rank {rank} receives from rank {receive.peer}, which sends it elsewhere")


# ---- memory ----


@dataclass(frozen=True, slots=True)
class MemoryBlock:
    """Memory that the program names. `key`: the same on all ranks; `numbers[r]`: of the event that allocated it on rank
    r; `bytes[r]`: its size; None where a rank does not have it. `kind`: device, pinned, symbol (a variable of the GPU's
    memory, with the type `of`), host, buffer. `fresh`: whether the rounds allocate it first; `lasts`: whether it is
    allocated when they begin."""

    key: Key
    kind: str
    text: str
    numbers: tuple[int | None, ...]
    bytes: tuple[int | None, ...]
    of: str = ""
    fresh: bool = False
    lasts: bool = True


def places_in(op: Op) -> tuple[tuple[str, MemoryPlace], ...]:
    """The places that an operation names, with what they are to it. `send 0` and the like: of an exchange's ends."""
    match op:
        case KernelCall():
            return tuple((str(i), a.place) for i, a in enumerate(op.args) if isinstance(a, PointerArgument))
        case Move() | Together():
            given = isinstance(op, Move) and op.computed and op.rows == 1  # an array of its own in the program
            (source,), (to,) = touched(op)
            return (("to", to),) if given else (("to", to), ("source", source))
        case Set():
            return (("to", op.to),)
        case HostWait():
            return ()
        case Messages():
            ends = [
                *(("send", i, e) for i, e in enumerate(op.sends)),
                *(("recv", i, e) for i, e in enumerate(op.receives)),
            ]
            return tuple((f"{kind} {i}", end.place) for kind, i, end in ends if end.place is not None)


class Blocks:
    """The blocks of the places of all steps."""

    def __init__(self, logs: Sequence[RankLog], found: Sequence[Window], steps: Sequence[ProgramStep]) -> None:
        self._ranks = len(logs)
        self._before = [log.before(window.starts[0]) for log, window in zip(logs, found, strict=True)]
        self._keys = _paired([_allocations(log) for log in logs], steps)
        self._parents: dict[Key, Key] = {}
        self._host: dict[tuple[int, int, Key], MemoryPlace] = {}  # by rank, round, and user
        for number, step in enumerate(steps):
            self._collect(number, step)
        self._join()
        self.all: dict[Key, MemoryBlock] = {}

    def _collect(self, number: int, step: ProgramStep) -> None:
        for rank, ops in enumerate(step.ops):
            for round, op in enumerate(ops or ()):
                for slot, place in places_in(op):
                    if place.block is None:
                        user = self._user(number, step, rank, slot)
                        self._host[rank, round, user] = place
                        self._parents.setdefault(user, user)

    @staticmethod
    def _user(number: int, step: ProgramStep, rank: int, slot: str) -> Key:
        kind, _, index = step.slot(rank, slot).partition(" ")
        return number, kind, index

    def _root(self, user: Key) -> Key:
        while self._parents[user] != user:
            user = self._parents[user]
        return user

    def _join(self) -> None:
        rounds: dict[tuple[int, int], list[tuple[Key, MemoryPlace]]] = {}
        for (rank, round, user), place in self._host.items():
            rounds.setdefault((rank, round), []).append((user, place))
        for users in rounds.values():
            users.sort(key=lambda item: item[1].offset)
            end, last = -1, users[0][0]
            for user, place in users:
                if place.offset < end:
                    self._parents[self._root(user)] = self._root(last)
                end, last = max(end, place.offset + place.bytes), user

    def find(
        self, number: int, step: ProgramStep, rank: int, round: int, slot: str, place: MemoryPlace
    ) -> tuple[MemoryBlock, int]:
        """The block of a place, and the bytes before the place in it."""
        if isinstance(place.block, int):
            return self._allocation(rank, place.block), place.offset
        if isinstance(place.block, str):
            return self._buffer(rank, place), place.offset
        root = self._root(self._user(number, step, rank, slot))
        members = [p for (r, t, u), p in self._host.items() if (r, t) == (rank, round) and self._root(u) == root]
        begin = min(p.offset for p in members)
        size = max(p.offset + p.bytes for p in members) - begin
        return self._known(("host", *root), "host", "", rank, None, size), place.offset - begin

    def symbols(self) -> Iterator[MemoryBlock]:
        """The variables of the GPU's memory that the host set."""
        for number, (alloc, _) in self._keys[0].items():
            if alloc.kind == "symbol":
                yield replace(self._allocation(0, number), of=alloc.of)

    def _allocation(self, rank: int, number: int) -> MemoryBlock:
        key = self._keys[rank][number][1]
        if key in self.all:
            return self.all[key]
        for other in range(self._ranks):
            for n, (its, its_key) in self._keys[other].items():
                if its_key == key:
                    self._known(key, its.kind, its.text, other, n, its.bytes)
        return self.all[key]

    def _buffer(self, rank: int, place: MemoryPlace) -> MemoryBlock:
        return self._known(("buffer", place.block), "buffer", "", rank, None, place.offset + place.bytes)

    def _known(self, key: Key, kind: str, text: str, rank: int, number: int | None, size: int) -> MemoryBlock:
        old = self.all.get(key)
        none: tuple[int | None, ...] = (None,) * self._ranks
        numbers, sizes = list(old.numbers if old else none), list(old.bytes if old else none)
        numbers[rank], sizes[rank] = number, max(size, sizes[rank] or 0)
        known = [(n, memory) for n, memory in zip(numbers, self._before, strict=True) if n is not None]
        fresh = any(n not in memory.known for n, memory in known)
        lasts = all(any(n == one.memory for one in memory.blocks.values()) for n, memory in known)
        texts = old.text if old else text
        self.all[key] = MemoryBlock(key, kind, texts, tuple(numbers), tuple(sizes), fresh=fresh, lasts=lasts)
        return self.all[key]


def _allocations(log: RankLog) -> dict[int, tuple[Alloc, Key]]:
    """By number, each with its key: its place in the source, and which of those of this place it is."""
    seen: Counter[str] = Counter()
    out: dict[int, tuple[Alloc, Key]] = {}
    for number, alloc in log.memory().items():
        seen[alloc.at] += 1
        out[number] = (alloc, ("alloc", alloc.at, seen[alloc.at]))
    return out


def _paired(
    ranks: Sequence[dict[int, tuple[Alloc, Key]]], steps: Sequence[ProgramStep]
) -> list[dict[int, tuple[Alloc, Key]]]:
    """With one key for what kernels, copies and messages use as the same array, where ranks have other variables for
    it: a rank may send to the right what another sends to the left. Those that two ranks use as the same at any place
    stay."""
    out = [ranks[0]]
    for rank, own in enumerate(ranks[1:], start=1):
        used = [(a, b) for step in steps for a, b in _allocated_places(step, rank)]
        pairs = [(ranks[0][a][1], own[b][1]) for a, b in used if a in ranks[0] and b in own]
        theirs = {a: a for a, b in pairs if a == b}  # by the key of rank 0, that of this rank
        for a, b in pairs:
            if a not in theirs and b not in theirs.values():
                theirs[a] = b
        renamed = {b: a for a, b in theirs.items()}
        for _, key in own.values():
            free = key
            while free in theirs and key not in renamed:  # its name is that of another now, whose name may be free
                free = theirs[free]
            renamed.setdefault(key, free)
        out.append({number: (alloc, renamed[key]) for number, (alloc, key) in own.items()})
    return out


def _allocated_places(step: ProgramStep, rank: int) -> Iterator[tuple[int, int]]:
    """The memory that one step uses as the same, on rank 0 and on this one: numbers of what allocated it."""
    first, other = step.ops[0], step.ops[rank]
    if first is None or other is None or not isinstance(first[0], (KernelCall, Move, Messages)):
        return
    theirs = {step.slot(rank, slot): place for slot, place in places_in(other[0])}
    for slot, place in places_in(first[0]):
        partner = theirs.get(step.slot(0, slot))
        if partner is not None and isinstance(place.block, int) and isinstance(partner.block, int):
            yield place.block, partner.block
