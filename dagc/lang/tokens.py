"""The words of the language, and what each of its items looks like."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from itertools import islice

# ---- words of a text ----


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
    BAD = "bad"  # a character that means nothing here
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """`text` is text[start:end] of what was scanned."""

    kind: TokenKind
    text: str
    start: int
    end: int


# The words that cannot be names: all keywords of grammar/dag.lark but those in FREE (a test compares them).
FREE = frozenset(("device", "host", "pinned", "grid", "block", "shared", "explicit", "equal"))
_RESERVED = (
    "program param over let enum scalar array on const in out inout part of tune require feature cost select with "
    "kernel gpu cpu any mpi dag link launch cuda cpp from repeat until exchange stream send recv to counts before "
    "edges for if else setup verify rtol nan include true false"
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
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<punct>->|\.\.|\|\||&&|[=!<>]=|[{}()\[\],:;=~?<>+\-*/%!.])
    |(?P<bad>[\s\S])""",
    re.VERBOSE,
)


def unix_lines(text: str) -> str:
    """Line ends of any system to those of one."""
    return re.sub(r"\r+\n", "\n", text)


def scan(text: str) -> list[Token]:
    """Every token of any text at all, in order, without white space and without an end token."""
    out = []
    for match in _TOKEN.finditer(text):
        if match.lastgroup != "space":
            assert match.lastgroup is not None  # every alternative has a name
            out.append(Token(TokenKind(match.lastgroup), match.group(), match.start(), match.end()))
    return out


def word_beyond(text: str, most: int) -> int | None:
    """The offset of the token after the first `most`, None where there are no more."""
    if len(text) <= most:
        return None
    tokens = (match.start() for match in _TOKEN.finditer(text) if match.lastgroup not in ("space", "comment"))
    return next(islice(tokens, most, None), None)


# ---- what items look like ----


FORMS = {
    "program": "program NAME",
    "param": "param NAME : TYPE = VALUE [over RANGE]",
    "let": "let NAME = VALUE",
    "enum": "enum NAME {LABEL, ...}",
    "scalar": "scalar NAME, ... : TYPE",
    "array": "array NAME, ... : TYPE[SIZE, ...] [on PLACE] [ROLE]",
    "part": "part NAME of ARRAY[FROM .. TO]",
    "tune": "tune NAME in {VALUE, ...}",
    "require": "require CONDITION",
    "feature": "feature NAME [cost ELEMENTS] = EXPRESSION",
    "select": "select NAME, ... with METHOD(ARGUMENT, ...)",
    "kernel": "kernel NAME(FORMAL : MODE TYPE[SIZE], ...) {...}",
    "gpu": "gpu [NAME] {...}",
    "cpu": "cpu [NAME] {...}",
    "link": 'link "LIBRARY", ...',
    "launch": "launch grid(BLOCKS, ...) block(THREADS, ...) [shared(BYTES)]",
    "cuda": 'cuda """CODE""" or cuda FUNCTION from "FILE"',
    "cpp": 'cpp """CODE""" or cpp FUNCTION from "FILE"',
    "dag": "dag [repeat TIMES [until ARRAY]] {...} or dag NAME(FORMAL, ...) {...}",
    "send": "send ARRAY to RANK [counts ARRAY] recv ARRAY from RANK [counts ARRAY]",
    "edges": "edges explicit",
    "for": "for NAME in RANGE, ... {...}",
    "if": "if CONDITION {...} [else {...}]",
    "setup": 'setup "FILE.py" FUNCTION(ARGUMENT, ...)',
    "verify": "verify ARRAY ~ FUNCTION(ARGUMENT, ...) rtol NUMBER [nan equal]",
    "include": 'include "FILE.dag"',
}
OPERATION = "NAME : gpu KERNEL(ARGUMENT, ...) (or cpu, any, dag, mpi), or A -> B"

# Where an item belongs that cannot stand where it was found.
PLACES = {
    "program": "at the top of the file",
    "launch": "inside an implementation, `gpu {...}`",
    "link": "inside an implementation, `gpu {...}` or `cpu {...}`",
    "gpu": "inside a kernel",
    "cpu": "inside a kernel",
    "else": "right after the block of an `if`",
    "explicit": "after `edges`",
    "over": "after the value of a `param`",
    "recv": "after the `send` of the same message",
    "stream": "after the call of a `gpu` operation",
}
