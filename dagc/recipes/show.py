"""`dagc show`: the DAG as text, picture or page."""

from __future__ import annotations

from collections.abc import Mapping, Set
from pathlib import Path

from dagc.base.errors import UsageError
from dagc.base.resources import __version__
from dagc.base.source import Source
from dagc.ir.program import Graph, Value
from dagc.lang.syntax import RESERVED, Token, TokenKind, scan
from dagc.passes.loops import fold
from dagc.report import picture
from dagc.report.dag_page import Anchors, LineView, SourceView, as_page, graph_view
from dagc.stages.program import read

FORMATS = ("text", "dot", "svg", "html")
_DRAWINGS = {"text": picture.as_text, "dot": picture.as_dot, "svg": picture.as_svg}


def show(
    path: str | Path, defines: Mapping[str, str | Value] | None = None, format: str = "text", folded: bool = False
) -> str:
    """The DAG as `text`, `dot`, `svg` or `html`.

    `folded`: one round of each loop in place of all; a page has both, and then shows this one first.
    """
    if format not in FORMATS:
        raise UsageError(f"unknown format {format}", f"one of: {', '.join(FORMATS)}")
    graph = read(path, defines).graph()
    if format == "html":
        return page(graph, folded)
    return _DRAWINGS[format](fold(graph) if folded else graph)


def page(graph: Graph, folded: bool = False) -> str:
    """One self-contained page: pictures of all rounds and of one of each loop, tables, the text."""
    code = {file.path for file in graph.program.files}
    texts = {path: source for path, source in graph.program.sources.items() if path not in code}
    anchors = Anchors(texts)
    views = [graph_view(graph, "all", "all rounds", anchors)]
    one_round = fold(graph)
    if one_round is not graph:
        views.append(graph_view(one_round, "one", "one round of each loop", anchors))
        if folded or views[0].drawn is None:
            views.reverse()
    begun = {op.place.anchor for op in views[0].ops if op.place is not None}
    sources = [_source(source, anchors, begun) for source in texts.values()]
    return as_page(graph.program, views, sources, __version__)


# ---- the text, in colours -----------------------------------------------------------------------

_LOOKS = {
    TokenKind.COMMENT: "comment",
    TokenKind.STRING: "string",
    TokenKind.TEXT: "code",
    TokenKind.NUMBER: "number",
}


def _look(token: Token) -> str:
    if token.kind is TokenKind.WORD and token.text in RESERVED:
        return "keyword"
    return _LOOKS.get(token.kind, "")


def _source(source: Source, anchors: Anchors, begun: Set[str]) -> SourceView:
    """Its lines, each split into parts of one style. `begun`: the lines in which an op begins."""
    text = source.text
    lines: list[list[tuple[str, str]]] = [[]]
    at = 0
    for token in scan(text):
        _add(lines, "", text[at : token.start])
        _add(lines, _look(token), token.text)
        at = token.end
    _add(lines, "", text[at:])
    if not lines[-1]:
        lines.pop()
    anchored = [(anchors.line(source.path, number), parts) for number, parts in enumerate(lines, 1)]
    views = (LineView(n, anchor, anchor in begun, tuple(parts)) for n, (anchor, parts) in enumerate(anchored, 1))
    return SourceView(source.path, tuple(views))


def _add(lines: list[list[tuple[str, str]]], look: str, text: str) -> None:
    for number, part in enumerate(text.split("\n")):
        if number:
            lines.append([])
        if part:
            lines[-1].append((look, part.rstrip("\r")))
