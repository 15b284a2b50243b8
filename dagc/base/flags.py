"""The flags that the user adds to every compilation."""

from __future__ import annotations

import os
import shlex

from dagc.base.errors import UsageError


def flags_variable(cuda: bool) -> str:
    """The environment variable with the user's flags for every compilation."""
    return "DAGC_NVCCFLAGS" if cuda else "DAGC_CXXFLAGS"


def user_flags(cuda: bool) -> list[str]:
    """The flags in that variable. Raises UsageError for a quote without its end."""
    name = flags_variable(cuda)
    text = os.environ.get(name, "")
    try:
        return shlex.split(text)
    except ValueError as error:
        why = f"{name} cannot be split into words: {error} in {text!r}"
        raise UsageError(why, "close the quote: the text is split into words as by a shell") from None
