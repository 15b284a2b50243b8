"""Values of expressions while lowering, and what kind of number a symbolic one is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import TypeAlias

from dagc import sym
from dagc.ir import ElementType
from dagc.sym import Apply, Const, Fn, Sym, Var


class Kind(Enum):
    """Kind of a scalar value; the word is the one of messages."""

    INT = "an integer"
    REAL = "a real number"
    BOOL = "a truth value"
    STR = "a string"


@dataclass(frozen=True, slots=True)
class Label:
    """A label of an enum: a number in arithmetic, a word in display names."""

    labels: tuple[str, ...]
    index: int

    @property
    def text(self) -> str:
        return self.labels[self.index]


@dataclass(frozen=True, slots=True)
class ListValue:
    """`{a, b}`, or the labels of an enum."""

    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class TypeValue:
    type: ElementType


Value: TypeAlias = "Apply | Const | Var | Label | ListValue | TypeValue"

INTEGERS = frozenset(
    (
        ElementType.I8, ElementType.I16, ElementType.I32, ElementType.I64,
        ElementType.U8, ElementType.U16, ElementType.U32, ElementType.U64,
    )
)  # fmt: skip
RATIONAL_LIMIT = 2**128
INTEGER_LIMIT = 2**64
NODE_LIMIT = 4000
DEPTH_LIMIT = 150  # of a symbolic value; what works on it recurses


def kind_of_type(type_: ElementType) -> Kind:
    if type_ in INTEGERS:
        return Kind.INT
    return Kind.BOOL if type_ is ElementType.BOOL else Kind.REAL


def kind_of_constant(value: sym.Number) -> Kind:
    if isinstance(value, bool):
        return Kind.BOOL
    if isinstance(value, int):
        return Kind.INT
    return Kind.STR if isinstance(value, str) else Kind.REAL


_TRUTH = frozenset((Fn.EQ, Fn.NE, Fn.LT, Fn.LE, Fn.GT, Fn.GE, Fn.AND, Fn.OR, Fn.NOT))


def kind_of(value: Sym, of_var: Callable[[str], Kind]) -> Kind:
    """Kind of a scalar expression whose operands already fit their operators."""
    if isinstance(value, Const):
        return kind_of_constant(value.value)
    if isinstance(value, Var):
        return of_var(value.name)
    if value.fn in _TRUTH:
        return Kind.BOOL
    if value.fn in (Fn.FLOOR, Fn.CEIL):
        return Kind.INT
    if value.fn in (Fn.DIV, Fn.LOG2, Fn.SQRT):
        return Kind.REAL
    args = value.args[1:] if value.fn is Fn.COND else value.args
    kinds = [kind_of(a, of_var) for a in args]
    return kinds[0] if all(k is kinds[0] for k in kinds) else Kind.REAL


def too_large(value: Sym) -> bool:
    """Has it too many nodes, or too many levels? (`let`s are put in where they are used, so sizes can double.)"""
    stack, count = [(value, 1)], 0
    while stack:
        node, depth = stack.pop()
        count += 1
        if count > NODE_LIMIT or depth > DEPTH_LIMIT:
            return True
        if isinstance(node, Apply):
            stack.extend((a, depth + 1) for a in node.args)
    return False


def out_of_range(value: Sym) -> bool:
    """Is it a constant that no machine type holds?"""
    if not isinstance(value, Const) or isinstance(value.value, (bool, str)):
        return False
    if isinstance(value.value, Fraction):
        return max(abs(value.value.numerator), value.value.denominator) >= RATIONAL_LIMIT
    if isinstance(value.value, int):
        return abs(value.value) >= INTEGER_LIMIT
    return value.value != value.value or value.value in (float("inf"), float("-inf"))


def as_sym(value: Value) -> Sym | None:
    """The scalar, a label as its number; None for lists and types."""
    if isinstance(value, Label):
        return Const(value.index)
    return None if isinstance(value, (ListValue, TypeValue)) else value


def spelled(value: object) -> str:
    """A constant as the language writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, ElementType):
        return value.value
    if isinstance(value, Label):
        return value.text
    return str(value)
