"""C++ names for display names: `pack[x,lo]` becomes `pack_x_lo`."""

from __future__ import annotations

from collections.abc import Iterable

from dagc.cxx_words import KEYWORDS

# What the C library has, that a kernel with C linkage must not be named after; the common short names.
_LIBRARY = frozenset(
    """abs acos asin atan atan2 atof atoi atol calloc cbrt ceil clock close connect copysign cos cosh div dup erf erfc
    exit exp exp2 expm1 fabs fdim floor fma fmax fmin fmod free frexp gamma getenv hypot ilogb index isnan j0 j1 jn
    kill ldexp ldiv lgamma link log log10 log1p log2 logb lrint lround malloc memcpy memmove memset modf nan nearbyint
    open pause pipe pow printf puts qsort raise rand random read realloc remainder remove remquo rename rindex rint
    round scalbn select send recv signal sin sinh sleep sort sqrt srand stat strlen sync system tan tanh tgamma time
    times trunc unlink wait write y0 y1 yn main std dim3 uint3 size_t EOF FILE assert errno stderr stdin
    stdout""".split()
)
# What CUDA and MPI declare begins so; a member or kernel of such a name would hide it.
_FOREIGN = ("cuda", "MPI_")


def mangle(display: str) -> str:
    """`pack[x,lo]` -> `pack_x_lo`, `A.to_device` -> `A_to_device`. Not yet unique."""
    return display.translate({ord("["): "_", ord(","): "_", ord("."): "_", ord("]"): None})


class Names:
    """Hands out C++ names, each once. A name that is taken, or that C++ keeps for itself, gets underscores."""

    def __init__(self, taken: Iterable[str] = (), *, library: bool = False) -> None:
        self._taken = set(taken) | KEYWORDS | (_LIBRARY if library else frozenset())

    def new(self, display: str) -> str:
        name = mangle(display)
        if name.startswith(_FOREIGN):
            name += "_"
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name
