"""Text to AST. The only module that uses lark, which is loaded at the first parse."""

from __future__ import annotations

import hashlib
import io
import math
import pickle
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagc.base.errors import Diagnostic, ProgramError
from dagc.base.files import entry_directory, load_entry, store_entry
from dagc.base.python import Package, uncollected
from dagc.base.resources import resource
from dagc.base.source import Source, Span
from dagc.ir.enums import CodeLang, Mode, OpKind, Place, Role
from dagc.lang import ast
from dagc.lang.syntax import (
    FORMS,
    FREE,
    RESERVED,
    Token,
    TokenKind,
    explain,
    lacks_device,
    scan,
    unix_lines,
    word_beyond,
)

if TYPE_CHECKING:
    import lark.common
    import lark.grammar
    import lark.lexer
else:
    lark = Package("lark")


# ---- trees to AST ----

MAX_DEPTH = 100  # of the tree; the passes recurse, and Python's stack is finite
_MAX_INT = 2**63 - 1  # compile-time integers become std::int64_t


class TooDeep(Exception):
    """The tree is nested deeper than `MAX_DEPTH`; `span` is the place."""

    def __init__(self, span: Span) -> None:
        super().__init__(span)
        self.span = span


def build(tree: Any, file: str) -> tuple[ast.Module, list[Diagnostic]]:
    """The AST of a whole tree, and the diagnostics of its literals. Raises `TooDeep`.

    A tree has `data` (rule name), `children` and `meta` (`start_pos`, `end_pos`, absent if it is empty); its
    leaves are strings with `start_pos` and `end_pos`. Not recursive, so that any depth is reported.
    """
    builder = _Builder(file)
    postfix, todo = [], [tree]
    while todo:
        node = todo.pop()
        postfix.append(node)
        if hasattr(node, "children"):
            todo += node.children
    values: list[Any] = []
    depths: list[int] = []
    for node in reversed(postfix):
        if not hasattr(node, "children"):
            values.append(node)
            depths.append(0)
            continue
        count = len(node.children)
        children = values[len(values) - count :]
        depth = 1 + max(depths[len(depths) - count :], default=0)
        del values[len(values) - count :], depths[len(depths) - count :]
        meta = node.meta
        span = Span(getattr(meta, "start_pos", 0), getattr(meta, "end_pos", 0), file)
        if depth > MAX_DEPTH:
            raise TooDeep(span)
        values.append(_RULES[str(node.data)](builder, children, span))
        depths.append(depth)
    module: ast.Module = values[0]
    return module, builder.diagnostics


class _Builder:
    """Context of the rules: the file, and the list of diagnostics."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.diagnostics: list[Diagnostic] = []

    def span_of(self, token: Any) -> Span:
        return Span(token.start_pos, token.end_pos, self.file)

    def name(self, token: Any) -> ast.DeclName:
        return ast.DeclName(str(token), span=self.span_of(token))

    def integer(self, token: str, span: Span) -> ast.Literal:
        digits = token.replace("_", "").lstrip("0") or "0"
        # int() refuses thousands of digits, so look at the length first.
        value = int(digits) if len(digits) <= len(str(_MAX_INT)) else _MAX_INT + 1
        if value > _MAX_INT:
            self._too_large(token, span, f"write at most {_MAX_INT} (64 bits, signed)")
            value = _MAX_INT
        return ast.Literal(value, str(token), span=span)

    def floating(self, token: str, span: Span) -> ast.Literal:
        value = float(token.replace("_", ""))
        if math.isinf(value):
            self._too_large(token, span, "write at most 1.7976931348623157e308 (64 bits)")
            value = 0.0
        return ast.Literal(value, str(token), span=span)

    def _too_large(self, token: str, span: Span, help: str) -> None:
        shown = token if len(token) <= 24 else f"{token[:20]}..."
        self.diagnostics.append(Diagnostic("number-too-large", f"number {shown} is too large", span, help))


def _string(token: str) -> str:
    return token[1:-1]


def _some(children: Sequence[Any]) -> tuple[Any, ...]:
    """Without absent optional children, and without stray semicolons."""
    return tuple(c for c in children if c is not None)


def _start(b: _Builder, c: list[Any], s: Span) -> ast.Module:
    # An absent name is a placeholder, so a leading string is always the name.
    named = bool(c) and isinstance(c[0], str)
    return ast.Module(str(c[0]) if named else None, _some(c[1:] if named else c), span=s)


def _formal(b: _Builder, c: list[Any], s: Span) -> ast.Formal:
    *names, mode, kind, dims = c
    return ast.Formal(tuple(b.name(n) for n in names), kind, mode, dims, span=s)


def _select(b: _Builder, c: list[Any], s: Span) -> ast.Select:
    *names, method, args = c
    return ast.Select(tuple(map(str, names)), str(method), args or (), span=s)


def _verify(b: _Builder, c: list[Any], s: Span) -> ast.Verify:
    target, call, rtol, atol, nan_equal, runs = c
    of, array = target if isinstance(target, tuple) else ("", target)
    return ast.Verify(array, call, rtol, nan_equal is not None, atol, runs, of, span=s)


def _edge(b: _Builder, c: list[Any], s: Span) -> ast.Edge:
    groups = tuple(g if isinstance(g, tuple) else (g,) for g in c[0::2])
    return ast.Edge(groups, tuple(c[1::2]), span=s)


def _if(b: _Builder, c: list[Any], s: Span) -> ast.If:
    otherwise = (c[2],) if isinstance(c[2], ast.If) else c[2]
    return ast.If(c[0], c[1], otherwise, span=s)


_Rule = Callable[[_Builder, list[Any], Span], Any]


def _node(kind: Callable[..., Any], *first: Any) -> _Rule:
    return lambda b, c, s: kind(*first, *c, span=s)


def _word(kind: Callable[[str], Any]) -> _Rule:
    return lambda b, c, s: kind(str(c[0]))


_NODES: dict[str, Callable[..., Any]] = {  # nodes whose fields are the children, in order
    "param": ast.Param, "let": ast.Let, "scalar": ast.Scalar, "comm": ast.Communicator, "array": ast.Array,
    "part": ast.Part, "unknown": ast.Every, "tune": ast.Tune, "require": ast.Require, "launch": ast.Launch,
    "prepare": ast.Prepare,
    "op": ast.Op, "collective": ast.Collective, "exchange": ast.Exchange, "message": ast.Message,
    "edges": ast.EdgesExplicit, "range": ast.Range, "cond": ast.Conditional, "list": ast.ListExpr, "every": ast.Every,
}  # fmt: skip
_WORDS: dict[str, Callable[[str], Any]] = {
    "type": str, "place": Place, "role": Role, "mode": Mode, "device": OpKind, "lang": CodeLang, "kind": OpKind,
    "arrow": ast.Arrow, "cmp_op": ast.BinaryOp,
}  # fmt: skip
_OPERATORS = {
    "or_": ast.BinaryOp.OR, "and_": ast.BinaryOp.AND, "add": ast.BinaryOp.ADD, "sub": ast.BinaryOp.SUB,
    "mul": ast.BinaryOp.MUL, "div": ast.BinaryOp.DIV, "mod": ast.BinaryOp.MOD,
}  # fmt: skip
_RULES: dict[str, _Rule] = {
    **{name: _node(kind) for name, kind in _NODES.items()},
    **{name: _word(kind) for name, kind in _WORDS.items()},
    **{name: _node(ast.Binary, op) for name, op in _OPERATORS.items()},
    **dict.fromkeys(("names", "dims", "formals", "group", "block", "exprs", "sums", "args"), lambda b, c, s: _some(c)),
    "start": _start,
    "nothing": lambda b, c, s: None,
    # values
    "enum": lambda b, c, s: ast.EnumDecl(str(c[0]), tuple(map(str, c[1:])), span=s),
    "name": lambda b, c, s: ast.DeclName(str(c[0]), c[1] or (), span=s),
    # decisions
    "feature": lambda b, c, s: ast.Feature(str(c[0]), c[2], c[1], span=s),
    "select": _select,
    "method": lambda b, c, s: str(c[0]),
    # kernels
    "kernel": lambda b, c, s: ast.Kernel(str(c[0]), c[1] or (), _some(c[2:]), span=s, name_span=b.span_of(c[0])),
    "formal": _formal,
    "impl": lambda b, c, s: ast.Impl(c[0], None if c[1] is None else str(c[1]), _some(c[2:]), span=s),
    "forms": lambda b, c, s: ast.Forms(tuple(map(str, c)), span=s),
    "forms_word": lambda b, c, s: ast.Forms((str(c[0]),), True, span=s),
    "fuse": lambda b, c, s: ast.Fuse(tuple(map(str, c)), span=s),
    "fuse_word": lambda b, c, s: ast.Fuse((str(c[0]),), True, span=s),
    "link": lambda b, c, s: ast.Link(tuple(map(_string, c)), span=s),
    "code_text": lambda b, c, s: ast.Code(c[0], text=unix_lines(c[1][3:-3]), span=s),
    "code_file": lambda b, c, s: ast.Code(c[0], None, c[1][0], _string(c[2]), c[1][1], span=s),
    "code_whole": lambda b, c, s: ast.Code(c[0], file=_string(c[1]), span=s),
    "function": lambda b, c, s: (str(c[0]), c[1] or ()),
    # the graph
    "main": lambda b, c, s: ast.MainDag(c[2], c[0], c[1], span=s),
    "until": _node(ast.Until),
    "devices": lambda b, c, s: ast.Devices(tuple(c[1:]), span=s),
    "count": lambda b, c, s: (str(c[0]), c[1]),
    "dag": lambda b, c, s: ast.SubDag(str(c[0]), c[1] or (), c[2], span=s, name_span=b.span_of(c[0])),
    "edge": _edge,
    "for": lambda b, c, s: ast.For(tuple(c[:-1]), c[-1], span=s),
    "binding": lambda b, c, s: ast.Binding(str(c[0]), c[1], span=s),
    "if": _if,
    # the world outside
    "setup": lambda b, c, s: ast.Setup(_string(c[0]), c[1], span=s),
    "verify": _verify,
    "whole": lambda b, c, s: (str(c[0]), c[1]),
    "nan_equal": lambda b, c, s: True,
    "after": lambda b, c, s: c[1],
    "split": lambda b, c, s: c[1],
    "include": lambda b, c, s: ast.Include(_string(c[0]), span=s),
    # expressions
    "cmp": lambda b, c, s: ast.Binary(c[1], c[0], c[2], span=s),
    "neg": _node(ast.Unary, ast.UnaryOp.NEG),
    "not_": _node(ast.Unary, ast.UnaryOp.NOT),
    "int": lambda b, c, s: b.integer(c[0], s),
    "float": lambda b, c, s: b.floating(c[0], s),
    "str": lambda b, c, s: ast.Literal(_string(c[0]), span=s),
    "true": lambda b, c, s: ast.Literal(True, span=s),
    "false": lambda b, c, s: ast.Literal(False, span=s),
    "call": lambda b, c, s: ast.Call(c[0], c[1] or (), span=s),
    "named": lambda b, c, s: ast.Named(str(c[0]), c[1], span=s),
    "touched": lambda b, c, s: ast.Touched(c[0], tuple(c[1:]), span=s),
    "ref": lambda b, c, s: ast.Ref(str(c[0]), tuple(c[1:]), span=s),
    "member": lambda b, c, s: c[0] if isinstance(c[0], ast.Member) else ast.Member(str(c[0]), span=s),
    "index": lambda b, c, s: ast.Index(_some(c), span=s),
}


# ---- parser ----

_MOST_ERRORS = 20
_BY_WHAT_FOLLOWS = {
    "AFTER": "after",
    "RUNS": "runs",
    "SPLIT": "split",
    "DEVICES": "devices",
}  # terminals of words that may also start an item there; their texts
MOST_WORDS = 250_000  # parsed in seconds; the ops of the largest program take fewer
_INNER_ITEMS = frozenset("gpu cpu forms link launch prepare cuda cpp send edges fuse".split())
TOP_ITEMS = FORMS.keys() - _INNER_ITEMS - {"program"}


@lru_cache(maxsize=16)  # of a process that reads one text again: an editor's, or a notebook's
@uncollected()
def parse(source: Source) -> ast.Module:
    """The syntax tree of one file; names are not resolved and included files are not read.

    Raises `ProgramError` with all diagnostics: an op that does not say what runs it is read as one of the GPU or of
    MPI; after any other error, parsing resumes at the next item that starts a line without indentation.
    """
    # A byte order mark has no meaning here; replacing it by a space keeps every position.
    text = " " + source.text[1:] if source.text.startswith("\ufeff") else source.text
    plain = Source(source.path, text)
    beyond = word_beyond(text, MOST_WORDS)
    if beyond is not None:
        message = f"more than {MOST_WORDS} tokens"
        place = Span(beyond, beyond + 1, source.path)
        help = "use `for`, or move repeated items into a named `dag`"
        raise ProgramError([Diagnostic("too-large", message, place, help)], {source.path: source})
    diagnostics: list[Diagnostic] = []
    restart: int | None = 0
    tokens: tuple[Token, ...] = ()

    def reported(error: lark.UnexpectedInput) -> bool:
        """Add the diagnostic of an error; returns whether parsing continues after it."""
        nonlocal tokens
        tokens = tokens or tuple(scan(text))  # once: a second for a large text
        position = _position(error, text)
        diagnostics.append(explain(plain, tokens, position, _accepts(error)))
        behind = bisect_left(tokens, position + 1, key=lambda t: t.start)
        following = tokens[min(behind, len(tokens) - 1)]
        same_line = following.kind is TokenKind.WORD and "\n" not in text[position : following.start]
        return len(diagnostics) < _MOST_ERRORS and _completed(error, following.text if same_line else "")

    while restart is not None and len(diagnostics) < _MOST_ERRORS:
        try:
            tree = _parser().parse(re.sub(r"[^\n]", " ", text[:restart]) + text[restart:], on_error=reported)
        except lark.UnexpectedInput as error:
            restart = _next_item(text, tokens, max(_position(error, text), restart + 1), diagnostics[-1])
            continue
        if not diagnostics:
            return _build(tree, source)
        break
    raise ProgramError(diagnostics, {source.path: source})


def accepted_after(text: str) -> frozenset[str]:
    """The tokens that may follow a text, as in `dagc.lang.syntax.Stop.accepts`; none if it has an error."""
    state = _parser().parse_interactive(text)
    try:
        state.exhaust_lexer()
    except lark.UnexpectedInput:
        return frozenset()
    names = _terminal_texts()
    accepted = state.accepts()  # type: ignore[no-untyped-call]
    return frozenset(names.get(str(name), str(name)) for name in accepted)


def _build(tree: object, source: Source) -> ast.Module:
    """The AST of a text that parsed completely."""
    sources = {source.path: source}
    try:
        module, diagnostics = build(tree, source.path)
    except TooDeep as error:
        message = f"nested deeper than {MAX_DEPTH} levels"
        help = "name inner expressions with `let`, move inner loops into a named `dag`"
        raise ProgramError([Diagnostic("too-deep", message, error.span, help)], sources) from None
    if diagnostics:
        raise ProgramError(diagnostics, sources)
    return module


# ---- errors -----------------------------------------------------------------------------


def _position(error: lark.UnexpectedInput, text: str) -> int:
    """Offset of the token that was not accepted; the length of the text at its end."""
    if isinstance(error, lark.UnexpectedToken) and error.token.type == "$END":
        return len(text)
    at: int | None = getattr(error, "pos_in_stream", None)
    return at or 0


def _completed(error: lark.UnexpectedInput, word: str) -> bool:
    """Give the parser the kind that an op lacks, and then the token that was not accepted without it; in place of that
    token where a `word` follows it: then it was meant to be the kind. Returns whether the parser accepted them."""
    if not isinstance(error, lark.UnexpectedToken) or error.token.type == "$END":
        return False
    missing = lacks_device(word or str(error.token), _accepts(error))
    if not missing or error.interactive_parser is None:
        return False
    try:
        error.interactive_parser.feed_token(error.token.new_borrow_pos(missing.upper(), missing, error.token))
        if not word:
            error.interactive_parser.feed_token(error.token)
    except lark.UnexpectedToken:
        return False
    return True


def _accepts(error: lark.UnexpectedInput) -> frozenset[str]:
    """The accepted tokens, by their text; see `dagc.lang.syntax.Stop`."""
    names = _terminal_texts()
    state = getattr(error, "interactive_parser", None)
    accepted = state.accepts() if state is not None else ()
    return frozenset(names.get(str(name), str(name)) for name in accepted)


@lru_cache(maxsize=1)
def _terminal_texts() -> dict[str, str]:
    """Lark's names of the terminals to their texts: COLON to `:`, PARAM to `param`, $END to END."""
    out = {t.name: t.pattern.value for t in _parser().terminals if t.pattern.type == "str"}
    return {"$END": "END"} | _BY_WHAT_FOLLOWS | out


def _next_item(text: str, tokens: Sequence[Token], position: int, last: Diagnostic) -> int | None:
    """Where to resume after an error at `position`; None if there is no such place."""
    if last.code == "unterminated-text":  # the extent of the code is unknown from here on
        return None
    for token in tokens[bisect_left(tokens, position, key=lambda t: t.start) :]:
        at_margin = token.start == 0 or text[token.start - 1] == "\n"
        if at_margin and token.kind is TokenKind.WORD and token.text in TOP_ITEMS:
            return token.start
    return None


# ---- the parser -------------------------------------------------------------------------


_MOST_TABLES = 4  # in the cache, including those of older grammars and parser versions
_LARGEST_TABLES = 64 << 20


class _WholeWords:
    """Makes the lexer match whole words only, so that `indim` is never `in dim`.

    Lark asks a `postlex` which terminals the lexer must accept in every state of the parser.
    """

    always_accept = ("NAME",)

    def process(self, stream: Iterator[lark.Token]) -> Iterator[lark.Token]:
        return stream


def _few_lexers(
    conf: lark.common.LexerConf, states: dict[int, Collection[str]], always_accept: Collection[str]
) -> lark.lexer.ContextualLexer:
    """A lexer for each set of accepted free words, in place of one for each set of accepted tokens.

    A token that the parser does not accept is an error under any name, so that only words and texts that are two
    tokens in different places need a lexer that knows the place: 9 regular expressions to compile instead of 56.
    """
    by_place = ("QUALIFIED", "FUNCTION", *_BY_WHAT_FOLLOWS)
    somewhere = {t.name for t in conf.terminals if t.name in by_place or t.pattern.value in FREE}
    anywhere = conf.terminals_by_name.keys() - somewhere
    here = {state: frozenset(somewhere.intersection(accepts)) for state, accepts in states.items()}
    whole = {some: frozenset(anywhere | some) for some in set(here.values())}
    return lark.lexer.ContextualLexer(conf, {state: whole[some] for state, some in here.items()}, always_accept)


def _refuse_reserved(token: lark.Token) -> lark.Token:
    """A reserved word is not a name, even if no keyword fits."""
    return token.update(type="RESERVED") if token in RESERVED else token


class _PlainData(pickle.Unpickler):
    """Unpickles only lists, dicts, strings and numbers, and so runs no code."""

    def find_class(self, module: str, name: str) -> object:
        raise pickle.UnpicklingError(f"{module}.{name} in a cache of plain data")


@lru_cache(maxsize=1)
def _parser() -> lark.Lark:
    """The parser, from cached tables if possible: building them takes 100 ms, loading them 10."""
    grammar = resource("grammar/dag.lark").read_text(encoding="utf-8")
    key = f"parser-{hashlib.sha256(f'{lark.__version__} {grammar}'.encode()).hexdigest()[:24]}"
    directory = entry_directory("parser")
    stored = load_entry(directory / key, _LARGEST_TABLES) if directory is not None else None
    hooks = {
        "postlex": _WholeWords(),
        "lexer_callbacks": {"NAME": _refuse_reserved},
        "_plugins": {"ContextualLexer": _few_lexers},
    }
    if stored is not None:
        try:
            data, memo = _PlainData(io.BytesIO(stored)).load()
            # As lark's generated stand-alone parsers do.
            return _without_chains(lark.Lark._load_from_dict(data, memo, **hooks))  # type: ignore[no-untyped-call]
        except Exception:  # a bad cache is not an error: build from the grammar
            pass
    return _build_parser(grammar, directory / key if directory is not None else None, hooks)


def _build_parser(grammar: str, entry: Path | None, hooks: dict[str, Any]) -> lark.Lark:
    """Build the tables from the grammar, and cache them."""
    parser = lark.Lark(grammar, parser="lalr", lexer="contextual", propagate_positions=True, **hooks)
    data, memo = parser.memo_serialize([lark.lexer.TerminalDef, lark.grammar.Rule])
    data["options"] = {name: value for name, value in data["options"].items() if name not in hooks}
    if entry is not None:
        store_entry(entry, pickle.dumps((data, memo)), _MOST_TABLES)
    return _without_chains(parser)


def _without_chains(parser: lark.Lark) -> lark.Lark:
    """Pass the only child of a rule such as `?sum: product` through unchanged.

    Lark does so too, but looks up its position at each of the ten levels of an expression, half of the parse time.
    """
    callbacks = parser.parser.parser.parser.callbacks
    for rule in callbacks:
        if rule.options.expand1 and not rule.alias and len(rule.expansion) == 1:
            symbol = rule.expansion[0]
            if not symbol.is_term and not symbol.name.startswith("_"):
                callbacks[rule] = itemgetter(0)
    return parser
