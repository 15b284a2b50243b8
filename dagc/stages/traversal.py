"""The traversal that `--traversal` names."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from dagc.base.errors import UsageError
from dagc.ir.plan import plan_from_json, plan_inputs
from dagc.ir.program import Graph
from dagc.ir.traversal import Traversal, parse_traversal
from dagc.space import Counter, Space, TooManyStates
from dagc.space.loops import is_folded_text
from dagc.space.moves import Moves
from dagc.stages.program import read_source

# Limit of states, a few seconds, to find the ID of a traversal that was given as text.
_ID_STATES = 20_000
_FIRST = 1000  # traversals that are enumerated, where counting may take minutes
_COUNTED = 1_000_000  # limit of states to find the traversal of an ID: about a minute, some hundred megabytes
_ID_DIGITS = 4300  # limit for Python's conversion to one number


def wanted_traversal(
    graph: Graph, wanted: str, show: Callable[[int], None] = lambda states: None
) -> tuple[Graph, Traversal, int | None]:
    """The traversal named by `first`, an ID or a file, and its ID (None: not in the space, or in one too large to
    count).

    If `graph` is folded, so is a traversal by ID. A file may give every round of a loop instead; the graph returned
    with it is then the unrolled one. `show`: called with the number of states that were counted for an ID.
    """
    if wanted == "first":
        return graph, Space(graph).first(), 0
    if wanted.isdecimal() and len(wanted) > _ID_DIGITS:
        raise UsageError(f"no traversal has an ID of {len(wanted)} digits", "see `dagc count`")
    if wanted.isdecimal():
        return graph, _of_number(graph, int(wanted), show), int(wanted)
    source = read_source(wanted, "a traversal's text or of a plan.json, an ID, or first")
    if source.text.lstrip().startswith("{"):
        read_for, traversal = graph.unrolled, plan_from_json(source.text, graph.unrolled, wanted).traversal
        period = plan_inputs(source.text, wanted).period
        if graph.folding is not None and period:
            read_for, traversal = graph, parse_traversal(period, graph, wanted)
    else:
        read_for = graph if is_folded_text(source.text, graph) else graph.unrolled
        traversal = parse_traversal(source.text, read_for, wanted)
    return read_for, traversal, number_of(graph, traversal) if read_for is graph else None


def _of_number(graph: Graph, number: int, show: Callable[[int], None]) -> Traversal:
    """The traversal of an ID. Raises UsageError if there is none, or too much to count."""
    if number < _FIRST and (found := next(islice(Space(graph), number, None), None)) is not None:
        return found
    try:
        return Space(graph, counter=Counter(Moves.of(graph), _COUNTED, show)).at(number)
    except TooManyStates:
        why = f"traversal {number}: more than {_COUNTED} states must be counted to find it"
        raise UsageError(why, f"give a file with its text, or an ID below {_FIRST}, see `dagc list`") from None


def number_of(graph: Graph, traversal: Traversal) -> int | None:
    """The ID of a traversal; None if it is not in the space, or in one too large to count."""
    try:
        return Space(graph, limit=_ID_STATES).id_of(traversal)
    except (UsageError, TooManyStates):
        return None  # the caller proves or refuses it; a pruned traversal is not in the space
