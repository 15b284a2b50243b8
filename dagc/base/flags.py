"""The flags that the user adds to every compilation."""

from __future__ import annotations

import os
import shlex

from dagc.base.errors import UsageError

_LONGEST = 1 << 18  # characters: shlex takes 1 s for one word of this length, and time quadratic in it


def flags_variable(cuda: bool) -> str:
    """The environment variable with the user's flags for every compilation."""
    return "DAGC_NVCCFLAGS" if cuda else "DAGC_CXXFLAGS"


def split_words(text: str) -> list[str]:
    """As a shell does. Raises ValueError for a quote without its end, a backslash before nothing, more than 262144
    characters."""
    if len(text) > _LONGEST:
        raise ValueError(f"more than {_LONGEST} characters")
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
