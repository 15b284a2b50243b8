"""C++ names for display names: `pack[x,lo]` becomes `pack_x_lo`."""

from __future__ import annotations

from collections.abc import Iterable

from dagc.cxx_words import KEYWORDS
from dagc.cxx_words_global import is_global, is_macro


def mangle(display: str) -> str:
    """`pack[x,lo]` -> `pack_x_lo`, `A.to_device` -> `A_to_device`. Not yet unique."""
    return display.translate({ord("["): "_", ord(","): "_", ord("."): "_", ord("]"): None})


class Names:
    """Hands out C++ names, each once. A name that is taken, or that C++ keeps for itself, gets underscores.

    With `library`, names are those of functions in the global namespace: kernels of C linkage.
    """

    def __init__(self, taken: Iterable[str] = (), *, library: bool = False) -> None:
        self._taken = set(taken) | KEYWORDS
        self._kept = is_global if library else is_kept_from_members

    def new(self, display: str) -> str:
        name = mangle(display)
        if self._kept(name):
            name += "_"
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name


def is_kept_from_members(name: str) -> bool:
    """What no member of a struct may be named: a macro, or what CUDA and MPI declare, which it would hide."""
    return is_macro(name) or name.startswith(("cuda", "MPI_"))
