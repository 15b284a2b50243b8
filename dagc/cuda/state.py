"""State that code keeps outside of its arguments: variables of `__device__`, `__constant__` and `__managed__` memory,
globals of host code, static members, and static variables of functions.

The reader follows names: what a text names, and what the definitions of these names name in turn, through macros,
functions, templates, classes and initialisers. A use counts as a write unless the text shows that it only reads.
Variables of equal name in different scopes are taken as one. A function that takes a lock orders its uses itself, so
they do not count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from dagc.cuda.lexer import Macro, expanded, is_global, macros_of, names_in, words_of
from dagc.cuda.syntax import (
    OF_THE_GPU,
    TYPE_SIZES,
    Callee,
    Declarator,
    bare_type,
    below,
    declarators,
    field_of,
    function_declarator,
    in_scopes,
    operator_of,
    parsable,
    specifiers,
    text_of,
    tree_of,
)

if TYPE_CHECKING:
    from tree_sitter import Node

_LOCKS = frozenset("mutex lock_guard unique_lock scoped_lock call_once once_flag".split())
_KEPT = frozenset(("static", "thread_local"))  # words of a variable that a function keeps
_ALWAYS = ""  # the name of what is used without being named: operators


@dataclass(frozen=True, slots=True)
class Variable:
    """`name`: `hits`, or `count::calls` of a static variable of a function. `text`: the key of its text, and `line` in
    it, from 0. `depth`: how often it is subscripted or dereferenced to get a value. `pointer`: it may hold addresses.
    `constant`: of `__constant__` memory, which only the host writes."""

    name: str
    text: str
    line: int
    depth: int = 0
    pointer: bool = False
    constant: bool = False


@dataclass(frozen=True, slots=True)
class VariableUse:
    """`escapes`: its address is kept, so that it may be accessed under another name. `keeps`: it is given the address
    of an argument. `line`: of the use, in `text`."""

    variable: Variable
    written: bool
    escapes: bool
    text: str
    line: int
    keeps: bool = False


@dataclass(frozen=True, slots=True)
class _Unit:
    """A part of a text that is used where its name is. `hidden`: names that are not those of variables in it."""

    node: Node
    text: str
    hidden: frozenset[str] = frozenset()
    arguments: frozenset[str] = frozenset()


@lru_cache(maxsize=16)
def definitions_of(texts: tuple[tuple[str, str], ...]) -> Definitions:
    """The definitions of the texts, given with their keys."""
    return Definitions(dict(texts))


class Definitions:
    """Texts that are compiled together."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.macros: dict[str, Macro] = macros_of(texts.values())
        self.variables: dict[str, Variable] = {}
        self.units: dict[str, list[_Unit]] = {}
        self.fields: dict[str, frozenset[str]] = {}
        # Known uses: a text is lowered for many values of what is open.
        self._known: dict[tuple[str, str, frozenset[str], frozenset[str], str], tuple[VariableUse, ...]] = {}
        self.of_function: dict[str, tuple[VariableUse, ...]] = {}
        self._reached: dict[str, frozenset[str]] = {}
        self.members: set[str] = set()  # the variables that are static members
        self.keeps = any(word in text for text in texts.values() for word in _KEPT)
        for key, text in texts.items():
            _Reader(self, key).read(tree_of(parsable(expanded(text, self.macros)).encode()))

    @cached_property
    def functions(self) -> dict[str, tuple[Callee, ...]]:
        """The functions with a body, by name; overloads in the order of the texts."""
        out: dict[str, tuple[Callee, ...]] = {}
        for name, units in self.units.items():
            found = [Callee.of(u.node) for u in units if u.node.type == "function_definition"]
            if bodies := tuple(c for c in found if c is not None):
                out[name] = bodies
        return out

    def numbers(self) -> dict[str, int]:
        """The constants that are defined by a number."""
        return {
            name: int(text_of(unit.node).rstrip("uUlL"))
            for name, units in self.units.items()
            for unit in units
            if name not in self.variables and text_of(unit.node).rstrip("uUlL").isdecimal()
        }

    def words_reached(self, name: str) -> frozenset[str]:
        """The words of what a name of the texts stands for, and of all that this names in turn; none of a name that
        they do not define."""
        if name not in self._reached:
            seen, todo = set[str](), [name]
            while todo:
                for unit in self.units.get(todo.pop(), ()):
                    todo += words_of(text_of(unit.node)) - seen
                    seen |= words_of(text_of(unit.node))
            self._reached[name] = frozenset(seen)
        return self._reached[name]

    def block(self, text: str) -> Node:
        """The tree of a kernel's text, a block of statements, with its macros expanded."""
        macros = self.macros | macros_of((text,)) if "define" in text else self.macros
        tree = tree_of(parsable(f"void kernel() {{\n{expanded(text, macros)}\n}}").encode())
        first = field_of(tree.named_children[0], "body") if tree.named_children else None
        return first if first is not None else tree

    def uses(
        self, key: str, text: str, arrays: Collection[str], values: Collection[str], owner: str
    ) -> tuple[VariableUse, ...]:
        """What the body of a function uses. `arrays`, `values`: the names of its arguments and of constants; `owner`:
        its name."""
        if not (self.variables or self.keeps or _KEPT & words_of(text)):
            return ()
        case = key, text, frozenset(arrays), frozenset(values), owner
        if case not in self._known:
            unit = _Unit(self.block(text), key, frozenset(values), frozenset(arrays))
            self._known[case] = self._uses_of_unit(unit, owner, shift=1)
        return self._known[case]

    def uses_of(self, function: str) -> tuple[VariableUse, ...]:
        """What a function of the texts uses, in all its overloads."""
        if not (self.variables or self.keeps):
            return ()
        if function not in self.of_function:
            uses = [
                u for unit in self.units.get(_last(function), ()) for u in self._uses_of_unit(unit, _last(function))
            ]
            self.of_function[function] = tuple({(u.variable, u.written, u.escapes, u.keeps): u for u in uses}.values())
        return self.of_function[function]

    def _uses_of_unit(self, unit: _Unit, owner: str, shift: int = 0) -> tuple[VariableUse, ...]:
        found = _Uses(self)
        found.read(unit, owner, shift)
        seen, todo = set[str](), [*found.named, _ALWAYS]  # a kernel may call a function of its own name
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                before = set(found.named)
                for each in self.units.get(name, ()):
                    found.read(each, name)
                todo += found.named - before
        return tuple(found.uses.values())


def _last(name: str) -> str:
    return name.rpartition("::")[2]


# ---- declarations ---------------------------------------------------------------------------


def _variable(node: Node, one: Declarator, key: str, name: str, shift: int = 0) -> Variable | None:
    """The variable that a declaration defines; None for a constant."""
    words, type_ = specifiers(node), text_of(field_of(node, "type"))
    if "__shared__" in words or not one.name or _LOCKS & {n.text for n in names_in(type_)}:
        return None
    known = bare_type(type_) in TYPE_SIZES
    constant = "constexpr" in words or ("const" in words and (one.fixed or (not one.pointers and not one.reference)))
    if constant and (known or one.pointers or not any(w in type_ for w in ("auto", "ptr", "span"))):
        return None
    return Variable(
        name, key, max(0, node.start_point[0] - shift), one.pointers + len(one.sizes),
        bool(one.pointers or one.reference) or not known, "__constant__" in words,
    )  # fmt: skip


_CLASSES = frozenset(("struct_specifier", "class_specifier", "union_specifier"))


class _Reader:
    """Enters what one text defines."""

    def __init__(self, code: Definitions, key: str) -> None:
        self.code, self.key = code, key

    def read(self, root: Node) -> None:
        """The definitions of a text."""
        for node, _ in in_scopes(root):
            self._definition(node, None)
            if node.type == "ERROR":
                self._not_parsed(node)

    def _definition(self, node: Node, owner: str | None) -> None:
        """What one node defines. `owner`: the class that it is in."""
        match node.type:
            case "function_definition":
                self._function(node, owner or "")
            case "declaration" | "field_declaration" if owner is not None:
                self._member(node, owner)
            case "declaration":
                self._declaration(node)
            case "alias_declaration" | "type_definition" | "concept_definition":
                self._type(node)
            case kind if kind in _CLASSES:
                self._class(node)
            case _:
                pass

    def _unit(self, name: str, node: Node, hidden: frozenset[str] = frozenset()) -> None:
        self.code.units.setdefault(name, []).append(_Unit(node, self.key, hidden))

    def _function(self, node: Node, owner: str) -> None:
        """A function, also under the name of its class if it runs without being named."""
        named, scope = field_of(function_declarator(field_of(node, "declarator")), "declarator"), ""
        while named is not None and named.type == "qualified_identifier":
            scope = text_of(field_of(named, "scope")).partition("<")[0]
            named = field_of(named, "name")
        owner = owner or scope
        fields = self.code.fields.get(owner, frozenset())
        name = text_of(named).partition("<")[0]
        self._unit(name, node, fields)
        unnamed = named is None or named.type in ("operator_name", "destructor_name", "operator_cast") or name == owner
        if unnamed:
            self._unit(owner or _ALWAYS, node, fields)

    def _declaration(self, node: Node) -> None:
        type_ = field_of(node, "type")
        if type_ is not None and type_.type in _CLASSES:
            self._class(type_)
        for declarator in declarators(node):
            one = Declarator.of(declarator)
            if one.function or not one.name:
                continue
            self._variable(node, one)
            for used in (type_, *one.uses):
                if used is not None:
                    self._unit(one.name, used)

    def _variable(self, node: Node, one: Declarator) -> None:
        variable = _variable(node, one, self.key, one.name)
        if variable is not None:
            self.code.variables.setdefault(one.name, variable)

    def _type(self, node: Node) -> None:
        name = field_of(node, "name")
        names = [text_of(name)] if name is not None else [Declarator.of(d).name for d in declarators(node)]
        type_ = field_of(node, "type")
        if type_ is not None and type_.type in _CLASSES:
            self._class(type_)
        for each in names:
            if type_ is not None:
                self._unit(each, type_)

    def _class(self, node: Node) -> None:
        """A class: members that run without being named belong to its name, others to their own."""
        name = text_of(field_of(node, "name")).partition("<")[0]
        body = field_of(node, "body")
        members = body.named_children if body is not None else []
        members = [c for m in members for c in (m.named_children if m.type == "template_declaration" else [m])]
        own = frozenset(
            Declarator.of(d).name
            for m in members
            if m.type == "field_declaration" and "static" not in specifiers(m)
            for d in declarators(m)
        )
        self.code.fields[name] = self.code.fields.get(name, frozenset()) | own
        for base in node.named_children:
            if base.type == "base_class_clause":
                self._unit(name, base)
        for member in members:
            self._definition(member, name)

    def _member(self, node: Node, owner: str) -> None:
        type_, value = field_of(node, "type"), field_of(node, "default_value")
        if type_ is not None and type_.type in _CLASSES:
            self._class(type_)
        static = "static" in specifiers(node)
        names = [one for one in map(Declarator.of, declarators(node)) if not one.function]
        for one in names if static else ():
            self._variable(node, one)
            self.code.members.add(one.name)
        for name in (one.name if static else owner for one in names):
            for used in (type_, value):
                if used is not None:
                    self._unit(name, used)

    def _not_parsed(self, node: Node) -> None:
        """What a part that does not parse may define: variables of the GPU, and functions."""
        text = text_of(node)
        names = list(names_in(text))
        gpu = any(name.text in OF_THE_GPU for name in names)
        for name in names:
            following = text[name.start + len(name.text) :].lstrip()[:1]
            if following == "(":
                self._unit(name.text, node)
            elif gpu and following in (";", "=", "[", "{") and name.before not in ("", "return", "struct"):
                line = node.start_point[0] + text.count("\n", 0, name.start)
                self.code.variables.setdefault(name.text, Variable(name.text, self.key, line, pointer=True))


# ---- uses -----------------------------------------------------------------------------------

_BLOCKS = frozenset(
    """compound_statement for_statement for_range_loop lambda_expression function_definition if_statement
    while_statement catch_clause template_declaration struct_specifier class_specifier union_specifier""".split()
)
_DECLARATIONS = frozenset(
    "declaration field_declaration parameter_declaration optional_parameter_declaration for_range_loop".split()
)


_ARGUMENT = Variable("", "", 0, pointer=True)  # stands for an address that the function was given


class _Uses:
    """What one function uses, with all that it names."""

    def __init__(self, code: Definitions) -> None:
        self.code = code
        self.uses: dict[tuple[str, bool, bool, bool], VariableUse] = {}
        self.named: set[str] = set()

    def read(self, unit: _Unit, owner: str, shift: int = 0) -> None:
        """The uses of one part of the text."""
        words = {name.text for name in names_in(text_of(unit.node))}
        if words.isdisjoint(_KEPT | {"asm", "__asm__"}) and words.isdisjoint(self.code.variables):
            self.named |= words  # no use: only what it names in turn
            return
        names = (text_of(n) for n in below(unit.node) if n.type in ("identifier", "type_identifier"))
        locked = not _LOCKS.isdisjoint(names)
        self.text, self.owner, self.shift = unit.text, owner, shift
        scope: dict[str, Variable | None] = dict.fromkeys(unit.hidden) | dict.fromkeys(unit.arguments, _ARGUMENT)
        stack: list[tuple[Node, dict[str, Variable | None]]] = [(unit.node, scope)]
        while stack:  # no recursion: a text may be nested deeply
            node, scope = stack.pop()
            if node.type in _BLOCKS:
                scope = dict(scope)
            if node.type in _DECLARATIONS:
                stack += [(n, scope) for n in reversed(list(self._declared(node, scope)))]
            elif node.type == "gnu_asm_expression":
                for name in names_in(text_of(node).replace('"', " ")):
                    self._use(node, name.text, scope, (True, True), locked)
            elif node.type in ("identifier", "type_identifier", "field_identifier", "namespace_identifier"):
                self._use(node, text_of(node), scope, None, locked)
            else:
                stack += [(n, scope) for n in reversed(node.named_children)]

    def _declared(self, node: Node, scope: dict[str, Variable | None]) -> Iterator[Node]:
        """Enter the names of a declaration; its parts that use others."""
        words = specifiers(node)
        kept = bool(_KEPT & words) and node.type == "declaration"
        outside = "extern" in words and "__shared__" not in words
        type_, named = field_of(node, "type"), declarators(node)
        if type_ is not None:
            yield type_
        for declarator in named:
            one = Declarator.of(declarator)
            if kept:
                scope[one.name] = _variable(node, one, self.text, f"{self.owner}::{one.name}", self.shift)
            elif not outside:
                address = bool(one.pointers) and "parameter" in node.type
                scope[one.name] = _ARGUMENT if address or _names_argument(one.uses, scope) else None
            yield from one.uses
        yield from (
            c for c in node.named_children
            if c != type_ and c not in named and not c.type.endswith(("specifier", "qualifier"))
        )  # fmt: skip

    def _use(
        self, node: Node, name: str, scope: Mapping[str, Variable | None], mode: tuple[bool, bool] | None, locked: bool
    ) -> None:
        member = node.type == "field_identifier"
        qualified = node.parent is not None and node.parent.type == "qualified_identifier"
        hidden = name in scope and not qualified and not member
        variable = scope[name] if hidden else self.code.variables.get(name)
        if not hidden:
            self.named.add(name)
        if variable is None or variable is _ARGUMENT or locked or (member and name not in self.code.members):
            return
        if mode is None:
            mode = _mode(self.code, node, variable) if node.type != "type_identifier" else (True, True)
        written, escapes = mode
        keeps = written and variable.pointer and _names_argument(_assigned(node), scope)
        key = (variable.name, written, escapes, keeps)
        if key not in self.uses:
            line = max(0, node.start_point[0] - self.shift)
            self.uses[key] = VariableUse(variable, written, escapes, self.text, line, keeps)


def _assigned(node: Node) -> list[Node]:
    """What is assigned to a variable itself, not to what it points to."""
    parent = node.parent
    if parent is None or parent.type != "assignment_expression" or field_of(parent, "left") != node:
        return []
    return [n for n in (field_of(parent, "right"),) if n is not None]


def _names_argument(nodes: list[Node], scope: Mapping[str, Variable | None]) -> bool:
    """Whether an expression may be the address of an argument: it names one, and does not only read what is there."""
    todo = list(nodes)
    while todo:
        node = todo.pop()
        if node.type == "identifier" and scope.get(text_of(node)) is _ARGUMENT:
            return True
        reads = node.type == "subscript_expression" or (
            node.type == "pointer_expression" and text_of(node).startswith("*")
        )
        if node.type == "pointer_expression" and not reads:  # `&p[i]`
            todo += [c for n in node.named_children for c in n.named_children] + node.named_children
        elif not reads and node.type != "call_expression":
            todo += node.named_children
    return False


# ---- whether a use writes -------------------------------------------------------------------

_READ, _WRITE, _ESCAPE = (False, False), (True, False), (True, True)
_ASKING = frozenset("size length empty count c_str capacity".split())  # methods that change nothing
_READERS = frozenset("__ldg __ldcg __ldca __ldcs __ldlu __ldcv printf min max abs fprintf sizeof".split())


def _mode(code: Definitions, node: Node, variable: Variable) -> tuple[bool, bool]:
    """Whether the use of a variable may write it, and keep its address."""
    place, reached, member = node, 0, False
    while place.parent is not None:
        parent = place.parent
        argument = field_of(parent, "argument")
        named = node.type == "field_identifier" and place == node and parent.type == "field_expression"
        address = not member and reached < variable.depth
        if named or parent.type in ("qualified_identifier", "parenthesized_expression"):
            pass
        elif parent.type == "pointer_expression":
            reached, member = (reached + 1, member) if text_of(parent).startswith("*") else (reached - 1, False)
        elif parent.type == "subscript_expression" and argument == place:
            reached += 1
        elif parent.type == "field_expression" and argument == place:
            member = True
        elif address and _is_address(parent, place):
            pass
        elif address and (call := _cast(parent)) is not None:
            parent = call
        else:
            break
        place = parent
    value = member or reached >= variable.depth
    mode = _in_context(code, place, value)
    if variable.constant and not _by_interface(place):
        return _READ
    return mode


def _is_address(parent: Node, place: Node) -> bool:
    """Whether an expression made from an address is one of the same memory."""
    match parent.type:
        case "binary_expression":
            return operator_of(parent) in ("+", "-")
        case "cast_expression":
            return "*" in text_of(field_of(parent, "type"))
        case "conditional_expression":
            return field_of(parent, "condition") != place
        case _:
            return False


def _cast(arguments: Node) -> Node | None:
    """The `reinterpret_cast<T*>(p)` that has these arguments."""
    call = arguments.parent
    if arguments.type != "argument_list" or call is None or call.type != "call_expression":
        return None
    written = text_of(field_of(call, "function"))
    return call if written.partition("<")[0].endswith("_cast") and "*" in written else None


def _by_interface(place: Node) -> bool:
    """Whether a place is part of the arguments of a function of CUDA's interface: the host may write it there."""
    at: Node | None = place
    while at is not None and not at.type.endswith("statement"):
        if at.type == "call_expression" and _called(at).startswith("cu"):
            return True
        at = at.parent
    return False


def _called(call: Node) -> str:
    return _last(text_of(field_of(call, "function")).partition("<")[0])


_VALUE = frozenset(
    """binary_expression conditional_expression subscript_argument_list condition_clause unary_expression
    cast_expression initializer_list template_argument_list""".split()
)
_HARMLESS = frozenset(
    """expression_statement sizeof_expression comma_expression if_statement while_statement for_statement do_statement
    switch_statement case_statement delete_expression""".split()
)


def _in_context(code: Definitions, place: Node, value: bool) -> tuple[bool, bool]:
    """What the expression around a place does with it. `value`: it is a value rather than an address."""
    parent = place.parent
    read = _READ if value else _ESCAPE
    if parent is None or parent.type in _HARMLESS:
        return _READ
    match parent.type:
        case "assignment_expression":
            return _WRITE if field_of(parent, "left") == place else read
        case "update_expression":
            return _WRITE
        case "argument_list":
            return _passed(code, parent, place, value)
        case "call_expression":
            return _READ if _last(text_of(place).replace(".", "::").replace("->", "::")) in _ASKING else _ESCAPE
        case "return_statement":
            return _ESCAPE if _returns_address(parent) else read
        case "init_declarator" | "declaration":
            return _bound(parent, value)
        case "for_range_loop":
            return _READ if value and not any(Declarator.of(d).reference for d in declarators(parent)) else _ESCAPE
        case "binary_expression":
            operator = operator_of(parent)
            if operator == ">>" and field_of(parent, "right") == place:
                return _WRITE  # of a stream
            return _READ if value or operator in ("==", "!=", "<", ">", "<=", ">=", "&&", "||") else _ESCAPE
        case kind if kind in _VALUE:
            return read
        case _:
            return _ESCAPE


_KEEP_NO_ADDRESS = ("atomic", "__atomic", "cudaMemcpy", "scanf", "__pipeline")
_BY_REFERENCE = ("cu", "wmma", "cooperative")  # what also begins the names of functions that take references


def _passed(code: Definitions, arguments: Node, place: Node, value: bool) -> tuple[bool, bool]:
    """An argument of a call."""
    call = arguments.parent
    if call is None or call.type != "call_expression":  # `T x(a)`
        return _bound(call, value) if call is not None and call.type == "init_declarator" else _ESCAPE
    called = _called(call)
    index = arguments.named_children.index(place)
    if called.startswith("cudaMemcpyFromSymbol"):
        return _READ if index == 1 else _WRITE
    if called.startswith("cudaMemcpyToSymbol"):
        return _WRITE if index == 0 else _READ
    if called.startswith(("cudaGetSymbolSize", "sizeof")):
        return _READ
    types = [t for unit in code.units.get(called, ()) for t in [_formal(unit.node, index)] if t is not None]
    if types:
        return _READ if all((t == "value" and value) or t == "const" for t in types) else _ESCAPE
    if not value and called in _READERS:
        return _READ
    if not value and called.startswith(_KEEP_NO_ADDRESS):
        return _WRITE
    by_value = is_global(called) and not called.startswith(_BY_REFERENCE)  # those of C, and what looks like them
    by_value |= called in _READERS or called in TYPE_SIZES or (called.endswith("_cast") and "&" not in text_of(call))
    library = called.startswith(("cublas", "cusparse", "cufft", "cusolver", "curand", "nccl", "MPI_", "__"))
    return _READ if value and (by_value or library) else _ESCAPE


def _formal(function: Node, index: int) -> str | None:
    """How a function takes an argument: `value`, `const` for an address of what it does not change, else `address`."""
    if function.type != "function_definition":
        return None
    parameters = field_of(function_declarator(field_of(function, "declarator")), "parameters")
    formals = [p for p in parameters.named_children if "parameter" in p.type] if parameters is not None else []
    if index >= len(formals):
        return None
    one = [Declarator.of(d) for d in declarators(formals[index])]
    if not any(o.pointers or o.reference or o.sizes for o in one) and not formals[index].type.startswith("variadic"):
        return "value"
    return "const" if "const" in specifiers(formals[index]) else "address"


def _returns_address(node: Node) -> bool:
    at: Node | None = node
    while at is not None and at.type not in ("function_definition", "lambda_expression"):
        at = at.parent
    declarator = field_of(at, "declarator") if at is not None and at.type == "function_definition" else None
    return declarator is not None and declarator.type in ("reference_declarator", "pointer_declarator")


def _bound(node: Node, value: bool) -> tuple[bool, bool]:
    """What a declaration does with the initial value of its name."""
    holder = node.parent if node.type == "init_declarator" else node
    words = specifiers(holder) if holder is not None else frozenset()
    one = Declarator.of(field_of(node, "declarator"))
    if one.reference:
        return _READ if "const" in words else _ESCAPE
    return _READ if value or (one.pointers == 1 and "const" in words) else _ESCAPE
