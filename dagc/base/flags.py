"""The flags that the user adds to every compilation."""

from __future__ import annotations

import os
import shlex

from dagc.base.errors import UsageError

LONGEST = 1 << 18  # characters of a text of flags: the time of shlex is quadratic in the length of a word, 1 s here


def flags_variable(cuda: bool) -> str:
    """The environment variable with the user's flags for every compilation."""
    return "DAGC_NVCCFLAGS" if cuda else "DAGC_CXXFLAGS"


def split_words(text: str) -> list[str]:
    """As a shell does. Raises ValueError for a quote without its end, a backslash before nothing, more than LONGEST
    characters."""
    if len(text) > LONGEST:
        raise ValueError(f"more than {LONGEST} characters")
    return shlex.split(text)


def user_flags(cuda: bool) -> list[str]:
    """The flags in that variable. Raises UsageError where they cannot be split."""
    name = flags_variable(cuda)
    text = os.environ.get(name, "")
    try:
        return split_words(text)
    except ValueError as error:
        why = f"{name} cannot be split into words: {error} in {text!a:.200}"
        raise UsageError(why, "close the quote: the text is split into words as by a shell") from None
