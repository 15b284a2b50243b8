"""CUDA C++ text as a syntax tree (tree-sitter): queries by name, and launches rewritten as C++."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dagc.base.errors import DagcError
from dagc.cuda.lexer import VARIABLES, names_in

if TYPE_CHECKING:
    from tree_sitter import Node


class NotUnderstood(DagcError):
    """The text uses a construct that the reader does not support. `line`: of the text, from 0, if it is known."""

    line: int | None = None


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


# Two spellings that the grammar does not have, replaced before it parses.
_PRAGMA = re.compile(r'_Pragma\s*\(\s*"([^"\n]*)"\s*\)')
# A pragma that stands where a statement must: `for (...) #pragma unroll for (...) s += a[i];`
_NESTED_PRAGMA = re.compile(r"(?<=\))(?:[ \t]*//[^\n]*)?\s*\n[ \t]*(#[ \t]*pragma[^\n]*)(?=\n)")


@lru_cache(maxsize=1)
def _parser() -> Any:
    # Imported here: most commands read no CUDA text.
    import tree_sitter
    import tree_sitter_cuda

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language()))


def tree_of(source: bytes) -> Node:
    """The syntax tree of any text; parts that do not parse are ERROR nodes."""
    root: Node = _parser().parse(source).root_node
    return root


_ATTRIBUTE = re.compile(
    r"\b(?:__align__|__launch_bounds__|__maxnreg__|__cluster_dims__|__attribute__|alignas)\s*"
    r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
    r"|\b(?:__forceinline__|__noinline__|__inline__|__restrict__|__restrict|__grid_constant__)\b|\[\[[^\[\]]*\]\]"
)


def parsable(text: str) -> str:
    """A text without attributes of declarations, which the grammar has in few places; lines keep their numbers."""
    return _ATTRIBUTE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def body_of(text: str) -> Node:
    """The syntax tree of a kernel's body. Raises NotUnderstood if it does not parse."""
    text = _PRAGMA.sub(r"\n#pragma \1\n", text)  # the parser knows only the other spelling
    nested = "\n".join(_NESTED_PRAGMA.findall(text))  # the parser knows pragmas between statements only: they go last
    text = _NESTED_PRAGMA.sub("\n", text)
    root = tree_of(f"void kernel() {{\n{text}\n{nested}\n}}".encode())
    if root.has_error:
        error = NotUnderstood("the kernel's text does not parse as CUDA C++")
        error.line = next(map(line_of, _wrong(root)), None)
        raise error
    bodies = [node.child_by_field_name("body") for node in root.named_children if node.type == "function_definition"]
    body: Node | None = bodies[0] if len(bodies) == 1 == len(root.named_children) else None
    if body is None:
        raise NotUnderstood("the kernel's text is not the body of one function")
    return body


def line_of(node: Node) -> int:
    """The line of a node of `body_of(text)` in the text, from 0, if the text `keeps_lines`."""
    return max(0, int(node.start_point[0]) - 1)  # the line before is the head of a function


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


def text_of(node: Node | None) -> str:
    return node.text.decode() if node is not None and node.text is not None else ""


def identifiers(node: Node) -> Iterator[str]:
    """All identifiers below a node, and the words of preprocessor lines, which have no tree."""
    if node.type in ("identifier", "type_identifier"):  # a single name between < and > parses as a type
        yield text_of(node)
    elif node.type in ("preproc_arg", "string_literal"):
        words = "".join(c if c.isalnum() or c == "_" else " " for c in text_of(node)).split()
        yield from (w for w in words if not w[0].isdigit())
    for child in node.named_children:
        yield from identifiers(child)


@lru_cache(maxsize=256)
def names_read(text: str) -> frozenset[str]:
    """The names that a function's body uses and does not declare, without members. All where it does not parse."""
    try:
        body = body_of(text)
    except NotUnderstood:
        return frozenset(name.text for name in names_in(text) if not name.member)
    return frozenset(identifiers(body)) - frozenset(_declared(body))


@lru_cache(maxsize=64)
def functions_defined(text: str) -> frozenset[str]:
    """The names of the functions, not the members of classes, that a whole file defines: `main`, `f` of `int ns::f()`.
    Comments, strings, calls and declarations define none."""
    return frozenset(_functions(tree_of(text.encode())))


_HOLD_FUNCTIONS = frozenset(
    "translation_unit namespace_definition linkage_specification declaration_list template_declaration ERROR".split()
)


def _functions(node: Node) -> Iterator[str]:
    if node.type == "function_definition":
        declarator = node.child_by_field_name("declarator")
        while declarator is not None and declarator.type not in ("identifier", "qualified_identifier"):
            within = declarator.child_by_field_name("declarator")  # a reference names its declarator by no field
            declarator = within or next((c for c in declarator.named_children if "declarator" in c.type), None)
        name = declarator
        while name is not None and name.type == "qualified_identifier":
            name = name.child_by_field_name("name")
        if name is not None:
            yield text_of(name)
    elif node.type in _HOLD_FUNCTIONS or node.type.startswith("preproc_"):
        for child in node.named_children:
            yield from _functions(child)


@dataclass(frozen=True, slots=True)
class FunctionSignature:
    """The parameters of a function: their types as the text has them, `const float*`. `kernel`: it is `__global__`."""

    types: tuple[str, ...]
    kernel: bool
    template: bool

    def fits(self, wanted: Sequence[str]) -> int:
        """How well it takes arguments of these types, 0 if it does not: equal types count 2, convertible ones 1."""
        if self.template:
            return int(len(wanted) == len(self.types))
        points = [_likeness(a, b) for a, b in zip(self.types, wanted, strict=False)]
        return 0 if len(wanted) != len(self.types) or not all(points) else 1 + sum(points)


def _likeness(type_: str, wanted: str) -> int:
    a, b = bare_type(type_), bare_type(wanted)
    pointer = "*" in type_ or "[" in type_
    if pointer != ("*" in wanted):
        return 0
    unsigned = ("unsigned" in type_ or a.startswith("u")) == ("unsigned" in wanted or b.startswith("u"))
    if a not in TYPE_SIZES or b not in TYPE_SIZES:
        return 1 if pointer or a not in TYPE_SIZES else 0  # a structure, or a name of a type
    floating = (a in FLOATING) == (b in FLOATING) and a not in VECTORS
    same = floating and TYPE_SIZES[a] == TYPE_SIZES[b]
    if same and unsigned:
        return 2
    return int(same or not pointer or a in VECTORS)


@lru_cache(maxsize=256)
def signatures_of(text: str, function: str) -> tuple[FunctionSignature, ...]:
    """The signatures of the functions of this name that a file's text declares or defines, each once."""
    if function not in text:
        return ()
    return tuple(dict.fromkeys(_signatures(tree_of(parsable(text).encode()), function, False)))


def _signatures(node: Node, function: str, template: bool) -> Iterator[FunctionSignature]:
    for child in node.named_children:
        if child.type in ("function_definition", "declaration"):
            for declarator in child.children_by_field_name("declarator"):
                while declarator.type in ("pointer_declarator", "reference_declarator"):
                    declarator = declarator.named_children[-1]
                if declarator.type != "function_declarator":
                    continue
                if text_of(declarator.child_by_field_name("declarator")).rpartition("::")[2] == function:
                    kernel = any(text_of(c) == "__global__" for c in child.children)
                    yield FunctionSignature(tuple(_parameters(declarator)), kernel, template)
        elif child.type in _HOLD_FUNCTIONS or child.type.startswith("preproc_"):
            yield from _signatures(child, function, template or child.type == "template_declaration")


def _parameters(declarator: Node) -> Iterator[str]:
    parameters = declarator.child_by_field_name("parameters")
    for parameter in parameters.named_children if parameters is not None else ():
        named = parameter.child_by_field_name("declarator")
        at: Node | None = named
        while at is not None and at.type != "identifier":
            at = at.child_by_field_name("declarator") or (at.named_children[-1] if at.named_children else None)
        whole, begin = text_of(parameter), parameter.start_byte
        if "parameter" in parameter.type and not (parameter.type == "parameter_declaration" and whole == "void"):
            value = parameter.child_by_field_name("default_value")
            source = (parameter.text or b"")[: value.start_byte - begin if value is not None else None]
            if at is not None:
                source = source[: at.start_byte - begin] + source[at.end_byte - begin :]
            yield " ".join(source.decode().rstrip("= \n").replace("__restrict__", " ").split())


@lru_cache(maxsize=64)
def has_kernels(text: str) -> bool:
    """Whether a file must be compiled as CUDA: it defines or launches kernels, also where the compiler is no nvcc."""
    if "__CUDACC__" in text or not ("__global__" in text or "<<<" in text):
        return False
    return "__global__" in {name.text for name in names_in(text)} or _launches(tree_of(text.encode()))


def _launches(root: Node) -> bool:
    return any(node.type == "kernel_call_syntax" for node in _below(root))


_OF_THE_GPU = frozenset(("__device__", "__constant__", "__managed__"))


def has_gpu_variable(text: str) -> bool:
    """Whether a file's text defines or declares a variable of the GPU's memory, not only functions. True if a part that
    does not parse has one of the words."""
    return any(word in text for word in _OF_THE_GPU) and any(map(_is_gpu_variable, _below(tree_of(text.encode()))))


def _below(node: Node) -> Iterator[Node]:
    todo = [node]  # no recursion: a text may be nested deeply
    while todo:
        at = todo.pop()
        yield at
        todo += at.children


def _is_gpu_variable(node: Node) -> bool:
    if node.type == "ERROR" or (node.type == "preproc_arg" and node.text is not None):  # which have no tree
        return any(name.text in _OF_THE_GPU for name in names_in(text_of(node)))
    if node.type != "declaration" or not any(text_of(child) in _OF_THE_GPU for child in node.children):
        return False
    return not all(map(_is_function, node.children_by_field_name("declarator")))


def _is_function(declarator: Node) -> bool:
    """Whether `f(int)` or `*f(int)` is declared, not `(*f)(int)`."""
    while declarator.type in ("pointer_declarator", "reference_declarator"):
        within = declarator.child_by_field_name("declarator")
        declarator = within if within is not None else declarator.named_children[-1]
    inner = declarator.child_by_field_name("declarator")
    return declarator.type == "function_declarator" and inner is not None and inner.type != "parenthesized_declarator"


# ---- constants ------------------------------------------------------------------------------

# Everything below one of these nodes must be a constant expression.
_CONSTANT = frozenset(
    "template_argument_list preproc_call preproc_def preproc_function_def static_assert_declaration case_statement"
    " alignas_qualifier alignas_specifier launch_bounds enumerator bitfield_clause attribute_declaration"
    " attribute_specifier gnu_asm_expression".split()
)


def constant_names(text: str, values: Collection[str] = ()) -> frozenset[str] | None:
    """The names in a kernel's text that must be constant expressions in C++: in sizes of arrays, template arguments,
    pragmas, `constexpr` and the like, and their operands. None if the text does not parse: any may be.

    `values`: names that are not templates (formals, tunables): `n<bx && i>(k)` compares.
    """
    try:
        body = body_of(text)
    except NotUnderstood:
        return None
    initialisers: dict[str, set[str]] = {}
    names = set(_constants(body, {*values, *_declared(body)}, initialisers))
    # `const int w = bx * 2; __shared__ float s[w];` requires a constant bx too.
    todo = list(names)
    while todo:
        for name in initialisers.get(todo.pop(), ()):
            if name not in names:
                names.add(name)
                todo.append(name)
    return frozenset(names)


def _declared(node: Node) -> Iterator[str]:
    """Variables declared below a node."""
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


# ---- launches as C++ ----
# CUDA syntax that g++ cannot parse, as C++: `k<<<g, b>>>(a)` and `extern __shared__ T s[];`. And the variables of the
# thread, which the host target finds faster by a call.
#
# Only nodes that the syntax tree identifies as one of the two are changed, so that the C++ compiler reports the rest.
# Lines keep their numbers.


# The grammar parses what follows it as a declarator. Shared memory of the host target is aligned to 1024 bytes.
_ALIGN = re.compile(rb"\b__align__\s*\(\s*\w+\s*\)")
_CONTINUED = re.compile(rb"\\(?=\r?\n)")  # in a macro
# How a function is named, which may be a template; other expressions are pointers to functions.
_NAMES = ("identifier", "qualified_identifier", "template_function")
_CONFIGURATION = (b"0", b"nullptr")  # defaults of shared memory and stream


def rewrite_for_host(text: str) -> str:
    """Replace each `kernel<<<grid, block, shared, stream>>>(args)` by `dagc::launch(DAGC_KERNEL(kernel), grid, ...)`,
    and each `extern __shared__ T name[];` by `DAGC_DYNAMIC_SHARED(T, name);`. Incomplete ones are unchanged.

    `threadIdx.x` becomes `dagc::here().threadIdx.x`, also of the other variables of a thread, unless the text has that
    variable in another way: declared, or as a whole. Then its uses are unchanged, which is right too, and slower."""
    if "<<<" in text or "__shared__" in text:
        text = _rewrite(text.encode()).decode()
    return _of_the_thread(text)


def _of_the_thread(text: str) -> str:
    names = VARIABLES - {"warpSize"}  # a constant
    uses = [n for n in names_in(text) if n.text in names and not n.member and text.startswith(n.text, n.start)]
    others = {n.text for n in uses if text[n.start + len(n.text) :].lstrip()[:1] != "."}
    out, done = [], 0
    for use in uses:
        if use.text not in others:
            out += [text[done : use.start], "dagc::here()."]
            done = use.start
    return "".join([*out, text[done:]])


def _rewrite(source: bytes) -> bytes:
    root = tree_of(_ALIGN.sub(lambda match: re.sub(rb"[^\n]", b" ", match.group()), source))
    return _rewritten(root, source, 0, len(source))


def _rewritten(node: Node, source: bytes, begin: int, end: int) -> bytes:
    """The text between two places in or around a node, with nodes below it rewritten."""
    out, done = [], begin
    for start, stop, new in _edits(node, source):
        if done <= start and stop <= end:
            out += [source[done:start], new]
            done = stop
    return b"".join([*out, source[done:end]])


def _edits(node: Node, source: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Replacements of byte ranges, in the order of the text."""
    todo = [node]  # no recursion: a text may be nested deeply
    while todo:
        at = todo.pop()
        if at.type == "call_expression":
            new = _launch(at, source)
        elif at.type == "declaration":
            new = _shared(at, source)
        elif at.type == "preproc_arg":  # the replacement of a macro has no tree
            new = _macro(source[at.start_byte : at.end_byte])
        else:
            new = None
        if new is None:
            todo += reversed(at.children)
        else:
            yield at.start_byte, at.end_byte, new


def _macro(text: bytes) -> bytes | None:
    """The replacement of a macro, rewritten; a line that continues ends with a backslash before and after."""
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
    if kernel.type in _NAMES:
        named = b"DAGC_KERNEL(" + named + b")"
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
    """None for any declaration but that of one array without a size, and those of static shared memory."""
    if node.has_error:
        return None
    words = {child.text for child in node.children if child.type in ("storage_class_specifier", "type_qualifier")}
    arrays = node.children_by_field_name("declarator")
    kind = node.child_by_field_name("type")
    if b"__shared__" in words and b"extern" not in words:
        return _static_shared(node, source)
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


def _static_shared(node: Node, source: bytes) -> bytes | None:
    """`__shared__ T a[n], b;` with `a` and `b` as references to the declared arrays."""
    names = []
    for declarator in node.children_by_field_name("declarator"):
        inner: Node | None = declarator
        while inner is not None and inner.type in ("array_declarator", "pointer_declarator"):
            inner = inner.child_by_field_name("declarator")
        if inner is None or inner.type != "identifier":
            return None
        names.append(inner)
    out, done = [], node.start_byte
    for name in names:
        out += [source[done : name.start_byte], b"dagc_shared_", source[name.start_byte : name.end_byte]]
        done = name.end_byte
    out.append(source[done : node.end_byte])
    references = (b" auto& %s = dagc::shared(dagc_shared_%s);" % (n.text, n.text) for n in names if n.text)
    return b"".join([*out, *references])
