"""Text to AST. The only module that imports lark, and it does so at the first parse."""

from __future__ import annotations

import hashlib
import marshal
import sys
from functools import lru_cache
from typing import TYPE_CHECKING

from dagc.errors import Diagnostic, ProgramError
from dagc.lang import ast, table_cache
from dagc.lang.from_tree import MAX_DEPTH, TooDeep, build
from dagc.resources import resource
from dagc.source import Source, Span

if TYPE_CHECKING:
    from lark import Lark


def parse(source: Source) -> ast.Module:
    """The syntax tree of one file; names are not resolved and included files are not read.

    Raises `ProgramError` (codes: `syntax` and its special cases, `number-too-large`, `too-deep`).
    """
    from lark.exceptions import UnexpectedInput

    # A byte order mark says nothing here; a blank in its place keeps every position.
    text = " " + source.text[1:] if source.text.startswith("\ufeff") else source.text
    sources = {source.path: source}
    try:
        module, diagnostics = build(_parser().parse(text), source.path)
    except UnexpectedInput as error:
        at = error.pos_in_stream or 0
        span = Span(max(0, at), max(0, at) + 1, source.path)
        raise ProgramError([Diagnostic("syntax", "unexpected text", span)], sources) from None
    except TooDeep as error:
        message = f"nested deeper than {MAX_DEPTH} levels"
        mend = "give inner expressions names with `let`, or put inner loops into a `dag` of their own"
        raise ProgramError([Diagnostic("too-deep", message, error.span, mend)], sources) from None
    if diagnostics:
        raise ProgramError(diagnostics, sources)
    return module


@lru_cache(maxsize=1)
def _parser() -> Lark:
    """The parser, from cached tables where there are any: building them takes 100 ms, loading them 15."""
    import lark

    grammar = resource("grammar/dag.lark").read_text(encoding="utf-8")
    # marshal's format belongs to a Python version, the tables' to a lark version.
    stamp = f"{lark.__version__} {sys.version} {grammar}"
    key = f"parser-{hashlib.sha256(stamp.encode()).hexdigest()[:24]}"
    stored = table_cache.load(key)
    if stored is not None:
        try:
            # What lark's own generated stand-alone parsers call; marshal holds plain data and runs no code.
            return lark.Lark._load_from_dict(*marshal.loads(stored))  # type: ignore[no-untyped-call,no-any-return]
        except Exception:  # whatever is wrong with a cache, the grammar is at hand
            pass
    return _build_parser(grammar, key)


def _build_parser(grammar: str, key: str) -> Lark:
    """Build the tables from the grammar, and cache them."""
    import lark
    from lark.grammar import Rule
    from lark.lexer import TerminalDef

    parser = lark.Lark(grammar, parser="lalr", lexer="contextual", propagate_positions=True)
    table_cache.store(key, marshal.dumps(parser.memo_serialize([TerminalDef, Rule])))
    return parser
