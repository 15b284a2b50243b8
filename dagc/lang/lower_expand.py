"""Compile-time loops and branches."""

from __future__ import annotations

from collections.abc import Iterator

from dagc.lang import ast
from dagc.lang.lower_eval import Evaluator
from dagc.lang.lower_values import Kind


def turns(ev: Evaluator, item: ast.For) -> Iterator[Evaluator]:
    """An evaluator for each turn of a loop; an inner range may use the outer variables. May give up (Skip)."""
    yield from _bind(ev, item.bindings)


def _bind(ev: Evaluator, bindings: tuple[ast.Binding, ...]) -> Iterator[Evaluator]:
    first, rest = bindings[0], bindings[1:]
    report = ev.ctx.report
    if first.name in ev.loops:
        at = ((ev.loops[first.name][1], "bound here"),)
        report.fail(
            "shadowed-name", f"`{first.name}` is already a loop variable", first.span, "choose another name", at
        )
    found = ev.scope.find(first.name)
    if found is not None:
        at = ((found[0].span, "declared here"),)
        message = f"loop variable `{first.name}` would hide {found[0].what.value} of the same name"
        report.fail("shadowed-name", message, first.span, "choose another name", at)
    for value in ev.items(first.range, "the range of a loop", structural=True):
        ev.ctx.expand(first.span)
        inner = Evaluator(ev.ctx, ev.scope, {**ev.loops, first.name: (value, first.span)})
        if rest:
            yield from _bind(inner, rest)
        else:
            yield inner


def branch(ev: Evaluator, item: ast.If) -> tuple[ast.Item, ...]:
    """The items of the branch that is taken. May give up (Skip)."""
    test = ev.constant(item.test, "the test of an `if`", (Kind.BOOL,), structural=True)
    return item.then if test else item.otherwise or ()
