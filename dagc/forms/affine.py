"""Whole numbers and addresses in a kernel's text as polynomials in names, without following the control flow.

A name stands for itself: a formal, a constant, a built-in variable, a variable that the text changes, or a part of the
text that is not a sum or a product. A variable that is declared with a value and never changed stands for that value.
Integers are mathematical, as in `dagc.cuda.accesses`. An address is that of an element, in elements of its array.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from dagc.cuda.syntax import (
    FLOATING,
    TYPE_SIZES,
    VECTORS,
    Callee,
    Declarator,
    bare_type,
    below,
    change_of,
    changes_below,
    declarators,
    field_of,
    function_declarator,
    names_below,
    operator_of,
    text_of,
    without_brackets,
)
from dagc.ir.sym import Apply, Const, Fn, Poly, Sym, Var, free, polynomial, substitute

if TYPE_CHECKING:
    from tree_sitter import Node

BUILT_IN = frozenset(f"{v}.{a}" for v in ("threadIdx", "blockIdx", "blockDim", "gridDim") for a in "xyz")
LOADS = frozenset(("__ldg", "__ldca", "__ldcg", "__ldcs", "__ldlu", "__ldcv"))  # of the element at a pointer
VECTOR_ACCESSES = ("dagc::load<", "dagc::store<", "dagc::stream<", "dagc::window<")  # of `dagc/wide.hpp`, at a pointer
LOOPS = frozenset(("for_statement", "while_statement", "do_statement"))
_RING = {"+": Fn.ADD, "-": Fn.SUB, "*": Fn.MUL}
_WORD = 4  # bytes of the narrowest type whose numbers are taken to be exact
_PURE = frozenset("min max abs std::min std::max int long unsigned size_t".split())
MOVED = "'"  # after a variable's name: the sum of what its changes have added to its first value; before another
# variable's name: what it is where that one is declared
NUMBER: tuple[Sym, ...] = ()  # the monomial of a polynomial's number


@dataclass(slots=True)
class ThreadVariable:
    """A variable of the thread. `again`: the declarators of others with this name."""

    name: str
    node: Node  # its declarator
    declaration: Node
    declarator: Declarator
    again: list[Node] = field(default_factory=list)

    @property
    def prefix(self) -> str:
        return prefix_of(self.declaration)

    @property
    def type(self) -> str:
        return bare_type(self.prefix)


def prefix_of(declaration: Node) -> str:
    """The type of a declaration with its qualifiers, up to the first name and what belongs to it."""
    names = declarators(declaration)
    return (declaration.text or b"")[: names[0].start_byte - declaration.start_byte].decode() if names else ""


def variables_of(body: Node) -> dict[str, ThreadVariable]:
    """The variables that a body declares, by name."""
    out: dict[str, ThreadVariable] = {}
    for node in below(body):
        if node.type != "declaration":
            continue
        for each in declarators(node):
            one = Declarator.of(each)
            if one.name in out:
                out[one.name].again.append(each)
            else:
                out[one.name] = ThreadVariable(one.name, each, node, one)
    return out


def changes_of(body: Node, variables: Mapping[str, ThreadVariable]) -> dict[str, list[Node]]:
    """Where a body changes variables and parameters, or may do so, by name: also elements of the thread's own arrays,
    and what is passed to functions as an array."""
    out: dict[str, list[Node]] = {}
    for change in changes_below(body):
        root = change.target
        while change.how and root.type in ("subscript_expression", "field_expression", "parenthesized_expression"):
            root = field_of(root, "argument") or without_brackets(root)
        one = variables.get(text_of(root))
        own = root == change.target or (one is not None and not one.declarator.pointers)
        if change.how and root.type == "identifier" and own:
            out.setdefault(text_of(root), []).append(change.target)
    for at in below(body):
        one = variables.get(text_of(at)) if at.type == "identifier" else None
        if one is not None and one.declarator.sizes and at.parent is not None and at.parent.type == "argument_list":
            out.setdefault(one.name, []).append(at)
    return out


def coefficient(value: Poly, name: str) -> Poly:
    """What a name is multiplied by; its powers are not expected."""
    out: Poly = {}
    for monomial, number in value.items():
        if Var(name) in monomial:
            rest = list(monomial)
            rest.remove(Var(name))
            out[tuple(rest)] = number
    return out


def without(value: Poly, *names: str) -> Poly:
    """The terms that have none of the names."""
    return {m: c for m, c in value.items() if not any(Var(name) in m for name in names)}


def plus(one: Poly, other: Poly, sign: int = 1) -> Poly:
    out = dict(one)
    for monomial, number in other.items():
        out[monomial] = out.get(monomial, Fraction(0)) + sign * number
    return {m: c for m, c in out.items() if c}


def number_of(value: Poly) -> int | None:
    """The number, if a polynomial is one."""
    return int(value.get(NUMBER, Fraction(0))) if set(value) <= {NUMBER} else None


def most_of(size: Sym, most: Mapping[str, int]) -> int | None:
    """The most that a sum or product of numbers that are not negative can be; None if a name has no bound."""
    out = 0
    for monomial, factor in polynomial(size).items():
        if factor > 0:
            bounds = [most.get(atom.name) if isinstance(atom, Var) else None for atom in monomial]
            if None in bounds:
                return None
            out += math.ceil(factor * math.prod(b for b in bounds if b is not None))
    return out


def names_of(value: Poly) -> frozenset[str]:
    return frozenset(atom.name for monomial in value for atom in monomial if isinstance(atom, Var))


@dataclass(slots=True)
class Numbers:
    """The reader of one body.

    arrays   the pointers among its parameters
    floats   names of floating-point numbers among its parameters and the program's constants
    types    the C types of the program's type names
    known    what constants of the program are
    functions  the definitions of functions at hand
    sizes    what `blockDim` is in each dimension, where the launch says so
    moves    whether a variable that is `moving` is its first value and the sum of what it was moved by, `i MOVED`
    along    the axis whose neighbours are compared
    """

    variables: Mapping[str, ThreadVariable]
    changes: Mapping[str, Sequence[Node]]
    arrays: Collection[str]
    floats: Collection[str]
    types: Mapping[str, str]
    known: Mapping[str, Sym]
    sizes: Mapping[str, Sym]
    functions: Mapping[str, Sequence[Callee]]
    moves: bool = False
    along: str = "x"
    _known: dict[int, Sym | None] = field(default_factory=dict)

    def polynomial(self, node: Node) -> Poly | None:
        """The value of an expression, or the address that a pointer has; None if it is neither."""
        value = self.value(node)
        return polynomial(value) if value is not None else None

    def address(self, node: Node) -> Poly | None:
        """The address of an lvalue, `a[i]` or `*p`."""
        value = self._address(without_brackets(node))
        return polynomial(value) if value is not None else None

    def array_of(self, address: Poly | None) -> str:
        """The array of an address; empty if it is not known."""
        roots = [a for a in self.arrays if address is not None and coefficient(address, a)]
        return roots[0] if len(roots) == 1 and number_of(coefficient(address or {}, roots[0])) == 1 else ""

    def is_whole(self, type_: str) -> bool:
        """Whether values of a type are whole numbers that a conversion leaves as they are."""
        if "*" in type_:
            return False  # an address, in other elements
        bare = bare_type(type_)
        bare = self.types.get(bare, bare)
        return bare not in FLOATING and bare not in VECTORS and TYPE_SIZES.get(bare, 0) >= _WORD

    def value(self, node: Node) -> Sym | None:
        if node.id not in self._known:
            self._known[node.id] = None  # of a variable that is declared with itself
            self._known[node.id] = self._value(node)
        return self._known[node.id]

    def _value(self, node: Node) -> Sym | None:
        match node.type:
            case "number_literal":
                digits = text_of(node).replace("'", "").lower().rstrip("ulz")
                number = digits.lstrip("+-")
                whole = number.isdecimal() and (number == "0" or number[0] != "0")
                return Const(int(digits)) if whole else None
            case "identifier":
                return self._name(text_of(node))
            case "field_expression" if text_of(node) in BUILT_IN:
                return self.sizes.get(text_of(node), Var(text_of(node)))
            case "parenthesized_expression":
                return self.value(without_brackets(node))
            case "cast_expression":
                inner = field_of(node, "value")
                whole = self.is_whole(text_of(field_of(node, "type")))
                return self.value(inner) if whole and inner is not None else self._opaque(node)
            case "call_expression":
                return self._call(node)
            case "binary_expression":
                return self._binary(node)
            case "unary_expression" if operator_of(node) in ("-", "+"):
                inner = field_of(node, "argument")
                value = self.value(inner) if inner is not None else None
                return Apply(Fn.NEG, (value,)) if value is not None and operator_of(node) == "-" else value
            case "pointer_expression" if text_of(node).startswith("&"):
                inner = field_of(node, "argument")
                return self._address(without_brackets(inner)) if inner is not None else None
            case _:
                return self._opaque(node)

    def _name(self, name: str) -> Sym | None:
        one = self.variables.get(name)
        if one is None:
            if name in self.floats or (name in self.arrays and name in self.changes):
                return None
            return self.known.get(name, Var(name))
        declared, value = one.declarator, self.stands_for(name)
        if not declared.simple or declared.sizes or declared.reference:
            return None
        if self.moves and value is None and (moving := self.moving(name)) is not None:
            return Apply(Fn.ADD, (moving[0], Var(f"{name}{MOVED}")))
        if declared.pointers or one.type == "auto":
            return value
        return (value if value is not None else Var(name)) if self.is_whole(one.prefix) else None

    def stands_for(self, name: str) -> Sym | None:
        """The value of a variable that is declared with it and keeps it; None for others."""
        one = self.variables.get(name)
        if one is None or one.declarator.value is None or name in self.changes or one.again:
            return None
        row = text_of(one.declarator.value).startswith("dagc::")  # `auto row = dagc::window<4>(p)`
        fits = one.declarator.pointers or (one.type == "auto" and not row) or self.is_whole(one.prefix)
        value = self.value(one.declarator.value) if fits else None
        return value if value is not None and self._keeps(value, one) else None

    def moving(self, name: str) -> tuple[Sym, list[Poly]] | None:
        """The first value of a variable that all its changes move by what is known before the kernel begins, and these
        amounts: an index or a pointer that goes from row to row. None for others."""
        one = self.variables.get(name)
        if not self.moves or one is None or one.declarator.value is None or one.again or not self.changes.get(name):
            return None
        whole = one.declarator.pointers or (one.type != "auto" and self.is_whole(one.prefix))
        value = (
            self.value(one.declarator.value) if whole and one.declarator.simple and not one.declarator.sizes else None
        )
        amounts = [self._amount(at, name) for at in self.changes[name]]
        known = [amount for amount in amounts if amount is not None]
        kept = self._kept(value, one) if value is not None and len(known) == len(amounts) else None
        return None if kept is None else (kept, known)

    def _amount(self, target: Node, name: str) -> Poly | None:
        """By how much a statement of its own moves a variable: `i += n`, `i = i + n`, `++i`."""
        change = change_of(target.parent) if target.parent is not None else None
        at = target.parent.parent if change is not None and target.parent is not None else None
        while at is not None and at.type == "comma_expression":
            at = at.parent
        if change is None or at is None or at.type not in ("expression_statement", "for_statement"):
            return None
        if change.value is None:  # ++i
            return {NUMBER: Fraction(-1 if text_of(target.parent).count("-") > 1 else 1)}
        added, minus = change.added
        value = self.value(added) if added is not None else None
        amount = polynomial(value) if value is not None else None
        unknown = {*self.variables, *self.changes, *self.arrays}
        if amount is None or any(
            set(re.findall(r"[A-Za-z_]\w*", n)) & unknown or n in BUILT_IN for n in names_of(amount)
        ):
            return None
        return {m: -c for m, c in amount.items()} if minus else amount

    def _kept(self, value: Sym, of: ThreadVariable) -> Sym | None:
        """The value where its variable is declared: once, outside of loops, so that names that change have another
        name for what they are there, `k MOVED idx`; None inside."""
        if self._keeps(value, of):
            return value
        at = of.declaration.parent
        while at is not None and at.type not in (*LOOPS, "lambda_expression"):
            at = at.parent
        changed = [name for name in free(value) if name.removesuffix(MOVED) in self.changes]
        there = {name: Var(f"{name.removesuffix(MOVED)}{MOVED}{of.name}") for name in changed}
        return substitute(value, there) if at is None else None

    def _keeps(self, value: Sym, of: ThreadVariable) -> bool:
        """Whether a value stays the same where its variable is known: what it names changes in the headers of loops
        around the declaration alone."""
        names = {name.removesuffix(MOVED) for name in free(value)}
        return all(_steps_around(at, of.declaration) for name in names for at in self.changes.get(name, ()))

    def _call(self, node: Node) -> Sym | None:
        function, arguments = field_of(node, "function"), field_of(node, "arguments")
        given = [a for a in arguments.named_children if a.type != "comment"] if arguments is not None else []
        name = text_of(function)
        if name.startswith("static_cast<"):
            name = name[len("static_cast<") : -1]
        if len(given) == 1 and self.is_whole(name):
            return self.value(given[0])
        inlined = self._inlined(name, given)
        return inlined if inlined is not None else self._opaque(node)

    def _inlined(self, name: str, given: Sequence[Node]) -> Sym | None:
        """The value of a function of whole numbers that returns a sum or product of its parameters: an index."""
        callee = self.functions[name][0] if len(self.functions.get(name, ())) == 1 else None
        body = [c for c in callee.body.named_children if c.type != "comment"] if callee is not None else []
        values = [self.value(each) for each in given]
        if callee is None or len(body) != 1 or body[0].type != "return_statement" or None in values:
            return None
        head = callee.body.parent
        parameters = field_of(function_declarator(field_of(head, "declarator")), "parameters")
        kinds = [text_of(field_of(p, "type")) for p in parameters.named_children] if parameters is not None else []
        named = dict(zip(callee.parameters, values, strict=False))
        inner = set(names_below(body[0]))
        if len(named) != len(values) or not inner <= named.keys() or not all(map(self.is_whole, kinds)):
            return None
        if not self.is_whole(text_of(field_of(head, "type"))) or len(body[0].named_children) != 1:
            return None
        known = {name: value for name, value in named.items() if value is not None}
        own = dict.fromkeys(named, ())  # parts that are not sums or products have no name here
        return Numbers({}, own, (), (), self.types, known, {}, {}).value(body[0].named_children[0])

    def _binary(self, node: Node) -> Sym | None:
        left, right = field_of(node, "left"), field_of(node, "right")
        operator = operator_of(node)
        if operator not in (*_RING, "<<") or left is None or right is None:
            return self._opaque(node)
        one, other = self.value(left), self.value(right)
        if one is None or other is None:
            return self._opaque(node)
        if operator == "<<":
            power = number_of(polynomial(other))
            small = power is not None and 0 <= power < 31
            return Apply(Fn.MUL, (one, Const(2**power))) if power is not None and small else self._opaque(node)
        return Apply(_RING[operator], (one, other))

    def _opaque(self, node: Node) -> Sym | None:
        """A part that is a name for itself: an expression of scalars that the text does not change."""
        for at in below(node):
            name = text_of(at)
            if at.type in ("subscript_expression", "pointer_expression", "lambda_expression", "assignment_expression"):
                return None
            if at.type in ("update_expression", "string_literal"):
                return None
            if at.type == "call_expression" and text_of(field_of(at, "function")) not in _PURE:
                return None
            named = at.type in ("identifier", "type_identifier")
            if named and (name in self.variables or name in self.arrays or name in self.changes):
                return None
            if at.type == "field_expression" and name in (f"threadIdx.{self.along}", f"blockIdx.{self.along}"):
                return None
        return Var(text_of(node))

    def _address(self, node: Node) -> Sym | None:
        base: Sym | None = None
        index: Sym | None = Const(0)
        if node.type == "subscript_expression":
            indices, of = field_of(node, "indices"), field_of(node, "argument")
            given = [i for i in indices.named_children if i.type != "comment"] if indices is not None else []
            base = self.value(of) if of is not None else None
            index = self.value(given[0]) if len(given) == 1 else None
        elif node.type == "pointer_expression" and text_of(node).startswith("*"):
            of = field_of(node, "argument")
            base = self.value(of) if of is not None else None
        return Apply(Fn.ADD, (base, index)) if base is not None and index is not None else None


def _steps_around(change: Node, declaration: Node) -> bool:
    """Whether a change is in the header of a `for` whose body has the declaration."""
    at: Node | None = change
    while at is not None and at.type != "for_statement":
        at = at.parent
    update, body = field_of(at, "update"), field_of(at, "body")
    return (
        update is not None
        and body is not None
        and update.start_byte <= change.start_byte < update.end_byte
        and body.start_byte <= declaration.start_byte < body.end_byte
    )


def is_local(node: Node, variables: Mapping[str, ThreadVariable]) -> bool:
    """Whether a subscript is that of an array of the thread."""
    while node.type in ("subscript_expression", "parenthesized_expression", "field_expression"):
        inner = field_of(node, "argument")
        node = inner if inner is not None else without_brackets(node)
        if inner is None and node.type == "parenthesized_expression":
            return False
    one = variables.get(text_of(node))
    return node.type == "identifier" and one is not None and not one.declarator.pointers


def accesses_below(node: Node, variables: Mapping[str, ThreadVariable]) -> Iterator[Node]:
    """The loads and stores of global memory below a node, in the order of the text."""
    taken: set[int] = set()
    for at in below(node):
        called = text_of(field_of(at, "function")) if at.type == "call_expression" else ""
        if called in LOADS or called.startswith(VECTOR_ACCESSES):
            yield at
        elif at.type == "pointer_expression" and text_of(at).startswith("&"):
            taken.add(without_brackets(at.named_children[-1]).id)
        elif (at.type == "pointer_expression" and text_of(at).startswith("*")) or (
            at.type == "subscript_expression" and at.id not in taken and not is_local(at, variables)
        ):
            yield at


def kind_of(access: Node) -> tuple[bool, bool]:
    """Whether an access loads and whether it stores."""
    if access.type == "call_expression":
        stores = text_of(field_of(access, "function")).startswith(("dagc::store<", "dagc::stream<"))
        return not stores, stores
    above: Node | None = access.parent
    while above is not None and above.type == "parenthesized_expression":
        above = above.parent
    change = change_of(above) if above is not None else None
    if change is None or change.target.id != access.id:
        return True, False
    return change.how != "=", True
