"""From an op of a program to what the models need: its address expressions, with sizes in by-value formals."""

from __future__ import annotations

import sympy as sp

from dagc.cuda.accesses import Accesses, accesses_of, symbol
from dagc.cuda.text import NotUnderstood
from dagc.ir import ElementType, KernelOp, Program
from dagc.lang.ast import Mode
from dagc.launching import AXES, kernel_of
from dagc.sym import Apply, Const, Fn, Sym, Var


def read_accesses(program: Program, op: KernelOp) -> Accesses:
    """Raises NotUnderstood. Tunables that are block dimensions are `blockDim_x`, others symbols of their name."""
    kernel, impl = kernel_of(program, op)
    if impl.code is None or impl.code.text is None or impl.launch is None:
        raise NotUnderstood(f"kernel `{kernel.name}` has no CUDA text")
    arrays = {f.name: f.type.size for f in kernel.formals if f.mode is not None}
    values: dict[str, sp.Expr] = {f.name: symbol(f.name) for f in kernel.formals if f.mode is None}
    for name, _ in op.tunables:
        values[name] = symbol(name)
    for axis, size in zip(AXES, impl.launch.block, strict=False):
        if isinstance(size, Var) and size.name in values:
            values[size.name] = symbol(f"blockDim_{axis}")
    for param in program.params:
        if isinstance(param.value, (int, float)) and param.name not in values:
            values[param.name] = sp.Integer(param.value) if isinstance(param.value, int) else sp.Float(param.value)
    for decision in program.decisions:
        if isinstance(decision.chosen, int) and decision.name not in values:
            values[decision.name] = sp.Integer(int(decision.chosen))
    for name, expr in (*program.lets, *kernel.lets, *impl.lets):
        found = to_sympy(expr)
        if found is not None:
            values[name] = found.subs({symbol(n): v for n, v in values.items()})
    constant = {f.name for f in kernel.formals if f.mode is Mode.IN}
    types = {p.name: _C_TYPES[p.value] for p in program.params if isinstance(p.value, ElementType)}
    return accesses_of(impl.code.text, arrays, values, constant, types)


_C_TYPES = {t: f"{'u' * t.value.startswith('u')}int{t.size * 8}_t" for t in ElementType}
_C_TYPES |= {ElementType.F32: "float", ElementType.F64: "double", ElementType.BOOL: "bool"}


_BINARY = {Fn.ADD: sp.Add, Fn.MUL: sp.Mul, Fn.MIN: sp.Min, Fn.MAX: sp.Max}


def to_sympy(expr: Sym) -> sp.Expr | None:
    """A symbolic scalar as a SymPy expression; None where it is no arithmetic of numbers."""
    if isinstance(expr, Const):
        return sp.sympify(expr.value) if not isinstance(expr.value, (str, bool)) else None
    if isinstance(expr, Var):
        return symbol(expr.name)
    assert isinstance(expr, Apply)
    args = [to_sympy(a) for a in expr.args]
    if any(a is None for a in args):
        return None
    numbers = [a for a in args if a is not None]
    if expr.fn in _BINARY:
        return _BINARY[expr.fn](*numbers)
    match expr.fn:
        case Fn.SUB:
            return numbers[0] - numbers[1]
        case Fn.DIV:
            return numbers[0] / numbers[1]
        case Fn.NEG:
            return -numbers[0]
        case Fn.FLOOR:
            return sp.floor(numbers[0])
        case Fn.CEIL:
            return sp.ceiling(numbers[0])
        case Fn.MOD:
            return numbers[0] - numbers[1] * sp.floor(numbers[0] / numbers[1])
        case _:
            return None


_RELATIONS = {Fn.EQ: sp.Eq, Fn.NE: sp.Ne, Fn.LT: sp.Lt, Fn.LE: sp.Le, Fn.GT: sp.Gt, Fn.GE: sp.Ge}


def conditions_of(expr: Sym) -> tuple[sp.Basic, ...]:
    """The comparisons that a condition asks for, all of them; those that are no comparisons of numbers are left out."""
    if not isinstance(expr, Apply):
        return ()
    if expr.fn is Fn.AND:
        return tuple(found for arg in expr.args for found in conditions_of(arg))
    if expr.fn not in _RELATIONS:
        return ()
    left, right = (to_sympy(a) for a in expr.args)
    return () if left is None or right is None else (_RELATIONS[expr.fn](left, right),)
