"""Program-level `require`s: choose values that satisfy them, leave to run time what depends on the rank."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, product

from dagc import ir, sym
from dagc.lang.lower_context import Context
from dagc.lang.lower_report import listing
from dagc.lang.lower_values import spelled
from dagc.source import Span
from dagc.sym import Const, Sym
from dagc.sym.shown import show

COMBINATIONS = 100_000


class OtherChoices(Exception):
    """The defaults break a `require`; lower again with `picked`."""

    def __init__(self, picked: dict[str, ir.Value]) -> None:
        super().__init__()
        self.picked = picked


def satisfy(ctx: Context, requires: Sequence[tuple[Sym, Span]]) -> tuple[Sym, ...]:
    """The requires left for run time. Raises `OtherChoices` where other choices satisfy what the present ones break;
    reports unsatisfiable-require where none do."""
    left: list[Sym] = []
    broken: list[tuple[Sym, Span]] = []
    for condition, span in requires:
        settled = ctx.settle(condition)
        if not isinstance(settled, Const):
            left.append(settled)
        elif not settled.value:
            broken.append((condition, span))
    if broken:
        _pick(ctx, requires, broken)
    return tuple(left)


def _pick(ctx: Context, requires: Sequence[tuple[Sym, Span]], broken: list[tuple[Sym, Span]]) -> None:
    names = sorted({n for c, _ in requires for n in sym.free(c) if n in ctx.choices}, key=list(ctx.choices).index)
    open_names = [n for n in names if not ctx.choices[n].fixed]
    if open_names and ctx.may_pick:
        candidates = [ctx.choices[n].values if n in open_names else (ctx.choices[n].chosen,) for n in names]
        for values in islice(product(*candidates), COMBINATIONS):
            env: dict[str, Sym] = {n: Const(v) for n, v in zip(names, values, strict=True)}
            if all(_may_hold(c, env) for c, _ in requires):
                raise OtherChoices({n: v for n, v in zip(names, values, strict=True) if n in open_names})
    for condition, span in broken:
        mine = [n for n in names if n in sym.free(condition)]
        given = ", ".join(f"{n} = {spelled(ctx.choices[n].chosen)}" for n in mine if n not in open_names)
        free = [n for n in mine if n in open_names]
        if free:
            message = f"no choice of {listing(free)} satisfies `{show(condition)}`"
        elif isinstance(condition, Const):
            message = "this is false for the params as they are"
        else:
            message = f"`{show(condition)}` is false for {given}"
        ctx.report.error("unsatisfiable-require", message, span, "allow other values, or change the require")


def _may_hold(condition: Sym, env: dict[str, Sym]) -> bool:
    try:
        settled = sym.substitute(condition, env)
    except (ArithmeticError, ValueError, TypeError):
        return False
    return not isinstance(settled, Const) or bool(settled.value)
