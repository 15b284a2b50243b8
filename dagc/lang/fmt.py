"""The formatter: lines, spaces between tokens, indentation, columns and empty lines.

It keeps comments, code texts (byte for byte), line breaks inside items, blocks that fit on one line, single empty
lines, and spaces that align words of neighbouring lines. It is idempotent.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from enum import Enum
from typing import get_args

from dagc.base.errors import DagcError
from dagc.base.source import Source
from dagc.lang import ast
from dagc.lang.parse import parse
from dagc.lang.syntax import RESERVED, Token, TokenKind, scan, unix_lines

# ---- spaces ----

_OPENERS = "([{"
_CLOSERS = ")]}"
_BINARY = frozenset(("+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "?", ":", "=", "~", "->"))


class Bracket(Enum):
    BLOCK = "block"  # {...} of items
    LIST = "list"  # {a, b}: values, labels, ops of an edge
    HEADER = "header"  # (...) of formals
    PAREN = "paren"
    INDEX = "index"


@dataclass(frozen=True, slots=True)
class Marks:
    """Offsets from the syntax tree: the starts of items and of list values."""

    items: frozenset[int]
    lists: frozenset[int]


def brackets(tokens: list[Token], marks: Marks) -> tuple[dict[int, Bracket], dict[int, int]]:
    """Kind of each bracket and index of its partner, both by token index. Brackets must be balanced."""
    kinds: dict[int, Bracket] = {}
    partner: dict[int, int] = {}
    stack: list[int] = []
    for i, token in enumerate(tokens):
        if token.kind is not TokenKind.PUNCT:
            continue
        if token.text in _OPENERS:
            kinds[i] = _bracket(tokens, i, marks)
            stack.append(i)
        elif token.text in _CLOSERS:
            opener = stack.pop()
            kinds[i], partner[i], partner[opener] = kinds[opener], opener, i
    return kinds, partner


def _bracket(tokens: list[Token], i: int, marks: Marks) -> Bracket:
    before = [t for t in tokens[max(0, i - 8) : i] if t.kind is not TokenKind.COMMENT]
    words = [t.text for t in before[-3:]]
    if tokens[i].text == "[":
        return Bracket.INDEX
    if tokens[i].text == "(":
        # `kernel f(`, `dag f(`; but `mv : dag f(` is a call.
        header = words[-2:-1] == ["kernel"] or (words[-2:-1] == ["dag"] and words[-3:-2] != [":"])
        return Bracket.HEADER if header else Bracket.PAREN
    if tokens[i].start in marks.lists or tokens[i].start in marks.items or words[-2:-1] == ["enum"]:
        return Bracket.LIST
    return Bracket.LIST if words[-1:] in (["->"], ["before"], ["forms"], ["fuse"]) else Bracket.BLOCK


def gap(
    previous: Token, token: Token, inner: Bracket | None, opened: Bracket | None, unary: bool, wide: bool, method: bool
) -> int:
    """Number of spaces between `previous` and `token`.

    `inner` is the innermost bracket around both, `opened` the kind of a bracket among the two. `unary`: `previous` is a
    sign or a `!`. `wide`: a `..` here has spaces around it. `method`: `previous` is the method of a `select`, which may
    have the name of a reserved word, as `cost` has.
    """
    a, b = previous.text, token.text
    if TokenKind.COMMENT in (previous.kind, token.kind):
        return 1
    if a == "{" or b == "}":
        return 1 if opened is Bracket.BLOCK else 0
    if a in ("(", "[", ".") or b in (")", "]", ",", ";", ".") or unary or b == "[":
        return 0
    if ".." in (a, b):
        return int(wide)
    if b == "(":
        return 1 if _separates(previous) and not method else 0
    if b == ":" and inner is Bracket.HEADER:
        return 0
    return 2 if a == ";" else 1


def _separates(token: Token) -> bool:
    """Whether `(` after it opens an expression, not a call."""
    if token.kind is TokenKind.WORD:
        return token.text in RESERVED
    return token.text in _BINARY or token.text in (",", ";", "}", "..")


def is_unary(tokens: list[Token], i: int) -> bool:
    """Whether token `i` is a `-` or `!` with one operand (`tokens` without comments)."""
    if tokens[i].text == "!":
        return True
    if tokens[i].text != "-" or tokens[i].kind is not TokenKind.PUNCT or i == 0:
        return False
    before = tokens[i - 1]
    if before.kind is TokenKind.WORD:
        return before.text in RESERVED and before.text not in ("true", "false", "send", "recv")
    return before.kind is TokenKind.PUNCT and before.text not in _CLOSERS


def _angles(tokens: list[Token]) -> Iterator[int]:
    """The `<` and `>` around template arguments: `cuda step<bx, by> from "heat.cu"` (`tokens` without comments)."""
    for i in range(2, len(tokens)):
        if tokens[i].text == "<" and tokens[i - 2].text in ("cuda", "cpp"):
            yield i
            yield next(k for k in range(i + 1, len(tokens)) if tokens[k].text == ">")


# ---- lines ----

WIDTH = 120
_STEP = 2  # spaces a level


@dataclass(frozen=True, slots=True)
class Line:
    """One line of output (several where a code text or a comment spans them)."""

    text: str
    empty_before: bool
    columns: dict[int, int]  # column to extra spaces, for every word but the first and comments
    extra: dict[int, int]  # token with extra spaces to its column
    blocks: tuple[int, ...]  # outermost blocks that are entirely on this line


class TokenLayout:
    """The tokens of a text that parses, and what follows from the text alone."""

    def __init__(self, text: str, marks: Marks) -> None:
        self._text, self._marks = text, marks
        tokens = scan(text)
        self.tokens = [t for i, t in enumerate(tokens) if t.text != ";" or _needed(tokens, i, text, marks)]
        self.kinds, self.partner = brackets(self.tokens, marks)
        plain = [i for i, t in enumerate(self.tokens) if t.kind is not TokenKind.COMMENT]
        words = [self.tokens[i] for i in plain]
        self._unary = {i for k, i in enumerate(plain) if is_unary(words, k)}
        self._angles = {plain[k] for k in _angles(words)}
        self._before = _previous(self.tokens)

    # ---- structure ------------------------------------------------------------------------

    def newlines(self, i: int) -> int:
        """Line ends in front of token `i`."""
        start = self.tokens[i - 1].end if i else 0
        return self._text.count("\n", start, self.tokens[i].start)

    def starts_item(self, i: int) -> bool:
        """Whether an item that can have its own line begins here."""
        before = self._before[i]
        if before is None:
            return True
        after = self.tokens[before].text
        if after == "prepare" and self.tokens[i].text in ("cpp", "cuda"):
            return False
        return self.tokens[i].start in self._marks.items and after not in ("else", "=")

    def tall(self, expand: Set[int]) -> set[int]:
        """Blocks (by their `{`) that take several lines: those that do already, or are in `expand`."""
        out = set()
        for i, kind in self.kinds.items():
            if kind is Bracket.BLOCK and self.tokens[i].text == "{" and self.partner[i] > i + 1:
                start, end = self.tokens[i].end, self.tokens[self.partner[i]].start
                if i in expand or "\n" in self._text[start:end]:
                    out.add(i)
        return out

    def rows(self, tall: Set[int]) -> list[list[int]]:
        """Token indices of each line."""
        rows: list[list[int]] = []
        inside: list[int] = []  # blocks around the token
        for i, token in enumerate(self.tokens):
            if i == 0 or self._breaks(i, tall, inside, rows[-1]):
                rows.append([])
            rows[-1].append(i)
            if self.kinds.get(i) is Bracket.BLOCK:
                if token.text == "{":
                    inside.append(i)
                else:
                    inside.pop()
        return rows

    def _breaks(self, i: int, tall: Set[int], inside: list[int], row: list[int]) -> bool:
        token, previous = self.tokens[i], self.tokens[i - 1]
        wanted = self.newlines(i) > 0
        if previous.text.startswith("//") or token.kind is TokenKind.COMMENT:
            return wanted
        block = self.kinds.get(i) is Bracket.BLOCK
        if block and token.text == "{":
            return False
        if block:
            return self.partner[i] in tall
        if token.text == "else" and previous.text == "}":
            return False
        before = self._before[i]
        if before in tall and before in row:
            return True
        if self.starts_item(i) and previous.text != ";":
            # `/* why */ item` may share a line, and so may the items of a block on one line.
            alone = previous.kind is not TokenKind.COMMENT
            return wanted or (alone and (not inside or inside[-1] in tall))
        return wanted

    def _empty_before(self, row: list[int], last: list[int] | None, tall: Set[int]) -> bool:
        """Whether an empty line stays in front of a line: not at the edges of a block."""
        if last is None or self.newlines(row[0]) < 2 or self.partner.get(row[0]) in tall:
            return False
        words = [i for i in last if self.tokens[i].kind is not TokenKind.COMMENT]
        return not words or words[-1] not in tall

    # ---- text -----------------------------------------------------------------------------

    def write(self, tall: Set[int], dropped: Set[int]) -> list[Line]:
        """The lines; tokens in `dropped` lose the extra spaces in front of them."""
        writer = _Writer(self, tall, dropped)
        rows = self.rows(tall)
        return [
            writer.line(row, self._empty_before(row, rows[k - 1] if k else None, tall)) for k, row in enumerate(rows)
        ]

    def blanks(self, i: int, inner: Bracket | None) -> int:
        """The usual number of spaces between token `i` and the one before it on its line."""
        token, previous = self.tokens[i], self.tokens[i - 1]
        if token.kind is TokenKind.COMMENT or previous.kind is TokenKind.COMMENT:
            return 1
        opened = self.kinds.get(i - 1) if previous.text == "{" else self.kinds.get(i)
        if previous.text == "{" and token.text == "}":
            return 0
        if i in self._angles or (i - 1 in self._angles and previous.text == "<"):
            return 0
        message = token.text == "recv" and previous.text != "."
        if (self.starts_item(i) or message) and previous.text != "{":
            return 2
        if previous.text == "touching" and token.text == "[" and self.tokens[i - 2].text not in (*RESERVED, ",", "("):
            return 1
        method = i > 1 and self.tokens[i - 2].text == "with"
        return gap(previous, token, inner, opened, i - 1 in self._unary, self._wide_dots(i), method)

    def _wide_dots(self, i: int) -> bool:
        """Whether the `..` at or before token `i` has spaces around it."""
        dots = i if self.tokens[i].text == ".." else i - 1
        return any(self.newlines(k) or self.user_blanks(k) for k in (dots, dots + 1) if 0 < k < len(self.tokens))

    def user_blanks(self, i: int) -> int:
        """Spaces in the source in front of token `i`; 0 at the start of a line and after a tab."""
        between = self._text[self.tokens[i - 1].end : self.tokens[i].start]
        return len(between) if between.strip(" ") == "" else 0

    def column(self, i: int) -> int:
        """Column of token `i` in the source; 0 if tabs make it unclear."""
        start = self._text.rfind("\n", 0, self.tokens[i].start) + 1
        return 0 if "\t" in self._text[start : self.tokens[i].start] else self.tokens[i].start - start


@dataclass(slots=True)
class _Open:
    """A bracket that is open at this point of the output."""

    index: int
    kind: Bracket
    indent: int  # of its line
    column: int
    align: int | None = None  # column of what follows it on its line


@dataclass(slots=True)
class _Writer:
    """Writes line after line; keeps track of open brackets."""

    layout: TokenLayout
    tall: Set[int]
    dropped: Set[int]
    stack: list[_Open] = field(default_factory=list)

    def line(self, row: list[int], empty_before: bool) -> Line:
        tokens = self.layout.tokens
        indent = self._indent(row[0])
        text, width = " " * indent, indent  # `width` is that of the last line of `text`
        columns: dict[int, int] = {}
        extra: dict[int, int] = {}
        blocks: list[int] = []
        for i in row:
            if i != row[0]:
                usual = self.layout.blanks(i, self.stack[-1].kind if self.stack else None)
                more = self._more(i, row, usual, width)
                text, width = text + " " * (usual + more), width + usual + more
                if tokens[i].kind is not TokenKind.COMMENT:
                    columns[width] = more
                    if more:
                        extra[i] = width
            one_line = self.layout.kinds.get(i) is Bracket.BLOCK and i not in self.tall
            if one_line and tokens[i].text == "{" and self.layout.partner[i] > i + 1:
                blocks += [i] if not any(o.index in blocks for o in self.stack) else []
            self._bracket(i, indent, width)
            shown = _trimmed(tokens[i])
            text += shown
            width = len(shown) - shown.rfind("\n") - 1 if "\n" in shown else width + len(shown)
        return Line(text, empty_before, columns, extra, tuple(blocks))

    def _bracket(self, i: int, indent: int, width: int) -> None:
        """Record that token `i` is at column `width` of a line."""
        if self.stack and self.stack[-1].index == i - 1 and not self.layout.tokens[i].text.startswith("//"):
            self.stack[-1].align = width if self.layout.newlines(i) == 0 else None
        if i not in self.layout.kinds:
            return
        if self.layout.partner[i] > i:
            self.stack.append(_Open(i, self.layout.kinds[i], indent, width))
        else:
            self.stack.pop()

    def _indent(self, first: int) -> int:
        """Spaces in front of a line that starts with token `first`."""
        token = self.layout.tokens[first]
        depth = sum(o.index in self.tall for o in self.stack)
        inner = self.stack[-1] if self.stack else None
        if inner is not None and self.layout.partner[inner.index] == first:
            if inner.index in self.tall:
                return _STEP * (depth - 1)
            return inner.indent if inner.align is None else inner.column
        if inner is not None and inner.kind is not Bracket.BLOCK:
            return inner.indent + _STEP if inner.align is None else inner.align
        own = self.layout.starts_item(first) or token.kind is TokenKind.COMMENT or token.text in ("else", "recv", "{")
        return _STEP * depth if own else _STEP * (depth + 1)

    def _more(self, i: int, row: list[int], usual: int, width: int) -> int:
        """Extra spaces in front of token `i`, to align it."""
        tokens = self.layout.tokens
        if tokens[i].kind is TokenKind.COMMENT:
            if i != row[-1]:
                return 0
            column = max(self.layout.column(i), width + 2)  # comments keep their column
            if column + len(tokens[i].text.split("\n")[0].rstrip()) > WIDTH:
                column = width + 2
            return column - width - usual
        closes = tokens[i].text in (")", "]", "}", ",", ";", ".", "..")
        if i in self.dropped or closes or self.layout.partner.get(i - 1, 0) > i - 1:
            return 0
        return max(0, self.layout.user_blanks(i) - usual)


def _trimmed(token: Token) -> str:
    if token.kind is TokenKind.COMMENT:
        return "\n".join(line.rstrip() for line in token.text.split("\n"))
    return token.text


def _previous(tokens: list[Token]) -> list[int | None]:
    """For each token the one before it that is not a comment."""
    out: list[int | None] = []
    last: int | None = None
    for i, token in enumerate(tokens):
        out.append(last)
        if token.kind is not TokenKind.COMMENT:
            last = i
    return out


def _needed(tokens: list[Token], i: int, text: str, marks: Marks) -> bool:
    """Whether a `;` is needed between two items on one line."""
    if i == 0 or i + 1 == len(tokens) or tokens[i - 1].text in ("{", ";", "}"):
        return False
    return tokens[i + 1].start in marks.items and "\n" not in text[tokens[i - 1].end : tokens[i + 1].start]


# ---- the formatter ----

_ITEMS = get_args(ast.Item)


def format_source(source: Source) -> str:
    """The formatted text of a file.

    Raises `ProgramError` if it does not parse, and `DagcError` if formatting would change its meaning (a bug; leave
    the file unchanged then).
    """
    text = unix_lines(source.text.removeprefix("\ufeff"))
    module = parse(source)  # the original text, so that messages point into it
    clean = module if text == source.text else parse(Source(source.path, text))
    layout = TokenLayout(text, _marks(clean))
    expand: set[int] = set()
    while True:
        lines = _aligned(layout, layout.tall(expand))
        wide = {block for line in lines if "\n" not in line.text and len(line.text) > WIDTH for block in line.blocks}
        if not wide:
            break
        expand |= wide
    out = "".join("\n" * line.empty_before + line.text + "\n" for line in lines)
    if parse(Source(source.path, out)) != module or _comments(out) != _comments(text):
        raise DagcError(
            f"{source.path}: formatting would change the program", "leave the file as it is, and report this as a bug"
        )
    return out


def _marks(module: ast.Module) -> Marks:
    """Offsets of items and of list values."""
    nodes = list(ast.nodes(module))
    items = frozenset(node.span.start for node in nodes if isinstance(node, _ITEMS))
    return Marks(items, frozenset(node.span.start for node in nodes if isinstance(node, ast.ListExpr)))


def _aligned(layout: TokenLayout, tall: set[int]) -> list[Line]:
    """Lines without the extra spaces that align nothing."""
    dropped: set[int] = set()
    while True:
        lines = layout.write(tall, dropped)
        idle = {i for k, line in enumerate(lines) for i, column in line.extra.items() if not _aligns(lines, k, column)}
        if not idle:
            return lines
        dropped |= idle


def _aligns(lines: list[Line], k: int, column: int) -> bool:
    """Whether the lines around line `k` reach `column` with different numbers of spaces."""
    blanks = {lines[k].columns[column]}
    at = k
    while at > 0 and not lines[at].empty_before and column in lines[at - 1].columns:
        at -= 1
        blanks.add(lines[at].columns[column])
    at = k
    while at + 1 < len(lines) and not lines[at + 1].empty_before and column in lines[at + 1].columns:
        at += 1
        blanks.add(lines[at].columns[column])
    return len(blanks) > 1


def _comments(text: str) -> list[list[str]]:
    return [[line.rstrip() for line in t.text.split("\n")] for t in scan(text) if t.kind is TokenKind.COMMENT]
