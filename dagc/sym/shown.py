"""Symbolic values as the `.dag` language writes them."""

from __future__ import annotations

from dagc.sym import Const, Fn, Sym, Var

_PREC = {
    Fn.OR: 1, Fn.AND: 2, Fn.EQ: 3, Fn.NE: 3, Fn.LT: 3, Fn.LE: 3, Fn.GT: 3, Fn.GE: 3,
    Fn.ADD: 4, Fn.SUB: 4, Fn.MUL: 5, Fn.DIV: 5, Fn.MOD: 5,
}  # fmt: skip


def show(value: Sym, outer: int = 0) -> str:
    """A symbolic value as the language writes it."""
    if isinstance(value, Const):
        return str(value.value).lower() if isinstance(value.value, bool) else str(value.value)
    if isinstance(value, Var):
        return value.name
    if value.fn is Fn.COND:
        return "(" + f"{show(value.args[0], 1)} ? {show(value.args[1])} : {show(value.args[2])}" + ")"
    if value.fn in (Fn.NEG, Fn.NOT):
        return ("-" if value.fn is Fn.NEG else "!") + show(value.args[0], 9)
    if value.fn not in _PREC:
        return f"{value.fn.value}({', '.join(show(a) for a in value.args)})"
    level = _PREC[value.fn]
    text = f"{show(value.args[0], level)} {value.fn.value} {show(value.args[1], level + 1)}"
    return f"({text})" if level < outer else text
