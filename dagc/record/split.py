"""Kernels whose rows are independent: with its pointers moved by rows, and fewer of them, a kernel computes a part, so
that an exchange overlaps with the rest.

It is proved by the text: each address is linear in the row of the thread, `blockIdx.y * blockDim.y + threadIdx.y`, with
one number of elements a row for each array; a guard leaves out all rows from a parameter on; neither is used elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from dagc.cuda.syntax import NotUnderstood, below, body_of, field_of, operator_of, text_of
from dagc.forms.affine import (
    BUILT_IN,
    Numbers,
    changes_of,
    coefficient,
    names_of,
    number_of,
    plus,
    variables_of,
    without,
)
from dagc.ir.sym import Poly

Node: TypeAlias = Any  # of the syntax tree
_KEEPS = {"<": 0, "<=": 1}  # rows below the other side, and how many more than it says
_LEAVES = {">=": 0, ">": 1}
_PARTS = ("binary_expression", "parenthesized_expression", "cast_expression", "subscript_argument_list",
          "argument_list", "call_expression", "pointer_declarator")  # fmt: skip
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class IndependentRows:
    """`count`: the parameter that says how many, `more` than its value; `strides`: elements of a row in each array."""

    count: str
    more: int
    strides: Mapping[str, Poly]


def rows_of(body: str, arrays: Collection[str], scalars: Collection[str]) -> IndependentRows | None:
    """The rows of a kernel, along y, or x if it uses no y; None where they are not known to be independent."""
    try:
        root = body_of(body)
    except NotUnderstood:
        return None
    axis = "y" if "threadIdx.y" in body else "x"
    return _Reading(root, axis, arrays, scalars).rows()


class _Reading:
    def __init__(self, root: Node, axis: str, arrays: Collection[str], scalars: Collection[str]) -> None:
        variables = variables_of(root)
        self._root, self._scalars = root, scalars
        self._numbers = Numbers(variables, changes_of(root, variables), arrays, (), {}, {}, {}, {})
        self._thread, self._block = f"threadIdx.{axis}", f"blockIdx.{axis}"
        self._size = f"blockDim.{axis}"
        self._own = {self._thread, self._block, self._size, f"gridDim.{axis}"}
        self._arrays = arrays

    def rows(self) -> IndependentRows | None:
        found = [(node, bound) for node in below(self._root) if (bound := self._bound(node)) is not None]
        if not found or len({bound for _, bound in found}) != 1:
            return None
        count, more = found[0][1]
        guards = [node for node, _ in found]
        strides: dict[str, Poly] = {}
        for node, array, address in self._accesses():
            stride = self._stride(address, count)
            if stride is None or strides.setdefault(array, stride) != stride or not self._guarded(node, guards[0]):
                return None
        uses = (node for node in below(self._root) if self._names_rows(node, count))
        return (
            IndependentRows(count, more, strides)
            if strides and all(self._allowed(node, guards) for node in uses)
            else None
        )

    def _accesses(self) -> Iterator[tuple[Node, str, Poly]]:
        for node in below(self._root):
            if node.type == "subscript_expression":
                address = self._numbers.address(node)
                array = self._numbers.array_of(address)
                if address is not None and array:
                    yield node, array, plus(address, {k: v for k, v in address.items() if _is_name(k, array)}, -1)

    def _stride(self, address: Poly, count: str) -> Poly | None:
        """What the row is multiplied by in an address."""
        stride, block = coefficient(address, self._thread), coefficient(address, self._block)
        rest = without(address, self._thread, self._block)
        linear = coefficient(block, self._size) == stride and len(block) == len(stride)
        names = names_of(rest) | names_of(stride)
        plain = all(name.isidentifier() or name in BUILT_IN for name in names)  # not `i / 2`, which is one term
        return stride if linear and plain and not names & {*self._own, count} else None

    def _bound(self, node: Node) -> tuple[str, int] | None:
        """The parameter with which a guard compares the row, and how many more rows than it says are kept."""
        if node.type != "binary_expression" or operator_of(node) not in _TURNED:
            return None
        sides = [field_of(node, name) for name in ("left", "right")]
        left, right = (self._numbers.polynomial(side) if side is not None else None for side in sides)
        if left is None or right is None:
            return None
        word, difference = operator_of(node), plus(left, right, -1)
        if number_of(coefficient(difference, self._thread)) == -1:
            word, difference = _TURNED[word], plus({}, difference, -1)
        rest = without(difference, self._thread, self._block)
        names = names_of(rest)
        stride = self._stride({k: v for k, v in difference.items() if k not in rest}, "")
        if stride is None or number_of(stride) != 1 or len(names) != 1 or not names <= set(self._scalars):
            return None
        [count] = names
        if number_of(coefficient(rest, count)) != -1 or number_of(without(rest, count)) is None:
            return None
        more = _KEEPS.get(word, _LEAVES.get(word, 0))
        return (count, more - (number_of(without(rest, count)) or 0)) if self._guards(node, word in _KEEPS) else None

    @staticmethod
    def _guards(node: Node, keeps: bool) -> bool:
        """Whether a comparison guards: `if (row < count && ...)` without an else, `if (row >= count || ...) return`."""
        at, parent = node, node.parent
        while parent is not None and (
            parent.type in ("parenthesized_expression", "condition_clause")
            or (parent.type == "binary_expression" and operator_of(parent) == ("&&" if keeps else "||"))
        ):
            at, parent = parent, parent.parent
        if parent is None or parent.type != "if_statement" or field_of(parent, "condition") != at:
            return False
        then = field_of(parent, "consequence")
        return field_of(parent, "alternative") is None and then is not None and keeps is not _only_returns(then)

    @staticmethod
    def _guarded(node: Node, guard: Node) -> bool:
        """Whether an access is below a guard, or after one that leaves."""
        at: Node | None = guard
        while at is not None and at.type != "if_statement":
            at = at.parent
        then = field_of(at, "consequence") if at is not None else None
        if at is None or then is None or at.parent is None:
            return False
        if _only_returns(then):
            return bool(at.end_byte <= node.start_byte and node.end_byte <= at.parent.end_byte)
        return bool(then.start_byte <= node.start_byte < then.end_byte)

    def _names_rows(self, node: Node, count: str) -> bool:
        """Whether a use of a name depends on the row, or is the parameter with their number."""
        if node.type == "field_expression":
            return text_of(node) in self._own
        if node.type != "identifier":
            return False
        value = (
            self._numbers.polynomial(node) if node.parent is None or node.parent.type != "field_expression" else None
        )
        return text_of(node) == count or (value is not None and bool(names_of(value) & {*self._own, count}))

    def _allowed(self, node: Node, guards: Sequence[Node]) -> bool:
        """Whether it is part of an address of an array, of a guard, or of the value of a variable that keeps it."""
        at: Node | None = node
        while at is not None:
            parent = at.parent
            if parent is None or at in guards:
                return parent is not None
            if parent.type == "init_declarator":
                name = text_of(field_of(parent, "declarator")).rpartition("*")[2].strip()
                return field_of(parent, "declarator") == at or self._numbers.stands_for(name) is not None
            if parent.type == "subscript_expression":
                return bool(self._numbers.array_of(self._numbers.address(parent)))
            if parent.type not in _PARTS:
                return False
            at = parent
        return False


def _only_returns(then: Node) -> bool:
    inner = then.named_children if then.type == "compound_statement" else [then]
    return [node.type for node in inner] == ["return_statement"]


def _is_name(monomial: tuple[object, ...], name: str) -> bool:
    return len(monomial) == 1 and getattr(monomial[0], "name", "") == name


@dataclass(frozen=True, slots=True)
class RowPart:
    """Rows `begin` to `end` of a kernel's."""

    name: str
    begin: int
    end: int


MOST_EDGE = 16  # rows at one end that are computed apart


def parts_of(
    rows: int, footprints: Sequence[tuple[int, int, int]], received: Sequence[Sequence[tuple[int, int]]]
) -> tuple[RowPart, ...]:
    """The inner rows, whose footprints need nothing of what is received, and those at the ends; none if no rows are
    such, or all of them. `footprints`: begin and end of what all rows touch of an array, and the elements of a row;
    `received`: what is received of it."""

    def free(begin: int, end: int) -> bool:
        return all(
            low + begin * stride >= b or high - (rows - end) * stride <= a
            for (low, high, stride), pieces in zip(footprints, received, strict=True)
            for a, b in pieces
        )

    edges = sorted(((a, b) for a in range(MOST_EDGE + 1) for b in range(MOST_EDGE + 1) if a + b < rows), key=sum)
    first, last = next(((a, b) for a, b in edges if free(a, rows - b)), (0, 0))
    if not first + last:
        return ()
    parts = (RowPart("inner", first, rows - last), RowPart("first", 0, first), RowPart("last", rows - last, rows))
    return tuple(part for part in parts if part.begin < part.end)


def value_of_stride(stride: Poly, values: Mapping[str, int]) -> int | None:
    """Elements of a row, by the values of the parameters."""
    total = 0
    for monomial, number in stride.items():
        names = [getattr(atom, "name", "") for atom in monomial]
        if any(name not in values for name in names) or number.denominator != 1:
            return None
        product = int(number)
        for name in names:
            product *= values[name]
        total += product
    return total
