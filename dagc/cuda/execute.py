"""Kernels executed for single threads, to find which elements of arrays they touch.

Integers are computed; what is loaded is unknown. What depends on an unknown condition is left out, so every access that
is found is one that the thread makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from dagc.cuda.text import TYPE_SIZES, bare_type, text_of

if TYPE_CHECKING:
    from tree_sitter import Node

_MOST_STEPS = 6_000  # expressions and statements of a thread
_MOST_TURNS = 12  # iterations of a loop that are executed; later ones are like them
_DEEPEST = 6  # calls within calls


@dataclass(frozen=True, slots=True)
class ElementPlace:
    """A pointer to an element of an array. `dims`: the further dimensions of an array that is declared with several.
    `scalar`: a variable in shared memory, which is no array. `view`: what a cast takes its elements for: their size, or
    their type if that is not known."""

    array: str
    offset: int
    shared: bool = False
    dims: tuple[int, ...] = ()
    scalar: bool = False
    view: str = ""


class _Unknown:
    """A value that is not known."""


UNKNOWN = _Unknown()
Value: TypeAlias = int | ElementPlace | _Unknown


@dataclass(frozen=True, slots=True)
class ElementAccess:
    """One access by a thread. `kind`: `r`, `w`, or `a` of an atomic operation. `epoch`: the barriers of the block and
    of the warp before it. `text`: the element as the code writes it. `turns`: the iterations of the loops around
    it. `view`: elements of different views are not comparable."""

    array: str
    index: int
    kind: str
    shared: bool
    epoch: tuple[int, int]
    text: str
    turns: tuple[int, ...] = ()
    view: str = ""


@dataclass(frozen=True, slots=True)
class Callee:
    """A function that code calls: its body, the names of its parameters and of those of its template."""

    body: Node
    parameters: tuple[str, ...]
    template: tuple[str, ...] = ()


class _Stop(Exception):
    """The thread has taken too many steps."""


def accesses_of_thread(
    body: Node, names: Mapping[str, Value], built_in: Mapping[str, int], functions: Mapping[str, tuple[Callee, ...]]
) -> tuple[list[ElementAccess], int]:
    """The accesses of one thread, and the steps that were executed. `names`: the values of arguments and constants;
    `built_in`: of `threadIdx.x` and the like; `functions`: the overloads of each name."""
    thread = _Thread(dict(names), built_in, functions)
    with suppress(_Stop, RecursionError):
        thread.statement(body)
    return thread.found, thread.steps


_BARRIERS = frozenset("__syncthreads __syncthreads_or __syncthreads_and __syncthreads_count".split())
_CASTS = frozenset("static_cast reinterpret_cast const_cast int unsigned size_t long float double".split())


class _Thread:
    def __init__(
        self, names: dict[str, Value], built_in: Mapping[str, int], functions: Mapping[str, tuple[Callee, ...]]
    ) -> None:
        self.names, self.built_in, self.functions = names, built_in, functions
        self.found: list[ElementAccess] = []
        self.steps = self.depth = self.doubt = self.barriers = self.warp = 0
        self.turns: tuple[int, ...] = ()
        self.returned: Value = UNKNOWN

    # ---- statements ---------------------------------------------------------------------------

    def statement(self, node: Node) -> str:
        """Execute it; how it ends: "", `return`, `break` or `continue`."""
        self._step()
        match node.type:
            case "compound_statement":
                return self._block(node.named_children)
            case "declaration":
                self._declare(node)
            case "if_statement":
                return self._if(node)
            case "else_clause":
                return self._block(node.named_children)
            case "for_statement" | "while_statement" | "do_statement":
                return self._loop(node)
            case "return_statement":
                values = [self.value(child) for child in node.named_children]
                self.returned = values[0] if len(values) == 1 else UNKNOWN
                return "return"
            case "break_statement":
                return "break"
            case "continue_statement":
                return "continue"
            case "switch_statement" | "for_range_loop" | "try_statement":
                self._doubtful([node.child_by_field_name("body")])
            case "expression_statement":
                for child in node.named_children:
                    self.value(child)
            case _:
                pass
        return ""

    def _step(self) -> None:
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise _Stop

    def _block(self, statements: Iterable[Node]) -> str:
        outer, declared = dict(self.names), set[str]()
        end = ""
        for statement in statements:
            if statement.type == "declaration":
                declared |= set(_declared(statement))
            end = self.statement(statement)
            if end:
                break
        for name in declared:
            if name in outer:
                self.names[name] = outer[name]
            else:
                self.names.pop(name, None)
        return end

    def _doubtful(self, parts: Sequence[Node | None]) -> list[str]:
        """Execute parts of which it is not known whether they run: their accesses do not count, and what they assign is
        unknown."""
        self.doubt += 1
        before, ends = dict(self.names), []
        changed: set[str] = set()
        for part in parts:
            if part is not None:
                self.names = dict(before)
                ends.append(self.statement(part))
                changed |= {n for n, v in self.names.items() if n in before and before[n] is not v and before[n] != v}
        self.names = before | dict.fromkeys(changed, UNKNOWN)
        self.doubt -= 1
        return ends

    def _if(self, node: Node) -> str:
        condition = node.child_by_field_name("condition")
        then, other = node.child_by_field_name("consequence"), node.child_by_field_name("alternative")
        holds = self.value(condition) if condition is not None else UNKNOWN
        if isinstance(holds, int):
            chosen = then if holds else other
            return self.statement(chosen) if chosen is not None else ""
        if any(self._doubtful([then, other])):
            self.doubt += 1  # other threads may have left: nothing after it is certain
        return ""

    def _loop(self, node: Node) -> str:
        outer = dict(self.names)
        start = node.child_by_field_name("initializer")
        if start is not None:
            self.statement(start) if start.type == "declaration" else self.value(start)
        outside = self.turns
        end = self._turns(node)
        self.turns = outside
        own = set(_declared(start)) if start is not None and start.type == "declaration" else set()
        for name in own:
            self.names.pop(name, None)
        self.names |= {n: outer[n] for n in own if n in outer}
        return end if end == "return" else ""

    def _turns(self, node: Node) -> str:
        condition, update = node.child_by_field_name("condition"), node.child_by_field_name("update")
        body = node.child_by_field_name("body")
        outside = self.turns
        for turn in range(_MOST_TURNS):
            self.turns = (*outside, turn)
            first = turn == 0 and node.type == "do_statement"
            holds = 1 if first or condition is None else self.value(condition)
            if isinstance(holds, int) and not holds:
                return ""
            if not isinstance(holds, int) or body is None:
                break
            end = self.statement(body)
            if end in ("return", "break"):
                return end
            if update is not None:
                self.value(update)
        if body is not None:
            self._doubtful([body])
        for name in {n for part in (body, update) if part is not None for n in _assigned(part)}:
            if name in self.names:
                self.names[name] = UNKNOWN
        return ""

    def _declare(self, node: Node) -> None:
        words = {text_of(child) for child in node.children}
        for declarator in node.children_by_field_name("declarator"):
            value, target = None, declarator
            if target.type == "init_declarator":
                value, inner = target.child_by_field_name("value"), target.child_by_field_name("declarator")
                target = inner if inner is not None else target
            dims: list[Value] = []
            while target.type in ("array_declarator", "pointer_declarator", "reference_declarator"):
                if target.type == "array_declarator":
                    size = target.child_by_field_name("size")
                    dims.insert(0, self.value(size) if size is not None else 1)
                inner = target.child_by_field_name("declarator")
                target = inner if inner is not None else target.named_children[-1]
            self.names[text_of(target)] = self._initial(text_of(target), words, dims, value)

    def _initial(self, name: str, words: set[str], dims: Sequence[Value], value: Node | None) -> Value:
        if "__shared__" in words:
            inner = [d if isinstance(d, int) else 1 for d in dims[1:]]
            view = next((_view(word) for word in words if bare_type(word) in TYPE_SIZES), "")
            return ElementPlace(name, 0, True, tuple(inner), scalar=not dims, view=view)
        if value is not None and value.type in ("argument_list", "initializer_list"):
            values = [self.value(v) for v in value.named_children]
            return values[0] if len(values) == 1 and not dims else UNKNOWN
        got = self.value(value) if value is not None else UNKNOWN
        floating = {"float", "double", "half", "__half", "float2", "float4", "double2"} & words
        return UNKNOWN if dims or (floating and isinstance(got, int)) else got

    # ---- expressions --------------------------------------------------------------------------

    def value(self, node: Node) -> Value:
        """The value of an expression; its accesses are recorded."""
        self._step()
        match node.type:
            case "number_literal":
                return _number(text_of(node))
            case "true" | "false":
                return int(node.type == "true")
            case "identifier" | "type_identifier":  # as which a template argument parses
                got = self.names.get(text_of(node), UNKNOWN)
                return self._load(node) if isinstance(got, ElementPlace) and got.scalar else got
            case "parenthesized_expression" | "condition_clause":
                return self.value(node.named_children[-1]) if node.named_children else UNKNOWN
            case "cast_expression":
                inner = node.child_by_field_name("value")
                got = self.value(inner) if inner is not None else UNKNOWN
                return _viewed(got, text_of(node.child_by_field_name("type")))
            case "field_expression" if text_of(node) in self.built_in:
                return self.built_in[text_of(node)]
            case "subscript_expression" | "field_expression":
                return self._load(node)
            case "pointer_expression":
                return self._pointer(node)
            case "binary_expression":
                return self._binary(node)
            case "unary_expression":
                return self._unary(node)
            case "conditional_expression":
                return self._conditional(node)
            case "assignment_expression":
                return self._assign(node)
            case "update_expression":
                return self._update(node)
            case "comma_expression":
                return [self.value(child) for child in node.named_children][-1]
            case "call_expression":
                return self._call(node)
            case "lambda_expression" | "sizeof_expression" | "string_literal":
                return UNKNOWN
            case _:
                for child in node.named_children:
                    self.value(child)
                return UNKNOWN

    def _place(self, node: Node) -> ElementPlace | None:
        """The element that an expression denotes, if it is one of an array whose place is known."""
        match node.type:
            case "identifier":
                got = self.names.get(text_of(node))
                return got if isinstance(got, ElementPlace) and got.scalar else None
            case "parenthesized_expression":
                return self._place(node.named_children[-1])
            case "subscript_expression":
                return self._element(node)
            case "pointer_expression" if text_of(node).startswith("*"):
                argument = node.child_by_field_name("argument")
                got = self.value(argument) if argument is not None else UNKNOWN
                return got if isinstance(got, ElementPlace) else None
            case "field_expression":
                argument = node.child_by_field_name("argument")
                if argument is None:
                    return None
                if "->" in text_of(node)[len(text_of(argument)) :]:
                    got = self.value(argument)
                    return got if isinstance(got, ElementPlace) else None
                return self._place(argument)
            case _:
                return None

    def _element(self, node: Node) -> ElementPlace | None:
        argument, indices = node.child_by_field_name("argument"), node.child_by_field_name("indices")
        if argument is None or indices is None:
            return None
        base = self._place(argument) if argument.type == "subscript_expression" else self.value(argument)
        index = [self.value(i) for i in indices.named_children]
        if not isinstance(base, ElementPlace) or len(index) != 1 or not isinstance(index[0], int):
            return None
        return replace(base, offset=base.offset + index[0] * prod(base.dims), dims=base.dims[1:])

    def _load(self, node: Node) -> Value:
        place = self._place(node)
        if place is None:
            return UNKNOWN
        if node.type == "subscript_expression" and len(_subscripts(node)) <= self._depth_of(node):
            return place  # a row
        self._record(place, "r", node)
        return UNKNOWN

    def _depth_of(self, node: Node) -> int:
        """The further dimensions of the array below some subscripts."""
        while node.type == "subscript_expression":
            inner = node.child_by_field_name("argument")
            if inner is None:
                return 0
            node = inner
        got = self.names.get(text_of(node))
        return len(got.dims) if isinstance(got, ElementPlace) else 0

    def _record(self, place: ElementPlace, kind: str, node: Node) -> None:
        if not self.doubt:
            text = " ".join(text_of(node).split()).replace("[ ", "[").replace(" ]", "]")
            epoch = (self.barriers, self.warp)
            self.found.append(
                ElementAccess(place.array, place.offset, kind, place.shared, epoch, text, self.turns, place.view)
            )

    def _pointer(self, node: Node) -> Value:
        argument = node.child_by_field_name("argument")
        if argument is None:
            return UNKNOWN
        if text_of(node).startswith("*"):
            return self._load(node)
        place = self._place(argument)
        return replace(place, scalar=False) if place is not None else UNKNOWN

    def _binary(self, node: Node) -> Value:
        left_node, right_node = node.child_by_field_name("left"), node.child_by_field_name("right")
        operator = text_of(node.child_by_field_name("operator"))
        if left_node is None or right_node is None:
            return UNKNOWN
        left = self.value(left_node)
        if operator in ("&&", "||"):
            if isinstance(left, int):
                if bool(left) is (operator == "||"):
                    return int(operator == "||")
                right = self.value(right_node)
                return int(bool(right)) if isinstance(right, int) else UNKNOWN
            self.doubt += 1
            right = self.value(right_node)
            self.doubt -= 1
            return int(operator == "||") if isinstance(right, int) and bool(right) is (operator == "||") else UNKNOWN
        right = self.value(right_node)
        return _computed(operator, left, right)

    def _unary(self, node: Node) -> Value:
        argument = node.child_by_field_name("argument")
        got = self.value(argument) if argument is not None else UNKNOWN
        operator = text_of(node.child_by_field_name("operator"))
        if not isinstance(got, int):
            return UNKNOWN
        return {"-": -got, "+": got, "!": int(not got), "~": ~got}.get(operator, UNKNOWN)

    def _conditional(self, node: Node) -> Value:
        condition = node.child_by_field_name("condition")
        branches = node.child_by_field_name("consequence"), node.child_by_field_name("alternative")
        holds = self.value(condition) if condition is not None else UNKNOWN
        if isinstance(holds, int):
            chosen = branches[0 if holds else 1]
            return self.value(chosen) if chosen is not None else UNKNOWN
        self.doubt += 1
        for branch in branches:
            if branch is not None:
                self.value(branch)
        self.doubt -= 1
        return UNKNOWN

    def _assign(self, node: Node) -> Value:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        operator = text_of(node.child_by_field_name("operator"))
        if left is None or right is None:
            return UNKNOWN
        got = self.value(right)
        if left.type == "identifier" and not self._shared_scalar(left):
            name = text_of(left)
            old = self.names.get(name, UNKNOWN)
            new = got if operator == "=" else _computed(operator[:-1], old, got)
            self.names[name] = new
            return new
        place = self._place(left)
        if place is not None:
            if operator != "=":
                self._record(place, "r", left)
            self._record(place, "w", left)
        return UNKNOWN

    def _shared_scalar(self, node: Node) -> bool:
        got = self.names.get(text_of(node))
        return isinstance(got, ElementPlace) and got.scalar

    def _update(self, node: Node) -> Value:
        argument = node.child_by_field_name("argument")
        if argument is None:
            return UNKNOWN
        step = 1 if "++" in text_of(node) else -1
        if argument.type == "identifier" and not self._shared_scalar(argument):
            name = text_of(argument)
            old = self.names.get(name, UNKNOWN)
            self.names[name] = _computed("+", old, step)
            return self.names[name] if text_of(node)[:2] in ("++", "--") else old
        place = self._place(argument)
        if place is not None:
            self._record(place, "r", argument)
            self._record(place, "w", argument)
        return UNKNOWN

    # ---- calls --------------------------------------------------------------------------------

    def _call(self, node: Node) -> Value:
        function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        given = arguments.named_children if arguments is not None else []
        written = text_of(function)
        name = written.partition("<")[0].rpartition("::")[2]
        values = [self.value(argument) for argument in given]
        if name in _BARRIERS or written.endswith(".sync"):
            self.barriers, self.warp = self.barriers + 1, 0
        elif name.startswith(("__syncwarp", "__shfl", "__ballot", "__any", "__all", "__reduce")):
            self.warp += 1
        elif name.startswith("atomic") and values and isinstance(values[0], ElementPlace):
            self._record(values[0], "a", given[0])
        elif name.startswith(("__ld", "__st")) and values and isinstance(values[0], ElementPlace):
            self._record(values[0], "r" if name.startswith("__ld") else "w", given[0])
        elif name in ("min", "max", "abs", "umin", "umax"):
            numbers = [v for v in values if isinstance(v, int)]
            if len(numbers) == len(values) and numbers:
                return abs(numbers[0]) if name == "abs" else (min if name.endswith("min") else max)(numbers)
        elif name in _CASTS and len(values) == 1:
            return _viewed(values[0], written.partition("<")[2].removesuffix(">"))
        elif name in self.functions and self.depth < _DEEPEST:
            overloads = self.functions[name]
            fitting = [c for c in overloads if len(c.parameters) == len(values)]
            return self._enter((fitting or overloads)[0], function, values)
        return UNKNOWN

    def _enter(self, callee: Callee, function: Node | None, values: Sequence[Value]) -> Value:
        template = function.child_by_field_name("arguments") if function is not None else None
        constants = [self.value(_only(c)) for c in template.named_children] if template is not None else []
        outer, doubt = self.names, self.doubt
        self.names = {n: v for n, v in outer.items() if n.isupper()}
        self.names |= dict(zip(callee.template, constants, strict=False))
        self.names |= dict(zip(callee.parameters, values, strict=False))
        self.depth += 1
        end = self.statement(callee.body)
        self.depth -= 1
        certain = end == "return" and self.doubt == doubt  # no other return may come first
        self.names, self.doubt = outer, doubt  # a return in the callee leaves it alone
        return self.returned if certain else UNKNOWN


def _viewed(value: Value, type_: str) -> Value:
    """A value after a cast to a type: of a pointer, the elements may be larger or smaller."""
    if not isinstance(value, ElementPlace):
        return value
    if "*" not in type_:
        return UNKNOWN
    view = _view(type_)
    if value.offset and view != value.view:
        if not (view.isdecimal() and value.view.isdecimal()) or value.offset * int(value.view) % int(view):
            return UNKNOWN
        return replace(value, view=view, offset=value.offset * int(value.view) // int(view))
    return replace(value, view=view)


def _view(type_: str) -> str:
    element = bare_type(type_)
    return str(TYPE_SIZES.get(element, element))


def _only(node: Node) -> Node:
    """A template argument as an expression: a name alone parses as a type."""
    while node.type == "type_descriptor" and len(node.named_children) == 1:
        node = node.named_children[0]
    return node


def _subscripts(node: Node) -> list[Node]:
    out = []
    while node.type == "subscript_expression":
        out.append(node)
        inner = node.child_by_field_name("argument")
        if inner is None:
            break
        node = inner
    return out


def _number(text: str) -> Value:
    digits = text.replace("'", "").rstrip("uUlL") if "x" in text.lower() else text.replace("'", "").rstrip("uUlLfF")
    try:
        return int(digits, 0)
    except ValueError:
        return UNKNOWN


def _computed(operator: str, left: Value, right: Value) -> Value:
    if isinstance(left, ElementPlace) and isinstance(right, int) and operator in ("+", "-"):
        return replace(left, offset=left.offset + (right if operator == "+" else -right) * prod(left.dims))
    if isinstance(right, ElementPlace) and isinstance(left, int) and operator == "+":
        return _computed("+", right, left)
    if not isinstance(left, int) or not isinstance(right, int):
        return UNKNOWN
    match operator:
        case "/" | "%" if right == 0:
            return UNKNOWN
        case "/":
            return abs(left) // abs(right) * (1 if (left < 0) is (right < 0) else -1)
        case "%":
            return abs(left) % abs(right) * (-1 if left < 0 else 1)
        case "<<" | ">>":
            return (left << right if operator == "<<" else left >> right) if 0 <= right < 64 else UNKNOWN
        case "+" | "-" | "*" | "&" | "|" | "^":
            return {"+": left + right, "-": left - right, "*": left * right, "&": left & right, "|": left | right}.get(
                operator, left ^ right
            )
        case "==" | "!=" | "<" | "<=" | ">" | ">=":
            order = {
                "==": left == right,
                "!=": left != right,
                "<": left < right,
                "<=": left <= right,
                ">": left > right,
            }
            return int(order.get(operator, left >= right))
        case _:
            return UNKNOWN


def _declared(node: Node) -> Iterable[str]:
    for declarator in node.children_by_field_name("declarator"):
        target = declarator
        while target.type != "identifier":
            inner = target.child_by_field_name("declarator")
            if inner is None and not target.named_children:
                break
            target = inner if inner is not None else target.named_children[-1]
        yield text_of(target)


def _assigned(node: Node) -> Iterable[str]:
    """The names of variables that are assigned below a node."""
    todo = [node]
    while todo:
        at = todo.pop()
        if at.type in ("assignment_expression", "update_expression"):
            target = at.child_by_field_name("left" if at.type == "assignment_expression" else "argument")
            if target is not None and target.type == "identifier":
                yield text_of(target)
        todo += at.named_children
