"""C and CUDA text as preprocessing tokens: names and directives, without comments and literals; its macros, expanded;
and the words of C++ and CUDA, with the names that headers keep in the global namespace.

Lexical on purpose: directives precede the grammar, and names are wanted of the bodies of macros and of text that does
not parse. Questions of syntax are answered by `dagc.cuda.text`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from dagc.base.resources import resource

COMMENT = r"//(?:\\\r?\n|[^\n])*|/\*.*?(?:\*/|\Z)"
# Without its end, a literal goes on to the end of the line, a raw one to the end of the text (as in clang): if it were
# then read as other tokens, each of many quotes would be looked for again, in a time quadratic in the text.
STRING = (
    r'(?:\b(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s"]{0,16})\(.*?(?:\)(?P=delimiter)"|\Z)'
    r'|(?:\b(?:u8|[uUL]))?"(?:\\.|[^"\\\n])*+"?)'
)
CHARACTER = r"(?:\b(?:u8|[uUL]))?'(?:\\.|[^'\\\n])*+'?"
_TOKEN = re.compile(
    rf"(?P<comment>{COMMENT})|(?P<string>{STRING})|(?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)|{CHARACTER}"
    r"|(?P<pragma>#[ \t]*pragma[ \t]+\w+)|(?:(?P<access>\.|->|::)\s*)?\b(?P<name>[A-Za-z_]\w*)|(?P<other>\S)",
    re.DOTALL,
)
_BLANK = re.compile(rf"{COMMENT}|(?P<string>{STRING}|{CHARACTER})", re.DOTALL)
_DIRECTIVE = re.compile(
    rf"^[ \t]*#[ \t]*(?P<name>\w+)(?P<rest>(?:{COMMENT}|\\\r?\n|[^\n])*)|{COMMENT}|{STRING}|{CHARACTER}",
    re.DOTALL | re.MULTILINE,
)
_PUNCTUATOR = r"<=>|<<=|>>=|->\*|\.\.\.|##|::|->|\.\*|\+\+|--|<<|>>|[<>=!+\-*/%&|^]=|&&|\|\||\S"
_LEXEME = re.compile(
    rf"(?P<blank>(?:{COMMENT}|\\\r?\n|[^\S\n])+)|(?P<newline>\n)|(?P<token>{STRING}|{CHARACTER}"
    rf"|\.?\d(?:[eEpP][+-]|'?[\w.])*|\w+|{_PUNCTUATOR})",
    re.DOTALL,
)
_INCLUDED = re.compile(r'"([^"\n]+)"|<([^>\n]+)>')


class Name(NamedTuple):
    """A name in a text. `start`: its offset in characters. `member`: it follows `.`, `->` or `::`. `before`: the name
    directly before it, "" if something else is: `long` of `x` in `long x`."""

    text: str
    start: int
    member: bool
    before: str


class Directive(NamedTuple):
    """A line of the preprocessor, also one that a condition excludes. `rest`: what follows its name, without comments
    and continuations. `line`: from 0."""

    name: str
    rest: str
    line: int


def names_in(text: str) -> Iterator[Name]:
    """All names outside of comments, strings and characters, without the first word of a pragma. Those in the string of
    a `_Pragma` count."""
    before, pragma = "", 0  # 2: `_Pragma` and `(` came directly before
    for match in _TOKEN.finditer(text):
        name = match["name"]
        if name is not None:
            yield Name(name, match.start("name"), match["access"] is not None, before)
            before, pragma = name, int(name == "_Pragma")
        elif match["string"] is not None and pragma == 2:
            quoted, head = match["string"].strip("uUL8").strip('"'), "#pragma "
            shift = match.start() + match[0].index(quoted) - len(head)
            yield from (n._replace(start=n.start + shift) for n in names_in(head + quoted))
            before, pragma = "", 0
        elif match["comment"] is None:
            before, pragma = "", pragma + 1 if pragma and match["other"] == "(" else 0


@lru_cache(maxsize=256)
def tokens_of(text: str) -> str:
    """The tokens of a text, separated by spaces; equal for texts that differ in comments and layout only.

    Directives have a line each, on which blanks count: `#define f (x)` differs from `#define f(x)`.
    """
    out: list[str] = []
    at_start, directive, blank = True, False, False
    for match in _LEXEME.finditer(text):
        token = match["token"]
        if match["newline"] is not None:
            out += ["\n"] * directive
            at_start, directive = True, False
        elif token is not None:
            if at_start and token == "#":
                out.append("\n#")
                directive = True
            else:
                out.append(token if directive and not blank else f" {token}")
            at_start = False
        blank = token is None
    return "".join(out).strip()


def directives(text: str) -> Iterator[Directive]:
    """The lines of the preprocessor, without those in comments and strings."""
    line, counted_to = 0, 0
    for match in _DIRECTIVE.finditer(text):
        if match["name"] is not None:
            line += text.count("\n", counted_to, match.start())
            counted_to = match.start()
            rest = re.sub(r"\\\r?\n", " ", match["rest"])
            yield Directive(match["name"], _BLANK.sub(lambda part: part["string"] or " ", rest).strip(), line)


def includes(text: str) -> Iterator[tuple[str, bool]]:
    """The files that a text includes, and whether in quotes; not those that a macro names."""
    for directive in directives(text):
        match = _INCLUDED.match(directive.rest) if directive.name == "include" else None
        if match is not None:
            yield match[1] or match[2], match[1] is not None


def uses_openmp(text: str) -> bool:
    """Whether a text has a directive of OpenMP, or includes its header."""
    pragmas = (d.rest.split() for d in directives(text) if d.name == "pragma")
    return any(words[:1] == ["omp"] for words in pragmas) or ("omp.h", False) in includes(text)


_INDICES = frozenset(("threadIdx", "blockIdx"))
_PLACES = frozenset(("thread_rank", "thread_index", "block_rank", "asm"))  # also give the index of the thread


def indices_read(text: str) -> frozenset[str] | None:
    """The components of the thread's and the block's index that a kernel's text names, such as `threadIdx.y`. None if
    it may read any of them: it uses a group, has assembly, or takes an index as a whole."""
    names = list(names_in(text))
    parts = [f"{n.before}.{n.text}" for n in names if n.member and n.before in _INDICES and n.text in ("x", "y", "z")]
    whole = sum(n.text in _INDICES for n in names) > len(parts)
    return None if whole or any(n.text in _PLACES for n in names) else frozenset(parts)


def may_find_thread(text: str) -> bool:
    """Whether functions of a text, or of a file that it includes in quotes, may read the index of the calling
    thread."""
    return any(quoted for _, quoted in includes(text)) or any(n.text in _INDICES | _PLACES for n in names_in(text))


# Words after which a name is used; after any other word it is declared: `long x`. Also `__shared__` and its like.
_BEFORE_USE = frozenset(
    """return case else do throw new delete sizeof and or not goto defined const volatile static constexpr inline
    extern typename register __shared__ __device__ __host__ __global__ __constant__ __managed__""".split()
)


@lru_cache(maxsize=256)
def words_of(text: str) -> frozenset[str]:
    """The texts of all names in it."""
    return frozenset(name.text for name in names_in(text))


@lru_cache(maxsize=256)
def names_used(text: str) -> frozenset[str]:
    """Names that the text uses and does not declare. Members (`a.x`, `a::x`) are not names here."""
    used: set[str] = set()
    declared: set[str] = set()
    for name in names_in(text):
        if not name.member:
            (declared if name.before and name.before not in _BEFORE_USE else used).add(name.text)
    return frozenset(used - declared)


# ---- macros ----------------------------------------------------------------------------------------
# Expanded as the preprocessor does, so that the syntax tree shows what they hide. Conditions are not evaluated: what
# any branch defines or contains counts. Of several definitions of a macro the longest is used.

LARGEST_EXPANDED = 1 << 22  # characters of an expanded text; a larger one stays as it is

_DEFINED = re.compile(r"(?P<name>[A-Za-z_]\w*)(?:\((?P<formals>[^()]*)\))?[ \t]*(?P<body>.*)", re.DOTALL)
_MACRO_TOKEN = re.compile(
    rf"(?P<aside>{COMMENT}|{STRING}|{CHARACTER}|\.?\d[\w.]*)|(?P<name>[A-Za-z_]\w*)|\s+|(?P<other>.)", re.DOTALL
)
_DIRECTIVE_LINE = re.compile(rf"^[ \t]*#(?:{COMMENT}|\\\r?\n|[^\n])*", re.DOTALL | re.MULTILINE)
_BRANCH = re.compile(r"[ \t]*#[ \t]*(\w+)[ \t]*(\w*)")


@dataclass(frozen=True, slots=True)
class Macro:
    """`formals` is None for a macro without parentheses."""

    formals: tuple[str, ...] | None
    body: str


def macros_of(texts: Iterable[str]) -> dict[str, Macro]:
    """The macros that the texts define, by name."""
    out: dict[str, Macro] = {}
    for text in texts:
        for line in directives(text) if "define" in text else ():
            match = _DEFINED.match(line.rest) if line.name == "define" else None
            if match is not None:
                words = match["formals"]
                formals = None if words is None else tuple(w.strip() for w in words.split(",") if w.strip())
                name, body = match["name"], match["body"]
                if name not in out or len(body) > len(out[name].body):
                    out[name] = Macro(formals, body)
    return out


def expanded(text: str, macros: Mapping[str, Macro]) -> str:
    """The text with its macros expanded and without directives; every line keeps its number."""
    text = _without_directives(text)
    try:
        return _Expansion(macros).of(text, frozenset())
    except (_TooLarge, RecursionError):
        return text


def _without_directives(text: str) -> str:
    """A text without lines of the preprocessor, and without later branches of a condition that would leave a brace
    open."""
    out: list[str] = []
    done, kept = 0, [True]  # for each open condition, whether its branch is kept
    for match in _DIRECTIVE_LINE.finditer(text):
        branch = _BRANCH.match(match.group())
        word, rest = (branch[1], branch[2]) if branch is not None else ("", "")
        out += [_lines_of(text[done : match.start()], all(kept)), "\n" * match.group().count("\n")]
        done = match.end()
        if word.startswith("if"):
            kept.append((word, rest) != ("if", "0"))
        elif word in ("else", "elif") and len(kept) > 1:
            kept[-1] = _closed(text, done)
        elif word == "endif" and len(kept) > 1:
            kept.pop()
    return "".join([*out, _lines_of(text[done:], all(kept))])


def _lines_of(text: str, kept: bool) -> str:
    return text if kept else "\n" * text.count("\n")


def _closed(text: str, start: int) -> bool:
    """Whether the branch from here to the next directive opens and closes as many braces."""
    following = _DIRECTIVE_LINE.search(text, start)
    branch = text[start : following.start() if following is not None else len(text)]
    return branch.count("{") == branch.count("}")


class _TooLarge(Exception):
    """The expansion is larger than LARGEST_EXPANDED."""


class _Expansion:
    def __init__(self, macros: Mapping[str, Macro]) -> None:
        self.macros, self.size = macros, 0

    def of(self, text: str, hidden: frozenset[str]) -> str:
        """A text expanded; `hidden`: the macros whose expansion it is part of."""
        out: list[str] = []
        done = at = 0
        while (match := _MACRO_TOKEN.match(text, at)) is not None:
            at = match.end()
            macro = self.macros.get(match["name"]) if match["name"] and match["name"] not in hidden else None
            if macro is None:
                continue
            arguments: list[str] = []
            stop = at
            if macro.formals is not None:
                called = _arguments(text, at)
                if called is None:
                    continue
                arguments, stop = called
            lines = text.count("\n", match.start(), stop)
            body = self._replaced(macro, arguments, hidden)
            new = self.of(body, hidden | {match["name"]}).replace("\n", " ")
            self.size += len(new)
            if self.size > LARGEST_EXPANDED:
                raise _TooLarge
            out += [text[done : match.start()], " ", new, " ", "\n" * lines]
            done = at = stop
        return "".join([*out, text[done:]])

    def _replaced(self, macro: Macro, arguments: list[str], hidden: frozenset[str]) -> str:
        """The body with the arguments in the place of its formals."""
        formals = [f.removesuffix("...").strip() or "__VA_ARGS__" for f in macro.formals or ()]
        if macro.formals and macro.formals[-1].endswith("..."):
            arguments = [*arguments[: len(formals) - 1], ",".join(arguments[len(formals) - 1 :])]
        given = dict(zip(formals, arguments, strict=False))
        body = re.sub(
            r"(\w+)\s*##\s*(?=(\w+))", lambda m: f"{given.get(m[1], m[1]).strip()}\0", macro.body
        )  # `a ## b` joins what they stand for
        out, done, pasted = [], 0, False
        for match in _MACRO_TOKEN.finditer(body):
            name = match["name"]
            before = body[done : match.start()]
            pasted = before.endswith("\0")
            if name in given:
                quoted = before.rstrip().endswith("#")
                value = given[name].strip() if pasted else self.of(given[name], hidden)
                before = before.rstrip().removesuffix("#") if quoted else before
                out += [before, '""' if quoted else value]
                done = match.end()
        return "".join([*out, body[done:]]).replace("\0", "")


def _arguments(text: str, at: int) -> tuple[list[str], int] | None:
    """The arguments of a macro that is called here, and where the call ends; None if it is not called."""
    out: list[str] = []
    depth, begin = 0, at
    while (match := _MACRO_TOKEN.match(text, at)) is not None:
        at = match.end()
        token = match["other"]
        if depth == 0 and token != "(" and (token or match["name"] or (match["aside"] and text[match.start()] != "/")):
            return None
        if token in ("(", "[", "{"):
            depth += 1
            begin = at if depth == 1 else begin
        elif token in (")", "]", "}"):
            depth -= 1
            if depth == 0:
                return [*out, text[begin : match.start()]], at
        elif token == "," and depth == 1:
            out.append(text[begin : match.start()])
            begin = at
    return None


# ---- words -----------------------------------------------------------------------------------------


# ---- keywords ----


# The keywords of C++20, and what compilers add without an underscore: `typeof`, and macros of g++ in GNU modes.
KEYWORDS = frozenset(
    """alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class
    compl concept const const_cast consteval constexpr constinit continue co_await co_return co_yield decltype
    default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int
    long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
    reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch template
    this thread_local throw true try typedef typeid typename typeof union unsigned using virtual void volatile
    wchar_t while xor xor_eq NULL linux unix""".split()
)
# Defined by CUDA in every kernel.
VARIABLES = frozenset("threadIdx blockIdx blockDim gridDim warpSize".split())
# Reserved by the standard for the compiler and its library: `_Complex`, `__int128`, `__restrict`, `__global__`,
# `_Pragma`, builtin macros such as `__FILE__`. No list of them is complete, so no name of this class is allowed.
_RESERVED = re.compile(r"__|_[A-Z]")


def is_reserved(name: str) -> bool:
    """Whether C++ reserves this name for the implementation in every scope (C++17, 5.10 [lex.name])."""
    return _RESERVED.match(name) is not None


# ---- names of headers ----


@lru_cache(maxsize=1)
def _of_headers() -> dict[str, frozenset[str]]:
    """The names that headers define, `names` of functions, types and variables, and `macros`; and `symbols` of the C
    library that no header has here."""
    out: dict[str, frozenset[str]] = {}
    lines = resource("grammar/global-names.txt").read_text(encoding="utf-8").splitlines()
    for section in "\n".join(line for line in lines if not line.startswith("#")).split("[")[1:]:
        kind, _, words = section.partition("]")
        out[kind] = frozenset(words.split())
    return out


# Whole families: of CUDA, MPI, NCCL, POSIX threads and system calls, and dagc's own; names with a leading underscore.
_FAMILY = re.compile(
    r"FE_[A-Z]|fe(clear|disable|enable|get|hold|raise|set|test|update)(except|env|mode|round)|fe(mode|nv|xcept)_t$"
    r"|_|I?P?MPI[XR]?_|MPI(CH|IMPL|U)|M_\w+f\d+x?$|[oO]?mpi_|OMPI_|QMPI|cuda[A-Z_]|CUDA|cu[A-Z]|CU_|CUresult|p?nccl|P?NCCL|nvtx|NVTX|nv[A-Z]|NV_"
    r"|pthread_|PTHREAD_|posix_|timer_|clock_|sched_|SCHED_|SYS_|FUTEX_|STATX_|CLONE_|FP_|ATOMIC_|DAGC|dagc"
    r"|tex[123C]|surf[123C]|atomic[A-Z]|ld[gc]|wmma|cooperative_groups"
)
# Types with a number, and their constructors.
_WIDTHS = re.compile(
    r"f(32|64)x?(add|div|fma|mul|sqrt|sub)\w*|u?int_?(fast|least)?\d+_t"
    r"|(make_)?(u?int|float|double|u?char|u?short|u?long|u?longlong)[1-4](_\d+a)?"
)
# Suffixes of variants of functions of the C library: isalpha_l, putc_unlocked; sinf128.
_SUFFIX = re.compile(r"_(l|r|unlocked)$")
_WIDTH = re.compile(r"(16|32|64|128)x?$")
_MACRO_FAMILY = re.compile(r"M_\w+f\d+x?$|MPICH|(MPI|DAGC|CUDA|CUDART|NCCL|PTHREAD|SYS|FUTEX|STATX|FE)_[A-Z]")


def is_global(name: str) -> bool:
    """Whether a function, type or variable of a program must not have this name in the global namespace of C++."""
    functions, macros = _of_headers()["names"], _of_headers()["macros"]
    if name in functions or name in macros or name in VARIABLES or _FAMILY.match(name) or _WIDTHS.fullmatch(name):
        return True
    stem = _WIDTH.sub("", _SUFFIX.sub("", name))
    return len(stem) > 2 and (stem in functions or (stem[-1] in "fl" and stem[:-1] in functions))


# Of libraries that programs are linked with: cuBLAS and others of CUDA, BLAS, OpenMP.
_LIBRARIES = re.compile(
    r"(scipy_)?(cu(blas|rand|fft|sparse|solver)[A-Z]|cblas_|openblas_|LAPACK)|omp_|GO(MP|ACC)_|acc_|kmpc_"
)


def is_symbol(name: str) -> bool:
    """Whether a function of C linkage must not have this name: as `is_global`, or a library that the program is linked
    with defines it, which would call the program's."""
    return is_global(name) or name in _of_headers()["symbols"] or _LIBRARIES.match(name) is not None


def is_macro(name: str) -> bool:
    """Whether the preprocessor replaces this name everywhere."""
    return name in _of_headers()["macros"] or _MACRO_FAMILY.match(name) is not None
