"""Races within one launch, found by executing a few threads of a few blocks.

Integers are computed; what is loaded is unknown. What depends on an unknown condition is left out, so every access that
is found is one that the thread makes.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from dagc.cuda.syntax import (
    FLOATING,
    TYPE_SIZES,
    Callee,
    Declarator,
    bare_type,
    below,
    changes_below,
    declarators,
    declared_names,
    field_of,
    names_below,
    operator_of,
    specifiers,
    text_of,
)

if TYPE_CHECKING:
    from tree_sitter import Node

BLOCKS = 3  # that are executed first, in each dimension of the grid; the last one too
_MOST_STEPS = 50_000  # of all threads of a kernel that are executed
_MOST_OF_A_THREAD = 6_000  # expressions and statements
_MOST_TURNS = 12  # iterations of a loop that are executed; later ones are like them
_DEEPEST = 6  # calls within calls
_WARP = 32

_Index: TypeAlias = tuple[int, ...]
_ThreadPlace: TypeAlias = tuple[_Index, _Index]  # its block, and its place there
_Element: TypeAlias = tuple[str, str, int]


# ---- values and accesses of a thread --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ElementPlace:
    """A pointer to an element of an array. `dims`: the further dimensions of an array that is declared with several.
    `scalar`: a variable in shared memory, not an array. `view`: what a cast takes its elements for: their size, or
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


# ---- races ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Race:
    """A thread writes an element of an array that another reads. `write`, `read`: the element as the code has it."""

    array: str
    write: str
    read: str


@dataclass(frozen=True, slots=True)
class LaunchOf:
    """A kernel as it is launched. `names`: the values of its arguments and of constants; `functions`: the overloads of
    each name that its code may call."""

    body: Node
    names: Mapping[str, Value]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    functions: Mapping[str, tuple[Callee, ...]]

    def accesses(self, places: Iterable[_ThreadPlace]) -> Iterator[tuple[_ThreadPlace, list[ElementAccess]]]:
        """Those of threads, as many as a limited number of steps allows."""
        steps = 0
        for block, place in places:
            of = {"blockIdx": block, "threadIdx": place, "blockDim": self.block, "gridDim": self.grid}
            built_in = {
                f"{name}.{axis}": n for name, values in of.items() for axis, n in zip("xyz", values, strict=True)
            }
            thread = _Thread({"warpSize": _WARP, **self.names}, built_in, self.functions)
            with suppress(_Stop, RecursionError):
                thread.statement(self.body)
            yield (block, place), thread.found
            steps += thread.steps
            if steps > _MOST_STEPS:
                return


def between_blocks(launch: LaunchOf, arrays: Sequence[str]) -> tuple[Race, ...]:
    """Elements of arrays that one block writes and another reads, the first pair of each array. None where the grid is
    synchronised, or a thread waits for another.

    A thread that writes what it reads by the same expression, in the same iterations, does not count: in step k of an
    all-pairs shortest path, the thread of `d[i][k]` leaves it as it is.
    """
    if max(launch.grid) < 2 or "this_grid" in text_of(launch.body) or waits_for_threads(launch.body, launch.functions):
        return ()
    writes: dict[_Element, list[tuple[_ThreadPlace, str, _Index]]] = {}
    reads: dict[_ThreadPlace, dict[tuple[_Element, str, _Index], None]] = {}
    blocks = product(*(sorted({*range(min(n, BLOCKS)), n - 1}) for n in launch.grid))
    for thread, accesses in launch.accesses(product(blocks, list(_threads(launch.block)))):
        own = reads.setdefault(thread, {})
        for access in accesses:
            if access.array in arrays and not access.shared:
                element = (access.array, access.view, access.index)
                if access.kind == "r":
                    own[element, access.text, access.turns] = None
                else:
                    writes.setdefault(element, []).append((thread, access.text, access.turns))
    found: dict[str, Race] = {}
    for reader, own in reads.items():
        for element, text, _ in own:
            for writer, write, turns in writes.get(element, ()):
                if writer[0] != reader[0] and (element, text, turns) not in reads[writer]:
                    found.setdefault(element[0], Race(element[0], write, text))
    return tuple(found.values())


def between_lanes(launch: LaunchOf) -> tuple[Race, ...]:
    """Elements of shared memory that a lane of the first two warps writes and another of its warp reads, with no
    barrier between; the first pair of each array."""
    writes: dict[tuple[object, ...], tuple[_ThreadPlace, str]] = {}
    reads: list[tuple[_ThreadPlace, int, ElementAccess]] = []
    x, y, z = launch.block
    numbers = range(min(2 * _WARP, x * y * z))
    threads = [((0, 0, 0), (n % x, n // x % y, n // (x * y))) for n in numbers]
    for (thread, accesses), number in zip(launch.accesses(threads), numbers, strict=False):
        for access in accesses:
            if access.shared and access.kind == "r":
                reads.append((thread, number // _WARP, access))
            elif access.shared and access.kind == "w":
                writes.setdefault((access.array, access.index, access.epoch, number // _WARP), (thread, access.text))
    found: dict[str, Race] = {}
    for thread, warp, access in reads:
        other = writes.get((access.array, access.index, access.epoch, warp))
        if other is not None and other[0] != thread:
            found.setdefault(access.array, Race(access.array, other[1], access.text))
    return tuple(found.values())


@lru_cache(maxsize=256)
def elements_named(text: str, array: str) -> frozenset[str]:
    """How a kernel's text writes the elements of an array: what follows its name, without spaces; `` where it is used
    in another way."""
    out = set()
    for match in re.finditer(rf"(?<![\w.])(?<!->){re.escape(array)}\b\s*(\[)?", text):
        if match[1] is None:
            out.add("")
            continue
        depth, end = 1, match.end()
        while depth and end < len(text):
            depth += {"[": 1, "]": -1}.get(text[end], 0)
            end += 1
        out.add("".join(text[match.end() : end - 1].split()))
    return frozenset(out)


def _threads(block: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Threads at the edges of a block and of its warps."""
    powers = {1 << k for k in range(11)}
    x = sorted({0, *powers, _WARP - 1, block[0] // 2, block[0] - 2, block[0] - 1} & set(range(block[0])))
    y, z = (sorted({0, 1, n - 1} & set(range(n))) for n in block[1:])
    for k, j, i in product(z, y, x):
        yield (i, j, k)


# ---- loops that wait for other threads ------------------------------------------------------------

_LOOPS = ("for_statement", "while_statement", "do_statement")


def waits_for_threads(body: Node, functions: Mapping[str, tuple[Callee, ...]]) -> bool:
    """Whether a kernel, or one of the functions that it calls, has a loop that only another thread ends."""
    todo, seen = [body], set[str]()
    while todo:
        for at in below(todo.pop()):
            if at.type in _LOOPS and _only_waits(at):
                return True
            if at.type == "call_expression":
                name = _called(text_of(field_of(at, "function")))
                if name not in seen:
                    seen.add(name)
                    todo += [callee.body for callee in functions.get(name, ())]
    return False


def _called(written: str) -> str:
    """The name of a function without its template arguments and namespaces."""
    return written.partition("<")[0].rpartition("::")[2]


def _only_waits(loop: Node) -> bool:
    """Whether nothing that the condition of a loop names comes from the iterations before. A retry of `atomicCAS` does:
    it goes on from the value that it found."""
    condition = field_of(loop, "condition")
    constant = text_of(condition).strip("()") if condition is not None else "true"
    if constant in ("0", "false"):
        return False
    changes = list(_assigned_in(loop))
    changed = {name for name, _ in changes}
    carried = {name for name, value in changes if value is None or changed & set(names_below(value))}
    if condition is None or constant in ("1", "true"):
        return not carried
    return not carried & set(names_below(condition))


def _assigned_in(loop: Node) -> Iterator[tuple[str, Node | None]]:
    """The names that a loop assigns, with the new value; None where it is made from the old one or is an element."""
    for change in changes_below(loop):
        if change.how != "&" or change.name:
            new = change.how == "" or (change.how == "=" and change.name)
            yield from ((name, change.value if new else None) for name in list(names_below(change.target))[:1])


# ---- the execution of one thread ------------------------------------------------------------------

_BARRIERS = frozenset("__syncthreads __syncthreads_or __syncthreads_and __syncthreads_count".split())
_CASTS = frozenset("static_cast reinterpret_cast const_cast int unsigned size_t long float double".split())
_NUMBERS: dict[str, Callable[[list[int]], int]] = {
    "min": min, "umin": min, "max": max, "umax": max, "abs": lambda numbers: abs(numbers[0]),
}  # fmt: skip


class _Stop(Exception):
    """The thread has taken too many steps."""


class _Thread:
    """`found`: its accesses so far; `steps`: how many statements and expressions it has executed; `doubt`: in how many
    parts it is of which it is not known whether they run."""

    def __init__(
        self, names: dict[str, Value], built_in: Mapping[str, int], functions: Mapping[str, tuple[Callee, ...]]
    ) -> None:
        self.names, self.built_in, self.functions = names, built_in, functions
        self.found: list[ElementAccess] = []
        self.steps = self.depth = self.doubt = self.barriers = self.warp = 0
        self.turns: tuple[int, ...] = ()
        self.returned: Value = UNKNOWN

    # ---- statements -------------------------------------------------------------------------------

    def statement(self, node: Node | None) -> str:
        """Execute it; how it ends: "", `return`, `break` or `continue`."""
        if node is None:
            return ""
        self._step()
        match node.type:
            case "compound_statement" | "else_clause":
                return self._block(node.named_children)
            case "declaration":
                for declarator in declarators(node):
                    one = Declarator.of(declarator)
                    self.names[one.name] = self._initial(one, specifiers(node), text_of(field_of(node, "type")))
            case "if_statement":
                return self._if(node)
            case kind if kind in _LOOPS:
                return self._loop(node)
            case "return_statement":
                values = [self.value(child) for child in node.named_children]
                self.returned = values[0] if len(values) == 1 else UNKNOWN
                return "return"
            case "break_statement" | "continue_statement":
                return node.type.removesuffix("_statement")
            case "switch_statement" | "for_range_loop" | "try_statement":
                self._doubtful([field_of(node, "body")])
            case "expression_statement":
                for child in node.named_children:
                    self.value(child)
            case _:
                pass
        return ""

    def _step(self) -> None:
        self.steps += 1
        if self.steps > _MOST_OF_A_THREAD:
            raise _Stop

    @contextmanager
    def _doubting(self) -> Iterator[None]:
        """What runs within the block may not run: its accesses do not count."""
        self.doubt += 1
        yield
        self.doubt -= 1

    def _block(self, statements: Iterable[Node]) -> str:
        outer, declared = dict(self.names), set[str]()
        end = ""
        for statement in statements:
            if statement.type == "declaration":
                declared |= set(declared_names(statement))
            end = self.statement(statement)
            if end:
                break
        self._leave(declared, outer)
        return end

    def _leave(self, declared: Iterable[str], outer: Mapping[str, Value]) -> None:
        """Names that a scope declared have the values that they had before it."""
        for name in declared:
            self.names.pop(name, None)
            if name in outer:
                self.names[name] = outer[name]

    def _doubtful(self, parts: Sequence[Node | None]) -> list[str]:
        """Execute parts of which it is not known whether they run: what they assign is unknown. How each ends."""
        before, ends = dict(self.names), []
        changed: set[str] = set()
        with self._doubting():
            for part in parts:
                self.names = dict(before)
                ends.append(self.statement(part))
                changed |= {n for n, v in self.names.items() if n in before and before[n] is not v and before[n] != v}
        self.names = before | dict.fromkeys(changed, UNKNOWN)
        return ends

    def _if(self, node: Node) -> str:
        branches = [field_of(node, "consequence"), field_of(node, "alternative")]
        holds = self.value(field_of(node, "condition"))
        if isinstance(holds, int):
            return self.statement(branches[0 if holds else 1])
        if any(self._doubtful(branches)):
            self.doubt += 1  # other threads may have left: nothing after it is certain
        return ""

    def _loop(self, node: Node) -> str:
        outer, outside = dict(self.names), self.turns
        start = field_of(node, "initializer")
        own: set[str] = set()
        if start is not None and start.type == "declaration":
            self.statement(start)
            own = set(declared_names(start))
        else:
            self.value(start)
        end = self._iterate(node)
        self.turns = outside
        self._leave(own, outer)
        return end if end == "return" else ""

    def _iterate(self, node: Node) -> str:
        condition, update, body = (field_of(node, name) for name in ("condition", "update", "body"))
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
            self.value(update)
        self._doubtful([body])
        for change in (c for part in (body, update) if part is not None for c in changes_below(part)):
            if change.how not in ("", "&") and change.name in self.names:
                self.names[change.name] = UNKNOWN
        return ""

    def _initial(self, one: Declarator, words: frozenset[str], type_: str) -> Value:
        """The value of a variable that is declared."""
        sizes = [self.value(size) if size is not None else 1 for size in one.sizes]
        if "__shared__" in words:
            inner = tuple(size if isinstance(size, int) else 1 for size in sizes[1:])
            view = _view(type_) if bare_type(type_) in TYPE_SIZES else ""
            return ElementPlace(one.name, 0, True, inner, scalar=not sizes, view=view)
        if one.value is not None and one.value.type in ("argument_list", "initializer_list"):
            values = [self.value(v) for v in one.value.named_children]
            return values[0] if len(values) == 1 and not sizes else UNKNOWN
        value = self.value(one.value)
        floating = bare_type(type_) in {*FLOATING, "float2", "float4", "double2"} and isinstance(value, int)
        return UNKNOWN if sizes or floating else value

    # ---- expressions ------------------------------------------------------------------------------

    def value(self, node: Node | None) -> Value:
        """The value of an expression; its accesses are recorded."""
        if node is None:
            return UNKNOWN
        self._step()
        match node.type:
            case "number_literal":
                return _number(text_of(node))
            case "true" | "false":
                return int(node.type == "true")
            case "identifier" | "type_identifier":  # as which a template argument parses
                return self._load(node) if self._is_shared(node) else self.names.get(text_of(node), UNKNOWN)
            case "parenthesized_expression" | "condition_clause":
                return self.value(node.named_children[-1]) if node.named_children else UNKNOWN
            case "cast_expression":
                return _viewed(self.value(field_of(node, "value")), text_of(field_of(node, "type")))
            case "field_expression" if text_of(node) in self.built_in:
                return self.built_in[text_of(node)]
            case "subscript_expression" | "field_expression":
                return self._load(node)
            case "pointer_expression" if text_of(node).startswith("*"):
                return self._load(node)
            case "pointer_expression":
                place = self._place(field_of(node, "argument"))
                return replace(place, scalar=False) if place is not None else UNKNOWN
            case "binary_expression":
                return self._binary(node)
            case "unary_expression":
                value, unary = self.value(field_of(node, "argument")), _UNARY.get(operator_of(node))
                return int(unary(value)) if unary is not None and isinstance(value, int) else UNKNOWN
            case "conditional_expression":
                return self._conditional(node)
            case "assignment_expression":
                how, value = operator_of(node), self.value(field_of(node, "right"))
                return self._assign(field_of(node, "left"), how.removesuffix("="), value)
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

    def _is_shared(self, node: Node) -> bool:
        """Whether it is the name of a variable in shared memory."""
        value = self.names.get(text_of(node))
        return isinstance(value, ElementPlace) and value.scalar

    def _place(self, node: Node | None) -> ElementPlace | None:
        """The element that an expression denotes, if it is one of an array whose place is known."""
        if node is None:
            return None
        argument = field_of(node, "argument")
        value: Value = UNKNOWN
        match node.type:
            case "identifier" if self._is_shared(node):
                value = self.names[text_of(node)]
            case "parenthesized_expression":
                return self._place(node.named_children[-1])
            case "subscript_expression":
                return self._element(node)
            case "pointer_expression" if text_of(node).startswith("*"):
                value = self.value(argument)
            case "field_expression":
                if "->" not in text_of(node)[len(text_of(argument)) :]:
                    return self._place(argument)
                value = self.value(argument)
            case _:
                pass
        return value if isinstance(value, ElementPlace) else None

    def _element(self, node: Node) -> ElementPlace | None:
        argument, indices = field_of(node, "argument"), field_of(node, "indices")
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
        if node.type == "subscript_expression" and self._is_row(node):
            return place
        self._record(place, "r", node)
        return UNKNOWN

    def _is_row(self, node: Node) -> bool:
        """Whether an array with several dimensions has fewer subscripts than dimensions."""
        subscripts = 0
        at: Node | None = node
        while at is not None and at.type == "subscript_expression":
            subscripts, at = subscripts + 1, field_of(at, "argument")
        array = self.names.get(text_of(at))
        return isinstance(array, ElementPlace) and subscripts <= len(array.dims)

    def _record(self, place: ElementPlace, kinds: str, node: Node) -> None:
        """Accesses of these kinds, one after the other."""
        text = " ".join(text_of(node).split()).replace("[ ", "[").replace(" ]", "]")
        epoch = (self.barriers, self.warp)
        self.found += [
            ElementAccess(place.array, place.offset, kind, place.shared, epoch, text, self.turns, place.view)
            for kind in (kinds if not self.doubt else "")
        ]

    def _binary(self, node: Node) -> Value:
        how, left, other = operator_of(node), self.value(field_of(node, "left")), field_of(node, "right")
        if how not in ("&&", "||"):
            return _computed(how, left, self.value(other))
        decides = how == "||"  # the value of one operand that makes the other irrelevant
        if isinstance(left, int):
            right: Value = decides if bool(left) is decides else self.value(other)
            return int(bool(right)) if isinstance(right, int) else UNKNOWN
        with self._doubting():
            right = self.value(other)
        return int(decides) if isinstance(right, int) and bool(right) is decides else UNKNOWN

    def _conditional(self, node: Node) -> Value:
        branches = field_of(node, "consequence"), field_of(node, "alternative")
        holds = self.value(field_of(node, "condition"))
        if isinstance(holds, int):
            return self.value(branches[0 if holds else 1])
        with self._doubting():
            for branch in branches:
                self.value(branch)
        return UNKNOWN

    def _assign(self, target: Node | None, how: str, value: Value) -> Value:
        """Assign a value, combined with the old one by the operator `how` unless that is ""; returns the new value."""
        if target is None:
            return UNKNOWN
        if target.type == "identifier" and not self._is_shared(target):
            name = text_of(target)
            self.names[name] = _computed(how, self.names.get(name, UNKNOWN), value) if how else value
            return self.names[name]
        place = self._place(target)
        if place is not None:
            self._record(place, "rw" if how else "w", target)
        return UNKNOWN

    def _update(self, node: Node) -> Value:
        target, step = field_of(node, "argument"), 1 if "++" in text_of(node) else -1
        old = self.names.get(text_of(target), UNKNOWN)
        new = self._assign(target, "+", step)
        return new if text_of(node)[:2] in ("++", "--") or new is UNKNOWN else old

    # ---- calls ------------------------------------------------------------------------------------

    def _call(self, node: Node) -> Value:
        function, arguments = field_of(node, "function"), field_of(node, "arguments")
        given = arguments.named_children if arguments is not None else []
        written = text_of(function)
        name = _called(written)
        values = [self.value(argument) for argument in given]
        place = values[0] if values and isinstance(values[0], ElementPlace) else None
        if name in _BARRIERS or written.endswith(".sync"):
            self.barriers, self.warp = self.barriers + 1, 0
        elif name.startswith(("__syncwarp", "__shfl", "__ballot", "__any", "__all", "__reduce")):
            self.warp += 1
        elif place is not None and name.startswith(("atomic", "__ld", "__st")):
            self._record(place, "a" if name[0] == "a" else "r" if name.startswith("__ld") else "w", given[0])
        elif name in _NUMBERS:
            numbers = [v for v in values if isinstance(v, int)]
            return _NUMBERS[name](numbers) if numbers and len(numbers) == len(values) else UNKNOWN
        elif name in _CASTS and len(values) == 1:
            return _viewed(values[0], written.partition("<")[2].removesuffix(">"))
        elif name in self.functions and self.depth < _DEEPEST:
            overloads = self.functions[name]
            fitting = [c for c in overloads if len(c.parameters) == len(values)]
            return self._enter((fitting or overloads)[0], function, values)
        return UNKNOWN

    def _enter(self, callee: Callee, function: Node | None, values: Sequence[Value]) -> Value:
        template = field_of(function, "arguments")
        constants = [self.value(_without_type(c)) for c in template.named_children] if template is not None else []
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


def _without_type(node: Node) -> Node:
    """A template argument as an expression: a name alone parses as a type."""
    while node.type == "type_descriptor" and len(node.named_children) == 1:
        node = node.named_children[0]
    return node


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


def _number(text: str) -> Value:
    digits = text.replace("'", "").rstrip("uUlL") if "x" in text.lower() else text.replace("'", "").rstrip("uUlLfF")
    try:
        return int(digits, 0)
    except ValueError:
        return UNKNOWN


_UNARY: dict[str, Callable[[int], int]] = {
    "-": operator.neg, "+": operator.pos, "!": operator.not_, "~": operator.invert,
}  # fmt: skip
_BINARY: dict[str, Callable[[int, int], int]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "<<": operator.lshift, ">>": operator.rshift, "==": operator.eq, "!=": operator.ne, "<": operator.lt,
    "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "/": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) is (b < 0) else -1),
    "%": lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1),
}  # fmt: skip


def _computed(how: str, left: Value, right: Value) -> Value:
    if isinstance(left, ElementPlace) and isinstance(right, int) and how in ("+", "-"):
        return replace(left, offset=left.offset + (right if how == "+" else -right) * prod(left.dims))
    if isinstance(right, ElementPlace) and isinstance(left, int) and how == "+":
        return _computed("+", right, left)
    if not isinstance(left, int) or not isinstance(right, int) or how not in _BINARY:
        return UNKNOWN
    if (how in ("/", "%") and right == 0) or (how in ("<<", ">>") and not 0 <= right < 64):
        return UNKNOWN
    return int(_BINARY[how](left, right))
