"""The formatter: the writer's lines, with the blanks, the indentation and the empty lines of the house.

Kept: every comment, code texts to the letter, line breaks inside items, blocks on one line that fit, single empty
lines, and blanks that really align words of neighbouring lines. Formatting twice changes nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, get_args

from dagc.errors import DagcError
from dagc.lang import ast
from dagc.lang.lines import WIDTH, Layout, Line
from dagc.lang.parse import parse
from dagc.lang.spacing import Marks
from dagc.lang.tokens import Kind, scan, unix_lines
from dagc.source import Source

_ITEMS = get_args(ast.Item)


def format_source(source: Source) -> str:
    """The formatted text of a file.

    Raises `ProgramError` where it does not parse, and `DagcError` where formatting would change what it says (a
    bug; the file should be left alone then).
    """
    text = unix_lines(source.text.removeprefix("\ufeff"))
    module = parse(source)  # the writer's own text, so that messages point into it
    clean = module if text == source.text else parse(Source(source.path, text))
    layout = Layout(text, _marks(clean))
    expand: set[int] = set()
    while True:
        lines = _aligned(layout, layout.tall(expand))
        wide = {block for line in lines if "\n" not in line.text and len(line.text) > WIDTH for block in line.blocks}
        if not wide:
            break
        expand |= wide
    out = "".join("\n" * line.empty_before + line.text + "\n" for line in lines)
    if parse(Source(source.path, out)) != module or _comments(out) != _comments(text):
        raise DagcError(f"{source.path}: formatting would change the program", "leave the file, and report this")
    return out


def _marks(module: ast.Module) -> Marks:
    """Offsets of items and of list values."""
    nodes = list(_nodes(module))
    items = frozenset(node.span.start for node in nodes if isinstance(node, _ITEMS))
    return Marks(items, frozenset(node.span.start for node in nodes if isinstance(node, ast.ListExpr)))


def _nodes(node: Any) -> Iterator[Any]:
    """A node and all below it."""
    if isinstance(node, tuple):
        for child in node:
            yield from _nodes(child)
    elif dataclasses.is_dataclass(node):
        yield node
        for field in dataclasses.fields(node):
            if field.compare:  # all but positions and spellings
                yield from _nodes(getattr(node, field.name))


def _aligned(layout: Layout, tall: set[int]) -> list[Line]:
    """Lines without the blanks that align nothing."""
    dropped: set[int] = set()
    while True:
        lines = layout.write(tall, dropped)
        idle = {i for k, line in enumerate(lines) for i, column in line.extra.items() if not _aligns(lines, k, column)}
        if not idle:
            return lines
        dropped |= idle


def _aligns(lines: list[Line], k: int, column: int) -> bool:
    """Whether the lines around line `k` with a word at `column` got there with different numbers of blanks."""
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
    return [[line.rstrip() for line in t.text.split("\n")] for t in scan(text) if t.kind is Kind.COMMENT]
