"""Features and selectors: checked in full, carried in the program; `dagc tune` acts on some of the selectors."""

from __future__ import annotations

from dagc import ir
from dagc.lang import ast
from dagc.lang.lower_eval import Evaluator
from dagc.lang.lower_report import Skip, did_you_mean, listing
from dagc.lang.lower_scope import Bound, What
from dagc.lang.lower_values import Kind
from dagc.sym import Sym, Var

_NUMBERS = (Kind.INT, Kind.REAL)
# Methods that `dagc tune` acts on: those of a kernel about its tunables, and those at program level.
_IN_KERNEL = ("rational", "knn", "tree", "forest")
_IN_PROGRAM = ("knn", "tree", "forest", "exhaustive")


def feature(ev: Evaluator, item: ast.Feature) -> ir.Feature:
    """A feature; its name becomes a real number in the scope. May give up (Skip)."""
    report = ev.ctx.report
    value: Sym | ir.CodeText
    if isinstance(item.value, ast.Code):
        if item.value.lang is not ast.CodeLang.CPP:
            report.fail("wrong-code-language", "a feature is computed on the host", item.value.span, "write `cpp`")
        if item.cost is None:
            help = f"write `feature {item.name} cost n = ...`"
            report.error("missing-cost", "a feature in code must state its cost in elements", item.span, help)
        code = item.value
        value = ir.CodeText(code.lang, code.text, code.function, code.file, span=code.span)
    else:
        value = ev.settled(item.value, _NUMBERS)
    cost = ev.settled(item.cost, _NUMBERS) if item.cost is not None else None
    ev.scope.declare(report, What.FEATURE, item.name, (), Bound(item.name, Var(item.name), item.span))
    ev.scope.kinds[item.name] = Kind.REAL
    ev.ctx.not_used_yet("`feature`", item.span, "features serve learned selectors, which are not built yet")
    return ir.Feature(item.name, value, cost, span=item.span)


def select(ev: Evaluator, item: ast.Select, owner: str, names: set[str]) -> ir.Select | None:
    """A selector among decisions `names`; None where it is wrong (reported)."""
    report = ev.ctx.report
    try:
        for name in item.names:
            if name not in names:
                report.fail(
                    "unknown-name",
                    f"`{name}` is no decision here",
                    item.span,
                    did_you_mean(name, names, f"choose from {listing(sorted(names))}"),
                )
        args = tuple(ev.settled(a) for a in item.args)
        if not _used(item, owner):
            ev.ctx.not_used_yet("`select`", item.span, "the default is taken; choose with -D until selectors are built")
        return ir.Select(owner, item.names, item.method, args, span=item.span)
    except Skip:
        return None


def _used(item: ast.Select, owner: str) -> bool:
    if owner == "":
        return item.method in _IN_PROGRAM
    return owner != "dag" and item.method in _IN_KERNEL and not {"variant", "device"} & set(item.names)
