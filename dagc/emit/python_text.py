"""Python spelling of symbolic expressions."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from dagc.sym import Apply, Const, Fn, Sym, Var, fraction

_INFIX = {
    Fn.ADD: "+", Fn.SUB: "-", Fn.MUL: "*", Fn.MOD: "%", Fn.EQ: "==", Fn.NE: "!=", Fn.LT: "<", Fn.LE: "<=",
    Fn.GT: ">", Fn.GE: ">=", Fn.AND: "and", Fn.OR: "or",
}  # fmt: skip
_LEVEL = {"or": 1, "and": 2, "==": 3, "!=": 3, "<": 3, "<=": 3, ">": 3, ">=": 3, "+": 4, "-": 4, "*": 5, "%": 5}
_CALLS = {Fn.MIN: "min", Fn.MAX: "max", Fn.ABS: "abs", Fn.LOG2: "dagc.math.log2", Fn.SQRT: "dagc.math.sqrt"}


def python(expr: Sym, name: Callable[[str], str], outer: int = 0) -> str:
    """Python text that computes the same integers as the C++ text."""
    if isinstance(expr, Const):
        return repr(float(expr.value) if isinstance(expr.value, Fraction) else expr.value)
    if isinstance(expr, Var):
        return name(expr.name)
    if expr.fn in (Fn.FLOOR, Fn.CEIL):
        top, bottom = (python(e, name) for e in fraction(expr.args[0]))
        if bottom == "1":
            return python(fraction(expr.args[0])[0], name, outer)
        return f"dagc.ceil_div({top}, {bottom})" if expr.fn is Fn.CEIL else f"(({top}) // ({bottom}))"
    return _apply(expr, name, outer)


def _apply(expr: Apply, name: Callable[[str], str], outer: int) -> str:
    args = expr.args
    if expr.fn in _CALLS:
        return f"{_CALLS[expr.fn]}({', '.join(python(a, name) for a in args)})"
    if expr.fn is Fn.NEG:
        return f"-{python(args[0], name, 9)}"
    if expr.fn is Fn.NOT:
        return f"(not {python(args[0], name, 9)})"
    if expr.fn is Fn.COND:
        test, then, otherwise = (python(a, name, 1) for a in args)
        return f"({then} if {test} else {otherwise})"
    if expr.fn is Fn.DIV:
        return f"(({python(args[0], name)}) / ({python(args[1], name)}))"
    infix = _INFIX[expr.fn]
    level = _LEVEL[infix]
    text = f"{python(args[0], name, level)} {infix} {python(args[1], name, level + 1)}"
    return f"({text})" if level < outer else text
