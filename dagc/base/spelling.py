"""The known word that a misspelt one may mean."""

# ruff: noqa: RUF071 (words, not paths, have a common prefix)

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest
from os.path import commonprefix


class Spelling:
    """Suggests words, for the first 50 that are unknown, each compared with at most 100: a generated program may have
    thousands of both, and to compare two of them takes 0.1 ms."""

    def __init__(self) -> None:
        self._left = 50
        self._asked: dict[tuple[str, str], str] = {}

    def near(self, word: str, known: Iterable[str], kind: str = "") -> str:
        """The nearest of the known words; "" if none is near. The same word of the same kind is looked up once."""
        if (word, kind) not in self._asked:
            if not self._left or len(word) > 200:
                return ""
            self._left -= 1
            self._asked[word, kind] = _nearest(word, set(known))
        return self._asked[word, kind]


def _nearest(word: str, known: set[str]) -> str:
    from difflib import get_close_matches  # only needed after an error

    likely = [k for k in known if 2 * len(k) <= 5 * len(word) and 2 * len(word) <= 5 * len(k)]
    if len(likely) > 100:
        likely = nlargest(100, likely, key=lambda k: (_shared(word, k), k))
    near = get_close_matches(word, sorted(likely), n=1, cutoff=0.6)
    return near[0] if near else ""


def _shared(a: str, b: str) -> int:
    """How many characters two words have in common at their beginnings and ends."""
    return len(commonprefix((a, b))) + len(commonprefix((a[::-1], b[::-1])))
