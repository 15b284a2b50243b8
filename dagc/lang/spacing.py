"""Blanks between two tokens of one line, and what each bracket is: the small rules of the formatter."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from dagc.lang.tokens import RESERVED, Kind, Token

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
    """What the syntax tree knows about offsets: where items and list values start."""

    items: frozenset[int]
    lists: frozenset[int]


def brackets(tokens: list[Token], marks: Marks) -> tuple[dict[int, Bracket], dict[int, int]]:
    """Kind of each bracket and index of its partner, both by token index. The text must be balanced."""
    kinds: dict[int, Bracket] = {}
    partner: dict[int, int] = {}
    stack: list[int] = []
    for i, token in enumerate(tokens):
        if token.kind is not Kind.PUNCT:
            continue
        if token.text in _OPENERS:
            kinds[i] = _bracket(tokens, i, marks)
            stack.append(i)
        elif token.text in _CLOSERS:
            opener = stack.pop()
            kinds[i], partner[i], partner[opener] = kinds[opener], opener, i
    return kinds, partner


def _bracket(tokens: list[Token], i: int, marks: Marks) -> Bracket:
    before = [t for t in tokens[max(0, i - 8) : i] if t.kind is not Kind.COMMENT]
    words = [t.text for t in before[-3:]]
    if tokens[i].text == "[":
        return Bracket.INDEX
    if tokens[i].text == "(":
        # `kernel f(`, `dag f(`; but `mv : dag f(` is a call.
        header = words[-2:-1] == ["kernel"] or (words[-2:-1] == ["dag"] and words[-3:-2] != [":"])
        return Bracket.HEADER if header else Bracket.PAREN
    if tokens[i].start in marks.lists or tokens[i].start in marks.items or words[-2:-1] == ["enum"]:
        return Bracket.LIST
    return Bracket.LIST if words[-1:] in (["->"], ["before"]) else Bracket.BLOCK


def gap(previous: Token, token: Token, inner: Bracket | None, opened: Bracket | None, unary: bool, wide: bool) -> int:
    """Blanks between `previous` and `token`.

    `inner` is the innermost bracket around both, `opened` the kind of a bracket among the two, `unary` says that
    `previous` is a sign or a `!`, `wide` that a `..` here has blanks around it.
    """
    a, b = previous.text, token.text
    if Kind.COMMENT in (previous.kind, token.kind):
        return 1
    if a == "{" or b == "}":
        return 1 if opened is Bracket.BLOCK else 0
    if a in ("(", "[", ".") or b in (")", "]", ",", ";", ".") or unary or b == "[":
        return 0
    if ".." in (a, b):
        return int(wide)
    if b == "(":
        return 1 if _separates(previous) else 0
    if b == ":" and inner is Bracket.HEADER:
        return 0
    return 2 if a == ";" else 1


def _separates(token: Token) -> bool:
    """Whether `(` after it opens an expression, not a call."""
    if token.kind is Kind.WORD:
        return token.text in RESERVED
    return token.text in _BINARY or token.text in (",", ";", "}", "..")


def is_unary(tokens: list[Token], i: int) -> bool:
    """Whether token `i` is a `-` or `!` with one operand (`tokens` without comments)."""
    if tokens[i].text == "!":
        return True
    if tokens[i].text != "-" or tokens[i].kind is not Kind.PUNCT or i == 0:
        return False
    before = tokens[i - 1]
    if before.kind is Kind.WORD:
        return before.text in RESERVED and before.text not in ("true", "false", "send", "recv")
    return before.kind is Kind.PUNCT and before.text not in _CLOSERS
