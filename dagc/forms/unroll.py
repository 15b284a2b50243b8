"""Iterations of inner loops by groups of V: what they load from elements that follow each other is loaded as a vector.

    for (int k = 0; k < n; ++k) sum += a[i * n + k] * b[k];

Threads that each walk along a row of their own load a sector for every element; of a vector they use all. The
iterations stay in their order. A group is executed so where the rows begin at vectors and it is whole.
"""

from __future__ import annotations

from dagc.cuda.syntax import below, text_of
from dagc.forms.affine import LOOPS
from dagc.forms.lanes import GroupText, iterations_of, legal_by, read_plainly, refusal_of, rewrite_by
from dagc.forms.lockstep import LaneNames, Lockstep, shown_multiples
from dagc.forms.loops import CountedFor, counted_loops, refuse_changing_end
from dagc.forms.neighbours import NotAlike
from dagc.forms.text import KernelReading, edited_body
from dagc.forms.types import NOT_MEASURED, Form, Refusal, Surroundings, always
from dagc.ir.choice import AS_WRITTEN
from dagc.ir.program import Impl, Kernel

_LEAVING = ("return_statement", "break_statement", "continue_statement", "goto_statement")


def _written(kernel: Kernel, impl: Impl, around: Surroundings, lanes: int) -> str | Refusal:
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


VALUES = (AS_WRITTEN, 4)
UNROLL = Form(
    "unroll", "4 iterations of inner loops at a time, which load vectors", VALUES,
    legal_by(_written, VALUES), rewrite_by(_written),
    include="dagc/wide.hpp", unproven=always(NOT_MEASURED),
)  # fmt: skip
