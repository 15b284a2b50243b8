"""C++ names for display names: `pack[x,lo]` becomes `pack_x_lo`."""

from __future__ import annotations

from collections.abc import Iterable

_KEYWORDS = frozenset(
    """alignas alignof and asm auto bitand bitor bool break case catch char class compl concept const consteval
    constexpr constinit continue co_await co_return co_yield decltype default delete do double dynamic_cast else enum
    explicit export extern false float for friend goto if inline int long mutable namespace new noexcept not nullptr
    operator or private protected public register reinterpret_cast requires return short signed sizeof static
    static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename union
    unsigned using virtual void volatile wchar_t while xor NULL""".split()
)
# Functions of the C library that a kernel with C linkage must not be named after; the common short ones.
_LIBRARY = frozenset(
    """abs acos asin atan atan2 atof atoi atol calloc cbrt ceil clock close connect copysign cos cosh div dup erf erfc
    exit exp exp2 expm1 fabs fdim floor fma fmax fmin fmod free frexp gamma getenv hypot ilogb index isnan j0 j1 jn
    kill ldexp ldiv lgamma link log log10 log1p log2 logb lrint lround malloc memcpy memmove memset modf nan nearbyint
    open pause pipe pow printf puts qsort raise rand random read realloc remainder remove remquo rename rindex rint
    round scalbn select send recv signal sin sinh sleep sort sqrt srand stat strlen sync system tan tanh tgamma time
    times trunc unlink wait write y0 y1 yn main""".split()
)


def mangle(display: str) -> str:
    """`pack[x,lo]` -> `pack_x_lo`, `A.to_device` -> `A_to_device`. Not yet unique."""
    return display.translate({ord("["): "_", ord(","): "_", ord("."): "_", ord("]"): None})


class Names:
    """Hands out C++ names, each once. A name that is taken, or that C++ keeps for itself, gets underscores."""

    def __init__(self, taken: Iterable[str] = (), *, library: bool = False) -> None:
        self._taken = set(taken) | _KEYWORDS | (_LIBRARY if library else frozenset())

    def new(self, display: str) -> str:
        name = mangle(display)
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name
