"""Macros of C and CUDA text, expanded as the preprocessor does, so that the syntax tree shows what they hide.

Conditions are not evaluated: what any branch defines or contains counts. Of several definitions of a macro the longest
is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dagc.cuda.lexer import CHARACTER, COMMENT, STRING, directives

LARGEST = 1 << 22  # characters of an expanded text; a larger one stays as it is

_DEFINED = re.compile(r"(?P<name>[A-Za-z_]\w*)(?:\((?P<formals>[^()]*)\))?[ \t]*(?P<body>.*)", re.DOTALL)
_TOKEN = re.compile(
    rf"(?P<aside>{COMMENT}|{STRING}|{CHARACTER}|\.?\d[\w.]*)|(?P<name>[A-Za-z_]\w*)|\s+|(?P<other>.)", re.DOTALL
)
_LINE = re.compile(rf"^[ \t]*#(?:{COMMENT}|\\\r?\n|[^\n])*", re.DOTALL | re.MULTILINE)
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
    for match in _LINE.finditer(text):
        branch = _BRANCH.match(match.group())
        word, rest = (branch[1], branch[2]) if branch is not None else ("", "")
        out += [_part(text[done : match.start()], all(kept)), "\n" * match.group().count("\n")]
        done = match.end()
        if word.startswith("if"):
            kept.append((word, rest) != ("if", "0"))
        elif word in ("else", "elif") and len(kept) > 1:
            kept[-1] = _closed(text, done)
        elif word == "endif" and len(kept) > 1:
            kept.pop()
    return "".join([*out, _part(text[done:], all(kept))])


def _part(text: str, kept: bool) -> str:
    return text if kept else "\n" * text.count("\n")


def _closed(text: str, start: int) -> bool:
    """Whether the branch from here to the next directive opens and closes as many braces."""
    following = _LINE.search(text, start)
    branch = text[start : following.start() if following is not None else len(text)]
    return branch.count("{") == branch.count("}")


class _TooLarge(Exception):
    """The expansion is larger than LARGEST."""


class _Expansion:
    def __init__(self, macros: Mapping[str, Macro]) -> None:
        self.macros, self.size = macros, 0

    def of(self, text: str, hidden: frozenset[str]) -> str:
        """A text expanded; `hidden`: the macros whose expansion it is part of."""
        out: list[str] = []
        done = at = 0
        while (match := _TOKEN.match(text, at)) is not None:
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
            if self.size > LARGEST:
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
        for match in _TOKEN.finditer(body):
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
    while (match := _TOKEN.match(text, at)) is not None:
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
