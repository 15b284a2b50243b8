"""Texts of emitted code: C++ names, types and expressions, and the templates."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket

from dagc.base.files import entry_directory, load_entry, store_entry
from dagc.base.resources import resource
from dagc.cuda.lexer import KEYWORDS, directives, is_global, is_macro
from dagc.emit.expressions import CXX, Expressions
from dagc.ir.enums import ElementType
from dagc.ir.names import mangle, set_apart
from dagc.ir.program import CodeText, Formal, Param, Program, Value
from dagc.ir.sym import Const, Sym, Var, free, substitute

# ---- types, values and symbolic expressions ----


def cxx_string(text: str) -> str:
    """A string literal. Control characters are octal escapes, which end after three digits."""
    escaped = "".join(_ESCAPES.get(c, c) if c.isprintable() or c in _ESCAPES else _octal(c) for c in text)
    return f'"{escaped}"'


def _octal(c: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in c.encode())


def comment_text(text: str) -> str:
    """For a comment in C, C++ or CMake: one line that neither ends the comment nor continues on the next line."""
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    shown = shown.replace("*/", "* /").replace("/*", "/ *").replace("??/", "? ?/")
    return f"{shown}." if shown.endswith("\\") else shown


_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "?": "\\?"}


def cxx_value(value: Value) -> str:
    """A literal."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return cxx_string(value)
    return repr(value)


def value_type(value: Value) -> str:
    """Type of a compile-time value in code: `int` if it fits, so that index arithmetic stays 32 bits wide."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int" if -(2**31) < value < 2**31 else "std::int64_t"
    return "double" if isinstance(value, float) else "const char*"


# ---- names ----


class Names:
    """Assigns unique identifiers of one scope: those of `mangle`, except for names that are reserved there, by C++ or
    otherwise.

    With `library`, names are those of functions in the global namespace: kernels of C linkage.
    """

    def __init__(self, reserved: Iterable[str] = (), *, library: bool = False) -> None:
        self._reserved = KEYWORDS.union(reserved)
        self._means_something = _is_function if library else hides_declaration
        self._taken: set[str] = set()

    def new(self, display: str, suffix: str = "") -> str:
        """The identifier of a name, or in this scope alone of what belongs to it: `pack_x_lo_requests`."""
        name = f"{re.sub(r'[^A-Za-z0-9_]+', '_', display).rstrip('_')}_{suffix}" if suffix else mangle(display)
        if name in self._reserved or self._means_something(name):
            name = set_apart(name)
        while name in self._taken or name in self._reserved:
            name += "_"
        self._taken.add(name)
        return name


def _is_function(name: str) -> bool:
    """Names in the global namespace that C++ and CUDA, or emitted code, may have for something else."""
    return is_global(name) or name.startswith("dagc_")


def hides_declaration(name: str) -> bool:
    """Names that no member of a struct may have: macros, or what CUDA and MPI declare, which it would hide."""
    return is_macro(name) or name.startswith(("cuda", "MPI_", "SYS_"))


# ---- constants ----

_PARAM_TYPES = {"i64": "std::int64_t", "f64": "double", "bool": "bool", "str": "const char*"}


@dataclass(frozen=True, slots=True)
class ConstantView:
    """One line of C++ that declares a compile-time name."""

    name: str
    declaration: str
    labels: tuple[str, ...] = ()  # of an enum


def constant(name: str, value: Value) -> ConstantView:
    return ConstantView(name, f"constexpr {value_type(value)} {name} = {cxx_value(value)};")


def _param(param: Param) -> ConstantView:
    if isinstance(param.value, ElementType):
        return ConstantView(param.name, f"using {param.name} = {param.value.cxx};")
    # A string may contain anything; its type is a pointer, so the pointer is const too.
    type_ = _PARAM_TYPES.get(param.type, value_type(param.value))
    return ConstantView(param.name, f"constexpr {type_} {param.name} = {cxx_value(param.value)};")


def file_constants(program: Program, used: frozenset[str]) -> tuple[ConstantView, ...]:
    """Parameters, constant `let`s, program-level decisions and labels of enums that `used` holds, as declared."""
    out = [_param(p) for p in program.params if p.name in used]
    known = {p.name for p in program.params}
    for name, expr in program.lets:
        if name in used and name not in known and isinstance(expr, Const):
            out.append(constant(name, _value(expr)))
    for decision in program.decisions:
        if decision.name in used:
            out.append(constant(decision.name, decision.chosen))
    for enum, labels in program.enums:
        if used & set(labels):
            out.append(ConstantView(enum, f"enum {{ {', '.join(labels)} }};  // {enum}", labels))
    return tuple(out)


def _value(expr: Const) -> Value:
    """A fraction becomes a float: code has no exact numbers."""
    return expr.value if isinstance(expr.value, (bool, int, float, str)) else float(expr.value)


def local_constants(
    tunables: Iterable[tuple[str, Value]],
    lets: Iterable[tuple[str, Sym]],
    used: frozenset[str],
    formals: Iterable[Formal],
    axes: Mapping[str, str],
) -> tuple[ConstantView, ...]:
    """Tunables and kernel `let`s at the start of a kernel's body. A `let` of by-value formals is a run-time constant,
    and so is a tunable in `axes`: it is read from that dimension of the block."""
    types = {f.name: f.type for f in formals if f.mode is None}
    printer = Expressions(
        CXX,
        lambda n: f"double({n})" if types.get(n) is ElementType.F32 else n,
        frozenset(n for n, type_ in types.items() if type_.is_float),
        lambda n: 2**10 if n in axes else 2**31 - 1 if n in types and types[n].size < 8 else 0,
    )
    tunables, lets = tuple(tunables), tuple(lets)
    env: dict[str, Sym] = {n: Var(n) if n in axes else Const(v) for n, v in tunables}
    needed = used | {n for let, e in lets if let in used for n in free(e)} if axes else used
    out = [
        ConstantView(n, f"const int {n} = static_cast<int>(blockDim.{axes[n]});") if n in axes else constant(n, v)
        for n, v in tunables
        if n in needed
    ]
    for let, expr in lets:
        value = env[let] = substitute(expr, env)
        if let not in used:
            continue
        if isinstance(value, Const):
            out.append(constant(let, _value(value)))
        else:
            out.append(ConstantView(let, f"const auto {let} = {printer.text(value)};"))
    return tuple(out)


# ---- code texts ----


@dataclass(frozen=True, slots=True)
class CodeView:
    """`text` without common indentation; `line` and `file` of its first line, for `#line`."""

    text: str
    line: int
    file: str


def code_view(code: CodeText, program: Program) -> CodeView:
    """The text of code that is written in the program."""
    assert code.text is not None
    source = program.sources.get(code.span.file)
    lines = code.text.split("\n")
    blank = 0
    while blank < len(lines) - 1 and not lines[blank].strip():
        blank += 1
    line, file = 1, code.span.file
    if source is not None:
        start = code.begin(source.text)
        line = max(1, source.line_column(start)[0] + blank - code.header)
        file = source.path
    return CodeView(textwrap.dedent("\n".join(lines[blank:])).rstrip(), line, file)


def place(program: Program, node: object) -> str:
    """`file:line:column: ` of a node with a span, "" if it is not known."""
    span = getattr(node, "span", None)
    source = program.sources.get(span.file) if span is not None else None
    if source is None or span is None:
        return ""
    line, column = source.line_column(span.start)
    return f"{source.path}:{line}:{column}: "


def in_namespace(code: CodeView, namespace: str) -> str:
    """The text for a namespace, which is closed around each `#include`. "" is the global namespace."""
    if not namespace:
        return code.text
    out = []
    at = {directive.line for directive in directives(code.text) if directive.name == "include"}
    for number, line in enumerate(code.text.split("\n"), code.line):
        if number - code.line in at:
            here, after = (f"#line {n} {cxx_string(code.file)}" for n in (number, number + 1))
            out += ["}", here, line, f"namespace {namespace} {{", after]
        else:
            out.append(line)
    return "\n".join(out)


# ---- templates ----


def comment(text: str) -> str:
    """`  // text` after a declaration; "" if it is empty. A line break would end the comment."""
    words = comment_text(" ".join(text.split()))
    return f"  // {words}" if words else ""


def c_double(value: float) -> str:
    """A literal of C whose value is the same to the last bit."""
    return repr(float(value))


def py_doc(text: str) -> str:
    """For a docstring in double quotes: it displays the text itself."""
    return "".join(c if c.isprintable() and c not in '\\"' else _python_escape(c) for c in text)


def _python_escape(c: str) -> str:
    return f"\\{c}" if c in '\\"' else repr(c)[1:-1]


def number_lines(text: str) -> str:
    """`#line @ "f"` becomes the number of the line after it, so that the text below has the lines of its file."""
    lines = text.split("\n")
    return "\n".join(
        line.replace("#line @", f"#line {number + 1}") if line.startswith("#line @") else line
        for number, line in enumerate(lines, 1)
    )


def tidy(text: str, empty: int = 1) -> str:
    """Remove trailing blanks, limit consecutive empty lines to `empty`, and end with one line end."""
    text = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)
    return re.sub(rf"\n{{{empty + 2},}}", "\n" * (empty + 1), text).strip("\n") + "\n"


_MOST_TEMPLATES = 128  # in the cache, including those of older versions
_LARGEST_TEMPLATE = 4 << 20


class _CompiledTemplates(jinja2.BytecodeCache):
    """Templates as the Python code that Jinja compiles them to, kept between runs: half of the time of an emission."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def _entry(self, bucket: Bucket) -> Path:
        return self.directory / f"{bucket.key}-{bucket.checksum}"

    def load_bytecode(self, bucket: Bucket) -> None:
        """Leaves the bucket empty if there is no entry, or a damaged one: the template is then compiled."""
        stored = load_entry(self._entry(bucket), _LARGEST_TEMPLATE)
        if stored is not None:
            bucket.bytecode_from_string(stored)

    def dump_bytecode(self, bucket: Bucket) -> None:
        store_entry(self._entry(bucket), bucket.bytecode_to_string(), most=_MOST_TEMPLATES)


@lru_cache(maxsize=1)
def environment() -> jinja2.Environment:
    """StrictUndefined: a name that a view does not have is a bug, not an empty text."""
    directory = entry_directory("templates")
    env = jinja2.Environment(
        bytecode_cache=_CompiledTemplates(directory) if directory is not None else None,
        loader=jinja2.FileSystemLoader(resource("templates")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    env.filters.update(
        comment=comment,
        comment_text=comment_text,
        cxx_string=cxx_string,
        py_string=repr,
        py_doc=py_doc,
        c_double=c_double,
        in_namespace=in_namespace,
    )
    return env


def render(template: str, **views: object) -> str:
    """The text of one file."""
    return environment().get_template(template).render(**views)


def macro(template: str, name: str) -> object:
    """A macro of one template, for use in another."""
    function: object = getattr(environment().get_template(template).module, name)
    return function
