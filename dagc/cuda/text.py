"""CUDA C++ text as a syntax tree (tree-sitter), and what is asked of it by name."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dagc.base.errors import DagcError

if TYPE_CHECKING:
    from tree_sitter import Node


class NotUnderstood(DagcError):
    """The text uses something that cannot be read from it."""


# Bytes of C, CUDA and <cstdint> types, `unsigned` and `signed` left out.
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


_PRAGMA = re.compile(r'_Pragma\s*\(\s*"([^"\n]*)"\s*\)')


@lru_cache(maxsize=1)
def _parser() -> Any:
    # Imported here: they take 25 ms, and most commands read no CUDA text.
    import tree_sitter
    import tree_sitter_cuda

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language()))


def tree_of(source: bytes) -> Node:
    """The syntax tree of any text; what does not parse is an ERROR node in it."""
    root: Node = _parser().parse(source).root_node
    return root


def body_of(text: str) -> Node:
    """The syntax tree of a kernel's body. Raises NotUnderstood where it does not parse."""
    text = _PRAGMA.sub(r"\n#pragma \1\n", text)  # the parser knows the other spelling only
    root = tree_of(f"void kernel() {{\n{text}\n}}".encode())
    if root.has_error:
        raise NotUnderstood("the kernel's text does not parse as CUDA C++")
    bodies = [node.child_by_field_name("body") for node in root.named_children if node.type == "function_definition"]
    found: Node | None = bodies[0] if len(bodies) == 1 == len(root.named_children) else None
    if found is None:
        raise NotUnderstood("the kernel's text is not the body of one function")
    return found


def text_of(node: Node | None) -> str:
    return node.text.decode() if node is not None and node.text is not None else ""


def identifiers(node: Node) -> Iterator[str]:
    """All identifiers below a node, and the words of preprocessor lines, which have no tree."""
    if node.type in ("identifier", "type_identifier"):  # a name alone between < and > reads like a type
        yield text_of(node)
    elif node.type in ("preproc_arg", "string_literal"):
        words = "".join(c if c.isalnum() or c == "_" else " " for c in text_of(node)).split()
        yield from (w for w in words if not w[0].isdigit())
    for child in node.named_children:
        yield from identifiers(child)


# ---- constants ------------------------------------------------------------------------------

# Whatever stands below one of these nodes has to be known when the text is compiled.
_CONSTANT = frozenset(
    "template_argument_list preproc_call preproc_def preproc_function_def static_assert_declaration case_statement"
    " alignas_qualifier alignas_specifier launch_bounds enumerator bitfield_clause attribute_declaration"
    " attribute_specifier gnu_asm_expression".split()
)


def constant_names(text: str, values: Collection[str] = ()) -> frozenset[str] | None:
    """The names in a kernel's text that C++ demands to be constant expressions: in sizes of arrays, template arguments,
    pragmas, `constexpr` and the like, and what these are computed from. None: the text does not parse, any may be.

    `values`: names that are no templates (formals, tunables): `n<bx && i>(k)` compares.
    """
    try:
        body = body_of(text)
    except NotUnderstood:
        return None
    initialisers: dict[str, set[str]] = {}
    found = set(_constants(body, {*values, *_declared(body)}, initialisers))
    # `const int w = bx * 2; __shared__ float s[w];` demands bx too.
    todo = list(found)
    while todo:
        for name in initialisers.get(todo.pop(), ()):
            if name not in found:
                found.add(name)
                todo.append(name)
    return frozenset(found)


def _declared(node: Node) -> Iterator[str]:
    """Variables that are declared below a node."""
    if node.type in ("declaration", "parameter_declaration"):
        for declarator in node.children_by_field_name("declarator"):
            name = declarator.child_by_field_name("declarator") if declarator.type == "init_declarator" else declarator
            yield from identifiers(name) if name is not None else ()
    for child in node.named_children:
        yield from _declared(child)


def _constants(node: Node, values: Collection[str], initialisers: dict[str, set[str]]) -> Iterator[str]:
    if node.type == "template_function" and text_of(node.child_by_field_name("name")) in values:
        return
    if node.type in _CONSTANT:
        if node.type == "case_statement":  # its value only: the statements below it run like others
            value = node.child_by_field_name("value")
            yield from identifiers(value) if value is not None else ()
        else:
            yield from identifiers(node)
            return
    elif node.type == "if_statement" and any(child.type == "constexpr" for child in node.children):
        condition = node.child_by_field_name("condition")
        yield from identifiers(condition) if condition is not None else ()
    elif node.type == "array_declarator":
        size = node.child_by_field_name("size")
        yield from identifiers(size) if size is not None else ()
    elif node.type == "init_declarator":
        value, declarator = node.child_by_field_name("value"), node.child_by_field_name("declarator")
        if value is not None and declarator is not None:
            for name in identifiers(declarator):
                initialisers.setdefault(name, set()).update(identifiers(value))
    elif node.type == "declaration" and any(text_of(child) == "constexpr" for child in node.children):
        yield from identifiers(node)
    for child in node.named_children:
        yield from _constants(child, values, initialisers)
