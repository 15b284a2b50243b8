"""Cuts a text into the lines of the formatter, and writes them: structure first, then columns."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

from dagc.lang.spacing import Bracket, Marks, brackets, gap, is_unary
from dagc.lang.tokens import Kind, Token, scan

WIDTH = 120
_STEP = 2  # blanks a level


@dataclass(frozen=True, slots=True)
class Line:
    """One line of output (several where a code text or a comment spans them)."""

    text: str
    empty_before: bool
    columns: dict[int, int]  # column to blanks beyond the usual, of every word but the first and comments
    extra: dict[int, int]  # token with such blanks to its column
    blocks: tuple[int, ...]  # outermost blocks that stand on this line as a whole


class Layout:
    """The tokens of a text that parses, with all that follows from the text alone."""

    def __init__(self, text: str, marks: Marks) -> None:
        self._text, self._marks = text, marks
        tokens = scan(text)
        self.tokens = [t for i, t in enumerate(tokens) if t.text != ";" or _needed(tokens, i, text, marks)]
        self.kinds, self.partner = brackets(self.tokens, marks)
        plain = [i for i, t in enumerate(self.tokens) if t.kind is not Kind.COMMENT]
        words = [self.tokens[i] for i in plain]
        self._unary = {i for k, i in enumerate(plain) if is_unary(words, k)}
        self._before = _previous(self.tokens)

    # ---- structure ------------------------------------------------------------------------

    def newlines(self, i: int) -> int:
        """Line ends in front of token `i`."""
        start = self.tokens[i - 1].end if i else 0
        return self._text.count("\n", start, self.tokens[i].start)

    def starts_item(self, i: int) -> bool:
        """Whether an item begins here that can have a line of its own."""
        before = self._before[i]
        if before is None:
            return True
        after = self.tokens[before].text
        return self.tokens[i].start in self._marks.items and after not in ("else", "=")

    def tall(self, expand: Set[int]) -> set[int]:
        """Blocks (by their `{`) that take several lines: they do already, or are in `expand`."""
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
        if previous.text.startswith("//") or token.kind is Kind.COMMENT:
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
            alone = previous.kind is not Kind.COMMENT
            return wanted or (alone and (not inside or inside[-1] in tall))
        return wanted

    def _empty_before(self, row: list[int], last: list[int] | None, tall: Set[int]) -> bool:
        """Whether one empty line stays in front of a line: not at the edges of a block."""
        if last is None or self.newlines(row[0]) < 2 or self.partner.get(row[0]) in tall:
            return False
        words = [i for i in last if self.tokens[i].kind is not Kind.COMMENT]
        return not words or words[-1] not in tall

    # ---- text -----------------------------------------------------------------------------

    def write(self, tall: Set[int], dropped: Set[int]) -> list[Line]:
        """The lines; tokens in `dropped` lose the blanks that the writer gave them beyond the usual."""
        writer = _Writer(self, tall, dropped)
        rows = self.rows(tall)
        return [
            writer.line(row, self._empty_before(row, rows[k - 1] if k else None, tall)) for k, row in enumerate(rows)
        ]

    def blanks(self, i: int, inner: Bracket | None) -> int:
        """The usual number of blanks between token `i` and the one before it on its line."""
        token, previous = self.tokens[i], self.tokens[i - 1]
        if token.kind is Kind.COMMENT or previous.kind is Kind.COMMENT:
            return 1
        opened = self.kinds.get(i - 1) if previous.text == "{" else self.kinds.get(i)
        if previous.text == "{" and token.text == "}":
            return 0
        message = token.text == "recv" and previous.text != "."
        if (self.starts_item(i) or message) and previous.text != "{":
            return 2
        return gap(previous, token, inner, opened, i - 1 in self._unary, self._wide_dots(i))

    def _wide_dots(self, i: int) -> bool:
        """Whether the `..` at or before token `i` has blanks on either side."""
        dots = i if self.tokens[i].text == ".." else i - 1
        return any(self.newlines(k) or self.user_blanks(k) for k in (dots, dots + 1) if 0 < k < len(self.tokens))

    def user_blanks(self, i: int) -> int:
        """Blanks that the writer put in front of token `i`; 0 at the start of a line and after a tab."""
        between = self._text[self.tokens[i - 1].end : self.tokens[i].start]
        return len(between) if between.strip(" ") == "" else 0

    def column(self, i: int) -> int:
        """The writer's column of token `i`; 0 where tabs make it unclear."""
        start = self._text.rfind("\n", 0, self.tokens[i].start) + 1
        return 0 if "\t" in self._text[start : self.tokens[i].start] else self.tokens[i].start - start


@dataclass(slots=True)
class _Open:
    """A bracket that is open while writing."""

    index: int
    kind: Bracket
    indent: int  # of the line it stands on
    column: int
    align: int | None = None  # column of what follows it on its line


@dataclass(slots=True)
class _Writer:
    """Writes line after line; remembers what is open."""

    layout: Layout
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
                if tokens[i].kind is not Kind.COMMENT:
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
        """Note that token `i` stands at column `width` of a line."""
        if self.stack and self.stack[-1].index == i - 1 and not self.layout.tokens[i].text.startswith("//"):
            self.stack[-1].align = width if self.layout.newlines(i) == 0 else None
        if i not in self.layout.kinds:
            return
        if self.layout.partner[i] > i:
            self.stack.append(_Open(i, self.layout.kinds[i], indent, width))
        else:
            self.stack.pop()

    def _indent(self, first: int) -> int:
        """Blanks in front of a line that starts with token `first`."""
        token = self.layout.tokens[first]
        depth = sum(o.index in self.tall for o in self.stack)
        inner = self.stack[-1] if self.stack else None
        if inner is not None and self.layout.partner[inner.index] == first:
            if inner.index in self.tall:
                return _STEP * (depth - 1)
            return inner.indent if inner.align is None else inner.column
        if inner is not None and inner.kind is not Bracket.BLOCK:
            return inner.indent + _STEP if inner.align is None else inner.align
        own = self.layout.starts_item(first) or token.kind is Kind.COMMENT or token.text in ("else", "recv", "{")
        return _STEP * depth if own else _STEP * (depth + 1)

    def _more(self, i: int, row: list[int], usual: int, width: int) -> int:
        """Blanks beyond the usual in front of token `i`, to align it."""
        tokens = self.layout.tokens
        if tokens[i].kind is Kind.COMMENT:
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
    if token.kind is Kind.COMMENT:
        return "\n".join(line.rstrip() for line in token.text.split("\n"))
    return token.text


def _previous(tokens: list[Token]) -> list[int | None]:
    """Of each token the one before it that is no comment."""
    out: list[int | None] = []
    last: int | None = None
    for i, token in enumerate(tokens):
        out.append(last)
        if token.kind is not Kind.COMMENT:
            last = i
    return out


def _needed(tokens: list[Token], i: int, text: str, marks: Marks) -> bool:
    """Whether a `;` keeps two items on one line apart."""
    if i == 0 or i + 1 == len(tokens) or tokens[i - 1].text in ("{", ";", "}"):
        return False
    return tokens[i + 1].start in marks.items and "\n" not in text[tokens[i - 1].end : tokens[i + 1].start]
