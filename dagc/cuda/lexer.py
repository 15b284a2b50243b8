"""C and CUDA text as preprocessing tokens: names and directives, without comments and literals.

Lexical on purpose: directives precede the grammar, names are wanted of whole files, of macros and of text that does not
parse, and it needs no tree-sitter, whose import takes 25 ms. What is a question of syntax is asked of `dagc.cuda.text`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

_COMMENT = r"//(?:\\\r?\n|[^\n])*|/\*.*?(?:\*/|\Z)"
_STRING = (
    r'(?:\b(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s"]{0,16})\(.*?\)(?P=delimiter)"|(?:\b(?:u8|[uUL]))?"(?:\\.|[^"\\\n])*")'
)
_CHARACTER = r"(?:\b(?:u8|[uUL]))?'(?:\\.|[^'\\\n])+'"
_TOKEN = re.compile(
    rf"(?P<comment>{_COMMENT})|(?P<string>{_STRING})|(?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)|{_CHARACTER}"
    r"|(?P<pragma>#[ \t]*pragma[ \t]+\w+)|(?:(?P<access>\.|->|::)\s*)?\b(?P<name>[A-Za-z_]\w*)|(?P<other>\S)",
    re.DOTALL,
)
_BLANK = re.compile(rf"{_COMMENT}|(?P<string>{_STRING}|{_CHARACTER})", re.DOTALL)
_DIRECTIVE = re.compile(
    rf"^[ \t]*#[ \t]*(?P<name>\w+)(?P<rest>(?:{_COMMENT}|\\\r?\n|[^\n])*)|{_COMMENT}|{_STRING}|{_CHARACTER}",
    re.DOTALL | re.MULTILINE,
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


# Words after which a name is used; after any other word it is declared: `long x`. Also `__shared__` and its like.
_BEFORE_USE = frozenset(
    """return case else do throw new delete sizeof and or not goto defined const volatile static constexpr inline
    extern typename register __shared__ __device__ __host__ __global__ __constant__ __managed__""".split()
)


@lru_cache(maxsize=256)
def names_used(text: str) -> frozenset[str]:
    """Names that the text uses and does not declare. Members (`a.x`, `a::x`) are not names here."""
    used: set[str] = set()
    declared: set[str] = set()
    for name in names_in(text):
        if not name.member:
            (declared if name.before and name.before not in _BEFORE_USE else used).add(name.text)
    return frozenset(used - declared)
