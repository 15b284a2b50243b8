"""Forms of loops of a kernel's text that count by one.

`jam`: R iterations of a loop that has a loop inside, in lockstep. What they share is loaded once, and sums of several
iterations are in registers at a time. Iterations must not depend on each other: no variable is carried from one to the
next, and at run time a group of R is executed together only where none of them loads or stores what another one stores.
The others follow one by one.

`unroll`: iterations of inner loops by groups of V. What they load from elements that follow each other is loaded as a
vector:

    for (int k = 0; k < n; ++k) sum += a[i * n + k] * b[k];

Threads that each walk along a row of their own load a sector for every element; of a vector they use all. The
iterations stay in their order. A group is executed so where the rows begin at vectors and it is whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING

from dagc.cuda.syntax import below, change_of, declarators, field_of, operator_of, text_of
from dagc.forms.affine import LOOPS, coefficient, names_of, number_of, plus, prefix_of
from dagc.forms.lanes import (
    GroupText,
    iterations_of,
    legal_by,
    may_be,
    number_text,
    read_plainly,
    refusal_of,
    rewrite_by,
    share_loads,
)
from dagc.forms.lockstep import LaneNames, Lockstep, shown_multiples
from dagc.forms.neighbours import Neighbours, NotAlike, is_below
from dagc.forms.text import KernelReading, edited_body
from dagc.forms.types import NOT_MEASURED, Form, Refusal, Surroundings, always
from dagc.ir.choice import AS_WRITTEN
from dagc.ir.program import Impl, Kernel
from dagc.ir.sym import Poly

if TYPE_CHECKING:
    from tree_sitter import Node


@dataclass(frozen=True, slots=True)
class CountedFor:
    """`for (TYPE k = start; k < end; ++k) body`. `type`: with a blank behind."""

    node: Node
    counter: str
    type: str
    start: str
    end: Node
    body: Node

    @property
    def statements(self) -> list[Node]:
        return self.body.named_children if self.body.type == "compound_statement" else [self.body]

    def by_groups(self, first: str, lanes: int, tests: list[str], together: list[str], indent: str) -> list[str]:
        """The loop by groups of `lanes` iterations, counted by `first`: those that pass the tests have the lines
        `together`, others are as written."""
        name, end, column = self.counter, text_of(self.end), self.node.start_point[1]
        body = re.sub(rf"\n {{0,{column}}}", f"\n{indent}    ", text_of(self.body))
        last = f"{name} < {first} + {lanes} && {name} < {end}"
        return [
            f"for ({self.type}{first} = {self.start}; {first} < {end}; {first} += {lanes}) {{",
            f"{indent}  const {self.type}{name} = {first};",
            f"{indent}  if ({' && '.join([f'{first} + {lanes - 1} < {end}', *tests])}) {{",
            *together,
            f"{indent}  }} else {{",
            f"{indent}    #pragma unroll 1",
            f"{indent}    for ({self.type}{name} = {first}; {last}; ++{name}) {body}",
            f"{indent}  }}",
            f"{indent}}}",
        ]


def counted_loops(body: Node) -> Iterator[CountedFor]:
    """Outer ones first."""
    return (loop for at in below(body) if (loop := _counted(at)) is not None)


def _counted(node: Node) -> CountedFor | None:
    start, condition, update, body = (field_of(node, p) for p in ("initializer", "condition", "update", "body"))
    if node.type != "for_statement" or start is None or condition is None or update is None or body is None:
        return None
    change, end = change_of(update), field_of(condition, "right")
    names = declarators(start) if start.type == "declaration" else []
    if change is None or len(names) != 1 or end is None or operator_of(condition) != "<":
        return None
    up = (change.how == "++" and "++" in text_of(update)) or (change.how == "+=" and text_of(change.value) == "1")
    counter, value = text_of(field_of(names[0], "declarator")), field_of(names[0], "value")
    if not up or value is None or not counter == change.name == text_of(field_of(condition, "left")):
        return None
    return CountedFor(node, counter, prefix_of(start), text_of(value), end, body)


def refuse_changing_end(loop: CountedFor, alike: Neighbours) -> None:
    """Refuse a loop whose end is not the same in all iterations, or whose body changes the counter."""
    fixed = {text_of(at) for at in below(loop.end) if at.type == "identifier"}
    if any(at.type in ("call_expression", "subscript_expression") for at in below(loop.end)) or any(
        is_below(at, loop.node) for name in fixed for at in alike.numbers.changes.get(name, ())
    ):
        raise NotAlike(f"the end of the loop over `{loop.counter}` may change", loop.end)
    own = [at for at in alike.numbers.changes.get(loop.counter, ()) if is_below(at, loop.body)]
    if own:
        raise NotAlike(f"`{loop.counter}` changes in its loop", own[0])


def loop_around(node: Node) -> Node:
    """The loop, or the `switch`, that a `break` ends."""
    at = node
    while at.parent is not None and at.type not in (*LOOPS, "switch_statement"):
        at = at.parent
    return at


# ---- legality -----------------------------------------------------------------------------------


def _refuse_carried(loop: CountedFor, alike: Neighbours) -> None:
    """Refuse a loop whose iterations depend on each other by variables, or that ends early."""
    for at in below(loop.node):
        if at.type in ("return_statement", "goto_statement") or (
            at.type == "break_statement" and loop_around(at).id == loop.node.id
        ):
            raise NotAlike(f"`{text_of(at)}` ends the loop early", at)
    for name, places in alike.numbers.changes.items():
        inside = [at for at in places if is_below(at, loop.body)]
        one = alike.variables.get(name)
        if inside and (one is None or not is_below(one.node, loop.body)):
            raise NotAlike(f"iterations of the loop over `{loop.counter}` share `{name}`", inside[0])
    refuse_changing_end(loop, alike)


def _clashes(loop: CountedFor, alike: Neighbours) -> list[tuple[Poly, Poly, Poly]]:
    """What decides whether an iteration accesses what another one stores: the difference of two places, and by how much
    each grows from one iteration to the next. Raises NotAlike where that is not known."""
    stores = [s for s in alike.sites if s.store]
    written = {s.array for s in stores}
    inner = {text_of(c.target) for at in below(loop.body) if (c := change_of(at)) is not None}
    for site in alike.sites:
        moves = names_of(site.place) & inner if site.place is not None else set()
        unknown = site.place is None and (site.store or may_be(site, written, alike))
        if unknown or (moves and site.array in written):
            raise NotAlike(f"which element `{text_of(site.node)}` is in other iterations is not known", site.node)
    out: list[tuple[Poly, Poly, Poly]] = []
    for one, other in combinations_with_replacement(alike.sites, 2):
        if one.array != other.array or not (one.store or other.store) or one.place is None or other.place is None:
            continue
        steps = [coefficient(site.place or {}, loop.counter) for site in (one, other)]
        if any(loop.counter in names_of(step) for step in steps):
            raise NotAlike(f"`{text_of(one.node)}` is not at an even distance in iterations", one.node)
        clash = plus(one.place, other.place, -1), steps[0], steps[1]
        always = not clash[0] and clash[1] == clash[2] and number_of(clash[1])
        mirrored = plus(other.place, one.place, -1), steps[1], steps[0]
        out += [clash] if not always and clash not in out and mirrored not in out else []
    return out


# ---- writing ------------------------------------------------------------------------------------


def _jammed(kernel: Kernel, impl: Impl, around: Surroundings, lanes: int) -> str | Refusal:
    reading = read_plainly(impl, around)
    if isinstance(reading, Refusal):
        return reading
    refusal = Refusal("it has no loop with a loop inside")
    for loop in counted_loops(reading.body):
        if not any(inner.type in LOOPS for inner in below(loop.body)):
            continue
        try:
            return _text(kernel, impl, around, reading, loop, lanes)
        except NotAlike as error:
            refusal = refusal_of(error, reading)
    return refusal


def _text(
    kernel: Kernel, impl: Impl, around: Surroundings, reading: KernelReading, loop: CountedFor, lanes: int
) -> str:
    alike = iterations_of(kernel, impl, around, reading, loop.body, loop.counter, lanes)
    of = GroupText(kernel, impl, alike, lanes, 0, reading.beside)
    _refuse_carried(loop, alike)
    clashes = _clashes(loop, alike)
    if not share_loads(alike):
        raise NotAlike(f"iterations of the loop over `{loop.counter}` load nothing in common", loop.node)
    names = LaneNames(loop.counter, of.fresh("lane"), of.fresh)
    lockstep = Lockstep(alike, lanes, names, of.types(), wide=False)
    indent = " " * loop.node.start_point[1]
    lockstep.block(loop.statements, f"{indent}    ")
    tests = [f"dagc::apart<{lanes}>({', '.join(map(number_text, clash))})" for clash in clashes]
    first = of.fresh(f"first_{loop.counter}")
    head, *lines = loop.by_groups(first, lanes, tests, lockstep.written(), indent)
    lines = [
        f"// form.jam = {lanes}: {lanes} iterations over `{loop.counter}` together, if none needs another one.",
        f"{indent}{head}",
        *lines,
    ]
    return edited_body(reading.body, [(loop.node.start_byte, loop.node.end_byte, "\n".join(lines))])


# ---- the form -----------------------------------------------------------------------------------


JAM_VALUES = (AS_WRITTEN, 2, 4, 8)
JAM = Form(
    "jam", "2, 4 or 8 iterations of a loop with a loop inside together", JAM_VALUES,
    legal_by(_jammed, JAM_VALUES), rewrite_by(_jammed),
    excludes=frozenset(("unroll", "wide", "tile", "coarsen")), include="dagc/wide.hpp",
)  # fmt: skip


_LEAVING = ("return_statement", "break_statement", "continue_statement", "goto_statement")


def _unrolled(kernel: Kernel, impl: Impl, around: Surroundings, lanes: int) -> str | Refusal:
    reading = read_plainly(impl, around)
    if isinstance(reading, Refusal):
        return reading
    refusal, edits = Refusal("it has no loop that counts by one and has no loop inside"), list[tuple[int, int, str]]()
    for loop in counted_loops(reading.body):
        if any(inner.type in LOOPS for inner in below(loop.body)):
            continue
        try:
            text = _by_groups(kernel, impl, around, reading, loop, lanes)
            edits.append((loop.node.start_byte, loop.node.end_byte, text))
        except NotAlike as error:
            refusal = refusal_of(error, reading)
    head = f"// form.unroll = {lanes}: {lanes} iterations of loops at a time, with vectors of what they load.\n"
    return head + edited_body(reading.body, edits) if edits else refusal


def _by_groups(
    kernel: Kernel, impl: Impl, around: Surroundings, reading: KernelReading, loop: CountedFor, lanes: int
) -> str:
    alike = iterations_of(kernel, impl, around, reading, loop.body, loop.counter, lanes)
    refuse_changing_end(loop, alike)
    leaving = next((at for at in below(loop.body) if at.type in _LEAVING), None)
    if leaving is not None:
        raise NotAlike(f"`{text_of(leaving)}` leaves an iteration early", leaving)
    of = GroupText(kernel, impl, alike, lanes, 0, reading.beside)
    names = LaneNames(loop.counter, of.fresh("step"), of.fresh)
    lockstep, indent = Lockstep(alike, lanes, names, of.types()), " " * loop.node.start_point[1]
    lockstep.in_order(loop.statements, f"{indent}    ")
    if not lockstep.vectors:
        raise NotAlike(f"iterations of the loop over `{loop.counter}` load no vector", loop.node)
    for site in alike.sites:
        if site.store and (not site.array or site.array in lockstep.vectors):
            raise NotAlike(f"`{text_of(site.node)}` may be what a later iteration loads", site.node)
    tests = shown_multiples(lockstep.multiples, lanes)
    if not (loop.start.isdecimal() and int(loop.start) % lanes == 0):
        tests.append(f"({loop.start}) % {lanes} == 0")
    tests.append(f"dagc::aligned<{lanes}>({', '.join(lockstep.vectors)})")
    first = of.fresh(f"first_{loop.counter}")
    return "\n".join(loop.by_groups(first, lanes, tests, lockstep.written(), indent))


# ---- the form -----------------------------------------------------------------------------------


UNROLL_VALUES = (AS_WRITTEN, 4)
UNROLL = Form(
    "unroll", "4 iterations of inner loops at a time, which load vectors", UNROLL_VALUES,
    legal_by(_unrolled, UNROLL_VALUES), rewrite_by(_unrolled),
    include="dagc/wide.hpp", unproven=always(NOT_MEASURED),
)  # fmt: skip
