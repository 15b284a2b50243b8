"""Kernels of files as texts: one that needs nothing else of its file has forms and a model, as one in the program has.

The text is the body of the function, with the names that the header gives to its parameters, and with the macros of the
file expanded. It is taken only where forms are asked for; without them, the function of the file is launched.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dagc.base.source import Span
from dagc.cuda.lexer import (
    KEYWORDS,
    Macro,
    directives,
    expanded,
    includes,
    is_global,
    macros_of,
    names_in,
    names_used,
    words_of,
)
from dagc.cuda.state import definitions_of
from dagc.cuda.syntax import NotUnderstood, below, body_of, declared_names
from dagc.cuda.text import KernelFunction, kernel_in
from dagc.ir.enums import CodeLang, Mode
from dagc.ir.program import CodeText, Device, Formal, Impl, Kernel, Program

_TYPES = {
    "float": "f32", "double": "f64", "int": "i32", "unsigned int": "u32", "unsigned": "u32", "long": "i64",
    "unsigned long": "u64", "size_t": "u64", "long long": "i64", "unsigned long long": "u64", "bool": "bool",
    "short": "i16", "unsigned short": "u16", "unsigned char": "u8", "int64_t": "i64", "uint64_t": "u64",
    "int32_t": "i32", "uint32_t": "u32",
}  # fmt: skip
_CHANGED = r"(\+\+|--)\s*{0}\b|\b{0}\s*(\+\+|--|(\+|-|\*|/|%|&|\||\^|<<|>>)?=(?!=))"


def read_as_texts(program: Program) -> Program:
    """The program with all kernels as `with_texts` gives them."""
    files = {file.name: (file.path, program.sources[file.path].text) for file in program.files}
    return replace(program, kernels=tuple(with_texts(kernel, files) for kernel in program.kernels))


def with_texts(kernel: Kernel, files: Mapping[str, tuple[str, str]]) -> Kernel:
    """The kernel with texts in place of functions of files where these need nothing else. `files`: by name, the path
    of each and its text."""
    return replace(kernel, impls=tuple(_with_text(kernel, impl, files) for impl in kernel.impls))


def _with_text(kernel: Kernel, impl: Impl, files: Mapping[str, tuple[str, str]]) -> Impl:
    texts = tuple(files.values())
    macros = macros_of(text for _, text in texts)
    found = text_of(kernel, impl, files, macros, exact=True)
    if found is None or kernel.features or kernel.selects or not _needs_nothing(found.body, found.names, texts):
        return impl
    return replace(impl, code=found.code)


@dataclass(frozen=True, slots=True)
class FunctionText:
    """`code`: the body with the names of the header; `body`: as it is in the file, with macros expanded, and `names` of
    its parameters there; `around`: the file that defines it."""

    code: CodeText
    body: str
    names: tuple[str, ...]
    around: str


def text_of(
    kernel: Kernel, impl: Impl, files: Mapping[str, tuple[str, str]], macros: Mapping[str, Macro], exact: bool = False
) -> FunctionText | None:
    """The text of a kernel that is a function of a file, or of one that this includes; None where it may not mean the
    same. It may need more of its file. `exact`: with numbers of the types of the header."""
    code, launch = impl.code, impl.launch
    if code is None or code.file is None or code.function is None or code.lang is not CodeLang.CUDA:
        return None
    if code.arguments or launch is None or launch.numbers or impl.scratch or impl.device is not Device.GPU:
        return None
    path, whole = _defining(code.file, code.function, files)
    function = kernel_in(whole, code.function)
    if function is None:
        return None
    body = _body(function, whole, macros)
    types = tuple(" ".join(expanded(written, macros).split()) for written in function.types)
    if body is None or not _alike(kernel.formals, function.names, types, body, exact):
        return None
    others = {t.name for t in (*kernel.tunables, *impl.tunables)} | {n for n, _ in (*kernel.lets, *impl.lets)}
    text = _renamed(body, dict(zip(function.names, (f.name for f in kernel.formals), strict=True)), others)
    if text is None:
        return None
    span = Span(function.begin, function.end, path)
    whole_code = CodeText(code.lang, text, code.function, restrict=function.restrict, span=span)
    return FunctionText(whole_code, body, function.names, whole)


def _defining(file: str, function: str, files: Mapping[str, tuple[str, str]]) -> tuple[str, str]:
    """The path and the text of a file, or of that which it includes and which defines the function; one that cannot be
    read has no text."""
    known, todo = set[str](), [file]
    while todo:
        path, text = files.get(one := todo.pop(), ("", ""))
        if kernel_in(text, function) is not None:
            return path, text
        known.add(one)
        folder = posixpath.dirname(one)
        names = (posixpath.normpath(posixpath.join(folder, name)) for name, quoted in includes(text) if quoted)
        todo += [name for name in names if name not in known]
    return "", ""


def _body(function: KernelFunction, whole: str, macros: Mapping[str, Macro]) -> str | None:
    """The body with macros expanded; None where directives say which part of it is compiled."""
    body = whole[function.begin : function.end]
    used = not words_of(body).isdisjoint(macros)
    kinds = {directive.name for directive in directives(body)}
    if kinds - {"pragma"} or (used and kinds):
        return None
    return expanded(body, macros) if used else body


def _alike(formals: Sequence[Formal], names: Sequence[str], types: Sequence[str], body: str, exact: bool) -> bool:
    """Whether the text means the same with the types of the header. `exact`: also those of numbers."""
    if len(formals) != len(names) or not all(names):
        return False
    for formal, name, written in zip(formals, names, types, strict=True):
        plain, star, rest = re.sub(r"\b(const|__restrict(__)?)\b", " ", written).partition("*")
        pointer = bool(star) and not rest.strip()
        same = _TYPES.get(" ".join(plain.split())) == formal.type.value or not (pointer or exact)
        if not same or pointer != (formal.mode is not None):
            return False
        if re.search(_CHANGED.format(re.escape(name)), body) and formal.mode is not None:
            return False
        if formal.mode is Mode.IN and "const" not in written and _leaves(name, body):
            return False
    return True


def _leaves(name: str, body: str) -> bool:
    """Whether an array is used other than by an index: its pointer may be stored where it is not `const`."""
    return any(not body[n.start + len(name) :].lstrip().startswith("[") for n in names_in(body) if n.text == name)


def _renamed(body: str, names: Mapping[str, str], others: set[str]) -> str | None:
    """The body with the names of the header; None where one of these, or of `others`, means something else in it."""
    new = {to for name, to in names.items() if name != to}
    if words_of(body) & (new | (others - set(names.values()))):
        return None
    out, at = [], 0
    for name in names_in(body):
        if not name.member and names.get(name.text, name.text) != name.text:
            out += [body[at : name.start], names[name.text]]
            at = name.start + len(name.text)
    return "".join([*out, body[at:]])


def _needs_nothing(body: str, own: Sequence[str], texts: tuple[tuple[str, str], ...]) -> bool:
    """Whether all names are parameters, declared in the body, or of CUDA."""
    there = definitions_of(texts)
    try:
        declared = {n for at in below(body_of(body)) if at.type == "declaration" for n in declared_names(at)}
    except NotUnderstood:
        return False
    used = names_used(body) - {*own, *declared}
    known = used.isdisjoint({*there.variables, *there.units, *there.fields})
    return known and all(name in KEYWORDS or is_global(name) for name in used)
