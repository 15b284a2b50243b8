"""The tokens of the language, the form of each item, and messages about syntax."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from enum import Enum
from itertools import islice

from dagc.base.errors import Diagnostic
from dagc.base.source import Source, Span

# ---- tokens of a text ----


class TokenKind(Enum):
    WORD = "word"
    NUMBER = "number"
    STRING = "string"
    TEXT = "text"  # code between triple quotes
    PUNCT = "punct"
    COMMENT = "comment"
    OPEN_TEXT = "open_text"
    OPEN_STRING = "open_string"
    OPEN_COMMENT = "open_comment"
    BAD_NUMBER = "bad_number"  # digits glued to letters
    BAD = "bad"  # a character outside of the language
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """`text` is text[start:end] of the scanned text."""

    kind: TokenKind
    text: str
    start: int
    end: int


# The words that cannot be names: all keywords of grammar/dag.lark but those in FREE (a test compares them).
FREE = frozenset(
    "device host pinned grid block shared explicit equal split socket touching after runs devices accumulate".split()
)
_RESERVED = (
    "program param over let enum scalar comm array on const in out inout part of tune require feature cost select with "
    "forms "
    "kernel gpu cpu any mpi dag link launch prepare cuda cpp from repeat until exchange stream send recv to counts "
    "before edges fuse for if else setup verify rtol atol nan include true false"
)
RESERVED = frozenset(_RESERVED.split())

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n\f]+)
    |(?P<comment>//[^\n]*|/\*[\s\S]*?\*/)
    |(?P<open_comment>/\*[\s\S]*)
    |(?P<text>\"\"\"[\s\S]*?\"\"\")
    |(?P<open_text>\"\"\"[\s\S]*)
    |(?P<string>"[^"\n]*")
    |(?P<open_string>"[^"\n]*)
    |(?P<number>[0-9][0-9_]*(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![A-Za-z0-9_]))
    |(?P<bad_number>[0-9][A-Za-z0-9_]*)
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*(?:::[A-Za-z_][A-Za-z0-9_]*)*)
    |(?P<punct>->|\.\.|\|\||&&|[=!<>]=|[{}()\[\],:;=~?<>+\-*/%!.])
    |(?P<bad>[\s\S])""",
    re.VERBOSE,
)


def unix_lines(text: str) -> str:
    """Convert all line ends to \\n."""
    return re.sub(r"\r+\n", "\n", text)


def scan(text: str) -> list[Token]:
    """Every token of any text, in order, without white space or an end token."""
    out = []
    for match in _TOKEN.finditer(text):
        if match.lastgroup != "space":
            assert match.lastgroup is not None  # every alternative has a name
            out.append(Token(TokenKind(match.lastgroup), match.group(), match.start(), match.end()))
    return out


def word_beyond(text: str, most: int) -> int | None:
    """The offset of the token after the first `most`; None if there are no more."""
    if len(text) <= most:
        return None
    tokens = (match.start() for match in _TOKEN.finditer(text) if match.lastgroup not in ("space", "comment"))
    return next(islice(tokens, most, None), None)


# ---- forms of items ----

FORMS = {
    "program": "program NAME",
    "param": "param NAME, ... : TYPE = VALUE [over RANGE]",
    "let": "let NAME = VALUE",
    "enum": "enum NAME {LABEL, ...}",
    "scalar": "scalar NAME, ... : TYPE",
    "comm": "comm NAME = split(COLOUR [, KEY])",
    "array": "array NAME, ... : TYPE[SIZE, ...] [on PLACE] [ROLE]",
    "part": "part NAME of ARRAY[FROM .. TO]",
    "devices": "devices gpu NUMBER [, socket NUMBER]",
    "tune": "tune NAME in {VALUE, ...}",
    "require": "require CONDITION",
    "feature": "feature NAME [cost ELEMENTS] = EXPRESSION",
    "select": "select NAME, ... with METHOD(ARGUMENT, ...)",
    "forms": "forms none or forms {FORM, ...}",
    "kernel": "kernel NAME(FORMAL : MODE TYPE[SIZE], ...) {...}",
    "gpu": "gpu [NAME] {...}",
    "cpu": "cpu [NAME] {...}",
    "link": 'link "LIBRARY", ...',
    "launch": "launch grid(BLOCKS, ...) block(THREADS, ...) [shared(BYTES)]",
    "prepare": 'prepare cpp """CODE""" or prepare cpp FUNCTION from "FILE"',
    "cuda": 'cuda """CODE""" or cuda FUNCTION from "FILE" or cuda from "FILE"',
    "cpp": 'cpp """CODE""" or cpp FUNCTION from "FILE" or cpp from "FILE"',
    "dag": "dag [repeat TIMES [until ARRAY [< VALUE]]] {...} or dag NAME(FORMAL, ...) {...}",
    "send": "send ARRAY to RANK [counts ARRAY] recv ARRAY from RANK [counts ARRAY]",
    "edges": "edges explicit",
    "fuse": "fuse none or fuse {NAME, ...}",
    "for": "for NAME in RANGE, ... {...}",
    "if": "if CONDITION {...} [else {...}]",
    "setup": 'setup "FILE.py" FUNCTION(ARGUMENT, ...)',
    "verify": "verify ARRAY | norm(ARRAY) | sum(ARRAY) ~ FUNCTION(ARGUMENT, ...) rtol NUMBER [atol NUMBER] [nan equal] "
    "[after NUMBER runs]",
    "include": 'include "FILE.dag" or include "DIRECTORY/"',
}
RANKS = {"rank": "number of this rank", "ranks": "number of ranks"}  # values, and members of a communicator
OPERATION = "NAME : gpu KERNEL(ARGUMENT, ...) (or cpu, any, dag, mpi), or A -> B"

# Where an item belongs that is not allowed where it was found.
PLACES = {
    "program": "at the top of the file",
    "launch": "inside an implementation, `gpu {...}`",
    "prepare": "inside an implementation, `gpu {...}` or `cpu {...}`",
    "link": "inside an implementation, `gpu {...}` or `cpu {...}`",
    "forms": "inside a kernel, or its `gpu {...}`",
    "fuse": "inside the main dag",
    "gpu": "inside a kernel",
    "cpu": "inside a kernel",
    "else": "right after the block of an `if`",
    "explicit": "after `edges`",
    "over": "after the value of a `param`",
    "recv": "after the `send` of the same message",
    "stream": "after the call of a `gpu` operation",
}


# ---- tokens that the parser accepts ----

_EXPRESSION = frozenset(("NAME", "INT", "STRING", "true", "(", "!"))
_EXPRESSION_ALL = frozenset(("NAME", "INT", "FLOAT", "STRING", "true", "false", "(", "{", "-", "!"))
_OPERATORS = frozenset(("+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "?"))
_TRAILERS = frozenset((".", "[", "("))
_CLASSES = {
    "NAME": "a name",
    "INT": "a number",
    "FLOAT": "a number",
    "STRING": 'a "string"',
    "TEXT": '"""code"""',
    "END": "the end of the file",
}
_MOST = 6


def describe(accepts: Set[str]) -> str:
    """The accepted tokens in words, never empty: "`,` or `)`", "an expression", ..."""
    left = set(accepts) - {"QUALIFIED", "FUNCTION"}  # a name is accepted there, too
    words: list[str] = []
    if "param" in left:
        return "the next item"
    if "launch" in left:
        return "`launch`, code or another item of an implementation"
    if {"gpu", "cpu", "tune"} <= left:
        return "an implementation (`gpu`, `cpu`) or another item of a kernel"
    if left >= _EXPRESSION:
        words.append("an expression")
        left -= _EXPRESSION_ALL
    elif left >= {"+", "=="}:
        left -= _OPERATORS | _TRAILERS
        # An operator is almost always possible; it is mentioned only if there is nothing else.
        if not left - {"END", "}"}:
            words.append("an operator")
    elif len(left) > 1:
        left -= _TRAILERS if left - _TRAILERS else set()
    classes = {_CLASSES[w] for w in left if w in _CLASSES and w != "END"}
    literal = sorted((w for w in left if w not in _CLASSES), key=lambda w: (w.isalpha(), w))
    words += sorted(classes) + [f"`{w}`" for w in literal]
    if "END" in left and not words:
        words.append(_CLASSES["END"])
    if len(words) > _MOST:
        words = [*words[:_MOST], "..."]
        return ", ".join(words)
    if not words:
        return "something else"
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


# ---- messages ----

_CLOSERS = {"(": ")", "[": "]", "{": "}"}
_SMALL_SLIPS = {
    "#": "comments start with `//`",
    "'": 'write strings in double quotes, `"..."`',
    "`": 'write strings in double quotes, `"..."`',
    "&": "write `&&`",
    "|": "write `||`",
    "^": "there is no power operator; multiply",
    "@": "remove it",
    "$": "remove it",
}


@dataclass(frozen=True)
class Stop:
    """Where the parser stopped; the input of every rule below.

    `accepts` holds the texts of the accepted tokens (`param`, `:`, ...), with NAME, INT, FLOAT, STRING and TEXT
    for the open classes and END for the end of the file.
    """

    source: Source
    tokens: tuple[Token, ...]  # up to `token` inclusive, without comments
    token: Token
    previous: Token | None
    following: Token | None
    accepts: Set[str]

    def span(self, start: Token, end: Token | None = None) -> Span:
        return Span(start.start, (end or start).end, self.source.path)

    def after(self, token: Token) -> Span:
        """The empty place directly after a token."""
        return Span(token.end, token.end, self.source.path)

    def line(self, token: Token) -> int:
        return self.source.line_column(token.start)[0]

    def indent(self, token: Token) -> int:
        text = self.source.line(self.line(token))
        return len(text) - len(text.lstrip())

    @property
    def new_line(self) -> bool:
        """Whether `token` is the first token of its line."""
        if self.previous is None or self.token.kind is TokenKind.END:
            return True
        return self.source.line_column(self.previous.end)[0] < self.line(self.token)

    @property
    def between_items(self) -> bool:
        """Whether the text before `token` is complete."""
        return "}" in self.accepts or "END" in self.accepts


def explain(source: Source, tokens: Sequence[Token], position: int, accepts: Set[str]) -> Diagnostic:
    """One diagnostic for a parser that stopped at `position`, which is len(text) at the end of the file.

    `tokens` are those of the text, including comments.
    """
    tokens = [t for t in tokens if t.kind is not TokenKind.COMMENT]
    index = bisect_right([t.start for t in tokens], position) - 1
    if index >= 0 and tokens[index].end > position:
        token, before, behind = tokens[index], tokens[:index], tokens[index + 1 :]
    else:
        token, before, behind = Token(TokenKind.END, "", len(source.text), len(source.text)), tokens, []
    stop = Stop(source, (*before, token), token, before[-1] if before else None, behind[0] if behind else None, accepts)
    for rule in _RULES:
        diagnostic = rule(stop)
        if diagnostic is not None:
            return diagnostic
    return _unexpected(stop)


# ---- the rules, each for a common mistake; the first that applies is used ----------------


def _unterminated(stop: Stop) -> Diagnostic | None:
    token = stop.token
    opened = {TokenKind.OPEN_TEXT: '"""', TokenKind.OPEN_STRING: '"', TokenKind.OPEN_COMMENT: "/*"}
    if token.kind not in opened:
        return None
    quote = opened[token.kind]
    span = Span(token.start, token.start + len(quote), stop.source.path)
    if token.kind is TokenKind.OPEN_STRING:
        span = stop.span(token)
        message, help = 'string without its closing `"`', 'write `"` before the end of the line'
    elif token.kind is TokenKind.OPEN_TEXT:
        message, help = 'code text without its closing `"""`', 'write `"""` after the code'
    else:
        message, help = "comment without its closing `*/`", "write `*/` after the comment"
    return Diagnostic("unterminated-text", message, span, help)


def _swallowed(stop: Stop) -> Diagnostic | None:
    """A code text without its end continues to the start of the next one."""
    previous = stop.previous
    if previous is None or previous.kind is not TokenKind.TEXT:
        return None
    words = previous.text[3:-3].split()
    if not words or words[-1] not in ("cuda", "cpp"):
        return None
    span = Span(previous.start, previous.start + 3, stop.source.path)
    message = 'code text without its closing `"""`: it continues to the next code text'
    closed = Span(previous.end - 3, previous.end, stop.source.path)
    help = 'write `"""` after the code'
    return Diagnostic("unterminated-text", message, span, help, related=((closed, "the next code text starts here"),))


def _bad_character(stop: Stop) -> Diagnostic | None:
    token = stop.token
    if token.kind is not TokenKind.BAD:
        return None
    c = token.text
    if c in "\u201c\u201d\u201e\u00ab\u00bb":
        return Diagnostic("unexpected-character", f"typographic quote {c}", stop.span(token), 'write `"`')
    if c.isalpha():
        message = f"letter {c} (U+{ord(c):04X}) outside a comment, a string or code"
        return Diagnostic("unexpected-character", message, stop.span(token), "use a to z, 0 to 9 and _ in names")
    shown = f"`{c}`" if c.isprintable() and c.isascii() else f"U+{ord(c):04X}"
    help = _SMALL_SLIPS.get(c, "remove it")
    return Diagnostic("unexpected-character", f"unexpected character {shown}", stop.span(token), help)


def _bad_number(stop: Stop) -> Diagnostic | None:
    if stop.token.kind is not TokenKind.BAD_NUMBER:
        return None
    shown = stop.token.text if len(stop.token.text) <= 24 else stop.token.text[:20] + "..."
    message = f"`{shown}` is neither a number nor a name"
    help = "write numbers in decimal digits (`1_000`, `0.5`, `1e-5`), and start names with a letter"
    return Diagnostic("syntax", message, stop.span(stop.token), help)


def _wrong_closer(stop: Stop) -> Diagnostic | None:
    """A `)`, `]` or `}` that does not match the open bracket."""
    token = stop.token
    if token.text not in _CLOSERS.values() or token.kind is not TokenKind.PUNCT:
        return None
    opened = _open_brackets(stop.tokens[:-1])
    if not opened:
        message = f"`{token.text}` has no opening bracket"
        return Diagnostic("unbalanced", message, stop.span(token), "remove it")
    wanted = _CLOSERS[opened[-1].text]
    if wanted == token.text or wanted not in stop.accepts:
        return None
    return _unclosed(stop, opened[-1])


def _missing_closer(stop: Stop) -> Diagnostic | None:
    """The file ends, or an item of an outer level starts, inside brackets."""
    opened = _open_brackets(stop.tokens[:-1])
    if not opened or not stop.new_line:
        return None
    innermost, token = opened[-1], stop.token
    if innermost.text != "{":
        # Tokens indented no deeper than the line of the bracket do not belong inside it.
        outer = token.kind is TokenKind.WORD and stop.indent(token) <= stop.indent(innermost)
        starts_item = token.kind is TokenKind.END or token.text in FORMS or outer
        return _unclosed(stop, innermost) if starts_item and _CLOSERS[innermost.text] in stop.accepts else None
    if not stop.between_items:
        return None
    if token.kind is TokenKind.END or (token.text in FORMS and stop.indent(token) <= stop.indent(innermost)):
        return _unclosed(stop, _unclosed_brace(stop, opened))
    return None


def _reserved_op(stop: Stop) -> Diagnostic | None:
    """`send : gpu copy(...)`, `to[0] : ...`, `send -> a`: the parser takes the word for the start of another item."""
    for index, mark in ((-2, stop.token), (-1, stop.following)):
        if mark is None or mark.text not in (":", "[", "->", "before") or len(stop.tokens) < -index:
            continue
        word = stop.tokens[index]
        if word.kind is TokenKind.WORD and word.text in RESERVED and _starts_item(stop, len(stop.tokens) + index):
            return _not_a_name(stop, word, "the name of an op")
    return None


def _misplaced(stop: Stop) -> Diagnostic | None:
    """An item at a place for a different one."""
    word = stop.token.text
    if stop.token.kind is not TokenKind.WORD or not stop.between_items:
        return None
    if word in PLACES:
        message = f"`{word}` is not allowed here"
        return Diagnostic("misplaced", message, stop.span(stop.token), f"it belongs {PLACES[word]}")
    if word in FORMS and stop.new_line:
        message = f"`{word}` is not allowed inside a kernel"
        help = f"move it out, or close the kernel with `}}` before it; the form is `{FORMS[word]}`"
        return Diagnostic("misplaced", message, stop.span(stop.token), help)
    return None


def _misspelt(stop: Stop) -> Diagnostic | None:
    """`parm n : i64 = 4` parses like an operation named parm."""
    previous = stop.previous
    if previous is None or previous.kind is not TokenKind.WORD or previous.text in RESERVED or ":" not in stop.accepts:
        return None
    if stop.new_line or not _starts_item(stop, len(stop.tokens) - 2):
        return None
    if stop.token.text == "=":
        help = f"to name a value write `let {previous.text} = ...`"
        return Diagnostic("syntax", "expected `:`, `->` or `before`, found `=`", stop.span(stop.token), help)
    if stop.token.kind is not TokenKind.WORD or stop.token.text in _RUNS:
        return None
    from difflib import get_close_matches  # only needed after an error

    close = get_close_matches(previous.text, FORMS, n=1, cutoff=0.7)
    if not close:
        return None
    help = f"did you mean `{close[0]}`? The form is `{FORMS[close[0]]}`"
    return Diagnostic("syntax", f"`{previous.text}` does not start an item", stop.span(previous), help)


_RUNS = ("gpu", "cpu", "any", "mpi", "dag")  # what may stand before the call of an op


_OF_MPI = ("exchange", "allreduce", "reduce", "bcast", "allgather", "alltoall", "alltoallv", "barrier")


def lacks_device(word: str, accepts: Set[str]) -> str:
    """The kind of op, `mpi` or `gpu`, that is missing before a word in its place; "" if none is missing."""
    if not {"gpu", "cpu", "mpi"} <= accepts:
        return ""
    return "mpi" if word in _OF_MPI else "gpu"


def _without_device(stop: Stop) -> Diagnostic | None:
    """`a : axpy(...)`, `a : exchange {`: what runs the op is missing; `a : gpuu axpy(...)`: it is misspelt."""
    word, following = stop.token.text, stop.following
    missing = lacks_device(word, stop.accepts)
    if stop.new_line or stop.token.kind is not TokenKind.WORD or not missing:
        return None
    if following is not None and following.kind is TokenKind.WORD and stop.line(following) == stop.line(stop.token):
        from difflib import get_close_matches  # only needed after an error

        close = get_close_matches(word, _RUNS, n=1)
        help = f"did you mean `{close[0] if close else lacks_device(following.text, stop.accepts)} {following.text}`?"
        message = f"expected what runs the op (`{'`, `'.join(_RUNS)}`), found `{word}`"
        return Diagnostic("syntax", message, stop.span(stop.token), help)
    if missing == "mpi":
        help = f"write `mpi {word}`"
    else:
        help = "write `gpu copy(...)`" if word == "copy" else f"write `gpu {word}(...)`, or `cpu {word}(...)`"
    return Diagnostic(
        "syntax", f"`{word}` does not say what runs it: `gpu`, `cpu` or `mpi`", stop.span(stop.token), help
    )


def _unfinished_line(stop: Stop) -> Diagnostic | None:
    """Line ends are free, so the parser sees an unfinished line only at the next one; report it here."""
    if stop.previous is None or not stop.new_line or stop.between_items:
        return None
    end = "file" if stop.token.kind is TokenKind.END else "line"
    message = f"unfinished: expected {describe(stop.accepts)} before the end of the {end}"
    return Diagnostic("unfinished-line", message, stop.after(stop.previous), _form(stop))


def _assignment(stop: Stop) -> Diagnostic | None:
    words = [token.text for token in stop.tokens if stop.line(token) == stop.line(stop.token)]
    if words[0] == "verify" and words[-1] in ("=", "==") and "~" not in words:
        message = f"`verify` compares within a tolerance, without `{words[-1]}`"
        return Diagnostic("syntax", message, stop.span(stop.token), f"write `~`; the form is `{FORMS['verify']}`")
    # The accepted tokens do not help here: the parser closed the expression before it rejected `=`.
    if stop.token.text == "=" and not stop.accepts & {":", "in", "of", "with", "(", "->"}:
        return Diagnostic("syntax", "`=` defines a name and does not compare", stop.span(stop.token), "write `==`")
    return None


def _chained(stop: Stop) -> Diagnostic | None:
    """`a < b < c`: comparisons do not chain."""
    operators = {"==", "!=", "<", "<=", ">", ">="}
    if stop.token.text in operators and "&&" in stop.accepts:
        help = "write `a < b && b < c`"
        return Diagnostic("syntax", "comparisons do not chain", stop.span(stop.token), help)
    return None


def _reserved(stop: Stop) -> Diagnostic | None:
    word = stop.token.text
    if (
        stop.token.kind is not TokenKind.WORD
        or word not in RESERVED
        or "NAME" not in stop.accepts
        or stop.between_items
    ):
        return None
    if word in ("send", "recv") and stop.previous is not None and stop.previous.text == "mpi":
        help = "write both ends of a message: `NAME : mpi exchange { send A to RANK recv B from RANK }`"
        return Diagnostic("reserved-word", f"`{word}` is not an op", stop.span(stop.token), help)
    if word == "until" and stop.previous is not None and stop.previous.text == "repeat":
        help = "write how often at most: `dag repeat 1_000 until ...`"
        return Diagnostic("bad-until", "a repetition that may never end", stop.span(stop.token), help)
    return _not_a_name(stop, stop.token, describe(stop.accepts))


def _not_a_name(stop: Stop, word: Token, needed: str) -> Diagnostic:
    message = f"`{word.text}` is a reserved word, and {needed} is needed here"
    help = f"choose another name, for example `{word.text}_`"
    return Diagnostic("reserved-word", message, stop.span(word), help)


def _missing_colon(stop: Stop) -> Diagnostic | None:
    if ":" in stop.accepts and stop.token.kind is TokenKind.WORD and stop.previous is not None:
        message = f"`:` is missing before `{stop.token.text}`"
        return Diagnostic("syntax", message, stop.after(stop.previous), f"write `: {stop.token.text}`")
    return None


def _unexpected(stop: Stop) -> Diagnostic:
    """The general case: the expected tokens, the found one, and the form of the item."""
    token = stop.token
    if token.kind is TokenKind.END:
        shown = "the end of the file"
    elif token.kind in (TokenKind.TEXT, TokenKind.STRING):
        shown = "code" if token.kind is TokenKind.TEXT else "a string"
    else:
        shown = f"`{token.text}`" if len(token.text) <= 40 else f"`{token.text[:36]}...`"
    message = f"expected {describe(stop.accepts)}, found {shown}"
    return Diagnostic("syntax", message, stop.span(token), _form(stop))


_RULES: tuple[Callable[[Stop], Diagnostic | None], ...] = (
    _unterminated,
    _swallowed,
    _bad_character,
    _bad_number,
    _wrong_closer,
    _missing_closer,
    _reserved_op,
    _misplaced,
    _misspelt,
    _without_device,
    _unfinished_line,
    _assignment,
    _chained,
    _reserved,
    _missing_colon,
)

# ---- helpers ------------------------------------------------------------------------------


def _open_brackets(tokens: tuple[Token, ...]) -> list[Token]:
    """The brackets still open after `tokens`, outermost first."""
    out: list[Token] = []
    for t in tokens:
        if t.kind is TokenKind.PUNCT and t.text in _CLOSERS:
            out.append(t)
        elif t.kind is TokenKind.PUNCT and out and t.text == _CLOSERS[out[-1].text]:
            out.pop()
    return out


def _unclosed(stop: Stop, opened: Token) -> Diagnostic:
    closer = _CLOSERS[opened.text]
    message = f"`{opened.text}` without its closing `{closer}`"
    if stop.token.kind is TokenKind.END:
        related: tuple[tuple[Span, str], ...] = ()
    else:
        related = ((stop.span(stop.token), f"`{closer}` is missing before this"),)
    help = f"write `{closer}`"
    if opened.text != "{" and stop.previous is not None:
        help += f" after `{stop.previous.text}`" if len(stop.previous.text) <= 40 else ""
    return Diagnostic("unbalanced", message, stop.span(opened), help, related=related)


def _unclosed_brace(stop: Stop, opened: list[Token]) -> Token:
    """The brace most likely left open, judged by the indentation."""
    stack: list[Token] = []
    for i, t in enumerate(stop.tokens[:-1]):
        if t.text == "{":
            stack.append(t)
        elif t.text == "}" and stack:
            last = stack.pop()
            first = i == 0 or stop.line(stop.tokens[i - 1]) < stop.line(t)
            if first and stop.indent(t) < stop.indent(last):
                return last
    return opened[-1]


def _starts_item(stop: Stop, index: int) -> bool:
    """Whether token `index` is the first of its line, of a block, or after a semicolon."""
    if index == 0:
        return True
    before, this = stop.tokens[index - 1], stop.tokens[index]
    return before.text in ("{", "}", ";") or stop.source.line_column(before.end)[0] < stop.line(this)


def _form(stop: Stop) -> str:
    """The form of the item that `token` is in, or ends."""
    depth = 0
    for index in range(len(stop.tokens) - 2, -1, -1):
        t = stop.tokens[index]
        if t.text in (")", "]"):
            depth += 1
        elif t.text in ("(", "["):
            depth = max(0, depth - 1)
        elif depth == 0 and t.kind is TokenKind.WORD and _starts_item(stop, index):
            return f"the form is `{FORMS.get(t.text, OPERATION)}`"
    return ""
