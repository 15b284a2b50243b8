"""Texts of emitted code: names, types, expressions, and the templates.

There is one printer of expressions, and a table of what differs between C++ and Python. Both compute what
`dagc.ir.sym.at_run_time` evaluates. The printer decides which numbers are real, where an integer is converted, and how
a quotient is rounded; a language only spells it.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket

from dagc.base.files import entry_directory, load_entry, store_entry
from dagc.base.resources import resource
from dagc.cuda.lexer import KEYWORDS, directives, is_macro, is_symbol
from dagc.ir.enums import ElementType
from dagc.ir.names import mangle, set_apart
from dagc.ir.program import CodeText, Formal, Param, Program, Value
from dagc.ir.sym import TIGHTEST, Apply, Const, Fn, Number, Sym, Var, fraction, free, infix, is_real, substitute

_COMPARISONS = (Fn.EQ, Fn.NE, Fn.LT, Fn.LE, Fn.GT, Fn.GE)
_ARITHMETIC = (Fn.ADD, Fn.SUB, Fn.MUL)
_NARROW = 2**31


@dataclass(frozen=True, slots=True)
class Language:
    """How a language spells an expression; `{0}`, `{1}` and `{2}` are operands.

    `integers` and `reals`: calls, by what they compute with. `quotients`: `floor` and `ceil` of a quotient of integers.
    `words`: infix operators. `converts`: whether integers beside real numbers in comparisons and conditions are
    converted by the language. `wide`: how an integer gets 64 bits; empty where integers have no size.
    """

    constant: Callable[[Number], str]
    quotients: Mapping[Fn, str]
    integers: Mapping[Fn, str]
    reals: Mapping[Fn, str]
    words: Mapping[Fn, str]
    real: str
    converts: bool
    wide: str


def _cxx_constant(value: Number) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Fraction):
        return f"({value.numerator}.0 / {value.denominator}.0)"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, int) and not -(2**63) < value < 2**63:
        return f"({value + 1} - 1)" if value < 0 else f"{value}u"
    return repr(value)


CXX = Language(
    constant=_cxx_constant,
    quotients={Fn.FLOOR: "dagc::floor_div({0}, {1})", Fn.CEIL: "dagc::ceil_div({0}, {1})"},
    integers={
        Fn.MOD: "dagc::floor_mod({0}, {1})", Fn.MIN: "std::min(std::int64_t({0}), std::int64_t({1}))",
        Fn.MAX: "std::max(std::int64_t({0}), std::int64_t({1}))", Fn.ABS: "std::abs({0})", Fn.NOT: "!{0}",
        Fn.COND: "({0} ? {1} : {2})",
    },
    reals={
        Fn.FLOOR: "dagc::floor({0})", Fn.CEIL: "dagc::ceil({0})", Fn.DIV: "({0} / {1})",
        Fn.MOD: "dagc::real_mod({0}, {1})", Fn.MIN: "std::min({0}, {1})", Fn.MAX: "std::max({0}, {1})",
        Fn.ABS: "std::abs({0})", Fn.LOG2: "std::log2({0})", Fn.SQRT: "std::sqrt({0})", Fn.COND: "({0} ? {1} : {2})",
    },
    words={},
    real="double({0})",
    converts=True,
    wide="std::int64_t({0})",
)  # fmt: skip
PYTHON = Language(
    constant=lambda value: repr(float(value) if isinstance(value, Fraction) else value),
    quotients={Fn.FLOOR: "(({0}) // ({1}))", Fn.CEIL: "dagc.ceil_div({0}, {1})"},
    integers={
        Fn.MIN: "min({0}, {1})", Fn.MAX: "max({0}, {1})", Fn.ABS: "abs({0})", Fn.NOT: "(not {0})",
        Fn.COND: "({1} if {0} else {2})",
    },
    reals={
        Fn.FLOOR: "dagc.floor({0})", Fn.CEIL: "dagc.ceil({0})", Fn.DIV: "dagc.quotient({0}, {1})",
        Fn.MOD: "dagc.real_mod({0}, {1})", Fn.MIN: "min({0}, {1})", Fn.MAX: "max({0}, {1})", Fn.ABS: "abs({0})",
        Fn.LOG2: "dagc.log2({0})", Fn.SQRT: "dagc.sqrt({0})", Fn.COND: "({1} if {0} else {2})",
    },
    words={Fn.AND: "and", Fn.OR: "or"},
    real="float({0})",
    converts=False,
    wide="",
)  # fmt: skip


MOST_RANKS = 2**24


def of_ranks(name: str) -> int:
    """The magnitude of a variable of the program: numbers of ranks have 32 bits, as in MPI."""
    return MOST_RANKS if name.rpartition(".")[2] in ("rank", "ranks") else 0


@dataclass(frozen=True, slots=True)
class Expressions:
    """`name`: the text of a variable. `reals`: the variables that are real. `narrow`: the largest magnitude of a
    variable with fewer than 64 bits, 0 for others."""

    language: Language
    name: Callable[[str], str] = str
    reals: Collection[str] = ()
    narrow: Callable[[str], int] = of_ranks

    def text(self, expr: Sym, outer: int = 0) -> str:
        """The text of an expression, in parentheses where the text around it, of the level `outer`, binds closer."""
        if isinstance(expr, Const):
            return self.language.constant(expr.value)
        if isinstance(expr, Var):
            return self.name(expr.name)
        fn, args, language = expr.fn, expr.args, self.language
        if fn in (Fn.FLOOR, Fn.CEIL):
            return self._rounded(expr, outer)
        if fn is Fn.NEG:
            inner = self.text(args[0], TIGHTEST)
            return f"-({inner})" if inner.startswith("-") else f"-{inner}"
        if fn is Fn.NOT:
            return language.integers[fn].format(self.text(args[0], TIGHTEST))
        if fn in (Fn.MIN, Fn.MAX) and len(args) > 2:
            return self.text(Apply(fn, (Apply(fn, args[:-1]), args[-1])), outer)
        if fn in (Fn.MIN, Fn.MAX) and len(args) == 1:
            return self.text(args[0], outer)
        real = self._is_real(expr)
        if fn is Fn.COND:
            parts = (self.text(args[0], 1), *(self._as(a, real and not language.converts, 1) for a in args[1:]))
            return language.integers[fn].format(*parts)
        if fn is Fn.DIV:
            return language.reals[fn].format(self._as(args[0], True, 5), self._as(args[1], True, 6))
        if call := (language.reals if real else language.integers).get(fn):
            return call.format(*(self._as(a, real) for a in args))
        mixed = fn in _COMPARISONS and not language.converts and any(map(self._is_real, args))
        left = self._wide_operand(expr) if not real else None

        def operand(part: Sym, level: int) -> str:
            if left is not None and part is args[0]:
                return left
            return self._as(part, mixed, level)

        return infix(expr, language.words.get(fn, fn.value), operand, outer)

    def _rounded(self, expr: Apply, outer: int) -> str:
        top, bottom = fraction(expr.args[0])
        if self._is_real(top) or self._is_real(bottom):
            return self.language.reals[expr.fn].format(self.text(expr.args[0]))
        if bottom == Const(1):
            return self.text(top, outer)
        return self.language.quotients[expr.fn].format(self.text(top), self.text(bottom))

    def _as(self, expr: Sym, real: bool, outer: int = 0) -> str:
        """The text, converted where a real number is wanted and it is none."""
        if not real or self._is_real(expr):
            return self.text(expr, outer)
        return self.language.real.format(self.text(expr))

    def _is_real(self, expr: Sym) -> bool:
        return is_real(expr, self.reals)

    def _wide_operand(self, expr: Apply) -> str | None:
        """The left operand with 64 bits, where both have fewer and the result may need them."""
        wanted = self.language.wide and expr.fn in _ARITHMETIC and self._bound(expr) >= _NARROW
        return self.language.wide.format(self.text(expr.args[0])) if wanted else None

    def _magnitude(self, expr: Sym) -> int:
        """The largest magnitude of an integer that is computed with 32 bits; 0 if it has 64."""
        bound = self._bound(expr)
        return bound if bound < _NARROW else 0

    def _bound(self, expr: Sym) -> int:
        if isinstance(expr, Const):
            return max(abs(expr.value), 1) if type(expr.value) is int else 0
        if isinstance(expr, Var):
            return self.narrow(expr.name)
        parts = [self._magnitude(a) for a in expr.args[expr.fn is Fn.COND :]]
        if not all(parts):
            return 0
        if expr.fn in (Fn.NEG, Fn.ABS, Fn.COND):
            return max(parts)
        if expr.fn is Fn.MUL:
            return parts[0] * parts[1]
        return sum(parts) if expr.fn in (Fn.ADD, Fn.SUB) else 0


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
    """Names in the global namespace that C++ and CUDA, libraries or emitted code may have for something else."""
    return is_symbol(name) or name.startswith("dagc_")


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
