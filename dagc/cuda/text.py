"""Questions about CUDA C++ text that its syntax tree answers: names, functions, constants; and launches as C++."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from dagc.cuda.lexer import VARIABLES, names_in
from dagc.cuda.syntax import (
    FLOATING,
    OF_THE_GPU,
    TYPE_SIZES,
    VECTORS,
    Declarator,
    NotUnderstood,
    bare_type,
    below,
    body_of,
    declarators,
    declared_names,
    field_of,
    function_declarator,
    identifiers,
    in_scopes,
    joined_launches,
    operator_of,
    parsable,
    specifiers,
    text_of,
    tree_of,
    without_brackets,
)

if TYPE_CHECKING:
    from tree_sitter import Node


@lru_cache(maxsize=256)
def names_read(text: str) -> frozenset[str]:
    """The names that a function's body uses and does not declare, without members. All where it does not parse."""
    try:
        body = body_of(text)
    except NotUnderstood:
        return frozenset(name.text for name in names_in(text) if not name.member)
    return frozenset(identifiers(body)) - frozenset(_declared(body))


_JOINS = ("__syncthreads", "cooperative_groups", "barrier", "__syncwarp", "this_thread_block")


@dataclass(frozen=True, slots=True)
class Stores:
    """How a kernel's body uses an array. `other`: a use, as the text has it, that is not an assignment to an element,
    `y[i] = ...`; "" if there is none. `together`: arrays that the text may store to in its place, by a variable that
    is one of several: `auto y = call < 1 ? y_0 : y_1`."""

    other: str
    together: frozenset[str] = frozenset()


@lru_cache(maxsize=1024)  # asked again for each op of a loop, with each value of what is open
def stores_of(body: str, array: str, around: tuple[str, ...] = ()) -> Stores:
    """Also other: a `return` where threads, or functions of the texts `around` the kernel, wait for one another, since
    then they cannot wait at its end as well."""
    try:
        nodes = list(below(body_of(body)))
    except NotUnderstood:
        return Stores("a text that cannot be read")
    if any(at.type == "return_statement" for at in nodes):
        names = (name.text for text in (body, *around) for name in names_in(text))
        if (join := next((name for name in names if name.startswith(_JOINS)), None)) is not None:
            return Stores(f"return` beside `{join}")
    return _stores(nodes, array)


def _stores(nodes: Sequence[Node], array: str) -> Stores:
    together: set[str] = set()
    others = [scope for at in nodes if text_of(at) == array and (scope := _scope_of(at)) is not None]
    for at in nodes:
        if any(first <= at.start_byte < last for first, last in others):
            continue
        if at.type.startswith("preproc_") and array in (name.text for name in names_in(text_of(at))):
            return Stores(" ".join(text_of(at).split()))
        if text_of(at) != array or at.type not in ("identifier", "type_identifier") or _is_stored(at):
            continue
        choice = _chosen_by(at)
        if choice is None:
            return Stores(" ".join(text_of(at.parent).split()))
        name, value = choice
        one = _stores([node for node in nodes if node != name], text_of(name))
        if one.other:
            return one
        together |= {text_of(leaf) for leaf in _leaves(value)} | one.together
    return Stores("", frozenset(together - {array}))


_ADDS = frozenset(f"atomic{what}{scope}" for what in ("Add", "Sub") for scope in ("", "_block", "_system"))


@dataclass(frozen=True, slots=True)
class Additions:
    """How a kernel's body uses an array beside `atomicAdd` and `atomicSub` whose values it drops. `other`: such a use,
    as the text has it; "" if there is none. `passed`: one in a function or a variable, which may only add, or an
    addition of another type (`atomicAdd((float *)y, 1)`). `adds`: whether it adds at all."""

    other: str
    passed: str
    adds: bool


@lru_cache(maxsize=1024)
def additions_of(body: str, array: str) -> Additions:
    """Raises NotUnderstood."""
    nodes = list(below(body_of(body)))
    other, passed, adds = "", "", False
    for at in nodes:
        if at.type.startswith("preproc_") and array in (name.text for name in names_in(text_of(at))):
            passed = passed or " ".join(text_of(at).split())
        if at.type != "identifier" or text_of(at) != array:
            continue
        place = given = _element_of(at)
        while given.parent is not None and given.parent.type in ("cast_expression", "parenthesized_expression"):
            given = given.parent
        arguments = given.parent if given.parent is not None and given.parent.type == "argument_list" else None
        call = arguments.parent if arguments is not None else None
        called, shown = text_of(field_of(call, "function")), " ".join(text_of(call or place.parent).split())
        if arguments is not None and called in _ADDS and given == arguments.named_children[0] and _is_dropped(call):
            adds, passed = adds or given == place, passed or ("" if given == place else shown)
        elif called.startswith("atomic") or _is_element(place):
            other = other or shown
        else:
            passed = passed or shown
    return Additions(other, passed, adds)


def _element_of(name: Node) -> Node:
    """`&y[i]`, `*y`, `y + i` or `y[i]` of an identifier `y`, of `y[i] + 1` only `y[i]`; itself in none of these."""
    at = name
    while (above := at.parent) is not None:
        subscript = above.type == "subscript_expression" and field_of(above, "argument") == at
        sum_ = above.type == "binary_expression" and operator_of(above) in ("+", "-") and field_of(above, "left") == at
        moved = sum_ and not _is_element(at)  # an address
        if not (subscript or moved or above.type in ("parenthesized_expression", "pointer_expression")):
            break
        at = above
    return at


def _is_element(place: Node) -> bool:
    """Whether it is `y[i]` or `*y`, no address."""
    at = without_brackets(place)
    return at.type == "subscript_expression" or (at.type == "pointer_expression" and operator_of(at) == "*")


def _is_dropped(call: Node | None) -> bool:
    """Whether nothing uses the value of a call."""
    return call is not None and call.parent is not None and call.parent.type == "expression_statement"


def _scope_of(name: Node) -> tuple[int, int] | None:
    """Where an identifier is the name of a variable that is declared there, within a block of the body: from which byte
    to which it is that variable's."""
    at = name.parent
    if at is not None and at.type == "init_declarator" and field_of(at, "declarator") == name:
        name, at = at, at.parent
    if at is None or at.type != "declaration" or field_of(at, "declarator") != name:
        return None
    block = at.parent
    if block is None or block.type != "compound_statement" or block.parent is None:
        return None
    if block.parent.type == "function_definition":
        return None
    return at.start_byte, block.end_byte


def _chosen_by(name: Node) -> tuple[Node, Node] | None:
    """The variable, and its value, of `auto y = a ? x : b ? name : z`."""
    value = name
    while value.parent is not None and value.parent.type == "conditional_expression":
        if value == field_of(value.parent, "condition"):
            return None
        value = value.parent
    declared = value.parent
    if value == name or declared is None or declared.type != "init_declarator" or declared.parent is None:
        return None
    variable = field_of(declared, "declarator")
    if variable is None or variable.type != "identifier" or text_of(field_of(declared.parent, "type")) != "auto":
        return None
    return variable, value


def _leaves(value: Node) -> Iterator[Node]:
    if value.type != "conditional_expression":
        yield value
        return
    for side in ("consequence", "alternative"):
        if (part := field_of(value, side)) is not None:
            yield from _leaves(part)


_STORES = "dagc::store<"  # of the form `wide`, and what it asks of an array
_ASKS = "dagc::aligned<"


def _is_stored(name: Node) -> bool:
    """Whether an element of what it names is assigned there, or several are stored as a vector."""
    element = name.parent
    if _called(element).startswith(_ASKS):
        return True
    if element is None or element.type != "subscript_expression" or field_of(element, "argument") != name:
        return False
    above = element.parent
    while above is not None and above.type == "parenthesized_expression":
        element, above = above, above.parent
    if above is not None and above.type == "pointer_expression" and operator_of(above) == "&":
        return _called(above.parent).startswith(_STORES)
    if above is None or above.type != "assignment_expression" or operator_of(above) != "=":
        return False
    return field_of(above, "left") == element


@lru_cache(maxsize=64)
def functions_defined(text: str) -> frozenset[str]:
    """The names of the functions, not the members of classes, that a whole file defines: `main`, `f` of `int ns::f()`.
    Comments, strings, calls and declarations define none."""
    defined = (node for node, _ in in_scopes(tree_of(text.encode())) if node.type == "function_definition")
    return frozenset(name for node in defined if (name := Declarator.of(field_of(node, "declarator")).name))


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
    return tuple(dict.fromkeys(_signatures(tree_of(parsable(text).encode()), function)))


def _signatures(root: Node, function: str) -> Iterator[FunctionSignature]:
    for node, template in in_scopes(root):
        for declarator in declarators(node) if node.type in ("function_definition", "declaration") else ():
            one = Declarator.of(declarator)
            if one.function and one.name == function:
                types = tuple(_parameter_types(function_declarator(declarator)))
                yield FunctionSignature(types, "__global__" in specifiers(node), template)


def _parameter_types(declarator: Node | None) -> Iterator[str]:
    parameters = field_of(declarator, "parameters")
    for parameter in parameters.named_children if parameters is not None else ():
        whole, begin = text_of(parameter), parameter.start_byte
        if "parameter" in parameter.type and not (parameter.type == "parameter_declaration" and whole == "void"):
            value, name = field_of(parameter, "default_value"), Declarator.of(field_of(parameter, "declarator")).at
            source = (parameter.text or b"")[: value.start_byte - begin if value is not None else None]
            if name is not None:
                source = source[: name.start_byte - begin] + source[name.end_byte - begin :]
            yield " ".join(source.decode().rstrip("= \n").replace("__restrict__", " ").split())


@dataclass(frozen=True, slots=True)
class KernelFunction:
    """A kernel that a file defines: the names and types of its parameters, whether all of its pointers are
    `__restrict__`, and where its body begins and ends, without braces."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    restrict: bool
    begin: int
    end: int


@lru_cache(maxsize=256)
def kernel_in(text: str, function: str) -> KernelFunction | None:
    """The one kernel of this name that a file's text defines at its top; None of a template, of one with attributes,
    and of several."""
    plain = parsable(text)
    if function not in text or (plain != text and len(plain.encode()) != len(text.encode())):
        return None
    found = [
        (node, template)
        for node, template in in_scopes(tree_of(plain.encode()))
        if node.type == "function_definition" and Declarator.of(field_of(node, "declarator")).name == function
    ]
    node, template = found[0] if len(found) == 1 else (None, True)
    body = field_of(node, "body")
    if node is None or template or body is None or node.has_error or "__global__" not in specifiers(node):
        return None
    whole = text.encode()
    if re.search(rb"__\w*bounds__|__cluster\w*|__grid_constant__", whole[node.start_byte : body.start_byte]):
        return None
    parameters = field_of(function_declarator(field_of(node, "declarator")), "parameters")
    declared = [p for p in parameters.named_children if "parameter" in p.type] if parameters is not None else []
    names = [Declarator.of(field_of(p, "declarator")).name for p in declared]
    pointers = [whole[p.start_byte : p.end_byte] for p in declared if "*" in text_of(p)]
    return KernelFunction(
        tuple(names), tuple(_parameter_types(function_declarator(field_of(node, "declarator")))),
        bool(pointers) and all(b"__restrict" in p for p in pointers),
        len(whole[: body.start_byte + 1].decode()), len(whole[: body.end_byte - 1].decode()),
    )  # fmt: skip


@lru_cache(maxsize=64)
def has_kernels(text: str) -> bool:
    """Whether a file must be compiled as CUDA: it defines or launches kernels, also where the compiler is no nvcc."""
    if "__CUDACC__" in text or not ("__global__" in text or b"<<<" in joined_launches(text.encode())):
        return False
    if "__global__" in {name.text for name in names_in(text)}:
        return True
    return any(node.type == "kernel_call_syntax" for node in below(tree_of(text.encode())))


def has_gpu_variable(text: str) -> bool:
    """Whether a file's text defines or declares a variable of the GPU's memory, not only functions. True if a part that
    does not parse has one of the words."""
    return any(word in text for word in OF_THE_GPU) and any(map(_is_gpu_variable, below(tree_of(text.encode()))))


def _is_gpu_variable(node: Node) -> bool:
    if node.type in ("ERROR", "preproc_arg"):  # which have no tree
        return any(name.text in OF_THE_GPU for name in names_in(text_of(node)))
    if node.type != "declaration" or OF_THE_GPU.isdisjoint(specifiers(node)):
        return False
    return not all(Declarator.of(declarator).function for declarator in declarators(node))


# ---- constants ------------------------------------------------------------------------------

# Everything below one of these nodes must be a constant expression.
_CONSTANT = frozenset(
    "template_argument_list preproc_call preproc_def preproc_function_def static_assert_declaration"
    " alignas_qualifier alignas_specifier launch_bounds enumerator bitfield_clause attribute_declaration"
    " attribute_specifier gnu_asm_expression".split()
)


@lru_cache(maxsize=256)
def constant_names(text: str, values: frozenset[str] = frozenset()) -> frozenset[str] | None:
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
    return (
        name for at in below(node) if at.type in ("declaration", "parameter_declaration") for name in declared_names(at)
    )


def _constants(node: Node, values: Collection[str], initialisers: dict[str, set[str]]) -> Iterator[str]:
    constant: Node | None = None  # the part that must be a constant expression
    match node.type:
        case "template_function" if text_of(field_of(node, "name")) in values:
            return
        case "case_statement":  # its value only: the statements below it run like others
            constant = field_of(node, "value")
        case kind if kind in _CONSTANT:
            yield from identifiers(node)
            return
        case "if_statement" if any(child.type == "constexpr" for child in node.children):
            constant = field_of(node, "condition")
        case "array_declarator":
            constant = field_of(node, "size")
        case "declaration" if any(text_of(child) == "constexpr" for child in node.children):
            constant = node
        case "init_declarator":
            value, declarator = field_of(node, "value"), field_of(node, "declarator")
            if value is not None and declarator is not None:
                for name in identifiers(declarator):
                    initialisers.setdefault(name, set()).update(identifiers(value))
        case _:
            pass
    yield from identifiers(constant) if constant is not None else ()
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
_UNROLL = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+unroll\b[^\n\\]*$", re.MULTILINE)  # of nvcc alone
_STATIC = re.compile(r'\bextern[ \t]+"C"([ \t]+static\b)')  # nvcc takes it
_THRUST = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<thrust/", re.MULTILINE)
_CONTINUED = re.compile(rb"\\(?=\r?\n)")  # in a macro
# How a function is named, which may be a template; other expressions are pointers to functions.
_NAMES = ("identifier", "qualified_identifier", "template_function")
_CONFIGURATION = (b"0", b"nullptr")  # defaults of shared memory and stream


_SIZES = re.compile(r"<<<.*?>>>", re.DOTALL)
_BRACED = re.compile(r"((?:<<<|,)\s*)\{")  # which the syntax tree does not know there


_Path = TypeVar("_Path")
_OWN_CONSTANT = re.compile(r"(?<!extern )(?<!static )\b__constant__\b(?!\s+(?:static|extern)\b)")
_SHARED_CONSTANT = re.compile(r"\bextern\s+(?:__device__\s+)?__constant__\b")


def with_own_constants(texts: Mapping[_Path, str]) -> dict[_Path, str]:
    """The files of a program with variables of constant memory that are of their file, as nvcc has them, unless a file
    declares one of another (`nvcc -rdc=true`)."""
    if any(_SHARED_CONSTANT.search(text) for text in texts.values()):
        return dict(texts)
    return {path: _OWN_CONSTANT.sub("static __constant__", text) for path, text in texts.items()}


def rewrite_for_host(text: str) -> str:
    """Replace each `kernel<<<grid, block, shared, stream>>>(args)` by `dagc::launch(DAGC_KERNEL(kernel), grid, ...)`,
    where sizes `{x, y, 1}` are a dim3, and each `extern __shared__ T name[];` by `DAGC_DYNAMIC_SHARED(T, name);`.
    Incomplete ones are unchanged. Lines `#pragma unroll` are left blank, and `extern "C" static` is `static`. The
    header of Thrust on the host target comes before the first of Thrust's, and `#line` after it.

    `threadIdx.x` becomes `dagc::here().threadIdx.x`, also of the other variables of a thread, unless the text has that
    variable in another way: declared, or as a whole. Then its uses are unchanged, which is right too, and slower."""
    text = text.removeprefix("\ufeff")  # a byte order mark is none behind `#line`
    text = joined_launches(text.encode()).decode()
    if "<<<" in text or "__shared__" in text:
        text = _rewrite(_SIZES.sub(lambda match: _BRACED.sub(r"\1dim3{", match[0]), text).encode()).decode()
    text = _of_the_thread(_STATIC.sub(r"\1", _UNROLL.sub("", text)))
    thrust = _THRUST.search(text)
    if thrust is None:
        return text
    line = text.count("\n", 0, thrust.start()) + 1
    return f'{text[: thrust.start()]}#include "dagc/host_thrust.hpp"\n#line {line}\n{text[thrust.start() :]}'


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
    kernel, arguments = field_of(node, "function"), field_of(node, "arguments")
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
    words, type_ = specifiers(node), field_of(node, "type")
    if node.has_error or "__shared__" not in words or type_ is None:
        return None
    names = [Declarator.of(declarator) for declarator in declarators(node)]
    if not all(one.simple and one.value is None and not one.reference for one in names):
        return None
    if "extern" not in words:
        return _static_shared(node, source, [one.at for one in names if one.at is not None])
    if len(names) != 1 or names[0].sizes != [None] or names[0].pointers:
        return None
    others = [c.text or b"" for c in node.children if c.type == "type_qualifier" and c.text != b"__shared__"]
    whole = source[node.start_byte : node.end_byte]
    element = b" ".join([*others, b" ".join(source[type_.start_byte : type_.end_byte].split())])
    return b"DAGC_DYNAMIC_SHARED(%s, %s)" % (element, names[0].name.encode()) + b"\n" * whole.count(b"\n") + b";"


def _static_shared(node: Node, source: bytes, names: Sequence[Node]) -> bytes:
    """`__shared__ T a[n], b;` with `a` and `b` as references to the declared arrays; without `static`, which it is."""
    static = next((c for c in node.children if c.type == "storage_class_specifier" and c.text == b"static"), None)
    out, done = [], node.start_byte
    if static is not None:
        out, done = [source[done : static.start_byte]], static.end_byte
    for name in names:
        out += [source[done : name.start_byte], b"dagc_shared_", source[name.start_byte : name.end_byte]]
        done = name.end_byte
    out.append(source[done : node.end_byte])
    references = (b" auto& %s = dagc::shared(dagc_shared_%s);" % (n.text, n.text) for n in names if n.text)
    return b"".join([*out, *references])


def _called(arguments: Node | None) -> str:
    """The function of a list of arguments; "" if it is something else."""
    if arguments is None or arguments.type != "argument_list":
        return ""
    return text_of(field_of(arguments.parent, "function"))
