"""Code texts of a program: their lines, where they came from, and the names that they use."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from functools import lru_cache

from dagc.errors import DagcError
from dagc.ir import CodeText, Program

_SKIP = re.compile(
    r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|//[^\n]*|/\*.*?\*/|(?P<dot>\.|->|::)?\s*\b(?P<name>[A-Za-z_]\w*)|(?P<other>.)',
    re.DOTALL,
)
# Words after which a name is a use; after any other word it is declared: `long x`. Also `__shared__` and its like.
_BEFORE_USE = frozenset(
    """return case else do throw new delete sizeof and or not goto defined unroll const volatile static constexpr inline
    extern typename register __shared__ __device__ __host__ __global__ __constant__ __managed__""".split()
)


@dataclass(frozen=True, slots=True)
class CodeView:
    """`text` without common indentation; `line` and `file` of its first line, for `#line`."""

    text: str
    line: int
    file: str


@lru_cache(maxsize=256)
def names_used(text: str) -> frozenset[str]:
    """Names that the text uses and does not declare itself; members (`a.x`, `a::x`) are not names of their own."""
    used: set[str] = set()
    declared: set[str] = set()
    previous = ""
    for match in _SKIP.finditer(text):
        name = match["name"]
        if name is None:
            if match["other"] and not match["other"].isspace():
                previous = ""
            continue
        if not match["dot"]:
            (declared if previous and previous not in _BEFORE_USE else used).add(name)
        previous = name
    return frozenset(used - declared)


def code_view(code: CodeText, program: Program) -> CodeView:
    """Raises DagcError for code from a file, on which nothing acts yet."""
    if code.text is None:
        at = place(program, code)
        raise DagcError(
            f'{at}code from a file (`{code.function} from "{code.file}"`) is not supported yet',
            'write the code in the program, between """ and """',
        )
    source = program.sources.get(code.span.file)
    lines = code.text.split("\n")
    blank = 0
    while blank < len(lines) - 1 and not lines[blank].strip():
        blank += 1
    line, file = 1, code.span.file
    if source is not None:
        start = source.text.find('"""', code.span.start) + 3
        line = source.line_column(start)[0] + blank
        file = source.path
    return CodeView(textwrap.dedent("\n".join(lines[blank:])).rstrip(), line, file)


def place(program: Program, node: object) -> str:
    """`file:line:column: ` of a node with a span, "" where it is not known."""
    span = getattr(node, "span", None)
    source = program.sources.get(span.file) if span is not None else None
    if source is None or span is None:
        return ""
    line, column = source.line_column(span.start)
    return f"{source.path}:{line}:{column}: "
