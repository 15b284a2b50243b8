"""CUDA's syntax that g++ cannot parse, as C++: `k<<<g, b>>>(a)` and `extern __shared__ T s[];`.

Only what the syntax tree says is one of the two is changed; everything else stays as it is, so that the C++ compiler
reports it. Lines keep their numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dagc.cuda.text import tree_of

if TYPE_CHECKING:
    from tree_sitter import Node

# The grammar takes what stands behind it for a declarator. Shared memory of the host target is aligned to 1024 bytes.
_ALIGN = re.compile(rb"\b__align__\s*\(\s*\w+\s*\)")
_CONTINUED = re.compile(rb"\\(?=\r?\n)")  # in a macro
_CONFIGURATION = (b"0", b"nullptr")  # shared memory and stream, where they are not given


def rewrite_for_host(text: str) -> str:
    """Each `kernel<<<grid, block, shared, stream>>>(arguments)` as `dagc::launch(kernel, grid, ..., arguments)`, each
    `extern __shared__ T name[];` as `DAGC_DYNAMIC_SHARED(T, name);`. What is not complete is left as it is."""
    if "<<<" not in text and "__shared__" not in text:
        return text
    return _rewrite(text.encode()).decode()


def _rewrite(source: bytes) -> bytes:
    root = tree_of(_ALIGN.sub(lambda found: re.sub(rb"[^\n]", b" ", found.group()), source))
    return _rewritten(root, source, 0, len(source))


def _rewritten(node: Node, source: bytes, begin: int, end: int) -> bytes:
    """The text between two places in or around a node, with what stands below the node rewritten."""
    out, done = [], begin
    for start, stop, new in _edits(node, source):
        if done <= start and stop <= end:
            out += [source[done:start], new]
            done = stop
    return b"".join([*out, source[done:end]])


def _edits(node: Node, source: bytes) -> Iterator[tuple[int, int, bytes]]:
    """What to put in the place of which bytes, in the order of the text."""
    todo = [node]  # no recursion: a text may be nested deeply
    while todo:
        at = todo.pop()
        if at.type == "call_expression":
            new = _launch(at, source)
        elif at.type == "declaration":
            new = _shared(at, source)
        elif at.type == "preproc_arg":  # what a macro stands for has no tree of its own
            new = _macro(source[at.start_byte : at.end_byte])
        else:
            new = None
        if new is None:
            todo += reversed(at.children)
        else:
            yield at.start_byte, at.end_byte, new


def _macro(text: bytes) -> bytes | None:
    """What a macro stands for, rewritten; a line that goes on ends with a backslash before and after."""
    if b"<<<" not in text and b"__shared__" not in text:
        return None
    lines = _CONTINUED.sub(b" ", text)
    new = _rewrite(lines)
    return None if new == lines else new.replace(b"\n", b"\\\n")


def _launch(node: Node, source: bytes) -> bytes | None:
    kernel, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
    syntax = next((child for child in node.children if child.type == "kernel_call_syntax"), None)
    if kernel is None or syntax is None or arguments is None or node.has_error:
        return None
    pieces = _pieces(syntax, source)
    if not 2 <= len(pieces) <= 4:
        return None
    pieces += _CONFIGURATION[len(pieces) - 2 :]
    inside = _rewritten(arguments, source, arguments.start_byte + 1, arguments.end_byte - 1)
    between = source[syntax.end_byte : arguments.start_byte]
    named = source[kernel.start_byte : syntax.start_byte].rstrip(b" ")
    comma = b", " if inside.strip() else b""
    return b"dagc::launch(" + b", ".join([named, *pieces]) + comma + between + inside + b")"


def _pieces(syntax: Node, source: bytes) -> list[bytes]:
    """The texts between `<<<` and `>>>`, with their comments and line ends."""
    commas = [child for child in syntax.children if child.type == ","]
    places = [
        syntax.start_byte + 3,
        *(place for c in commas for place in (c.start_byte, c.end_byte)),
        syntax.end_byte - 3,
    ]
    return [source[a:b].strip(b" \t") for a, b in zip(places[::2], places[1::2], strict=True)]


def _shared(node: Node, source: bytes) -> bytes | None:
    """None for any other declaration than that of one array without a size."""
    if node.has_error:
        return None
    words = {child.text for child in node.children if child.type in ("storage_class_specifier", "type_qualifier")}
    arrays = node.children_by_field_name("declarator")
    kind = node.child_by_field_name("type")
    if not {b"extern", b"__shared__"} <= words or kind is None or len(arrays) != 1:
        return None
    array = arrays[0]
    name = array.child_by_field_name("declarator")
    if (
        array.type != "array_declarator"
        or array.child_by_field_name("size")
        or name is None
        or name.type != "identifier"
    ):
        return None
    others = [
        child.text or b"" for child in node.children if child.type == "type_qualifier" and child.text != b"__shared__"
    ]
    whole = source[node.start_byte : node.end_byte]
    element = b" ".join([*others, b" ".join(source[kind.start_byte : kind.end_byte].split())])
    return b"DAGC_DYNAMIC_SHARED(%s, %s)" % (element, name.text) + b"\n" * whole.count(b"\n") + b";"
