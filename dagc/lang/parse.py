"""Text to AST. The only module that imports lark, and it does so at the first parse."""

from __future__ import annotations

import hashlib
import io
import pickle
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dagc.base.errors import Diagnostic, ProgramError
from dagc.base.memory import uncollected
from dagc.base.resources import resource
from dagc.base.source import Source, Span
from dagc.lang import ast, table_cache
from dagc.lang.from_tree import MAX_DEPTH, TooDeep, build
from dagc.lang.syntax_errors import explain
from dagc.lang.tokens import FORMS, RESERVED, Token, TokenKind, scan, word_beyond

if TYPE_CHECKING:
    from lark import Lark
    from lark.exceptions import UnexpectedInput
    from lark.lexer import Token as LarkToken

_MOST_ERRORS = 20
MOST_WORDS = 250_000  # parsed in seconds; the ops of the largest program take fewer
_TOP_ITEMS = FORMS.keys() - {"program", "gpu", "cpu", "link", "launch", "cuda", "cpp", "send", "edges"}


@uncollected()
def parse(source: Source) -> ast.Module:
    """The syntax tree of one file; names are not resolved and included files are not read.

    Raises `ProgramError` with all that was found: after a mistake, parsing goes on at the next item that starts
    a line without indentation.
    """
    from lark.exceptions import UnexpectedInput

    # A byte order mark says nothing here; a blank in its place keeps every position.
    text = " " + source.text[1:] if source.text.startswith("\ufeff") else source.text
    plain = Source(source.path, text)
    beyond = word_beyond(text, MOST_WORDS)
    if beyond is not None:
        message = f"more than {MOST_WORDS} words and signs"
        place = Span(beyond, beyond + 1, source.path)
        help = "write what repeats with `for`, or as a `dag` of its own"
        raise ProgramError([Diagnostic("too-large", message, place, help)], {source.path: source})
    diagnostics: list[Diagnostic] = []
    restart: int | None = 0
    tokens: tuple[Token, ...] = ()
    while restart is not None and len(diagnostics) < _MOST_ERRORS:
        try:
            tree = _parser().parse(re.sub(r"[^\n]", " ", text[:restart]) + text[restart:])
        except UnexpectedInput as error:
            position = _position(error, text)
            tokens = tokens or tuple(scan(text))  # once: a large text takes a second
            diagnostics.append(explain(plain, tokens, position, _accepts(error)))
            restart = _next_item(text, tokens, max(position, restart + 1), diagnostics[-1])
            continue
        if not diagnostics:
            return _build(tree, source)
        break
    raise ProgramError(diagnostics, {source.path: source})


def _build(tree: object, source: Source) -> ast.Module:
    """The AST of a text that parsed as a whole."""
    sources = {source.path: source}
    try:
        module, diagnostics = build(tree, source.path)
    except TooDeep as error:
        message = f"nested deeper than {MAX_DEPTH} levels"
        help = "name inner expressions with `let`, put inner loops into a `dag` of their own"
        raise ProgramError([Diagnostic("too-deep", message, error.span, help)], sources) from None
    if diagnostics:
        raise ProgramError(diagnostics, sources)
    return module


# ---- errors -----------------------------------------------------------------------------


def _position(error: UnexpectedInput, text: str) -> int:
    """Offset of what could not be taken; the length of the text at its end."""
    from lark.exceptions import UnexpectedToken

    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        return len(text)
    at: int | None = getattr(error, "pos_in_stream", None)
    return at or 0


def _accepts(error: UnexpectedInput) -> frozenset[str]:
    """What could have come instead, by its text; see `syntax_errors.Stop`."""
    names = _terminal_texts()
    state = getattr(error, "interactive_parser", None)
    accepted = state.accepts() if state is not None else ()
    return frozenset(names.get(str(name), str(name)) for name in accepted)


@lru_cache(maxsize=1)
def _terminal_texts() -> dict[str, str]:
    """Lark's names of the terminals to their texts: COLON to `:`, PARAM to `param`, $END to END."""
    out = {t.name: t.pattern.value for t in _parser().terminals if t.pattern.type == "str"}
    return {"$END": "END"} | out


def _next_item(text: str, tokens: Sequence[Token], position: int, last: Diagnostic) -> int | None:
    """Where to go on after a mistake at `position`: None where there is no such place."""
    if last.code == "unterminated-text":  # what is code and what is not is unclear from here on
        return None
    for token in tokens[bisect_left(tokens, position, key=lambda t: t.start) :]:
        at_margin = token.start == 0 or text[token.start - 1] == "\n"
        if at_margin and token.kind is TokenKind.WORD and token.text in _TOP_ITEMS:
            return token.start
    return None


# ---- the parser -------------------------------------------------------------------------


class _WholeWords:
    """Makes the lexer take whole words everywhere, so that `indim` is never `in dim`.

    Lark asks a `postlex` which terminals it must look for in every state of the parser.
    """

    always_accept = ("NAME",)

    def process(self, stream: Iterator[LarkToken]) -> Iterator[LarkToken]:
        return stream


def _refuse_reserved(token: LarkToken) -> LarkToken:
    """A reserved word where no keyword fits is not a name."""
    return token.update(type="RESERVED") if token in RESERVED else token


class _PlainData(pickle.Unpickler):
    """Reads lists, dicts, strings and numbers only, and so runs no code."""

    def find_class(self, module: str, name: str) -> object:
        raise pickle.UnpicklingError(f"{module}.{name} in a cache of plain data")


@lru_cache(maxsize=1)
def _parser() -> Lark:
    """The parser, from cached tables where there are any: building them takes 100 ms, loading them 10."""
    import lark

    grammar = resource("grammar/dag.lark").read_text(encoding="utf-8")
    key = f"parser-{hashlib.sha256(f'{lark.__version__} {grammar}'.encode()).hexdigest()[:24]}"
    stored = table_cache.load(key)
    hooks = {"postlex": _WholeWords(), "lexer_callbacks": {"NAME": _refuse_reserved}}
    if stored is not None:
        try:
            data, memo = _PlainData(io.BytesIO(stored)).load()
            # What lark's own generated stand-alone parsers call.
            return _without_chains(lark.Lark._load_from_dict(data, memo, **hooks))  # type: ignore[no-untyped-call]
        except Exception:  # whatever is wrong with a cache, the grammar is at hand
            pass
    return _build_parser(grammar, key, hooks)


def _build_parser(grammar: str, key: str, hooks: dict[str, Any]) -> Lark:
    """Build the tables from the grammar, and cache them."""
    import lark
    from lark.grammar import Rule
    from lark.lexer import TerminalDef

    parser = lark.Lark(grammar, parser="lalr", lexer="contextual", propagate_positions=True, **hooks)
    data, memo = parser.memo_serialize([TerminalDef, Rule])
    data["options"] = {name: value for name, value in data["options"].items() if name not in hooks}
    table_cache.store(key, pickle.dumps((data, memo)))
    return _without_chains(parser)


def _without_chains(parser: Lark) -> Lark:
    """Pass the only child of a rule such as `?sum: product` on as it is.

    Lark does so too, but looks for its position at each of the ten levels of an expression, half of the time.
    """
    callbacks = parser.parser.parser.parser.callbacks
    for rule in callbacks:
        if rule.options.expand1 and not rule.alias and len(rule.expansion) == 1:
            symbol = rule.expansion[0]
            if not symbol.is_term and not symbol.name.startswith("_"):
                callbacks[rule] = _only
    return parser


def _only(children: list[object]) -> object:
    return children[0]
