"""Division with rounding, minima and maxima of expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy as sp


def int_div(a: sp.Expr, b: sp.Expr) -> sp.Expr:
    return sp.floor(a / b)


def ceil_div(a: sp.Expr, b: sp.Expr) -> sp.Expr:
    return sp.ceiling(a / b)


def minimum(*values: Any) -> sp.Expr:
    """`sp.Min` that compares numbers only. SymPy tries to order every pair of arguments, which takes a quarter of the
    time in which a model is built."""
    return _extreme(sp.Min, min, values)


def maximum(*values: Any) -> sp.Expr:
    """`sp.Max` that compares numbers only, see `minimum`."""
    return _extreme(sp.Max, max, values)


def _extreme(kind: Any, of_numbers: Callable[..., Any], values: Sequence[Any]) -> sp.Expr:
    expressions = list(dict.fromkeys(map(sp.sympify, values)))
    numbers = [e for e in expressions if e.is_number]
    others = [e for e in expressions if not e.is_number]
    if numbers:
        others.append(of_numbers(numbers))
    return others[0] if len(others) == 1 else kind(*others, evaluate=False)
