"""Keywords and names that fit at a place of an unfinished text.

The parser gives the tokens that may follow; the words in front of the place determine the kind of name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dagc.base.source import Source, Span
from dagc.editor.names import IN_CODE, Declaration, Kind, NameIndex, NameScope
from dagc.forms import FORMS as KERNEL_FORMS
from dagc.ir.program import CollectiveKind
from dagc.lang.evaluate import FUNCTIONS
from dagc.lang.parse import TOP_ITEMS, accepted_after
from dagc.lang.scope import HARDWARE, TYPES
from dagc.lang.syntax import FORMS, RANKS, Token, TokenKind, scan

_CLOSED = (TokenKind.COMMENT, TokenKind.OPEN_COMMENT, TokenKind.STRING, TokenKind.OPEN_STRING)
_CODE = (TokenKind.TEXT, TokenKind.OPEN_TEXT)
_NEW_NAME = frozenset(
    ("program", "param", "let", "enum", "scalar", "comm", "array", "part", "tune", "feature", "kernel", "for")
)
_KINDS_OF_OP = frozenset(("gpu", "cpu", "any", "dag", "mpi"))
_MODES = frozenset(("in", "out", "inout", "accumulate"))
_STORAGE = frozenset((Kind.ARRAY, Kind.PART, Kind.FORMAL))
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")


@dataclass(frozen=True, slots=True)
class Completion:
    """`kind` is that of the declaration; None for a word of the language. `detail`: one line."""

    label: str
    kind: Kind | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class _Place:
    """The tokens of the item up to the place, without the word that is being typed."""

    tokens: tuple[Token, ...]
    accepts: frozenset[str]
    scope: NameScope
    index: NameIndex

    def last(self, back: int = 1) -> str:
        return self.tokens[-back].text if len(self.tokens) >= back else ""


def complete(text: str, offset: int, index: NameIndex, scope: NameScope) -> list[Completion]:
    """The completions at `offset`. `scope`: of the names that are visible there."""
    start = offset
    while start > 0 and (text[start - 1].isalnum() or text[start - 1] == "_"):
        start -= 1
    tokens = scan(text[:start])
    if tokens and _inside(text, tokens[-1], start, _CLOSED):
        return []
    if tokens and _inside(text, tokens[-1], start, _CODE):
        return _distinct(_names(scope, IN_CODE))
    begin = _item_start(text, tokens)
    accepts = accepted_after(" " * begin + text[begin:start])
    words = tuple(t for t in tokens if t.kind is not TokenKind.COMMENT and t.start >= begin)
    place = _Place(words, accepts, scope, index)
    keywords = [
        Completion(word, None, FORMS.get(word, "")) for word in sorted(accepts) if word.isalpha() and word.islower()
    ]
    if _of_communicator(place):
        keywords = []
    elif not accepts:  # the item has an error before the place
        keywords = [Completion(word, None, FORMS[word]) for word in sorted(FORMS)]
    names = _fitting(place) if "NAME" in accepts or not accepts else ()
    return _distinct((*keywords, *names))


def _inside(text: str, token: Token, start: int, kinds: tuple[TokenKind, ...]) -> bool:
    """Whether the place right of a token continues it: an open one, or a line comment without its line's end."""
    if token.kind not in kinds:
        return False
    if token.kind in (TokenKind.OPEN_COMMENT, TokenKind.OPEN_STRING, TokenKind.OPEN_TEXT):
        return token.kind is not TokenKind.OPEN_STRING or "\n" not in text[token.start : start]
    return token.text.startswith("//") and "\n" not in text[token.end : start]


def _item_start(text: str, tokens: list[Token]) -> int:
    """The start of the item that contains the end of `tokens`: the last word at a margin that begins an item."""
    for token in reversed(tokens):
        at_margin = token.start == 0 or text[token.start - 1] == "\n"
        if at_margin and token.kind is TokenKind.WORD and (token.text in TOP_ITEMS or token.text == "program"):
            return token.start
    return 0


def _fitting(place: _Place) -> Iterator[Completion]:
    """Names for a place that takes one."""
    last, before = place.last(), place.last(2)
    if last in _KINDS_OF_OP and before == ":":
        yield from _callees(place, last)
    elif last == ".":
        yield from _members(place)
    elif last == "on":
        yield from _names(place.scope, frozenset((Kind.COMM,)))
    elif last in _NEW_NAME and before not in (":", "mpi"):
        return
    elif last in ("forms", "fuse"):
        yield Completion("none", None, FORMS[last])
    elif _in_forms(place):
        yield from (Completion(form.name, None, form.summary) for form in KERNEL_FORMS)
    elif last == "=" and place.last(3) == "comm":
        yield Completion("split", None, FORMS["comm"])
    elif _expects_type(place):
        yield from (Completion(name, None, "element type") for name in TYPES)
        yield from _names(place.scope, frozenset((Kind.PARAM,)))
    elif last in ("send", "of") or (last == "recv" and before != "."):
        yield from _names(place.scope, _STORAGE)
    elif last in ("->", "before") or "param" in place.accepts:  # an edge, or an item that may be one
        yield from _ops(place)
    else:
        yield from _expression(place)


def _in_forms(place: _Place) -> bool:
    """Whether this is a place in the list of `forms {...}`."""
    words = [token.text for token in place.tokens]
    return "{" in words and words[-1] in ("{", ",") and words[: _last(words, "{")][-1:] == ["forms"]


def _last(words: Sequence[str], word: str) -> int:
    """The place of the last such word."""
    return len(words) - 1 - words[::-1].index(word)


def _callees(place: _Place, kind: str) -> Iterator[Completion]:
    if kind == "mpi":
        yield from (Completion(c.value, None, "collective") for c in CollectiveKind)
        return
    wanted = Kind.DAG if kind == "dag" else Kind.KERNEL
    for scope in place.scope.chain():
        for declared in scope.callables.values():
            yield from (_proposal(d) for d in declared if d.kind is wanted)
    if kind == "gpu":
        yield Completion("copy", None, "copy(TO, FROM): a copy of an array or of a slice")


def _members(place: _Place) -> Iterator[Completion]:
    """Messages of an exchange, ops of a named dag, implementations of a kernel; ranks of a communicator."""
    if _of_communicator(place):
        yield from (Completion(name, None, f"{what} in the communicator") for name, what in RANKS.items())
    use = place.index.at_name(place.last(2), place.scope)
    for space in use:
        for members in space.ops.values():
            yield from map(_proposal, members)


def _of_communicator(place: _Place) -> bool:
    """Whether this is the place of a member of a communicator."""
    return place.last() == "." and any(d.kind is Kind.COMM for d in place.scope.find("values", place.last(2)))


def _expects_type(place: _Place) -> bool:
    """After the colon of a declaration. After that of an op no name is accepted, after that of a `?` also numbers."""
    colon = place.last() == ":" or (place.last() in _MODES and place.last(2) == ":")
    return colon and "NAME" in place.accepts and "INT" not in place.accepts


def _ops(place: _Place) -> Iterator[Completion]:
    for scope in place.scope.chain():
        for declared in scope.ops.values():
            yield from (_proposal(d) for d in declared if d.kind in (Kind.OP, Kind.MESSAGE))


def _expression(place: _Place) -> Iterator[Completion]:
    """Values, functions, hardware properties, and the tunables of a called kernel."""
    yield from _tunables(place)
    yield from _names(place.scope, frozenset(Kind))
    yield from (Completion(name, None, "function") for name in (*FUNCTIONS, "sizeof"))
    yield from (Completion(name, None, what) for name, what in RANKS.items())
    yield from (Completion(name, None, "hardware") for name in sorted(HARDWARE))


def _tunables(place: _Place) -> Iterator[Completion]:
    """`block = ` in a call, whose opening parenthesis is the innermost that is open."""
    called = _called(place.tokens)
    for space in place.index.at_name(place.tokens[called[0]].text, place.scope) if called else ():
        for scope in (space, *space.inner):
            for declared in scope.values.values():
                yield from (_proposal(d) for d in declared if d.kind is Kind.TUNE)


def _called(tokens: Sequence[Token]) -> tuple[int, int] | None:
    """The callee of the innermost call that is open at the end of the tokens, and the number of commas in it."""
    depth = commas = 0
    for k in range(len(tokens) - 1, 0, -1):
        text = tokens[k].text
        depth += (text in _CLOSING) - (text in _OPENING)
        commas += text == "," and depth == 0
        if depth < 0:
            return (k - 1, commas) if text == "(" and tokens[k - 1].kind is TokenKind.WORD else None
    return None


def _names(scope: NameScope, kinds: frozenset[Kind]) -> Iterator[Completion]:
    for around in scope.chain():
        for declared in around.values.values():
            yield from (_proposal(d) for d in declared if d.kind in kinds)


def _proposal(declaration: Declaration) -> Completion:
    owner = f" of {declaration.owner}" if declaration.owner else ""
    return Completion(declaration.name, declaration.kind, f"{declaration.kind.value}{owner}")


def _distinct(proposals: Iterable[Completion]) -> list[Completion]:
    """The completions, only the first of each label."""
    out: dict[str, Completion] = {}
    for proposal in proposals:
        out.setdefault(proposal.label, proposal)
    return list(out.values())


# ---- the header of the called kernel or function -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Signature:
    """`label` holds each of `formals`; `active` is the number of the one that is being written."""

    label: str
    formals: tuple[str, ...]
    active: int


def signature(
    text: str, offset: int, index: NameIndex, scope: NameScope, sources: Mapping[str, Source]
) -> Signature | None:
    """The signature of the kernel or named dag whose call is open at `offset`."""
    tokens = scan(text[:offset])
    if tokens and _inside(text, tokens[-1], offset, (*_CLOSED, *_CODE)):
        return None
    begin = _item_start(text, tokens)
    words = [t for t in tokens if t.kind is not TokenKind.COMMENT and t.start >= begin]
    called = _called(words)
    if called is None:
        return None
    at, active = called
    if at >= 2 and words[at - 1].text == ".":  # an implementation of a kernel
        at -= 2
    declared = scope.find("callables", words[at].text)
    if not declared or at == 0 or words[at - 1].text not in _KINDS_OF_OP:
        return None
    formals = [
        f"{name.name}: {' '.join(_after_colon(sources, formal.span).split())}"
        for formal in declared[0].node.formals
        for name in formal.names
    ]
    return Signature(f"{declared[0].name}({', '.join(formals)})", tuple(formals), active)


def _after_colon(sources: Mapping[str, Source], span: Span) -> str:
    return sources[span.file].text[span.start : span.end].partition(":")[2]
