"""The order of an application (`--original`): which configuration it is of, and what the best has of its time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from dagc.base.errors import UsageError, counted
from dagc.base.source import Source
from dagc.base.statistics import shift_interval
from dagc.ir.choice import Choice
from dagc.ir.program import Graph
from dagc.ir.traversal import Traversal, issued, parse_traversal
from dagc.lab.candidate import Candidate
from dagc.lab.configurations import Configured
from dagc.lab.engine import Summary
from dagc.lab.live import LiveMachine
from dagc.lab.neighbours import ISSUE, Item, follow, outline, translated
from dagc.lab.orders import Orders, OrderStore, candidate_of
from dagc.learn.explain import changes
from dagc.report.display import spread
from dagc.space.moves import Moves
from dagc.stages.options import EarlierOptions
from dagc.stages.program import read_source
from dagc.store.results import Implementation, Results, timed

FEWEST = 2  # pairs of measurements, for their ratio with a range
ORIGINAL = "the order that `dagc record` wrote"


def read_original(path: str) -> Source:
    """The text of `--original`. Raises UsageError, also if it has no entry."""
    source = read_source(path, ORIGINAL, regular=True)
    if not any(line.partition("#")[0].strip() for line in source.text.splitlines()):
        raise UsageError(f"{path}: has no order", f"give the path of {ORIGINAL}")
    return source


def order_of(source: Source, graph: Graph, moves: Moves, exact: bool = True) -> Traversal | str:
    """The order of a file in a configuration, or why it is none of it. Without `exact`, ops by which a transport
    performs an exchange may be others: those that both have are in the order of the file."""
    if not exact and (items := _shared(source.text, graph)):
        return follow(moves, translated(items, {op: op for _, op, _ in items}, moves))
    try:
        found = parse_traversal(source.text, graph, source.path)
        return found if follow(moves, outline(found)) == found else f"{source.path}: not an order of this program"
    except (UsageError, ValueError, KeyError) as error:
        return str(error)


def _shared(text: str, graph: Graph) -> list[Item]:
    """The ops of an order that a graph has too, as an outline; empty if none differ, or others than a transport's."""
    named, ids = issued(text), {op.name: op for op in graph.ops}

    def of_program(names: Iterable[str]) -> set[str]:
        """The ops of the text; an op of an exchange, NAME.PART, stands for the exchange."""
        return {name.partition(".")[0] for name in names}

    names = [name for name, _ in named]
    if of_program(names) != of_program(ids) or sorted(names) == sorted(ids) or len(set(names)) < len(names):
        return []
    return [(ISSUE, int(ids[n].id), stream) for n, stream in named if n in ids and ids[n].gpu == (stream >= 0)]


def of_original(options: EarlierOptions, configurations: Iterable[Configured]) -> Choice | None:
    """The first configuration that has the ops of `--original`."""
    if options.original is None:
        return None
    source, every = read_original(options.original), list(configurations)
    orders = ((c.configuration, order_of(source, c.graph, Moves.of(c.graph), e)) for e in (True, False) for c in every)
    return next((configuration for configuration, order in orders if isinstance(order, Traversal)), None)


def original(options: EarlierOptions, domain: Orders, alike: bool = True) -> Candidate | None:
    """The order of `--original`, in the first configuration that has its ops; where none has, and `alike`, in the first
    that has them but for those of a transport. Raises UsageError if there is none."""
    if options.original is None:
        return None
    source, wrong = read_original(options.original), ""
    for exact in (True, False) if alike else (True,):
        for index, configured in enumerate(domain.spaces):
            found = order_of(source, configured.graph, configured.space.moves, exact)
            if isinstance(found, Traversal):
                return Candidate(index, found, configured.usual)
            wrong = wrong or found
    raise UsageError(wrong, "give an order of this program, as `dagc record` writes it")


def kept(
    options: EarlierOptions, compared: Candidate | None, before: Orders, domain: Orders, notes: list[str]
) -> Candidate | None:
    """The candidate of `--original` in a domain that may lack its configuration, which is noted, as is that its
    transport is another one than that of the file."""
    if compared is None or options.original is None:
        return None
    graph = before.spaces[compared.space].graph
    if isinstance(order_of(read_original(options.original), graph, Moves.of(graph)), str):
        notes.append("--original: a file of another transport, whose ops are left out; the others are in its order")
    number = domain.number(before.spaces[compared.space].configuration)
    if number is None:
        notes.append("--original was not measured: its configuration does not run, which a note or a failure explains")
        return None
    return replace(compared, space=number)


def measured_again(pair: Sequence[Candidate], store: OrderStore, machine: LiveMachine, repeats: int) -> None:
    """In turn, so that both have the same drift."""
    for _ in range(repeats):
        for one in pair:
            store.add(store.begin(one), machine.measure(one))


def against_original(one: Candidate | None, domain: Orders, results: Results, best: Summary[Candidate]) -> str:
    """What the order of `--original` takes, what the best has of it, and the settings that differ; "" without one."""
    lines = () if one is None else beside_original(one, domain, results, best.best, best.value)
    if not lines:
        return "" if one is None else "original   could not be measured"
    more = "".join(f"\n           {line}: dagc explain with --original measures the differences" for line in lines[1:])
    return f"original   {lines[0]}{more}"


def beside_original(
    one: Candidate, domain: Orders, results: Results, best: Candidate | None, value: float
) -> tuple[str, ...]:
    """What the order of an application takes, and what the best, of this value, has of it; then in what the best
    differs. Empty if that order was not measured."""
    every = [(candidate_of(domain, i), i, e) for i, e in timed(results)]
    found = [(i, e) for candidate, i, e in every if candidate == one]
    if not found:
        return ()
    objective, (its, it) = results.objective, found[0]
    interval = spread(it.low, it.high, it.measurements, objective, shrunk=it.shrunk)
    ratio, sure = value / it.value, ""
    pairs = [logs for candidate, i, _ in every if candidate == best != one and len(logs := pairs_of(i, its)) >= FEWEST]
    if pairs:  # as `dagc explain` measures it: neighbours in time share what disturbs them
        ratio, low, high = map(math.exp, shift_interval(pairs[0])[:3])
        sure = f" ({low:.3g} to {high:.3g} in {counted(len(pairs[0]), 'pair')})"
    slower = ", so the search has found nothing faster yet" if ratio >= 1 else ""
    line = f"{objective.named(it.value)} ({interval}); the best has {ratio:.3g} of it{sure}{slower}"
    if best is None or best == one:
        return (line,)
    settings = changes(domain.configuration(one), domain.configuration(best))
    return line, f"the best has {f'{settings}; ' if settings else ''}another order"


def pairs_of(best: Implementation, other: Implementation) -> list[float]:
    """Logarithms of the ratios of measurements of two implementations, one directly after the other."""
    both = [(i.taken, i.samples, sign) for i, sign in ((best, 1), (other, -1))]
    taken = sorted((at.order, math.log(s.value), sign) for t, of, sign in both for at, s in zip(t, of, strict=True))
    out, last = list[float](), -1  # the place of the last that is in a pair
    for (first, value, sign), (second, following, its) in pairwise(taken):
        if second == first + 1 and sign != its and first != last:
            out.append(sign * (value - following))
            last = second
    return out
