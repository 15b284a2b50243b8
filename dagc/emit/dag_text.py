"""Spelling of symbolic expressions as in a `.dag`, for comments and messages of emitted code."""

from __future__ import annotations

from fractions import Fraction

from dagc.sym import Const, Fn, Sym, Var

_LEVEL = {
    Fn.OR: 1, Fn.AND: 2, Fn.EQ: 3, Fn.NE: 3, Fn.LT: 3, Fn.LE: 3, Fn.GT: 3, Fn.GE: 3,
    Fn.ADD: 4, Fn.SUB: 4, Fn.MUL: 5, Fn.DIV: 5, Fn.MOD: 5,
}  # fmt: skip


def dag_text(expr: Sym | None, outer: int = 0) -> str:
    """`4 * (n + 1)`; `*` for a dimension that is not known."""
    if expr is None:
        return "*"
    if isinstance(expr, Const):
        return _constant(expr)
    if isinstance(expr, Var):
        return expr.name
    if expr.fn is Fn.COND:
        test, then, otherwise = (dag_text(a, 1) for a in expr.args)
        return f"({test} ? {then} : {otherwise})"
    if expr.fn in (Fn.NEG, Fn.NOT):
        return f"{'-' if expr.fn is Fn.NEG else '!'}{dag_text(expr.args[0], 9)}"
    level = _LEVEL.get(expr.fn)
    if level is None:
        return f"{expr.fn.value}({', '.join(dag_text(a) for a in expr.args)})"
    text = f"{dag_text(expr.args[0], level)} {expr.fn.value} {dag_text(expr.args[1], level + 1)}"
    return f"({text})" if level < outer else text


def _constant(expr: Const) -> str:
    if isinstance(expr.value, bool):
        return "true" if expr.value else "false"
    if isinstance(expr.value, Fraction):
        return f"({expr.value})"
    return f'"{expr.value}"' if isinstance(expr.value, str) else str(expr.value)
