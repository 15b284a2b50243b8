"""Iterations of a loop together: R iterations of a loop that has a loop inside, in lockstep.

What they share is loaded once, and sums of several iterations are in registers at a time. Iterations must not depend on
each other: no variable is carried from one to the next, and at run time a group of R is executed together only where
none of them loads or stores what another one stores. The others follow one by one.
"""

from __future__ import annotations

from itertools import combinations_with_replacement

from dagc.cuda.syntax import below, change_of, text_of
from dagc.forms.affine import LOOPS, coefficient, names_of, number_of, plus
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
from dagc.forms.lockstep import LaneNames, Lockstep
from dagc.forms.loops import CountedFor, counted_loops, loop_around, refuse_changing_end
from dagc.forms.neighbours import Neighbours, NotAlike, is_below
from dagc.forms.text import KernelReading, edited_body
from dagc.forms.types import Form, Refusal, Surroundings
from dagc.ir.choice import AS_WRITTEN
from dagc.ir.program import Impl, Kernel
from dagc.ir.sym import Poly

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


def _written(kernel: Kernel, impl: Impl, around: Surroundings, lanes: int) -> str | Refusal:
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


VALUES = (AS_WRITTEN, 2, 4, 8)
JAM = Form(
    "jam", "2, 4 or 8 iterations of a loop with a loop inside together", VALUES,
    legal_by(_written, VALUES), rewrite_by(_written),
    excludes=frozenset(("unroll", "wide", "tile", "coarsen")), include="dagc/wide.hpp",
)  # fmt: skip
