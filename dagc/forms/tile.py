"""Tiles in registers: a thread does R neighbours along the second axis of the grid together.

What they share is loaded once and stays in a register: with `wide`, a thread does R x V neighbours, and each element
that is loaded serves R or V of them. Groups that do not go one way, and texts that `wide` has made unreadable, execute
the text as given, one neighbour after the other.

The rules of `wide` hold: neighbours are threads between which there are no barriers, and none loads or stores what
another one stores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dagc.cuda.syntax import body_of, field_of, text_of
from dagc.forms.affine import coefficient, names_of
from dagc.forms.lanes import GroupText, alike_of, read_plainly, refusal_of, refuse_others, share_loads, unread
from dagc.forms.lockstep import LaneNames, Lockstep
from dagc.forms.neighbours import Neighbours, NotAlike
from dagc.forms.text import KernelReading, NotInKernel, joined
from dagc.forms.types import Form, Refusal, Surroundings
from dagc.ir.choice import AS_WRITTEN
from dagc.ir.program import CodeText, Impl, Kernel, Launch
from dagc.ir.sym import Const, Sym

if TYPE_CHECKING:
    from tree_sitter import Node


def axis_of(launch: Launch) -> int | None:
    """The axis: the first with more than one block after x; None if there is none."""
    return next((k for k in range(1, len(launch.grid)) if launch.grid[k] != Const(1)), None)


# ---- legality -----------------------------------------------------------------------------------


def legal(kernel: Kernel, impl: Impl, around: Surroundings) -> tuple[int, ...] | Refusal:
    axis = axis_of(impl.launch) if impl.launch is not None else None
    if axis is None:
        return Refusal("the grid has one axis")
    written = _written(kernel, impl, around, axis, VALUES[1])
    return written if isinstance(written, Refusal) else VALUES


def _refuse_stores(alike: Neighbours) -> None:
    """No lane may load or store what another one stores, and lanes must have something to share."""
    stores = [s for s in alike.sites if s.store]
    if not stores:
        raise NotAlike("it stores nothing")
    letter = alike.along.letter
    for site in stores:
        step = coefficient(site.place, alike.along.place) if site.place is not None else {}
        if site.place is None or not names_of(step) <= alike.sizes - alike.numbers.changes.keys():
            raise NotAlike(f"where `{text_of(site.node)}` is stored is not known", site.node)
        if not step:
            raise NotAlike(f"neighbours along {letter} store one element by `{text_of(site.node)}`", site.node)
    refuse_others(alike, stores, lambda _, place, stored: place == stored)
    if not share_loads(alike):
        raise NotAlike(f"neighbours along {letter} load nothing in common in a loop")


# ---- writing ------------------------------------------------------------------------------------


def _written(kernel: Kernel, impl: Impl, around: Surroundings, axis: int, lanes: int) -> str | Refusal:
    reading = read_plainly(impl, around)
    if isinstance(reading, Refusal):
        return reading
    way = _one_way(reading.body)
    text = "\n".join(map(text_of, (*way.before, *way.nodes)))
    alone = replace(reading, text=text, body=body_of(text)) if way.condition is not None else reading
    try:
        alike = alike_of(kernel, impl, around, alone, axis, lanes)
        _refuse_stores(alike)
        return _text(GroupText(kernel, impl, alike, lanes, axis, reading.beside), reading.body, way)
    except (NotAlike, NotInKernel) as error:
        return refusal_of(error, reading if alone is reading else None)


@dataclass(frozen=True, slots=True)
class _OneWay:
    """The part of a text that groups do together: declarations, then the first branch of a last `if`, or all."""

    before: list[Node]
    condition: Node | None
    nodes: list[Node]


def _one_way(body: Node) -> _OneWay:
    """A text that ends with `if (...) { ... } else { ... }`, as those of `wide` do, goes one way where it takes the
    first branch: what both branches declare has two meanings."""
    *before, last = body.named_children or [body]
    condition, then = field_of(last, "condition"), field_of(last, "consequence")
    split = last.type == "if_statement" and field_of(last, "alternative") is not None and then is not None
    if not split or then is None or any(at.type not in ("declaration", "comment") for at in before):
        return _OneWay([], None, body.named_children)
    return _OneWay(before, condition, then.named_children if then.type == "compound_statement" else [then])


def _text(of: GroupText, body: Node, way: _OneWay) -> str:
    letter, lanes = of.alike.along.letter, of.lanes
    names = LaneNames(of.fresh(f"first_{letter}"), of.fresh("row"), of.fresh)
    lockstep = Lockstep(of.alike, lanes, names, of.types(), wide=False)
    nodes, shared = of.alike.body.named_children, len(way.before)
    if any(map(of.alike.varies, (*way.before, *([way.condition] if way.condition is not None else [])))):
        raise NotAlike(f"neighbours along {letter} take different branches", way.condition)
    lockstep.block(nodes[shared:], "  ")
    beyond, tests = of.tests(names.first, 0)
    tests = [*([text_of(way.condition)[1:-1]] if way.condition is not None else []), *tests]
    place = f"{names.first} + {names.lane}"
    return "\n".join(
        [
            f"// form.tile = {lanes}: a thread does {lanes} neighbours along {letter}, together if they go one way.",
            *map(text_of, way.before),
            _first(of, names.first),
            f"if ({' && '.join(tests)}) {{" if tests else "{",
            *lockstep.written(),
            "} else {  // one by one",
            *of.plain(body, names, place, 0, beyond),
            "}",
        ]
    )


def _first(of: GroupText, name: str) -> str:
    along = of.alike.along
    place = f"(long long){along.block or along.place}{of.times_block()}"
    return f"const long long {name} = {of.lanes} * {place if along.single else f'({place} + {along.place})'};"


def _one_after_the_other(kernel: Kernel, impl: Impl, around: Surroundings, axis: int, lanes: int) -> str:
    reading = read_plainly(impl, around)
    assert isinstance(reading, KernelReading)
    of = GroupText(kernel, impl, unread(kernel, impl, around, reading, axis, lanes), lanes, axis, reading.beside)
    names = LaneNames(of.fresh("first"), of.fresh("row"), of.fresh)
    beyond, _ = of.tests(names.first, 0)
    lines = [
        f"// form.tile = {lanes}: a thread does {lanes} neighbours along {'xyz'[axis]}, one after the other.",
        _first(of, names.first),
        *of.plain(reading.body, names, f"{names.first} + {names.lane}", 0, beyond),
    ]
    return "\n".join(lines)


# ---- the form -----------------------------------------------------------------------------------


def rewritten(kernel: Kernel, impl: Impl, around: Surroundings, lanes: int) -> CodeText:
    assert impl.code is not None
    assert impl.launch is not None
    axis = axis_of(impl.launch)
    assert axis is not None
    text = _written(kernel, impl, around, axis, lanes)
    if isinstance(text, Refusal):  # of what the forms before have made
        text = _one_after_the_other(kernel, impl, around, axis, lanes)
    return replace(impl.code, text=text, header=0)


def launch(written: Launch, lanes: Sym) -> Launch:
    axis = axis_of(written)
    return joined(written, axis, lanes) if axis is not None else written


VALUES = (AS_WRITTEN, 2, 4, 8)
TILE = Form(
    "tile", "a thread does 2, 4 or 8 neighbours along the second axis, which share loads", VALUES, legal, rewritten,
    launch, excludes=frozenset(("coarsen", "freedom")), include="dagc/wide.hpp",
)  # fmt: skip
