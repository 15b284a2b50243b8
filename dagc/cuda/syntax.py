"""C and CUDA text as a syntax tree (tree-sitter): the questions that all readers ask of it, and the types of C."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dagc.base.errors import DagcError

if TYPE_CHECKING:
    from tree_sitter import Node


class NotUnderstood(DagcError):
    """The text uses a construct that the reader does not support. `line`: of the text, from 0, if it is known."""

    line: int | None = None


# ---- types ----------------------------------------------------------------------------------

# Bytes of C, CUDA and <cstdint> types, without `unsigned` and `signed`.
VECTORS = {
    "char2": 2, "uchar2": 2, "char4": 4, "uchar4": 4, "short2": 4, "ushort2": 4, "short4": 8, "ushort4": 8, "half2": 4,
    "__half2": 4, "int2": 8, "uint2": 8, "int4": 16, "uint4": 16, "float2": 8, "float4": 16, "double2": 16,
    "longlong2": 16, "ulonglong2": 16,
}  # fmt: skip
TYPE_SIZES = {
    "bool": 1, "char": 1, "int8_t": 1, "uint8_t": 1, "uchar": 1, "short": 2, "int16_t": 2, "uint16_t": 2, "half": 2,
    "__half": 2, "__nv_bfloat16": 2, "int": 4, "int32_t": 4, "uint32_t": 4, "uint": 4, "float": 4, "": 4, "double": 8,
    "long": 8, "long int": 8, "long long": 8, "long long int": 8, "int64_t": 8, "uint64_t": 8, "size_t": 8,
    "ptrdiff_t": 8, **VECTORS,
}  # fmt: skip
FLOATING = frozenset({"float", "double", "half", "__half", "__nv_bfloat16"})


def bare_type(text: str) -> str:
    """`const volatile unsigned int *` as `int`: the key of TYPE_SIZES."""
    words = text.replace("*", " ").replace("&", " ").replace("std::", " ").split()
    aside = {"const", "volatile", "unsigned", "signed", "static", "extern", "register", "__restrict__", "__restrict"}
    return " ".join(w for w in words if w not in aside)


# ---- trees ----------------------------------------------------------------------------------

# Two spellings that the grammar does not have, replaced before it parses.
_PRAGMA = re.compile(r'_Pragma\s*\(\s*"([^"\n]*)"\s*\)')
# A pragma that stands where a statement must: `for (...) #pragma unroll for (...) s += a[i];`
_NESTED_PRAGMA = re.compile(r"(?<=\))(?:[ \t]*//[^\n]*)?\s*\n([ \t]*#[ \t]*pragma[^\n]*)(?=\n)")
_ATTRIBUTE = re.compile(
    r"\b(?:__align__|__launch_bounds__|__maxnreg__|__cluster_dims__|__attribute__|alignas)\s*"
    r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
    r"|\b(?:__forceinline__|__noinline__|__inline__|__restrict__|__restrict|__grid_constant__)\b|\[\[[^\[\]]*\]\]"
)
_APART = re.compile(rb"(?<!operator)<<([ \t]*)<((?:[^;<>]|[<>](?![<>]))*?)>>([ \t]*)>(?=\s*\()")


@lru_cache(maxsize=1)
def _parser() -> Any:
    # Imported here: most commands read no CUDA text.
    import tree_sitter
    import tree_sitter_cuda

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language()))


def joined_launches(source: bytes) -> bytes:
    """`k << <grid, block>> >(x)`, which nvcc takes and some editors write, as `k <<<grid, block>>> (x)`; the places of
    all other text stay."""
    return _APART.sub(rb"\1<<<\2>>>\3", source) if b"<<" in source else source


def tree_of(source: bytes) -> Node:
    """The syntax tree of any text; parts that do not parse are ERROR nodes."""
    root: Node = _parser().parse(joined_launches(source)).root_node
    return root


def parsable(text: str) -> str:
    """A text without attributes of declarations, which the grammar has in few places; lines keep their numbers."""
    return _ATTRIBUTE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def body_of(text: str) -> Node:
    """The syntax tree of a kernel's body. Raises NotUnderstood if it does not parse."""
    text = _PRAGMA.sub(r"\n#pragma \1\n", text)  # the parser knows only the other spelling
    if _NESTED_PRAGMA.search(text):
        text = _in_braces(text)
    root = tree_of(f"void kernel() {{\n{text}\n}}".encode())
    if root.has_error:
        error = NotUnderstood("the kernel's text does not parse as CUDA C++")
        error.line = next(map(line_of, _wrong(root)), None)
        raise error
    bodies = [field_of(node, "body") for node in root.named_children if node.type == "function_definition"]
    body = bodies[0] if len(bodies) == 1 == len(root.named_children) else None
    if body is None:
        raise NotUnderstood("the kernel's text is not the body of one function")
    return body


def _in_braces(text: str) -> str:
    """A text in which pragmas that stand where a statement must are in braces with the statement after them: the parser
    knows pragmas between statements only."""
    head, pragmas, before = "void kernel() {\n", list[tuple[int, str]](), 0
    for match in _NESTED_PRAGMA.finditer(text):
        pragmas.append((len((head + text[: match.start()]).encode()) - before, match[1]))
        before += len(match[0].encode())
    source = f"{head}{_NESTED_PRAGMA.sub('', text)}\n}}".encode()
    root, edits = tree_of(source), list[tuple[int, int, str]]()
    for start, pragma in pragmas:
        first = len(source) - len(source[start:].lstrip())
        node = root.descendant_for_byte_range(first, first)
        while node is not None and node.parent is not None and node.parent.start_byte == first:
            node = node.parent
        if node is not None:  # of two that end at one place the inner one is closed first
            line = source[source.rfind(b"\n", 0, start) + 1 : start].decode()
            indent = line[: len(line) - len(line.lstrip())]
            edits += [(start, start, f" {{\n{pragma}"), (node.end_byte, -start, f"\n{indent}}}")]
    out, done = [], 0
    for place, _, new in sorted(edits):
        out += [source[done:place], new.encode()]
        done = place
    return b"".join([*out, source[done:]]).decode()[len(head) : -2]


def line_of(node: Node) -> int:
    """The line of a node of `body_of(text)` in the text, from 0, if the text `keeps_lines`."""
    return max(0, int(node.start_point[0]) - 1)  # the line before is the head of a function


def ends_flow(node: Node) -> bool:
    """Whether a statement ends with `return`, `break` or `continue`."""
    last = ([c for c in node.named_children if c.type != "comment"] or [node])[-1]
    end = last if node.type == "compound_statement" else node
    return end.type in ("return_statement", "break_statement", "continue_statement")


def keeps_lines(text: str) -> bool:
    """Whether the lines of `body_of(text)` are those of the text."""
    return not (_PRAGMA.search(text) or _NESTED_PRAGMA.search(text))


def _wrong(node: Node) -> Iterator[Node]:
    """The innermost parts that do not parse."""
    for child in node.children:
        if child.has_error:
            yield from _wrong(child)
    if node.is_error or node.is_missing:
        yield node


# ---- nodes ----------------------------------------------------------------------------------


def field_of(node: Node | None, name: str) -> Node | None:
    """The part of a node with this name in the grammar; None if it has none."""
    return node.child_by_field_name(name) if node is not None else None


def child_of(node: Node, name: str) -> Node:
    """As `field_of`, for one that the reader needs. Raises NotUnderstood."""
    child = node.child_by_field_name(name)
    if child is None:
        raise NotUnderstood(f"`{shown_text(node)}` is not understood")
    return child


def text_of(node: Node | None) -> str:
    return node.text.decode() if node is not None and node.text is not None else ""


def shown_text(node: Node | None) -> str:
    """The beginning of a node's text in one line, for messages."""
    return " ".join(text_of(node).split())[:40]


def operator_of(node: Node) -> str:
    """`+` of `a + b`, `+=` of `a += b`."""
    return text_of(field_of(node, "operator"))


def below(node: Node) -> Iterator[Node]:
    """A node and all named ones below it, in the order of the text."""
    todo = [node]  # no recursion: a text may be nested deeply
    while todo:
        at = todo.pop()
        yield at
        todo += reversed(at.named_children)


def deeper_than(node: Node, levels: int) -> Node | None:
    """A named node more than so many levels below a node; None if there is none."""
    at = [node]
    for _ in range(levels + 1):
        at = [child for each in at for child in each.named_children]
    return at[0] if at else None


def inside(node: Node, types: Collection[str]) -> bool:
    """Whether a node is part of one of these types."""
    at = node.parent
    while at is not None and at.type not in types:
        at = at.parent
    return at is not None


def names_below(node: Node | None) -> Iterator[str]:
    """The names of values below a node, in the order of the text."""
    return (text_of(at) for at in (below(node) if node is not None else ()) if at.type == "identifier")


def identifiers(node: Node) -> Iterator[str]:
    """All identifiers below a node, and the words of preprocessor lines, which have no tree."""
    for at in below(node):
        if at.type in ("identifier", "type_identifier"):  # a single name between < and > parses as a type
            yield text_of(at)
        elif at.type in ("preproc_arg", "string_literal"):
            words = "".join(c if c.isalnum() or c == "_" else " " for c in text_of(at)).split()
            yield from (w for w in words if not w[0].isdigit())


def without_brackets(node: Node) -> Node:
    """The expression in parentheses, or in the condition of a statement."""
    while node.type in ("parenthesized_expression", "condition_clause") and node.named_children:
        node = node.named_children[-1]
    return node


# ---- declarations ---------------------------------------------------------------------------

OF_THE_GPU = frozenset(("__device__", "__constant__", "__managed__"))  # words of variables in the GPU's memory
_SCOPES = frozenset(
    "translation_unit namespace_definition linkage_specification declaration_list template_declaration ERROR".split()
)
_UNDERSTOOD = frozenset("init_declarator pointer_declarator array_declarator reference_declarator".split())


@dataclass(slots=True)
class Declarator:
    """One name of a declaration. `at`: the node of the name. `sizes`: of an array's dimensions, the outermost first,
    None for `[]`. `fixed`: it is a pointer that is `const`. `simple`: a name with pointers, dimensions and a reference,
    and nothing else. `uses`: what the declaration uses, such as an initial value and sizes."""

    at: Node | None = None
    name: str = ""
    value: Node | None = None
    pointers: int = 0
    sizes: list[Node | None] = field(default_factory=list)
    reference: bool = False
    fixed: bool = False
    function: bool = False
    simple: bool = True
    uses: list[Node] = field(default_factory=list)

    @staticmethod
    def of(node: Node | None) -> Declarator:
        out = Declarator()
        at = node
        while at is not None and out.at is None:
            inner = field_of(at, "declarator")
            if at.type in ("identifier", "field_identifier", "type_identifier", "qualified_identifier"):
                named: Node | None = at
                while named is not None and named.type == "qualified_identifier":
                    named = field_of(named, "name")
                out.at, out.name = at, text_of(named)
            else:
                out._wrap(at, inner)
            if inner is None and at.type.endswith("declarator"):
                inner = next((c for c in reversed(at.named_children) if c.type != "type_qualifier"), None)
            out.simple = out.simple and (at.type in _UNDERSTOOD or at.type == "identifier")
            at = inner
        out.simple = out.simple and out.at is not None
        return out

    def _wrap(self, at: Node, inner: Node | None) -> None:
        """What a part around the name adds."""
        self.uses += [c for c in (field_of(at, word) for word in ("value", "size", "parameters")) if c is not None]
        match at.type:
            case "init_declarator":
                self.value = field_of(at, "value")
            case "pointer_declarator":
                self.pointers += 1
                self.fixed = any(text_of(c) in ("const", "constexpr") for c in at.children)
            case "array_declarator":
                self.sizes.insert(0, field_of(at, "size"))
            case "reference_declarator":
                self.reference = True
            case "function_declarator":
                self.function = inner is not None and inner.type != "parenthesized_declarator"
            case _:
                pass


def declarators(node: Node) -> list[Node]:
    """Those of a declaration: one for each name."""
    return node.children_by_field_name("declarator")


def declared_names(node: Node) -> Iterator[str]:
    """The names of one declaration."""
    return (Declarator.of(d).name for d in declarators(node))


def specifiers(node: Node) -> frozenset[str]:
    """The words of a declaration beside its type: `static`, `const`, `__device__`."""
    return frozenset(text_of(c) for c in node.children if c.type.endswith(("specifier", "qualifier")) or not c.is_named)


def function_declarator(declarator: Node | None) -> Node | None:
    """The part of a declarator that has the name and the parameters of a function."""
    at = declarator
    while at is not None and at.type != "function_declarator":  # a reference names its declarator by no field
        at = field_of(at, "declarator") or next((c for c in at.named_children if "declarator" in c.type), None)
    return at


def in_scopes(node: Node, template: bool = False) -> Iterator[tuple[Node, bool]]:
    """What a text declares outside of functions and classes, and whether as a template. A part that does not parse
    follows what is in it."""
    for child in node.named_children:
        is_scope = child.type in _SCOPES or child.type.startswith("preproc_")
        if is_scope:
            yield from in_scopes(child, template or child.type == "template_declaration")
        if not is_scope or child.type == "ERROR":
            yield child, template


@dataclass(frozen=True, slots=True)
class Callee:
    """A function that code calls: its body, the names of its parameters and of those of its template."""

    body: Node
    parameters: tuple[str, ...]
    template: tuple[str, ...] = ()

    @staticmethod
    def of(node: Node) -> Callee | None:
        """That of a definition; None if it lacks a part."""
        declarator, above = function_declarator(field_of(node, "declarator")), node.parent
        body, formals = field_of(node, "body"), field_of(declarator, "parameters")
        if body is None or formals is None:
            return None
        names = [name for p in formals.named_children for name in list(declared_names(p))[:1]]
        template = field_of(above, "parameters") if above is not None and "template" in above.type else None
        constants = [Declarator.of(p.named_children[-1]).name for p in template.named_children] if template else []
        return Callee(body, tuple(names), tuple(constants))


# ---- assignments ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change:
    """A place that is assigned, or whose address is taken. `how`: the operator, `++` of an increment or decrement, `&`
    of an address, "" of a declaration with a value. `value`: what is assigned, or combined with the old value."""

    target: Node
    how: str
    value: Node | None = None

    @property
    def steps(self) -> bool:
        """Whether it changes the place by an amount: `p++`, `p += 2`, `p = p + 2`."""
        return self.how == "++" or self.added[0] is not None

    @property
    def added(self) -> tuple[Node | None, bool]:
        """What `p += 2` and `p = p + 2` add, None of what does something else; and whether it is subtracted."""
        if self.how in ("+=", "-="):
            return self.value, self.how == "-="
        sum_ = self.value
        if self.how != "=" or sum_ is None or sum_.type != "binary_expression" or operator_of(sum_) not in ("+", "-"):
            return None, False
        left, right, minus = field_of(sum_, "left"), field_of(sum_, "right"), operator_of(sum_) == "-"
        if text_of(left) == text_of(self.target):
            return right, minus
        return (left, minus) if text_of(right) == text_of(self.target) and not minus else (None, False)

    @property
    def name(self) -> str:
        """Of the variable; "" if the place is something else, such as an element."""
        return text_of(self.target) if self.target.type == "identifier" else ""


def change_of(node: Node) -> Change | None:
    """What a node itself, without those below it, changes."""
    how, target, value = "", field_of(node, "argument"), None
    match node.type:
        case "assignment_expression":
            how, target, value = operator_of(node), field_of(node, "left"), field_of(node, "right")
        case "update_expression":
            how = "++"
        case "pointer_expression" if text_of(node).startswith("&"):
            how = "&"
        case "init_declarator":
            target, value = Declarator.of(node).at, field_of(node, "value")
        case _:
            return None
    return Change(without_brackets(target), how, value) if target is not None else None


def changes_below(node: Node) -> Iterator[Change]:
    """All changes that a node and those below it make, in the order of the text."""
    return (change for change in map(change_of, below(node)) if change is not None)
