"""What an edit changes for the machine, in words: what follows from the traversals alone, not from times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from dagc.base.errors import counted
from dagc.ir.graph import Action, Graph
from dagc.ir.traversal import Event, Issue, Record, Sync, Traversal, Wait
from dagc.learn.rules.features import Naming
from dagc.store.results import Configuration, shown

_MOST = 3  # facts in a sentence
_BLOCKING = (Action.WAIT_SEND, Action.WAIT_RECV, Action.WAIT_COLLECTIVE)
_POSTS = (Action.POST_SEND, Action.POST_RECV, Action.POST_COLLECTIVE)


@dataclass(frozen=True, slots=True)
class _Facts:
    """Of one traversal, by the names of ops and sync ops.

    stream    of each GPU op
    waited    CES-b4-v, CSWE-after-u -> ops that it waits for although what comes after it does not need them
    behind    per op: waits of the CPU before it is issued, by name
    place     per op: entries before it
    syncs     number of sync ops
    """

    stream: dict[str, int]
    waited: dict[str, frozenset[str]]
    behind: dict[str, tuple[str, ...]]
    place: dict[str, int]
    syncs: int


def mechanism(graph: Graph, best: Traversal, edit: Traversal, about: Sequence[str]) -> str:
    """A sentence on what `edit` changes against `best`, both of one graph; "" where nothing can be said.

    `about`: names in the rule; what concerns them is said first.
    """
    before, after = _facts(graph, best), _facts(graph, edit)
    changes = [*_waits(before, after), *_streams(graph, before, after), *_launches(graph, before, after)]
    changes.sort(key=lambda fact: -len({*about} & {*fact[0]}))  # stable
    out = [text for _, text in changes[:_MOST]] or list(_posts(graph, before, after))[:_MOST]
    if before.syncs != after.syncs:
        more = after.syncs - before.syncs
        out.append(f"{counted(abs(more), 'sync op')} {'more' if more > 0 else 'fewer'}")
    return "; ".join(out)


def changes(best: Configuration, edit: Configuration) -> str:
    """`transport mpi_host instead of nccl`."""
    names = sorted({name for name, _ in (*best.decisions, *edit.decisions)})
    pairs = [(name, best.get(name), edit.get(name)) for name in names]
    return ", ".join(
        f"{name} {'not there' if new is None else shown(new)} instead of {'not there' if old is None else shown(old)}"
        for name, old, new in pairs
        if old != new
    )


def _facts(graph: Graph, traversal: Traversal) -> _Facts:
    names: list[list[str]] = [[] for _ in traversal.entries]
    for name, position in Naming.of(graph).positions(traversal).items():
        names[position].append(name)
    needs = _needs(graph)
    stream: dict[str, int] = {}
    lanes: dict[int, list[str]] = {}
    covers: dict[Event, frozenset[str]] = {}
    waited: dict[str, frozenset[str]] = {}
    behind: dict[str, tuple[str, ...]] = {}
    place: dict[str, int] = {}
    waits: list[str] = []
    for position, entry in enumerate(traversal.entries):
        match entry:
            case Issue(op, lane):
                name = graph.ops[op].name
                behind[name], place[name] = tuple(waits), position
                if lane is not None:
                    stream[name] = int(lane)
                    lanes.setdefault(int(lane), []).append(name)
                elif graph.ops[op].action in _BLOCKING:
                    waits.append(name)
            case Record(event, lane):
                covers[event] = frozenset(lanes.get(int(lane), ()))
            case Wait(event, _) | Sync(event):
                for name in names[position]:
                    host = name.removeprefix("CES-b4-")
                    waited[name] = covers[event] - needs[host if host != name else _next(graph, traversal, position)]
                if isinstance(entry, Sync) and names[position]:
                    waits.append(names[position][0])
    syncs = sum(not isinstance(entry, Issue) for entry in traversal.entries)
    return _Facts(stream, waited, behind, place, syncs)


def _next(graph: Graph, traversal: Traversal, position: int) -> str:
    """The op that the stream's wait at `position` is in front of."""
    wait = traversal.entries[position]
    assert isinstance(wait, Wait)
    lane = wait.stream
    later = traversal.entries[position:]
    return next(graph.ops[e.op].name for e in later if isinstance(e, Issue) and e.stream == lane)


_Fact = tuple[tuple[str, ...], str]  # names that it is about, text


def _waits(before: _Facts, after: _Facts) -> Iterable[_Fact]:
    """A wait that waits for more, or less, than before."""
    for name in sorted(before.waited.keys() & after.waited.keys()):
        more, less = after.waited[name] - before.waited[name], before.waited[name] - after.waited[name]
        if more:
            yield (name, *sorted(more)), f"{name} waits for {_listed(more)} too"
        if less:
            yield (name, *sorted(less)), f"{name} no longer waits for {_listed(less)}"


def _streams(graph: Graph, before: _Facts, after: _Facts) -> Iterable[_Fact]:
    """Ops that now share a stream, or no longer do."""
    needs = _needs(graph)
    direct = {(graph.ops[u].name, graph.ops[v].name) for u, v in graph.completion}
    for a, b in combinations([op.name for op in graph.ops if op.gpu], 2):
        shared, share = before.stream[a] == before.stream[b], after.stream[a] == after.stream[b]
        if shared == share:
            continue
        first, second = sorted((a, b), key=lambda name: after.place[name])
        ordered = first in needs[second]
        if ordered and (first, second) not in direct:
            continue
        if share:
            text = f"{second} follows {first} in its stream" + ("" if ordered else ", and waits for it")
        elif ordered:
            text = f"{second} is in another stream than {first}, and waits for it by an event"
        else:
            text = f"{first} and {second} may overlap"
        yield (a, b), text


def _launches(graph: Graph, before: _Facts, after: _Facts) -> Iterable[_Fact]:
    """GPU ops and messages that the CPU gets to after more, or fewer, of its waits."""
    for op in graph.ops:
        if not op.gpu and op.action not in _POSTS:
            continue
        name, verb = op.name, "issued" if op.gpu else "posted"
        old, new = before.behind[name], after.behind[name]
        more, less = [w for w in new if w not in old], [w for w in old if w not in new]
        if more:
            yield (name, *more), f"{name} is {verb} only after {_listed(more)}"
        elif less:
            yield (name, *less), f"{name} is {verb} before {_listed(less)}"


def _posts(graph: Graph, before: _Facts, after: _Facts) -> Iterable[str]:
    """Sends that are posted later or earlier."""
    for op in graph.ops:
        moved = after.place[op.name] - before.place[op.name]
        if moved and op.action in (Action.POST_SEND, Action.POST_COLLECTIVE):
            entries = f"{abs(moved)} entr{'ies' if abs(moved) > 1 else 'y'}"
            yield f"{op.name} is posted {entries} {'later' if moved > 0 else 'earlier'}"


def _needs(graph: Graph) -> dict[str, set[str]]:
    """Per op: those that must have completed before it, however far back."""
    ancestors: dict[int, set[int]] = {op.id: set() for op in graph.ops}
    changed = True
    while changed:
        changed = False
        for u, v in graph.completion:
            wanted = ancestors[u] | {u}
            if not wanted <= ancestors[v]:
                ancestors[v] |= wanted
                changed = True
    return {graph.ops[v].name: {graph.ops[u].name for u in needs} for v, needs in ancestors.items()}


def _listed(names: Iterable[str]) -> str:
    ordered = sorted(names) if isinstance(names, (set, frozenset)) else list(names)
    shown_names = ordered[:3] + ([f"{len(ordered) - 3} more"] if len(ordered) > 3 else [])
    return " and ".join(shown_names) if len(shown_names) < 3 else f"{', '.join(shown_names[:-1])} and {shown_names[-1]}"
