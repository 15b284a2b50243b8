"""What neighbouring threads of a kernel, or iterations of a loop, do alike: the reading that `wide`, `tile`, `jam` and
`unroll` are made from.

A thread's place along an axis, `blockIdx.x * block + threadIdx.x`, is one number X; V neighbours, the *lanes*, have X,
X + 1, ... They are executed together where they take the same way. The reading says which variables have one value for
all lanes, an index that grows by a fixed amount, or a value for each lane; which comparisons of X have one outcome for
all lanes of most groups, as *tests* that a thread makes first; and where the lanes load and store.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

from dagc.cuda.syntax import (
    Declarator,
    below,
    change_of,
    ends_flow,
    field_of,
    operator_of,
    shown_text,
    text_of,
    without_brackets,
)
from dagc.forms.affine import (
    LOOPS,
    MOVED,
    NUMBER,
    Numbers,
    ThreadVariable,
    accesses_below,
    coefficient,
    kind_of,
    names_of,
    number_of,
    plus,
    without,
)
from dagc.ir.sym import Poly, Sym, Var, polynomial

if TYPE_CHECKING:
    from tree_sitter import Node

_STATEMENTS = frozenset("expression_statement declaration return_statement".split())
_COMPARED = frozenset(("<", ">", "<=", ">=", "==", "!="))
_NAMES = frozenset(("identifier", "type_identifier"))
_WORD = re.compile(r"[A-Za-z_]\w*")
_ONE: Poly = {NUMBER: Fraction(1)}

# Conditions of one group of lanes: one of the numbers is 0 or more in all its lanes.
Test: TypeAlias = "tuple[Poly, ...]"


@dataclass(frozen=True, slots=True)
class Along:
    """What numbers the lanes: the threads along an axis, or the counter of a loop. `place`: the name of X in
    polynomials; `block`: of that by which it grows from block to block, "" if the place is the block itself."""

    letter: str = ""
    single: bool = False  # a block has one thread
    counter: str = ""

    @property
    def place(self) -> str:
        return self.counter or f"{'blockIdx' if self.single else 'threadIdx'}.{self.letter}"

    @property
    def block(self) -> str:
        return "" if self.single or self.counter else f"blockIdx.{self.letter}"

    @property
    def poly(self) -> Poly:
        """X itself."""
        return {(Var(self.place),): Fraction(1)}

    def in_text(self, node: Node) -> bool:
        """Whether a part of the text is one of the variables that X is made of."""
        kind = "identifier" if self.counter else "field_expression"
        return node.type == kind and text_of(node) in (self.place, self.block)


ALONG_X = Along("x")


class NotAlike(Exception):
    """Why neighbours cannot be executed together; `node`: the place in the text."""

    def __init__(self, reason: str, node: Node | None = None) -> None:
        super().__init__(reason)
        self.reason, self.node = reason, node


@dataclass(frozen=True, slots=True)
class AccessSite:
    """A load or store of global memory. `place`: its address, None if it is not known; `array`: whose, "" if that is
    not known. `bounds`: what is at least 0 in the threads that reach it."""

    node: Node
    array: str
    place: Poly | None
    load: bool
    store: bool
    bounds: tuple[Poly, ...]


@dataclass(slots=True)
class Neighbours:
    """The reading of one body.

    along     the axis
    block     the threads of a block along it
    lanes     V
    unsigned  parameters of unsigned types
    sizes     names of whole numbers that all threads have alike: parameters and tunables
    whole     the lengths of the rows of arrays: a vector that begins in one ends in it if they are multiples of V
    masked    conditional expressions that lanes decide for themselves: all but some lanes take the arm that is noted
    decided   the outcome of each comparison that is alike in a group that passes the `tests`, by the node
    varying   variables with a value for each lane that is not an index
    indices   variables that grow by a fixed amount from lane to lane, with the amount
    """

    body: Node
    numbers: Numbers
    along: Along
    block: Poly
    lanes: int
    unsigned: frozenset[str]
    whole: Mapping[str, Poly]
    sizes: frozenset[str]
    parameters: frozenset[str]
    masked: dict[int, tuple[int, int]] = field(default_factory=dict)
    decided: dict[int, bool] = field(default_factory=dict)
    tests: list[Test] = field(default_factory=list)
    varying: set[str] = field(default_factory=set)
    indices: dict[str, Poly] = field(default_factory=dict)
    sites: list[AccessSite] = field(default_factory=list)

    @property
    def variables(self) -> Mapping[str, ThreadVariable]:
        return self.numbers.variables

    # ---- polynomials in X ----

    def polynomial(self, node: Node) -> Poly | None:
        """The value of an expression in X; None if it is not known, or names a variable with a value for each lane."""
        return self.in_x(self.numbers.polynomial(node))

    def address(self, node: Node) -> Poly | None:
        if node.type == "call_expression":  # of __ldg
            given = field_of(node, "arguments")
            return self.polynomial(given.named_children[0]) if given is not None and given.named_children else None
        return self.in_x(self.numbers.address(node))

    def in_x(self, value: Poly | None) -> Poly | None:
        return without(value, self.along.block) if value is not None and not self._names_varying(value) else None

    def _names_varying(self, value: Poly) -> bool:
        return any(name.partition(MOVED)[0] in self.varying for name in names_of(value))

    def check(self, node: Node) -> None:
        """Raise NotAlike where the place of a thread in its block, or its block, matters by itself."""
        if node.type == "init_declarator" and self.numbers.stands_for(self._declared(node)) is not None:
            return  # its uses count
        value = self.numbers.polynomial(node) if node.type.endswith(("expression", "identifier")) else None
        place, block, letter = self.along.place, self.along.block, self.along.letter
        if value is not None and names_of(value) & {place, block}:
            step = coefficient(value, place)
            apart = bool(block) and coefficient(value, block) != product_of(step, self.block)
            if apart or names_of(step) & {place, block}:
                index = f"blockIdx.{letter} * blockDim.{letter} + threadIdx.{letter}"
                raise NotAlike(f"`{shown_text(node)}` depends on more than `{index}`", node)
            return
        whole = node.parent is None or node.parent.type != "field_expression"
        if text_of(node) in ("threadIdx", "blockIdx") and whole:
            raise NotAlike(f"`{text_of(node)}` is used as a whole", node)
        if text_of(node) == f"gridDim.{letter}":
            fix = "where a loop goes by it, let the grid have a thread for each element instead"
            raise NotAlike(f"`{text_of(node)}` is used: {fix}", node)
        for child in node.named_children:
            self.check(child)

    def _declared(self, declarator: Node) -> str:
        one = next((v for v in self.variables.values() if v.node == declarator), None)
        return one.name if one is not None else ""

    # ---- conditions ----

    def condition_of(self, node: Node) -> Node:
        """A condition without brackets; of a variable that is declared with one, that."""
        node = without_brackets(node)
        one = self.variables.get(text_of(node)) if node.type == "identifier" else None
        value = one.declarator.value if one is not None and one.type == "bool" and not one.again else None
        return self.condition_of(value) if value is not None and text_of(node) not in self.numbers.changes else node

    def truth(self, node: Node) -> bool | None:
        """The outcome of a condition in all groups that pass the tests, if it is settled."""
        node = self.condition_of(node)
        if node.id in self.decided:
            return self.decided[node.id]
        if node.type in ("true", "false"):
            return node.type == "true"
        operator = operator_of(node)
        if node.type == "unary_expression" and operator == "!":
            inner = self.truth(node.named_children[-1])
            return None if inner is None else not inner
        if node.type == "binary_expression" and operator in ("&&", "||"):
            both = [self.truth(child) for child in operands(node)]
            if (operator == "||") in both:
                return operator == "||"
            return both[0] if both[0] == both[1] else None
        return None

    def varies(self, node: Node) -> bool:
        """Whether a value may differ between lanes."""
        at = self.condition_of(node) if node.type.endswith("expression") or node.type == "condition_clause" else node
        if self.truth(at) is not None:
            return False
        if at.type == "binary_expression" and operator_of(at) in ("&&", "||"):
            return any(map(self.varies, operands(at)))
        return self._differs(at)

    def is_moved(self, node: Node) -> bool:
        """Whether an expression moves a variable alike in all lanes."""
        change = change_of(node)
        moved = change is not None and bool(change.how) and text_of(change.target) not in self.varying
        return moved and change is not None and self.numbers.moving(text_of(change.target)) is not None

    def _differs(self, node: Node) -> bool:
        moved = [(at.start_byte, at.end_byte) for at in below(node) if self.is_moved(at)]
        for at in below(node):
            if any(begin <= at.start_byte < end for begin, end in moved):
                continue
            if at.type in _NAMES and (text_of(at) in self.varying or text_of(at) in self.indices):
                return True
            if self.along.in_text(at):
                return True
        return False

    def decide(self, node: Node, wanted: bool) -> tuple[Poly, ...]:
        """Choose the outcomes of a condition's comparisons; what then is at least 0."""
        node = self.condition_of(node)
        operator = operator_of(node)
        if node.type == "unary_expression" and operator == "!":
            return self.decide(node.named_children[-1], not wanted)
        if node.type == "binary_expression" and operator in ("&&", "||"):
            parts = [self.decide(child, operator == "&&") for child in operands(node)]
            return (*parts[0], *parts[1]) if wanted == (operator == "&&") else ()
        return self._decide(node, operator, wanted) if node.type == "binary_expression" else ()

    def _decide(self, node: Node, operator: str, wanted: bool) -> tuple[Poly, ...]:
        """One comparison of X with what is known before the kernel begins."""
        if operator not in _COMPARED or self.along.counter:
            return ()
        sides = [self.polynomial(child) for child in operands(node)]
        left, right = sides
        if left is None or right is None:
            return ()
        apart = plus(left, right, -1)
        place = self.along.place
        if not number_of(coefficient(apart, place)) or not self.known_before(without(apart, place)):
            return ()
        if operator in ("==", "!="):
            self.decided[node.id] = operator == "!="
            self.tests.append((plus(apart, _ONE, -1), plus(_negative(apart), _ONE, -1)))
            bounds: tuple[Poly, ...] = ()
        else:
            bounds = (bound_of(apart, operator, wanted),)
            other = self._is_excluded(bounds[0])
            self.decided[node.id] = wanted != other
            self.tests.append((bound_of(apart, operator, not wanted),) if other else bounds)
            bounds = () if other else bounds
        if any(map(self._is_unsigned, operands(node))):  # which does not become negative
            self.tests += [(side,) for side in sides if side is not None and any(c < 0 for c in side.values())]
        return bounds

    def _is_excluded(self, bound: Poly) -> bool:
        """Whether what has been chosen before excludes that a number is 0 or more."""
        return any(len(test) == 1 and self.contradict(test[0], bound) for test in self.tests)

    def known_before(self, value: Poly) -> bool:
        """Whether a number can be computed at the beginning of the kernel."""
        return not any(
            word in self.variables or word in self.numbers.changes or word in self.numbers.arrays
            for atom in names_of(value)
            for word in _WORD.findall(atom)
        )

    def _is_unsigned(self, node: Node) -> bool:
        for at in below(node):
            word = text_of(at)
            one = self.variables.get(word)
            if at.type in _NAMES and (word in self.unsigned or (one is not None and is_unsigned(one.prefix))):
                return True
            if at.type == "field_expression" or (at.type == "type_descriptor" and is_unsigned(word)):
                return True
            if at.type == "call_expression" and is_unsigned(text_of(field_of(at, "function"))):
                return True
        return False

    def worst(self, value: Poly) -> int:
        """What the lane where a number is least adds to that of the first lane."""
        return min(number_of(coefficient(value, self.along.place)) or 0, 0) * (self.lanes - 1)

    def contradict(self, one: Poly, other: Poly) -> bool:
        """Whether two numbers cannot both be 0 or more in all lanes."""
        total = number_of(plus(one, other))
        return total is not None and total + self.worst(one) + self.worst(other) < 0

    # ---- the way through the text ----

    def walk(self, nodes: Iterable[Node], bounds: tuple[Poly, ...]) -> tuple[Poly, ...] | None:
        """Note the sites of statements, and choose outcomes so that most of them are reached. What is at least 0 after
        them, None if nothing is reached there."""
        rest = list(nodes)
        while rest:
            node = rest.pop(0)
            after = self._walk(node, bounds, rest)
            if after is None:
                return None
            bounds = after
        return bounds

    def _walk(self, node: Node, bounds: tuple[Poly, ...], rest: list[Node]) -> tuple[Poly, ...] | None:
        if node.type == "compound_statement":
            return self.walk(node.named_children, bounds)
        if node.type == "if_statement":
            return self._if(node, bounds, rest)
        if node.type in LOOPS:
            body = field_of(node, "body")
            for child in node.named_children:
                if child != body:
                    self._note(child, bounds)
            self.walk([body] if body is not None else [], bounds)
            return bounds
        self._note(node, bounds)
        return None if node.type in ("return_statement", "break_statement", "continue_statement") else bounds

    def _if(self, node: Node, bounds: tuple[Poly, ...], rest: list[Node]) -> tuple[Poly, ...] | None:
        condition, then, other = (field_of(node, part) for part in ("condition", "consequence", "alternative"))
        assert condition is not None
        assert then is not None
        others = [other] if other is not None else rest if ends_flow(then) else []
        wanted = self._count([then]) >= self._count(others) if others else True
        self._note(condition, bounds)
        chosen = self.decide(condition, wanted)
        opposite = tuple(plus(_negative(b), _ONE, -1) for b in chosen) if len(chosen) == 1 else ()
        own, beside = (chosen, opposite) if wanted else (opposite, chosen)
        ends = self.walk([then], (*bounds, *own))
        inner = [c for c in other.named_children if c.type != "comment"] if other is not None else []
        other_ends = self.walk(inner, (*bounds, *beside))
        if ends is None or other_ends is None:
            return other_ends if ends is None else ends
        return bounds

    def _mask(self, node: Node) -> bool:
        """Whether a conditional expression has an arm that all lanes take but those at certain places, fewer than there
        are lanes, and what that arm loads is in memory for all of them."""
        condition, then, other = (field_of(node, part) for part in ("condition", "consequence", "alternative"))
        assert condition is not None
        condition = self.condition_of(condition)
        at_places = condition.type == "binary_expression" and operator_of(condition) in ("==", "||")
        arm = other if at_places else then
        assert arm is not None
        parts = _parts(condition, "||" if at_places else "&&")
        apart = [self._apart_in_x(part, "==" if at_places else "!=") for part in parts]
        if None in apart or len(parts) >= self.lanes:
            return False
        if not all(self.numbers.array_of(self.address(at)) in self.whole for at in self.accesses(arm)):
            return False
        self.masked[node.id] = arm.id, len(parts)
        return True

    def _apart_in_x(self, node: Node, operator: str) -> Poly | None:
        """The difference of the sides of a comparison for equality that holds for one X at most."""
        node = self.condition_of(node)
        sides = [self.polynomial(child) for child in operands(node)] if operator_of(node) == operator else []
        if len(sides) != 2 or sides[0] is None or sides[1] is None:
            return None
        apart = plus(sides[0], sides[1], -1)
        return apart if number_of(coefficient(apart, self.along.place)) else None

    def _count(self, nodes: Iterable[Node]) -> int:
        return sum(1 for node in nodes for _ in self.accesses(node))

    def _note(self, node: Node, bounds: tuple[Poly, ...]) -> None:
        for at in below(node):
            if at.type == "conditional_expression":
                condition, then, other = (field_of(at, part) for part in ("condition", "consequence", "alternative"))
                if condition is not None and then is not None and other is not None and not self._mask(at):
                    self.decide(condition, self._count([then]) >= self._count([other]))
        for at in self.accesses(node):
            self.sites.append(AccessSite(at, "", None, *kind_of(at), bounds))

    def accesses(self, node: Node) -> Iterator[Node]:
        """The loads and stores of global memory below a node."""
        return accesses_below(node, self.variables)

    # ---- which values lanes share ----

    def classify(self) -> None:
        """Find the variables with a value for each lane: a fixed point."""
        for name in self.variables:
            value = self._value_of(name)
            amount = coefficient(polynomial(value), self.along.place) if value is not None else {}
            if not names_of(amount) <= self.sizes - self.numbers.changes.keys():
                self.varying.add(name)
            elif amount:
                self.indices[name] = amount
        size = -1
        while size != len(self.varying):
            size = len(self.varying)
            for name, one in self.variables.items():
                if name not in self.varying and self._becomes_varying(name, one):
                    self.varying.add(name)
                    self.indices.pop(name, None)
        self.sites = [self._placed(site) for site in self.sites]

    def _value_of(self, name: str) -> Sym | None:
        """The value that a variable stands for, or that it had first if it is then moved alike in all lanes."""
        moving = self.numbers.moving(name)
        return moving[0] if moving is not None else self.numbers.stands_for(name)

    def _becomes_varying(self, name: str, one: ThreadVariable) -> bool:
        value = self._value_of(name)
        if value is not None:
            moved = self.numbers.changes.get(name, ())
            return self._names_varying(polynomial(value)) or any(map(self._apart, moved))
        every = (one.node, *one.again)
        if any(self.varies(use) for node in every for use in Declarator.of(node).uses):
            return True
        at = (*every, *self.numbers.changes.get(name, ()))
        return any(self._apart(node) for node in at if is_below(node, self.body))

    def _apart(self, node: Node) -> bool:
        """Whether lanes execute a statement with different values, or not all of them do."""
        at = node.parent
        while at is not None and at.id != self.body.id:
            if at.type in _STATEMENTS and at.type != "declaration" and (self._differs(at) or self._stores(at)):
                return True
            if at.type in ("if_statement", "conditional_expression", *LOOPS, "switch_statement"):
                condition = field_of(at, "condition")
                if condition is not None and self.varies(condition):
                    return True
                if at.type == "for_statement" and any(
                    part is not None and self.varies(part)
                    for part in (field_of(at, "initializer"), field_of(at, "update"))
                ):
                    return True
            if at.type == "binary_expression" and operator_of(at) in ("&&", "||") and self.varies(operands(at)[0]):
                return True
            at = at.parent
        return False

    def _stores(self, node: Node) -> bool:
        return any(kind_of(at)[1] for at in self.accesses(node))

    def _placed(self, site: AccessSite) -> AccessSite:
        place = self.address(site.node)
        array = self.numbers.array_of(place)
        return AccessSite(site.node, array, place if array else None, site.load, site.store, site.bounds)


def is_below(node: Node, above: Node) -> bool:
    return bool(above.start_byte <= node.start_byte and node.end_byte <= above.end_byte)


def operands(node: Node) -> list[Node]:
    return [child for child in (field_of(node, "left"), field_of(node, "right")) if child is not None]


def _parts(node: Node, operator: str) -> list[Node]:
    """The operands of nested `a || b || c`."""
    node = without_brackets(node)
    if node.type != "binary_expression" or operator_of(node) != operator:
        return [node]
    return [part for child in operands(node) for part in _parts(child, operator)]


def is_unsigned(type_: str) -> bool:
    words = type_.replace("std::", "").split()
    return any(w in ("unsigned", "size_t", "uint", "dim3") or w.startswith(("uint", "ulong", "ushort")) for w in words)


def bound_of(apart: Poly, operator: str, outcome: bool) -> Poly:
    """What is at least 0 if `apart OPERATOR 0` has this outcome."""
    if not outcome:
        operator = {"<": ">=", ">=": "<", ">": "<=", "<=": ">"}[operator]
    value = apart if operator in (">", ">=") else _negative(apart)
    return plus(value, _ONE, -1) if operator in ("<", ">") else value


def _negative(value: Poly) -> Poly:
    return {m: -c for m, c in value.items()}


def product_of(one: Poly, other: Poly) -> Poly:
    out: Poly = {}
    for m, c in one.items():
        for n, d in other.items():
            k: tuple[Sym, ...] = tuple(sorted(m + n, key=repr))
            out[k] = out.get(k, Fraction(0)) + c * d
    return {m: c for m, c in out.items() if c}
