"""The flags that the user adds to every compilation."""

from __future__ import annotations

import os
import re

from dagc.base.errors import UsageError

_PIECE = re.compile(r"""[^ \t\r\n'"\\]+|'[^']*'|"(?:[^"\\]|\\.)*"|\\.|[ \t\r\n]+""", re.DOTALL)


def flags_variable(cuda: bool) -> str:
    """The environment variable with the user's flags for every compilation."""
    return "DAGC_NVCCFLAGS" if cuda else "DAGC_CXXFLAGS"


def split_words(text: str) -> list[str]:
    """As `shlex.split`, whose time is quadratic in the length of a word. Raises ValueError for a quote without its end
    or a backslash before nothing."""
    words: list[list[str]] = [[]]
    at = 0
    while at < len(text):
        piece = _PIECE.match(text, at)
        if piece is None:
            raise ValueError("No escaped character" if text[at] == "\\" else "No closing quotation")
        at, found = piece.end(), piece[0]
        if found.isspace():
            words.append([])
        elif found[0] == '"':
            words[-1].append(re.sub(r'\\(["\\])', r"\1", found[1:-1]))
        else:
            words[-1].append(found[1:-1] if found[0] == "'" else found.removeprefix("\\"))
    return ["".join(word) for word in words if word]


def user_flags(cuda: bool) -> list[str]:
    """The flags in that variable. Raises UsageError for a quote without its end."""
    name = flags_variable(cuda)
    text = os.environ.get(name, "")
    try:
        return split_words(text)
    except ValueError as error:
        why = f"{name} cannot be split into words: {error} in {text!r}"
        raise UsageError(why, "close the quote: the text is split into words as by a shell") from None
