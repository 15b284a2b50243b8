"""The loop in the events of a run: the smallest period of the sequence, and where its rounds begin on each rank; and
what no program expresses in it, which is said before anything is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import TypeAlias

from dagc.base.errors import RunFailed, UsageError, counted
from dagc.base.python import np
from dagc.record.libraries import ROUTINES
from dagc.record.log import (
    Alloc,
    CollectiveCall,
    CopyCall,
    Event,
    Fill,
    Finalize,
    LaunchArgument,
    LaunchCall,
    MarkCall,
    Memory,
    MessageCall,
    RankLog,
    Sync,
    Unsupported,
)

Key: TypeAlias = tuple[object, ...]

LONGEST = 4000  # events of a round
_WORKS = ("LaunchCall", "Send", "Recv", "CollectiveCall")
_NEW = 2  # calls of a place with the same memory of the host, which may have been allocated again
_SHARE = 0.75  # of the events that equal those one period later, for the smallest period to count as the loop's


@dataclass(frozen=True, slots=True)
class Window:
    """The rounds of a rank: `starts[i]` is the index of the first event of round i, the last that of the end."""

    starts: tuple[int, ...]

    @property
    def rounds(self) -> int:
        return len(self.starts) - 1


def keys_of(log: RankLog, of_host: bool = False) -> list[Key]:
    """What is the same in each round: all but values, requests and, unless `of_host`, addresses of the host."""
    memory, out = Memory(), []
    uses = Counter(use for event in log.events if of_host for use in _uses(event))
    for event in log.events:
        memory.apply(event)
        out.append(_key(event, memory, uses))
    return out


def _uses(event: Event) -> Iterator[tuple[str, int]]:
    """The addresses in copies and messages, each with the place of its call."""
    match event:
        case CopyCall():
            yield from ((event.at, event.to), (event.at, event.from_))
        case MessageCall():
            yield event.at, event.buf
        case CollectiveCall():
            yield from ((event.at, event.send), (event.at, event.recv))
        case _:
            pass


def _key(event: Event, memory: Memory, uses: Mapping[tuple[str, int], int]) -> Key:
    """`uses`: of addresses of the host, which count where there are several of a place: others are each time new."""

    def at(address: int) -> Key:
        place = memory.place(address)
        known = address if uses.get((event.at, address), 0) > _NEW else 0
        return ("host", known) if place.block is None else (place.block, place.offset)

    def argument(one: LaunchArgument) -> Key:
        return at(one.p) if one.is_pointer else (one.of,)

    head = (type(event).__name__, event.at)
    match event:
        case LaunchCall():
            return (*head, event.kernel, event.grid, event.block, event.stream, tuple(map(argument, event.args)))
        case CopyCall():
            return (*head, at(event.to), at(event.from_), event.bytes, event.rows, event.stream)
        case Fill():
            return (*head, at(event.to), event.value, event.bytes, event.rows, event.pitch)
        case MessageCall():
            return (*head, at(event.buf), event.bytes, event.rows, event.peer, event.tag)
        case CollectiveCall():
            return (*head, event.op, at(event.send), at(event.recv), event.bytes)
        case Sync():
            return (*head, event.what)
        case Alloc():
            return (*head, event.bytes)
        case _:
            return head


# ---- marks ----


def between(logs: Sequence[RankLog], begin: str | None, end: str | None) -> tuple[tuple[int, int], ...]:
    """For each rank the indices of the first event and of that after the last between the marks; of the whole run
    without. A mark is NAME, FILE:LINE, NAME#3: the name of a mark of dagc_record.h or of a kernel, its third time.

    Raises UsageError if a rank does not reach a mark.
    """
    named = {event.name for log in logs for event in log.events if isinstance(event, MarkCall)}
    begin = begin or ("BEGIN" if "BEGIN" in named else None)
    end = end or ("END" if "END" in named else None)
    first = [0 if begin is None else _reached(logs, log, begin, "--from", 0) for log in logs]
    last = [
        len(log.events) if end is None else _reached(logs, log, end, "--to", after + 1)
        for log, after in zip(logs, first, strict=True)
    ]
    return tuple(zip(first, last, strict=True))


def _reached(logs: Sequence[RankLog], log: RankLog, mark: str, option: str, after: int) -> int:
    found = _index_of(log, mark, after)
    if found is not None:
        return found
    others = [str(other.rank) for other in logs if _index_of(other, mark, 0) is not None]
    where = f"rank {log.rank}" if others else "no rank"
    reached = f"; rank {', '.join(others)} does" if others and str(log.rank) not in others else ""
    verb = "never reaches" if others else "reaches"
    known = sorted({word for one in logs for event in one.events for word in _words(event)})[:12]
    raise UsageError(
        f"{where} {verb} the mark {mark} of {option}{reached}",
        f"marks that were reached: {', '.join(known)}; or write DAGC_RECORD_BEGIN() of dagc_record.h",
    )


def _words(event: Event) -> tuple[str, ...]:
    match event:
        case MarkCall():
            return (event.name,)
        case LaunchCall():
            return (event.kernel.split("<")[0],)
        case _:
            return ()


def _index_of(log: RankLog, mark: str, after: int) -> int | None:
    name, _, number = mark.partition("#")
    wanted = int(number) if number.isdigit() else 1
    for index, event in enumerate(log.events):
        if index >= after and (name in _words(event) or (":" in name and event.at.endswith(name))):
            wanted -= 1
            if wanted == 0:
                return index
    return None


# ---- the period ----


def period_of(keys: Sequence[Key], begin: int, end: int) -> tuple[int, int, int] | None:
    """(index of the first event, events of a round, rounds) of the loop within a range; None without one.

    Of all periods the smallest with which most events are repeated: a test of convergence in every hundredth step is
    not part of it. Of several loops that with most launches and messages: a loop that computes the result again on one
    GPU has no messages, one that warms up MPI no launches.
    """
    numbers: dict[Key, int] = {}
    codes = np.array([numbers.setdefault(key, len(numbers)) for key in keys[begin:end]], dtype=np.int64)
    works = np.array([key[0] in _WORKS for key in keys[begin:end]], dtype=np.int64)
    before = np.concatenate(([0], np.cumsum(works)))
    launches = np.concatenate(([0], np.cumsum([key[0] == "LaunchCall" for key in keys[begin:end]])))
    best: tuple[float, int, int, int] | None = None
    for period in range(1, min(len(codes) // 2, LONGEST) + 1):
        for start, length in _runs(codes[:-period] == codes[period:], period):
            rounds = (length + period) // period
            share = int(before[start + rounds * period] - before[start]) / max(int(before[-1]), 1)
            if launches[start + period] > launches[start] and (best is None or share > best[0] + 0.02):
                best = (share, start, period, rounds)
        if best is not None and best[0] >= _SHARE:
            break
    return None if best is None else (begin + best[1], best[2], best[3])


def _runs(same: np.ndarray, least: int) -> Iterator[tuple[int, int]]:
    """Begin and length of the runs of True that are so long."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], same.astype(np.int8), [0]))))
    lengths = edges[1::2] - edges[::2]
    return ((int(edges[2 * k]), int(lengths[k])) for k in np.flatnonzero(lengths >= least))


def windows(
    logs: Sequence[RankLog], ranges: Sequence[tuple[int, int]], most: int, of_host: bool = False
) -> Iterator[tuple[Window, ...]]:
    """Windows of all ranks of at most `most` rounds, one for each event that a round may begin with, the likeliest
    first. Without a loop: everything in the range as one round.

    The rounds of all ranks are the same iterations: they begin with as many calls at one place of the source.
    `of_host`: they use the same memory of the host.
    """
    keys = [keys_of(log, of_host) for log in logs]
    found = [period_of(k, *r) for k, r in zip(keys, ranges, strict=True)]
    first = found[0]
    if first is None or any(one is None for one in found):
        yield tuple(Window(r) for r in ranges)
        return
    start, period, rounds = first
    whole = range(start, start + period)
    # Where the loop ends, as what follows it differs; where it is first seen, as what precedes it may be like its end.
    likely = [start + (_repeated(keys[0], start, period) - start) % period, start]
    tried: set[tuple[Key, int]] = set()
    every = [(i, 0) for i in (*likely, *sorted(whole, key=lambda i: _order(logs[0].events[i].at)))]
    # A round later: before the first round other calls than those of a round may have written memory of the host.
    for index, later in [*every, *((i, 1) for i in likely)]:
        place = _place(keys[0][index])
        repeats = sum(_place(key) == place for key in keys[0][start : start + period])
        skipped = sum(_place(key) == place for key in keys[0][:index]) + later * repeats
        complete = (rounds - 1 if index > start else rounds) - later
        made = [_window(k, place, skipped, repeats, min(complete, most)) for k in keys]
        if (place, skipped) not in tried and complete >= 1 and all(window is not None for window in made):
            yield tuple(window for window in made if window is not None)
        tried.add((place, skipped))


def _repeated(keys: Sequence[Key], start: int, period: int) -> int:
    """The index after the last event that equals the one a period before."""
    end = start + period
    while end < len(keys) and keys[end] == keys[end - period]:
        end += 1
    return end


def _place(key: Key) -> Key:
    return key[:3] if key[0] == "LaunchCall" else key[:2]


def _order(at: str) -> tuple[str, int]:
    file, _, line = at.rpartition(":")
    return file, int(line) if line.isdigit() else 0


def _window(keys: Sequence[Key], place: Key, skipped: int, repeats: int, rounds: int) -> Window | None:
    """The window whose rounds begin with every `repeats`-th event of a place; None if its rounds differ."""
    indices = [i for i, key in enumerate(keys) if _place(key) == place]
    starts = indices[skipped : skipped + rounds * repeats + 1 : repeats]
    if len(starts) < rounds:
        return None
    if len(starts) == rounds:  # the last round ends with the loop: as long as the one before
        length = starts[-1] - starts[-2] if rounds > 1 else 0
        if not length or starts[-1] + length > len(keys):
            return None
        starts.append(starts[-1] + length)
    texts = [keys[a:b] for a, b in pairwise(starts)]
    return Window(tuple(starts)) if all(text == texts[0] for text in texts) else None


def described(windows: Sequence[Window]) -> str:
    events = windows[0].starts[1] - windows[0].starts[0]
    return f"{counted(windows[0].rounds, 'round')} of {counted(events, 'call')} on rank 0"


# ---- what is refused ----

_MANAGED = "allocate it with cudaMalloc, and copy with cudaMemcpy where the host uses it"
_LIBRARY = "choose --from and --to without it; an op with `link` calls it in a program that you write"
_HELP = {
    "MPI_Send_init": "use MPI_Isend and MPI_Irecv: the language's messages are persistent anyway",
    "MPI_Recv_init": "use MPI_Isend and MPI_Irecv: the language's messages are persistent anyway",
    "MPI_Win_create": "use messages: the language has no one-sided communication",
    "MPI_Win_allocate": "use messages: the language has no one-sided communication",
    "cudaMemcpyToSymbol": "pass what changes as an argument of the kernel, or set the variable before --from",
    "cudaStreamBeginCapture": "record the application without its graphs: dagc makes its own",
    "an invalid launch": "check the sizes of the grid and the block: the application runs without this kernel",
    "cudaSetDevice": "one GPU for each process: start a rank for each GPU",
}
_OTHERWISE = "choose --from and --to without it, or replace it"


def refuse(logs: Sequence[RankLog], found: Sequence[Window]) -> None:
    """Raises UsageError for what is not expressed within the rounds, RunFailed for a run without its end."""
    for log, window in zip(logs, found, strict=True):
        where = f" (rank {log.rank})" if len(logs) > 1 else ""
        if not log.ended:
            raise RunFailed(
                f"rank {log.rank} ended without its exit functions, after {len(log.events)} calls",
                "end it by exit or return",
            )
        for event in log.events[window.starts[0] : window.starts[-1]]:
            message, help = _refused(event)
            if message:
                if window.rounds <= 1:
                    help += "; no loop was found that repeats, so all calls of the run are looked at"
                raise UsageError(f"{event.at or 'unknown place'}: {message}{where}", help)
        for event in log.events:
            if isinstance(event, Alloc) and event.kind == "managed":
                raise UsageError(f"{event.at}: managed memory, whose copies are in no call{where}", _MANAGED)


def refuse_memory(logs: Sequence[RankLog], ranges: Sequence[tuple[int, int]]) -> None:
    """Raises UsageError for a place that allocates memory several times, with launches in between, which is no array of
    all rounds."""
    for log, (begin, end) in zip(logs, ranges, strict=True):
        made: dict[str, list[Alloc]] = {}
        since: set[str] = set()  # places that allocated since the last launch
        for event in log.events[begin:end]:
            if isinstance(event, Alloc) and event.at not in since:
                made.setdefault(event.at, []).append(event)
                since.add(event.at)
            elif isinstance(event, LaunchCall):
                since.clear()
        for at, all_ in made.items():
            sizes = list(dict.fromkeys(one.bytes for one in all_))
            if len(sizes) > 1:
                what = f"allocates {sizes[0]} bytes, then {sizes[1]}: an array has one size in all rounds"
                raise UsageError(f"{at}: {what}", "allocate the most that is needed")
            if len(all_) > 2 and len({one.memory for one in all_}) == len(all_):
                what = f"allocates memory {counted(len(all_), 'time')}, and none of it was freed before the next"
                raise UsageError(f"{at}: {what}", "free it in the round, or allocate it before the loop")


def _refused(event: Event) -> tuple[str, str]:
    if event.thread and not isinstance(event, Finalize):
        return "a call from a second thread of the process", "record a version that calls CUDA and MPI from one thread"
    if isinstance(event, Alloc) and event.kind == "symbol":
        return f"{event.text.partition(',')[0]} is set in each round", _HELP["cudaMemcpyToSymbol"]
    if isinstance(event, Unsupported):
        call = event.call
        other = _LIBRARY if call.startswith(("curand", "cub::", "thrust::")) else _OTHERWISE
        return f"{call} is not recorded", _HELP.get(call, other)
    if isinstance(event, LaunchCall) and event.library:
        known = f"of cuBLAS, {', '.join(ROUTINES)} are recorded; " if event.library == "cublas" else ""
        return f"{event.library} launches a kernel here, which is in no file of the application", known + _LIBRARY
    if isinstance(event, LaunchCall) and (one := next((a for a in event.args if a.points), None)) is not None:
        return (
            f"{one.type}, an argument of {event.kernel}, has a pointer",
            "pass its pointers as arguments of their own",
        )
    if isinstance(event, MessageCall) and event.type == "derived":
        what = "a message of a derived datatype whose blocks differ in length or in distance"
        return what, "pack it into a buffer of a basic type, with a kernel or cudaMemcpy2D"
    if isinstance(event, CollectiveCall) and event.type == "derived":
        return (
            f"a derived datatype in {event.op}",
            "pack it into a buffer of a basic type, with a kernel or cudaMemcpy2D",
        )
    return "", ""


def differences(first: Sequence[RankLog], second: Sequence[RankLog], found: Sequence[Window], limit: int) -> None:
    """Raises UsageError if the second run made other calls up to the end of the windows, or has no contents."""
    if len(first) != len(second):
        raise UsageError(
            f"a first run had {len(first)} ranks, a second {len(second)}", "record a run that can be repeated"
        )
    for a, b, window in zip(first, second, found, strict=True):
        end = window.starts[-1]
        for one, other, event in zip_longest(keys_of(a)[:end], keys_of(b)[:end], a.events[:end]):
            if one != other:
                at = f"{event.at}: " if event is not None and event.at else ""
                raise UsageError(
                    f"{at}rank {a.rank} made another call in a second run: {_shown(one)}, then {_shown(other)}",
                    "record a run that makes the same calls each time: fixed seeds, numbers of steps, one thread",
                )
        if b.too_large:
            raise UsageError(
                f"the arrays of rank {b.rank} have {b.too_large} bytes, more than the {limit} of --bytes",
                "record a smaller problem, which is the same program, or raise --bytes",
            )


def compare(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> None:
    """Raises UsageError for data of two runs (`recorded_data`) that are not equal to the bit."""
    for key, values in one.items():
        if values.tobytes() != other[key].tobytes():
            when, rank, name = key.split(" ", 2)
            place = "before the rounds" if when == "before" else "after them"
            raise UsageError(
                f"rank {rank} had other values of {name} in another run, {place}",
                "give the verify of what depends on it a tolerance that allows this, and record without --twice; or fix"
                " the seeds and the order of sums",
            )


def _shown(key: Iterable[object] | None) -> str:
    return "none" if key is None else " ".join(str(word) for word in key)
