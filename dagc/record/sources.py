"""The definitions of kernels in the files of the application: parameters, grids."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from dagc.base.errors import UsageError
from dagc.cuda.lexer import includes, words_of
from dagc.cuda.syntax import (
    Callee,
    Declarator,
    declarators,
    field_of,
    function_declarator,
    in_scopes,
    parsable,
    specifiers,
    text_of,
    tree_of,
)
from dagc.cuda.text import functions_defined
from dagc.record.flow import KernelCall, PointerArgument, ScalarArgument
from dagc.record.functions import Builder, CallableFunctions
from dagc.record.libraries import HEADER, library_function
from dagc.record.log import LaunchArgument, LaunchCall
from dagc.record.merge import MemoryBlock

SCALARS = {"i8": "b", "i16": "h", "i32": "i", "i64": "q", "u8": "B", "u16": "H", "u32": "I", "u64": "Q", "f32": "f",
           "f64": "d", "bool": "?"}  # fmt: skip
_NAME = re.compile(r"(?:::)?\w+(?:::\w+)*", re.ASCII)
_GLOBAL = re.compile(r"^\w[\w \t*:]*?[ \t*](\w+)[ \t]*(?:\[[^\]]*\][ \t]*)*=", re.MULTILINE)  # that is initialised
_VECTOR = re.compile(r"(?:u?char|u?short|u?int|u?longlong|u?long|float|double)([1-4])")
_OF_VECTORS = {"char": "i8", "uchar": "u8", "short": "i16", "ushort": "u16", "int": "i32", "uint": "u32", "long": "i64",
               "ulong": "u64", "longlong": "i64", "ulonglong": "u64", "float": "f32", "double": "f64"}  # fmt: skip

# Element types by the names of C.
ELEMENTS = {"float": "f32", "double": "f64", "int": "i32", "unsigned int": "u32", "unsigned": "u32", "long": "i64",
             "unsigned long": "u64", "long long": "i64", "unsigned long long": "u64", "short": "i16", "bool": "bool",
             "signed char": "i8", "unsigned char": "u8", "unsigned short": "u16"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class KernelSource:
    """The definition of a kernel: its file, the names of its parameters, and whether it is a template. `declared`: the
    texts of the parameters; `body`: its text; `of_template`: the names of the template's parameters."""

    file: str
    parameters: tuple[str, ...]
    template: bool
    declared: tuple[str, ...] = ()
    body: str = ""
    of_template: tuple[str, ...] = ()


class Sources:
    """The files of the application, by their paths as programs name them; `named`: those that are not only included;
    `build`: what builds programs that include one, to call its functions."""

    def __init__(self, texts: Mapping[str, str], named: Sequence[str], build: Builder | None = None) -> None:
        self.texts, self.named = texts, named
        self.functions = CallableFunctions({name: texts[name] for name in named if name in texts}, build)
        self._found: dict[str, tuple[KernelSource, ...]] = {}

    def kernel(self, call: KernelCall | LaunchCall) -> KernelSource | None:
        """The definition of the kernel of a call; None if there is none, or several that fit. Of several in one file,
        one for each case of a condition, it is not known which is compiled: it has no body."""
        if call.calls:
            function = library_function(call.kernel)
            return None if function is None else KernelSource(HEADER, function.parameters, False)
        name = call.kernel.split("<")[0].strip().rpartition("::")[2]
        if name not in self._found:
            self._found[name] = tuple(self._definitions(name))
        fits = [source for source in self._found[name] if len(source.parameters) == len(call.args)]
        if len(fits) > 1 and len({(source.file, source.template) for source in fits}) == 1:
            return replace(fits[0], body="")
        return fits[0] if len(fits) == 1 else None

    def file_of_variable(self, symbol: MemoryBlock) -> str:
        """The file that defines a variable of the GPU's memory. Raises UsageError."""
        name = variable_of(symbol)
        defines = re.compile(rf"__(?:constant|device)__[^;(){{}}]*\b{re.escape(name)}\b")
        for file, text in self.texts.items():
            if defines.search(text):
                return file
        raise UsageError(f"{name} is defined in no file of the application", "name its file with --host")

    def seen_by(self, file: str) -> str:
        """The text of a file and of those of the application that it includes."""
        names = [file, *sorted(path.as_posix() for path in self._included(Path(file)))]
        return "\n".join(self.texts[name] for name in names if name in self.texts)

    def needed_by(self, files: Sequence[str]) -> list[str]:
        """The other compiled files whose functions or global variables these files, or those, use."""
        needed, todo = set(files), list(files)
        while todo:
            text = self.texts[todo.pop()]
            used = words_of(text) - _defined(text) - {"main"}  # which may be declared there too
            more = [f for f in self.named if f not in needed and used & _defined(self.texts[f])]
            needed |= set(more)
            todo += more
        return [file for file in self.named if file in needed and file not in files]

    def _compiled(self, file: str) -> str:
        """The compiled file that a file is, or is included in: a header need not compile by itself."""
        if file in self.named:
            return file
        return next((one for one in self.named if Path(file) in self._included(Path(one))), file)

    def _included(self, file: Path) -> set[Path]:
        """The files that a file includes, and those that they include."""
        found, todo = set[Path](), [file]
        while todo:
            one = todo.pop()
            names = [name for name, _ in includes(self.texts.get(one.as_posix(), ""))]
            paths = {Path(os.path.normpath(one.parent / name)) for name in names} | set(map(Path, names))
            todo += paths - found
            found |= paths
        return found

    def _definitions(self, name: str) -> Iterator[KernelSource]:
        for file, text in self.texts.items():
            if name not in text or "__global__" not in text:
                continue
            for node, template in in_scopes(tree_of(parsable(text).encode())):
                if node.type != "function_definition" or "__global__" not in specifiers(node):
                    continue
                for declarator in declarators(node):
                    if Declarator.of(declarator).name == name:
                        parameters = field_of(function_declarator(declarator), "parameters")
                        words = parameters.named_children if parameters is not None else []
                        names = [
                            Declarator.of(field_of(w, "declarator")).name for w in words if "declaration" in w.type
                        ]
                        void = len(words) == 1 and text_of(words[0]) == "void"
                        declared = [text_of(w) for w in words if "declaration" in w.type]
                        callee = Callee.of(node)
                        yield KernelSource(
                            self._compiled(file), () if void else tuple(names), template, tuple(declared),
                            text_of(field_of(node, "body")), callee.template if callee is not None else (),
                        )  # fmt: skip


def _defined(text: str) -> frozenset[str]:
    return functions_defined(text) | frozenset(_GLOBAL.findall(text))


def variable_of(symbol: MemoryBlock) -> str:
    """The name of a variable of the GPU's memory: the first argument of the call that set it."""
    return symbol.text.partition(",")[0].strip()


def value_of(scalar: ScalarArgument | LaunchArgument) -> int | float | bool:
    return struct.unpack("<" + SCALARS[scalar.of], bytes.fromhex(scalar.hex))[0]  # type: ignore[no-any-return]


def element_of(pointer: PointerArgument) -> tuple[str, int]:
    """The element type of an array for a pointer, and how many elements one of the kernel's has: a `double2` has two of
    `f64`, another struct its bytes."""
    if pointer.of in SCALARS:
        return ("u8" if pointer.of == "bool" else pointer.of), 1
    vector = _VECTOR.fullmatch(pointer.type)
    if vector is not None:
        return _OF_VECTORS[pointer.type[:-1]], int(vector[1])
    return "u8", pointer.width


def template_values(kernel: str, source: KernelSource) -> tuple[tuple[str, str], ...]:
    """The parameters of a template and their values, in an instance of it that names all of them."""
    _, bracket, rest = kernel.partition("<")
    words = [word.strip() for word in rest.rpartition(">")[0].split(",")] if bracket else []
    if len(words) != len(source.of_template):
        return ()
    return tuple((n, {"true": "1", "false": "0"}.get(w, w)) for n, w in zip(source.of_template, words, strict=True))


def named(kernel: str) -> str:
    """The function that a launch names, perhaps an instance of a template, as a program names it; "" if it cannot."""
    head, _, arguments = kernel.partition("<")
    words = [_argument(word.strip()) for word in arguments.rpartition(">")[0].split(",")] if arguments else []
    if not _NAME.fullmatch(head.strip()) or "" in words:
        return ""
    return f"{head.strip()}<{', '.join(words)}>" if words else head.strip()


def _argument(word: str) -> str:
    """An argument of a template: a number, or a type by the language's name."""
    if re.fullmatch(r"true|false|-?\d+[uUlL]*", word):
        return word.rstrip("uUlL")
    return ELEMENTS.get(word, "")


# ---- grids ----


def grid_text(axis: int, calls: Sequence[KernelCall], names: Sequence[str]) -> str | None:
    """The number of blocks of an axis by the values of the arguments: `ceil(n / 256)`; a number if it is 1 at all
    calls. None if no such expression gives the blocks of all calls."""
    blocks = [call.grid[axis] for call in calls]
    if set(blocks) == {1}:
        return "1"
    values = _integers(calls, names)
    threads = calls[0].block[axis]
    total = calls[0].block[0] * calls[0].block[1] * calls[0].block[2]
    for divisor in dict.fromkeys((threads, total, 1)):
        for name, column in _amounts(values):
            if all(-(-value // divisor) == count for value, count in zip(column, blocks, strict=True)):
                return f"ceil({name} / {divisor})" if divisor > 1 else name
    return str(blocks[0]) if len(set(blocks)) == 1 else None


def _integers(calls: Sequence[KernelCall], names: Sequence[str]) -> dict[str, list[int]]:
    out = {}
    for index, name in enumerate(names):
        column = [call.args[index] for call in calls]
        scalars = [c for c in column if isinstance(c, ScalarArgument) and c.of[0] in "iu"]
        if len(scalars) == len(column):
            out[name] = [int(value_of(scalar)) for scalar in scalars]
    return out


def _amounts(values: Mapping[str, list[int]]) -> Iterator[tuple[str, list[int]]]:
    for name, column in values.items():
        yield name, column
    for name, column in values.items():
        for add in (-2, -1, 1, 2):
            yield f"({name} {'-' if add < 0 else '+'} {abs(add)})", [value + add for value in column]
    for (a, x), (b, y) in product(values.items(), repeat=2):
        if a != b:
            yield f"({a} - {b})", [v - w for v, w in zip(x, y, strict=True)]
        if a < b:
            yield f"({a} * {b})", [v * w for v, w in zip(x, y, strict=True)]
    for (a, x), (b, y), (c, z) in product(values.items(), repeat=3):
        if a < b < c:
            yield f"({a} * {b} * {c})", [u * v * w for u, v, w in zip(x, y, z, strict=True)]
